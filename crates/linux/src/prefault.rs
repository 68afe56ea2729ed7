//! Prefault: threads zero and map huge pages before the program touches them.
//!
//! ```text
//!  fault_trace: BPF reports first touches --+
//!  warm_start: mappings that are new -------+--> prefault_loop <--> PrefaultPredictor (policy)
//!                                                 |         ^       what comes next
//!                                     PrefaultJob |         | PrefaultOutcome
//!                                                 v         |
//!                                               prefault_thread_pool --> prefault_region
//! ```
//!
//! Read [`Prefaulter`] first: through it the manager sets which processes are followed, and how
//! much may be filled. Then read `PrefaultLoop::run`, and [`hawkeye_policy::prefault`] for the
//! decisions. Five files hold fills or reports back: `fill_backoff`,
//! `prefault_rate_and_memory_limit`, `spare_core_throttle`, `suppressed_processes` and
//! `trace_backoff`.

pub mod profile_store;

mod cached_mappings;
mod fault_trace;
mod fill_backoff;
mod prefault_helper_calls;
mod prefault_loop;
mod prefault_rate_and_memory_limit;
mod prefault_region;
mod prefault_thread_pool;
mod spare_core_throttle;
mod suppressed_processes;
mod trace_backoff;
mod warm_start;

use crate::error::{LinuxError, Result};
use crate::memory::cgroup_limits::process_cgroup::ProcessCgroup;
use crate::mutex::lock;
use crate::processes::managed_processes::ManagedProcesses;
use crate::processes::process::{ProcessHandle, calling_thread_cpu_time, thread_cpu_time};
use crate::sample::page_table_reader::ProcessBpfLinks;
pub(crate) use fault_trace::FaultTrace;
use fault_trace::FaultTraceWatchlist;
use hawkeye_policy::prefault::PrefaultThreadCount;
use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId, RatePerSecond};
use prefault_loop::PrefaultLoop;
use profile_store::{ProfileRecorder, ProgramProfile};
use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a drop waits for the filler's threads to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the filler fills less than it could, or nothing, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefaultDelayReason {
    /// Other programs want every core.
    NoSpareCore,
    /// A call took long.
    LongCall,
    /// The limit of regions per second.
    Rate,
}

/// What the filler has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefaultStatistics {
    /// Regions filled.
    pub filled: u64,
    /// Regions that could not be filled.
    pub refused: u64,
    /// Regions filled ahead of streams at the moment, at most.
    pub ahead: u64,
    /// Regions filled ahead of streams that ended before they reached them, at most. Recovery takes
    /// them back when memory gets short.
    pub unused: u64,
    /// How often a thread paused because other programs wanted every core, or all fills because
    /// a call took long.
    pub pauses: u64,
    /// CPU time used by all threads and their helper processes.
    pub cpu: Duration,
    /// CPU time of the helpers alone, which does not count as this process's.
    pub helper_cpu: Duration,
    /// The longest single fill.
    pub longest: Duration,
    /// The longest call into another process.
    pub longest_call: Duration,
    /// Calls into other processes that took longer than 30 ms.
    pub slow_calls: u64,
    /// Why nothing is filled at the moment, and until when.
    pub delay: Option<(PrefaultDelayReason, Instant)>,
}

/// The running filler. Dropping it stops it.
pub struct Prefaulter {
    // Its thread detaches the BPF programs when it ends.
    thread: PrefaultThread,
    watchlist: FaultTraceWatchlist,
    /// Regions to fill at the start of each process that joins, or more where its rule or its
    /// profile asks for more.
    pub(crate) warm_regions: u64,
}

/// The filler while it loads its BPF programs, which takes about as long as the rest of the
/// manager's start.
pub struct StartingPrefaulter {
    thread: PrefaultThread,
    watchlists: Receiver<Result<FaultTraceWatchlist>>,
}

/// The filler's thread. Dropping it ends the thread.
struct PrefaultThread {
    shared: Arc<PrefaultSharedState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct PrefaultSharedState {
    stop: AtomicBool,
    followed: Mutex<HashMap<ProcessId, FollowedProcess>>,
    done: Mutex<PrefaultStatistics>,
}

#[derive(Clone)]
struct FollowedProcess {
    handle: Arc<ProcessHandle>,
    room_regions: u64,
    /// The cgroup for which there is room; `None`: not known.
    cgroup: Option<ProcessCgroup>,
    /// Fills until that is checked again.
    until_cgroup_check: u32,
    /// Filled since the manager's last call of `take_prefaulted_bytes`.
    filled_regions: u64,
    /// The same of all processes together, which may have the same limit.
    filled_regions_of_all: u64,
    /// Requested, but not yet handed to the predictor.
    warm_regions: u64,
}

impl FollowedProcess {
    /// Fills between two checks of the cgroup.
    const FILLS_PER_CGROUP_CHECK: u32 = 8;

    fn new(handle: ProcessHandle, warm_regions: u64) -> Self {
        Self {
            handle: Arc::new(handle),
            room_regions: 0,
            cgroup: None,
            until_cgroup_check: 0,
            filled_regions: 0,
            filled_regions_of_all: 0,
            warm_regions,
        }
    }

    /// Regions that may be filled now. None in a cgroup of which the manager does not know yet:
    /// some processes are moved after they have started, and the room is that of where they were.
    fn checked_room_regions(&mut self) -> u64 {
        if self.room_regions == 0 {
            return 0;
        }
        match self.until_cgroup_check.checked_sub(1) {
            Some(left) => self.until_cgroup_check = left,
            None => {
                self.until_cgroup_check = Self::FILLS_PER_CGROUP_CHECK - 1;
                let pid = self.handle.id.pid;
                if self.cgroup.as_ref().is_some_and(|cgroup| !cgroup.is_still_of(pid)) {
                    self.room_regions = 0;
                }
            }
        }
        self.room_regions
    }

    /// Room as of the last call of [`Self::take_filled_regions`], less what was filled since.
    fn set_room(&mut self, room_regions: u64, cgroup: Option<ProcessCgroup>) {
        self.room_regions = room_regions.saturating_sub(self.filled_regions_of_all);
        (self.cgroup, self.until_cgroup_check) = (cgroup, 0);
    }

    fn take_filled_regions(&mut self) -> u64 {
        self.filled_regions_of_all = 0;
        std::mem::take(&mut self.filled_regions)
    }

    fn record_fill(&mut self, own: bool) {
        self.room_regions = self.room_regions.saturating_sub(1);
        self.filled_regions += u64::from(own);
        self.filled_regions_of_all += 1;
    }
}

impl Prefaulter {
    /// File descriptors used for each followed process.
    pub const DESCRIPTORS: usize = ProcessHandle::DESCRIPTORS + ProcessBpfLinks::DESCRIPTORS;

    /// Begins to start the filler, which follows no process yet. It fills at most `rate` regions
    /// per second with `threads` threads. `None` for `threads` means as many as there are spare
    /// cores.
    pub fn start_loading(
        rate: Option<RatePerSecond>,
        threads: Option<PrefaultThreadCount>,
    ) -> Result<StartingPrefaulter> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = threads.unwrap_or_else(|| PrefaultThreadCount::default_for_cores(cores));
        let shared = Arc::new(PrefaultSharedState::default());
        let (tell, told) = mpsc::channel();
        let (for_filler, for_failure) = (Arc::clone(&shared), Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("hawkeye-fill".into())
            .spawn(move || {
                // The thread that loads the programs keeps them: BPF's buffers belong to one
                // thread.
                match PrefaultLoop::new(for_filler, rate, threads) {
                    Ok((mut filler, watchlist)) => {
                        if tell.send(Ok(watchlist)).is_ok() {
                            filler.run();
                        }
                    }
                    Err(error) => {
                        // The thread's clock ends with it.
                        lock(&for_failure.done).cpu = calling_thread_cpu_time();
                        drop(tell.send(Err(error)));
                    }
                }
            })
            .map_err(|error| LinuxError::Bpf(format!("starting the filler's thread: {error}")))?;
        let thread = Some(thread);
        Ok(StartingPrefaulter { thread: PrefaultThread { shared, thread }, watchlists: told })
    }

    /// Follows a process from now on. Nothing may be filled for it until
    /// [`Self::set_process_prefault_room`], except that `warm_regions` of its large mappings are
    /// filled as soon as they exist. Fails if too many are followed already.
    pub fn follow(&self, pid: u32, warm_regions: u64) -> Result<()> {
        let followed = FollowedProcess::new(ProcessHandle::open(pid)?, warm_regions);
        self.watchlist.add_process(pid)?;
        let mut all = lock(&self.thread.shared.followed);
        all.insert(followed.handle.id, followed);
        Ok(())
    }

    /// The followed processes.
    pub fn followed_processes(&self) -> Vec<ProcessId> {
        lock(&self.thread.shared.followed).keys().copied().collect()
    }

    fn unfollow_process(&self, process: ProcessId) {
        self.watchlist.remove_process(process.pid);
        lock(&self.thread.shared.followed).remove(&process);
    }

    /// Follows the processes that are managed now, may have huge pages, and have rules that allow
    /// prefault. `started`: processes that have just started another program. `recorder`: what is
    /// known of programs.
    pub(crate) fn update_followed_processes(
        &self,
        members: &ManagedProcesses,
        started: &[ProcessId],
        recorder: Option<&ProfileRecorder>,
    ) {
        for process in started {
            self.unfollow_process(*process);
        }
        let is_wanted = |id: &ProcessId| {
            let member = members.get(*id);
            member.is_some_and(|member| member.terms_in_force().prefaults)
        };
        let order = members.processes_in_join_order().iter().copied();
        let wanted: HashSet<ProcessId> = order.filter(is_wanted).collect();
        let followed: HashSet<ProcessId> = self.followed_processes().into_iter().collect();
        for gone in followed.difference(&wanted) {
            self.unfollow_process(*gone);
        }
        for new in wanted.difference(&followed) {
            let by_rule = members.warm_start_target_bytes(*new) / HUGE_PAGE_BYTES;
            let known = recorder.and_then(|recorder| recorder.stored_profile(*new));
            let learned = known.map_or(0, ProgramProfile::warm_start_bytes) / HUGE_PAGE_BYTES;
            let warm_regions = self.warm_regions.max(by_rule).max(learned);
            if let Err(error) = self.follow(new.pid, warm_regions) {
                tracing::debug!("process {new} gets no prefault: {error}");
            }
        }
    }

    /// Bytes filled ahead of a process since the last call.
    pub fn take_prefaulted_bytes(&self, process: ProcessId) -> u64 {
        let mut followed = lock(&self.thread.shared.followed);
        let one = followed.get_mut(&process);
        one.map_or(0, FollowedProcess::take_filled_regions) * HUGE_PAGE_BYTES
    }

    /// Sets how many bytes may be filled ahead of a process, as of the last call of
    /// [`Self::take_prefaulted_bytes`]: what was filled since is subtracted.
    pub fn set_process_prefault_room(&self, process: ProcessId, room_bytes: u64) {
        self.set_prefault_room_in_cgroup(process, room_bytes, None);
    }

    /// The same, as long as the process is in this cgroup.
    pub(crate) fn set_prefault_room_in_cgroup(
        &self,
        process: ProcessId,
        room_bytes: u64,
        cgroup: Option<ProcessCgroup>,
    ) {
        if let Some(followed) = lock(&self.thread.shared.followed).get_mut(&process) {
            followed.set_room(room_bytes / HUGE_PAGE_BYTES, cgroup);
        }
    }

    /// What the filler has done so far.
    pub fn statistics(&self) -> PrefaultStatistics {
        *lock(&self.thread.shared.done)
    }
}

impl StartingPrefaulter {
    /// Waits until the filler has started. Fails if this machine does not allow first touches to be
    /// watched.
    pub fn wait_until_ready(self) -> Result<Prefaulter> {
        let watchlist = self.watchlists.recv().unwrap_or_else(|_| Err(ended_before_ready()));
        self.into_prefaulter(watchlist)
    }

    /// The filler, or why it could not start, with the CPU time that the start took. The error is
    /// the filler that still starts.
    pub fn try_into_ready(self) -> Result<(Result<Prefaulter>, Duration), Self> {
        let watchlist = match self.watchlists.try_recv() {
            Ok(watchlist) => watchlist,
            Err(TryRecvError::Disconnected) => Err(ended_before_ready()),
            Err(TryRecvError::Empty) => return Err(self),
        };
        let cpu = self.cpu_time();
        Ok((self.into_prefaulter(watchlist), cpu))
    }

    /// CPU time used so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let running = self.thread.thread.as_ref().map_or(Duration::ZERO, thread_cpu_time);
        running.max(lock(&self.thread.shared.done).cpu)
    }

    fn into_prefaulter(self, watchlist: Result<FaultTraceWatchlist>) -> Result<Prefaulter> {
        Ok(Prefaulter { thread: self.thread, watchlist: watchlist?, warm_regions: 0 })
    }
}

fn ended_before_ready() -> LinuxError {
    LinuxError::Bpf("the filler's thread ended before it was ready".into())
}

impl Drop for PrefaultThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // The thread ends late while it loads its programs or gets no core.
        join_finished_until_deadline(self.thread.take().into_iter().collect(), PATIENCE);
    }
}

/// Waits for threads that are about to end. Does not wait longer than `patience`.
fn join_finished_until_deadline(threads: Vec<JoinHandle<()>>, patience: Duration) {
    let deadline = Instant::now() + patience;
    while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    for thread in threads.into_iter().filter(JoinHandle::is_finished) {
        // An error means that it panicked: nothing is left to end.
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::cgroup_limits::CgroupVersion;

    fn followed_self() -> Result<FollowedProcess> {
        Ok(FollowedProcess::new(ProcessHandle::open(std::process::id())?, 0))
    }

    #[test]
    fn a_filler_that_still_starts_is_not_waited_for_and_its_error_is_not_lost() {
        let starting = || {
            let (tell, watchlists) = mpsc::channel();
            let thread = PrefaultThread { shared: Arc::default(), thread: None };
            (tell, StartingPrefaulter { thread, watchlists })
        };
        let (tell, prefaulter) = starting();
        let prefaulter = prefaulter.try_into_ready().err().expect("it still starts");
        // Its thread has ended.
        let used = Duration::from_millis(300);
        lock(&prefaulter.thread.shared.done).cpu = used;
        tell.send(Err(LinuxError::NoSuchProcess(7))).expect("it is listened to");
        let (started, cpu) = prefaulter.try_into_ready().ok().expect("it has started");
        assert!(matches!(started.err(), Some(LinuxError::NoSuchProcess(7))));
        assert_eq!(cpu, used);
        let (_, prefaulter) = starting();
        let error = prefaulter.try_into_ready().ok().and_then(|(started, _)| started.err());
        assert!(matches!(error, Some(LinuxError::Bpf(_))), "{error:?}");
    }

    #[test]
    fn nothing_is_filled_in_a_cgroup_of_which_the_manager_does_not_know() -> Result<()> {
        let mut followed = followed_self()?;
        followed.set_room(10, None);
        assert_eq!(followed.checked_room_regions(), 10);
        followed
            .set_room(10, Some(ProcessCgroup::new(CgroupVersion::V2, "/no/such/cgroup".into())));
        assert_eq!(followed.checked_room_regions(), 0);
        // Until the manager knows.
        assert_eq!(followed.checked_room_regions(), 0);
        followed.set_room(10, None);
        assert_eq!(followed.checked_room_regions(), 10);
        Ok(())
    }

    #[test]
    fn fills_since_memory_was_read_take_part_of_the_room() -> Result<()> {
        let mut followed = followed_self()?;
        followed.record_fill(true);
        assert_eq!(followed.take_filled_regions(), 1);
        for own in [true, false, false] {
            followed.record_fill(own);
        }
        followed.set_room(10, None);
        assert_eq!(followed.checked_room_regions(), 7);
        followed.record_fill(false);
        assert_eq!(followed.checked_room_regions(), 6);
        assert_eq!(followed.take_filled_regions(), 1);
        Ok(())
    }
}
