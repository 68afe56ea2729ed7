//! Free memory that is fragmented for as long as this lives.

use crate::error::BenchError;
use crate::live::host::Host;
use hawkeye_workload::{Event, Workload};
use std::path::Path;
use std::time::Duration;

/// The workload `fragment`. What it holds can be moved: huge pages can be had, but compaction has to make each of them. Nobody does so
/// unasked: what starts meanwhile has base pages, and is slowed down by no compaction but its own promotions'.
pub struct Fragmented {
    _workload: Workload,
}

/// The least share of free memory in blocks smaller than a huge page that counts as fragmented (0-1).
const LEAST_FMFI: f64 = 0.7;

/// How eager the kernel is to make huge pages before anybody wants them; 0 is not at all. 5.9 and later (`mm/compaction.c`).
const UNASKED: &str = "/proc/sys/vm/compaction_proactiveness";

/// Filling all of memory takes a while.
const AT_MOST: Duration = Duration::from_secs(120);

impl Fragmented {
    /// Fragments what is free, but for 256 MiB, without which this or somebody else would be killed.
    ///
    /// # Errors
    /// It can't be done here.
    pub fn new(host: &mut Host) -> Result<Self, BenchError> {
        let unasked = Path::new(UNASKED);
        if unasked.exists() {
            host.set_file(unasked, "0")?;
        }
        let mut workload = host.start("fragment --fmfi 1 --spare-mib 256")?;
        loop {
            if let Event::Fragmented { fmfi, .. } = workload.next_event(AT_MOST)? {
                if fmfi < LEAST_FMFI {
                    return Err(BenchError::Impossible(format!(
                        "free memory could be fragmented to {fmfi:.2} only"
                    )));
                }
                return Ok(Self {
                    _workload: workload,
                });
            }
        }
    }

    /// Gives the memory back, and has the kernel make huge pages unasked again, as eagerly as it does here.
    ///
    /// # Errors
    /// The setting can't be changed.
    pub fn end(self, host: &mut Host) -> Result<(), BenchError> {
        host.put_back(Path::new(UNASKED))
    }
}
