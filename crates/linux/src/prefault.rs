//! Fault-ahead: threads that zero and map huge pages before their program gets there.
//!
//! One-way: BPF tells where processes touch new memory (`frontier`), the predictor of the policy crate says what
//! comes next (asked by `filler`), and it is filled (`fill`), by that thread or by workers (`pool`). The manager says who is followed and how much room there is.
//!
//! Read `filler.rs` first, the deciding thread; then `frontier.rs` (reports from BPF), `pool.rs` (threads
//! that fill) and `fill.rs` (the two ways to fill).

pub(crate) mod following;
pub mod learned;

mod attention;
mod calls;
mod fill;
mod filler;
mod frontier;
mod known;
mod limits;
mod muted;
mod pool;
mod spare_core;
#[cfg(test)]
mod stuck_target;
mod warm;
mod worker;

use crate::error::{LinuxError, Result};
use crate::processes::process::ProcessHandle;
use crate::sample::page_tables::Target;
use filler::Filler;
pub(crate) use frontier::Frontier;
use frontier::Watchlist;
use hawkeye_policy::fault_ahead::FillThreads;
use hawkeye_policy::{ProcessId, Rate};
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the end of the filler's threads is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillStatistics {
    /// Regions filled.
    pub filled: u64,
    /// Regions that could not be.
    pub refused: u64,
    /// Regions that are filled ahead of streams at the moment, at the most.
    pub ahead: u64,
    /// Regions that were filled ahead of streams that ended before they came to them, at the most. Recovery takes
    /// them back where memory gets short.
    pub unused: u64,
    /// CPU time it took, of all threads and their helper processes.
    pub cpu: Duration,
    /// That of the helpers alone, which is none of this process's.
    pub helper_cpu: Duration,
    /// The longest single fill.
    pub longest: Duration,
}

/// The filler, until it is dropped.
pub struct FaultAhead {
    // Detached from the kernel by the thread, at its end.
    thread: Running,
    watchlist: Watchlist,
}

/// The filler while it loads what it needs into the kernel, which takes about as long as all else at a start.
pub struct Starting {
    thread: Running,
    told: Receiver<Result<Watchlist>>,
}

/// The filler's thread; ended when dropped.
struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the manager's thread and the filler's share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    followed: Mutex<HashMap<ProcessId, Followed>>,
    filled: AtomicU64,
    refused: AtomicU64,
    ahead: AtomicU64,
    unused: AtomicU64,
    cpu_ns: AtomicU64,
    helper_cpu_ns: AtomicU64,
    longest_ns: AtomicU64,
}

#[derive(Clone)]
struct Followed {
    handle: Arc<ProcessHandle>,
    room_regions: u64,
    /// Filled since the manager last asked.
    filled_regions: u64,
    /// Asked for, and not yet told to the predictor.
    warm_regions: u64,
}

impl Shared {
    fn followed(&self) -> MutexGuard<'_, HashMap<ProcessId, Followed>> {
        // Nothing in it can be half done.
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultAhead {
    /// File descriptors that each process takes that is followed.
    pub const DESCRIPTORS: usize = ProcessHandle::DESCRIPTORS + Target::DESCRIPTORS;

    /// Starts the filler; it follows nobody yet. `rate`: regions per second at the most; `threads`: how many fill,
    /// `None`: as many as there are spare cores.
    ///
    /// # Errors
    /// First touches can't be watched on this machine.
    pub fn start(rate: Option<Rate>, threads: Option<FillThreads>) -> Result<Self> {
        Self::begin(rate, threads)?.ready()
    }

    /// Begins to start it.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn begin(rate: Option<Rate>, threads: Option<FillThreads>) -> Result<Starting> {
        let threads = threads.unwrap_or_else(|| {
            let cores = std::thread::available_parallelism();
            FillThreads::beside_a_program(cores.map_or(1, NonZero::get))
        });
        let shared = Arc::new(Shared::default());
        let (tell, told) = mpsc::channel();
        let for_filler = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("hawkeye-fill".into())
            .spawn(move || {
                // What is loaded here stays here: BPF's buffers belong to one thread.
                match Filler::new(for_filler, rate, threads) {
                    Ok((mut filler, watchlist)) => {
                        if tell.send(Ok(watchlist)).is_ok() {
                            filler.run();
                        }
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                    }
                }
            })
            .map_err(|error| LinuxError::Bpf(format!("starting the filler's thread: {error}")))?;
        let thread = Running {
            shared,
            thread: Some(thread),
        };
        Ok(Starting { thread, told })
    }

    /// Follows a process from now on, with no room yet; `warm_regions` of its large mappings are filled as
    /// soon as they are there.
    ///
    /// # Errors
    /// It is gone, or there are too many.
    pub fn follow(&self, pid: u32, warm_regions: u64) -> Result<()> {
        let handle = Arc::new(ProcessHandle::open(pid)?);
        let process = handle.id;
        let followed = Followed {
            handle,
            room_regions: 0,
            filled_regions: 0,
            warm_regions,
        };
        self.watchlist.add(pid)?;
        self.thread.shared.followed().insert(process, followed);
        Ok(())
    }

    /// Who is followed.
    pub fn followed(&self) -> Vec<ProcessId> {
        self.thread.shared.followed().keys().copied().collect()
    }

    /// Follows a process no longer.
    pub fn leave(&self, process: ProcessId) {
        self.watchlist.remove(process.pid);
        self.thread.shared.followed().remove(&process);
    }

    /// Regions filled ahead of a process since this was last asked.
    pub fn take_filled(&self, process: ProcessId) -> u64 {
        let mut followed = self.thread.shared.followed();
        let one = followed.get_mut(&process);
        one.map_or(0, |one| std::mem::take(&mut one.filled_regions))
    }

    /// How much may be filled ahead of a process from now on, in regions.
    pub fn set_room(&self, process: ProcessId, regions: u64) {
        if let Some(followed) = self.thread.shared.followed().get_mut(&process) {
            followed.room_regions = regions;
        }
    }

    /// What was done so far.
    pub fn statistics(&self) -> FillStatistics {
        let time = |ns: &AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
        FillStatistics {
            filled: self.thread.shared.filled.load(Ordering::Relaxed),
            refused: self.thread.shared.refused.load(Ordering::Relaxed),
            ahead: self.thread.shared.ahead.load(Ordering::Relaxed),
            unused: self.thread.shared.unused.load(Ordering::Relaxed),
            cpu: time(&self.thread.shared.cpu_ns),
            helper_cpu: time(&self.thread.shared.helper_cpu_ns),
            longest: time(&self.thread.shared.longest_ns),
        }
    }
}

impl Starting {
    /// Waits until it has started.
    ///
    /// # Errors
    /// First touches can't be watched on this machine.
    pub fn ready(self) -> Result<FaultAhead> {
        let ended = |_| Err(LinuxError::Bpf("the filler's thread ended".into()));
        let watchlist = self.told.recv().unwrap_or_else(ended)?;
        Ok(FaultAhead {
            thread: self.thread,
            watchlist,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return;
        };
        // While it loads its programs, or has no core, it takes long.
        let deadline = Instant::now() + PATIENCE;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // It panicked: nothing is left to stop.
            let _ = thread.join();
        }
    }
}
