//! Population where page tables can't be read by BPF: `smaps` and `pagemap`, by a thread of its own.
//!
//! Both take the process's `mmap_lock` and are slow: the loop does not wait for them.

use crate::error::LinuxError;
use crate::mappings::{self, Eligible};
use crate::pagemap;
use hawkeye_policy::RegionSample;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// A process that was not read by then is passed over for now.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the loop does something else before it asks again.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(5);

/// Mappings, and the regions in them.
pub(super) type Population = (Eligible, Vec<RegionSample>);

/// A reading under way.
#[derive(Debug)]
pub(super) struct PopulationReading {
    answer: Receiver<Result<Population, LinuxError>>,
    /// When the loop began to ask.
    asked: Option<Instant>,
}

impl PopulationReading {
    /// Begins to read a process.
    pub(super) fn begin(pid: u32) -> Self {
        let (sender, answer) = sync_channel(1);
        thread::spawn(move || {
            // The process, or the manager, may be gone by then.
            let _ = sender.send(read(pid));
        });
        Self {
            answer,
            asked: None,
        }
    }

    /// What was read; `None` if it is still being read.
    ///
    /// # Errors
    /// It can't be read, or the loop has asked for a second: the next time may be better.
    pub(super) fn poll(&mut self, pid: u32) -> Result<Option<Population>, LinuxError> {
        match self.answer.try_recv() {
            Ok(read) => read.map(Some),
            Err(TryRecvError::Disconnected) => Err(LinuxError::NoSuchProcess(pid)),
            Err(TryRecvError::Empty) => {
                let asked = *self.asked.get_or_insert_with(Instant::now);
                if asked.elapsed() < PATIENCE {
                    return Ok(None);
                }
                self.asked = None;
                Err(LinuxError::NotAnswering(pid))
            }
        }
    }
}

fn read(pid: u32) -> Result<Population, LinuxError> {
    let eligible = mappings::eligible(&pagemap::mappings(pid)?);
    let regions = pagemap::population(pid, &eligible.ranges)?;
    Ok((eligible, regions))
}
