//! What happens to a machine from outside: programs that change their ways, and faults.

use crate::error::SimError;
use crate::machine::SimMachine;
use crate::spec::{check_pages, check_weight};
use hawkeye_policy::{Errno, ProcessId};
use std::time::Duration;

/// Something that happens at a given time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// A process uses this many base pages (0-512) in each region of a part from now on: it writes
    /// to those that are new, and frees those that are not needed any more (`MADV_DONTNEED`), which
    /// splits a huge page.
    Use {
        /// Whose.
        process: ProcessId,
        /// Index of the part in its specification.
        part: usize,
        /// Base pages in use per region.
        pages: u16,
    },
    /// The weight of a part among the process's accesses (at least 0).
    Weigh {
        /// Whose.
        process: ProcessId,
        /// Index of the part in its specification.
        part: usize,
        /// The new weight.
        weight: f64,
    },
    /// A process ends.
    Exit {
        /// Which.
        process: ProcessId,
    },
    /// Memory pressure from now on (PSI "some avg10", in per cent); `None`: the kernel has no PSI.
    Pressure {
        /// In per cent.
        percent: Option<f64>,
    },
    /// What the machine says of the fragmentation of free memory from now on (free memory
    /// fragmentation index, 0-1); `None`: it can't be found out. Promotions succeed as before.
    Fragmentation {
        /// The index.
        fmfi: Option<f64>,
    },
    /// Memory used by everything that is not simulated, in bytes.
    OtherMemory {
        /// In bytes.
        bytes: u64,
    },
    /// The next promotions are refused.
    FailPromotions {
        /// How many.
        count: u32,
        /// The error's name.
        errno: Errno,
    },
    /// The next promotions wait, whatever comes of them. Waiting takes no CPU time.
    SlowPromotions {
        /// How many.
        count: u32,
        /// How much longer each takes.
        by: Duration,
    },
    /// The next recoveries are refused.
    FailRecoveries {
        /// How many.
        count: u32,
        /// The error's name.
        errno: Errno,
    },
    /// The next times that the state of memory can't be read.
    FailMemory {
        /// How many.
        count: u32,
    },
    /// The next times that a process can't be sampled.
    FailSamples {
        /// How many.
        count: u32,
    },
}

/// Faults that wait for their call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    promotions: u32,
    promotion_errno: Option<Errno>,
    slow: u32,
    slow_by: Duration,
    recoveries: u32,
    recovery_errno: Option<Errno>,
    memory: u32,
    samples: u32,
}

fn take(count: &mut u32) -> bool {
    let taken = *count > 0;
    *count = count.saturating_sub(1);
    taken
}

impl Faults {
    pub(crate) fn promotion(&mut self) -> Option<Errno> {
        take(&mut self.promotions)
            .then_some(self.promotion_errno)
            .flatten()
    }

    pub(crate) fn waiting(&mut self) -> Duration {
        if take(&mut self.slow) {
            self.slow_by
        } else {
            Duration::ZERO
        }
    }

    pub(crate) fn recovery(&mut self) -> Option<Errno> {
        take(&mut self.recoveries)
            .then_some(self.recovery_errno)
            .flatten()
    }

    pub(crate) fn memory(&mut self) -> bool {
        take(&mut self.memory)
    }

    pub(crate) fn sample(&mut self) -> bool {
        take(&mut self.samples)
    }
}

impl SimMachine {
    /// Lets something happen at `at`. Of changes at one time the first that was given comes first.
    ///
    /// # Errors
    /// A process or part that doesn't exist, a value out of range, a time in the past or before the
    /// process arrives.
    pub fn schedule(&mut self, at: Duration, change: Change) -> Result<(), SimError> {
        let process = match change {
            Change::Use {
                process,
                part,
                pages,
            } => {
                check_pages(pages)?;
                Some((process, Some(part)))
            }
            Change::Weigh {
                process,
                part,
                weight,
            } => {
                check_weight(weight)?;
                Some((process, Some(part)))
            }
            Change::Exit { process } => Some((process, None)),
            _ => None,
        };
        let mut earliest = self.now;
        if let Some((process, part)) = process {
            let there = self.process(process).ok_or(SimError::Process(process))?;
            earliest = earliest.max(there.arrives());
            if let Some(part) = part.filter(|part| *part >= there.parts()) {
                return Err(SimError::Part { process, part });
            }
        }
        if at < earliest {
            return Err(SimError::Time { at });
        }
        self.scheduled.entry(at).or_default().push(change);
        Ok(())
    }

    /// The next `count` promotions are refused with `errno`.
    pub fn fail_next_promotions(&mut self, count: u32, errno: Errno) {
        self.apply(Change::FailPromotions { count, errno });
    }

    /// The next `count` promotions take longer by `by`.
    pub fn slow_next_promotions(&mut self, count: u32, by: Duration) {
        self.apply(Change::SlowPromotions { count, by });
    }

    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Use {
                process,
                part,
                pages,
            } => self.use_pages(process, part, pages),
            Change::Weigh {
                process,
                part,
                weight,
            } => {
                if let Some(process) = self.alive_mut(process) {
                    process.weigh(part, weight);
                }
            }
            Change::Exit { process } => self.exit(process),
            Change::Pressure { percent } => self.pressure_percent = percent,
            Change::Fragmentation { fmfi } => self.fmfi = fmfi,
            Change::OtherMemory { bytes } => self.other_bytes = bytes,
            Change::FailPromotions { count, errno } => {
                self.faults.promotions = count;
                self.faults.promotion_errno = Some(errno);
            }
            Change::SlowPromotions { count, by } => {
                self.faults.slow = count;
                self.faults.slow_by = by;
            }
            Change::FailRecoveries { count, errno } => {
                self.faults.recoveries = count;
                self.faults.recovery_errno = Some(errno);
            }
            Change::FailMemory { count } => self.faults.memory = count,
            Change::FailSamples { count } => self.faults.samples = count,
        }
    }
}
