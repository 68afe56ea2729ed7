//! The state of free memory in which an experiment starts a program.

use super::prelude::*;

/// State of free memory when a program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeMemory {
    /// A filler has touched as much as the program needs, and has exited right before. Free memory
    /// is not reported to the hypervisor.
    Backed,
    /// Nothing has touched it for [`LONG_FREE`], and the kernel reports it to the hypervisor, which
    /// may take it back.
    LongFree,
}

/// Free page reporting begins two seconds after memory was freed (mm/page_reporting.c) and takes
/// some rounds.
const LONG_FREE: Duration = Duration::from_secs(30);

impl FreeMemory {
    pub(super) const ALL: [Self; 2] = [Self::Backed, Self::LongFree];

    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Backed => "memory backed",
            Self::LongFree => "memory long free",
        }
    }

    /// Brings free memory into this state, for a program that needs `bytes`.
    pub(super) fn prepare(self, host: &mut BenchHost, bytes: u64) -> BenchResult<()> {
        match self {
            Self::Backed => {
                host.stop_free_page_reporting()?;
                host.touch_memory_once(bytes)
            }
            Self::LongFree => {
                host.restore_free_page_reporting()?;
                std::thread::sleep(LONG_FREE);
                Ok(())
            }
        }
    }

    /// How it is brought about, for a note.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Backed => {
                "Before each start a filler touches as much memory as the program needs, and exits. The kernel does not report free memory to the hypervisor, so that a manager finds it backed, too, however long it takes to start."
                    .into()
            }
            Self::LongFree => format!(
                "Before each start nothing touches memory for {} s, in which the kernel reports free memory to the hypervisor, where there is one that takes it back.",
                LONG_FREE.as_secs()
            ),
        }
    }
}
