//! The threads that fill: the filler's own thread, or several workers.

use super::fill_backoff::FillBatch;
use super::prefault_helper_calls::PrefaultHelperCalls;
use super::prefault_region::{PrefaultMethod, prefault_region};
use super::spare_core_throttle::SpareCoreThrottle;
use crate::error::{LinuxError, Result};
use crate::processes::process::{ProcessHandle, calling_thread_cpu_time};
use crate::processes::schedstat::SchedStat;
use crate::promote::target_call::CallTimingStatistics;
use crate::stop_signals::Waker;
use hawkeye_policy::prefault::{PrefaultTask, PrefaultThreadCount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SendError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a drop waits for the workers to end.
const PATIENCE: Duration = Duration::from_millis(500);

/// Most jobs handed to a worker at a time. With two it goes on while its last report is read.
const JOBS_PER_WORKER: usize = 2;

/// A region to fill that was as its task expects it a moment ago.
pub(super) struct PrefaultJob {
    pub(super) task: PrefaultTask,
    pub(super) handle: Arc<ProcessHandle>,
    pub(super) method: PrefaultMethod,
    pub(super) batch: FillBatch,
}

pub(super) struct PrefaultOutcome {
    pub(super) task: PrefaultTask,
    pub(super) result: Result<()>,
    pub(super) took: Duration,
    pub(super) longest_call: Duration,
    pub(super) batch: FillBatch,
}

impl PrefaultJob {
    /// Fills the region on the calling thread. Waits briefly for a process that does not answer.
    fn fill_region(self, calls: &mut PrefaultHelperCalls) -> PrefaultOutcome {
        let begun = Instant::now();
        let (task, handle, batch) = (self.task, self.handle, self.batch);
        let calls = calls.helper_pool_without_late_calls();
        // Late calls, and lists of mappings, are not those of this fill.
        calls.take_longest_call();
        let result = match handle.is_alive() {
            true => prefault_region(calls, &handle, task.region, self.method),
            false => Err(LinuxError::NoSuchProcess(handle.id.pid)),
        };
        let (took, longest_call) = (begun.elapsed(), calls.take_longest_call());
        PrefaultOutcome { task, result, took, longest_call, batch }
    }
}

struct WorkerReport {
    worker: usize,
    outcome: PrefaultOutcome,
    /// CPU time used so far by itself, and the calls made so far by its helpers.
    cpu: Duration,
    calls: CallTimingStatistics,
    /// Whether it gets a core when it wants one.
    scheduled: Option<SchedStat>,
}

/// Has at least two workers or none: a single one would only add the time to hand jobs over.
pub(super) struct PrefaultThreadPool {
    began: Instant,
    workers: Vec<WorkerHandle>,
    reports: Receiver<WorkerReport>,
    /// Outcomes of jobs done by the calling thread.
    here: VecDeque<PrefaultOutcome>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    /// Whether there are cores for the workers, or for the calling thread where there are none.
    pub(super) spare_cores: SpareCoreThrottle,
}

struct WorkerHandle {
    jobs: Sender<PrefaultJob>,
    under_way: usize,
    cpu: Duration,
    calls: CallTimingStatistics,
    thread: JoinHandle<()>,
}

impl PrefaultThreadPool {
    /// Starts a worker for each thread, or none for one. Fails without threads or descriptors.
    pub(super) fn start(threads: PrefaultThreadCount) -> Result<Self> {
        let (report, reports) = mpsc::channel();
        let mut pool = Self {
            began: Instant::now(),
            workers: Vec::new(),
            reports,
            here: VecDeque::new(),
            waker: Waker::new()?,
            stop: Arc::default(),
            spare_cores: SpareCoreThrottle::for_threads(threads.get()),
        };
        if threads.get() > 1 {
            for worker in 0..threads.get() {
                pool.start_worker(worker, report.clone())?;
            }
        }
        Ok(pool)
    }

    fn start_worker(&mut self, worker: usize, reports: Sender<WorkerReport>) -> Result<()> {
        let (hand_over, jobs) = mpsc::channel::<PrefaultJob>();
        let (waker, stop) = (self.waker.clone(), Arc::clone(&self.stop));
        let work = move || {
            // If there can be no helper now, the first job tries again.
            let mut calls = PrefaultHelperCalls::start().unwrap_or_default();
            for job in jobs {
                // Jobs handed over before the pool was dropped are left undone.
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let report = WorkerReport {
                    worker,
                    outcome: job.fill_region(&mut calls),
                    cpu: calling_thread_cpu_time(),
                    calls: calls.statistics(),
                    scheduled: calls.thread_and_helper_sched_stat(),
                };
                if reports.send(report).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        let thread = std::thread::Builder::new()
            .name(format!("hawkeye-fill-{}", worker + 1))
            .spawn(work)
            .map_err(|error| LinuxError::Bpf(format!("starting a prefault thread: {error}")))?;
        self.workers.push(WorkerHandle {
            jobs: hand_over,
            under_way: 0,
            cpu: Duration::ZERO,
            calls: CallTimingStatistics::default(),
            thread,
        });
        Ok(())
    }

    pub(super) fn has_workers(&self) -> bool {
        !self.workers.is_empty()
    }

    /// How long no thread may fill, because other programs want all the cores.
    pub(super) fn shortest_worker_pause_or_zero(&self) -> Duration {
        self.shortest_of_threads(SpareCoreThrottle::pause_left)
    }

    /// How long no thread has a core that no other program wants. A part of one may be used
    /// meanwhile.
    pub(super) fn time_without_spare_core(&self) -> Duration {
        self.shortest_of_threads(SpareCoreThrottle::time_without_spare_core)
    }

    fn shortest_of_threads(
        &self,
        time_of_thread: impl Fn(&SpareCoreThrottle, usize, Duration) -> Duration,
    ) -> Duration {
        let now = self.began.elapsed();
        let all = 0..self.workers.len().max(1);
        let times = all.map(|worker| time_of_thread(&self.spare_cores, worker, now));
        times.min().unwrap_or_default()
    }

    /// Whether a thread can take another job and may fill. `calls` are the calling thread's.
    pub(super) fn has_ready_thread(&mut self, calls: &mut PrefaultHelperCalls) -> bool {
        if self.has_workers() {
            return self.least_loaded_ready_worker().is_some();
        }
        let now = self.began.elapsed();
        let Some(scheduled) = calls.thread_and_helper_sched_stat() else {
            return true;
        };
        self.spare_cores.update_pauses_from_stat(0, now, scheduled);
        self.spare_cores.pause_left(0, now).is_zero()
    }

    fn least_loaded_ready_worker(&mut self) -> Option<&mut WorkerHandle> {
        let (now, spare) = (self.began.elapsed(), &self.spare_cores);
        let rested = |worker: usize| spare.pause_left(worker, now).is_zero();
        let all = self.workers.iter_mut().enumerate();
        let may = all.filter(|(n, worker)| worker.under_way < JOBS_PER_WORKER && rested(*n));
        may.map(|(_, worker)| worker).min_by_key(|w| w.under_way)
    }

    /// Hands a job to a worker, or does it with `calls` where there are no workers.
    /// [`Self::take_next_outcome`] returns the result.
    pub(super) fn assign_or_run_job(&mut self, job: PrefaultJob, calls: &mut PrefaultHelperCalls) {
        let refused = match self.least_loaded_ready_worker() {
            None => Some(job),
            Some(worker) => {
                worker.under_way += 1;
                let sent = worker.jobs.send(job);
                // The worker's thread has ended by a panic. It gets no further jobs.
                sent.err().map(|SendError(job)| {
                    worker.under_way = JOBS_PER_WORKER;
                    job
                })
            }
        };
        self.here.extend(refused.map(|job| job.fill_region(calls)));
    }

    pub(super) fn take_next_outcome(&mut self) -> Option<PrefaultOutcome> {
        if let Some(outcome) = self.here.pop_front() {
            return Some(outcome);
        }
        let report = self.reports.try_recv().ok()?;
        if let Some(worker) = self.workers.get_mut(report.worker) {
            worker.under_way = worker.under_way.saturating_sub(1);
            worker.cpu = report.cpu;
            worker.calls = report.calls;
        }
        if let Some(scheduled) = report.scheduled {
            let now = self.began.elapsed();
            self.spare_cores.update_pauses_from_stat(report.worker, now, scheduled);
        }
        Some(report.outcome)
    }

    /// Waits at most `most` for an outcome, or until `other` can be read. The wait is in whole
    /// milliseconds; a shorter one returns at once.
    pub(super) fn wait_for_outcome_or_fd(&self, other: BorrowedFd<'_>, most: Duration) {
        if most.is_zero() {
            return;
        }
        let Ok(timeout) = PollTimeout::try_from(most) else {
            return;
        };
        let mut fds = [self.waker.fd(), other].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        // A signal only shortens the wait.
        let _ = poll(&mut fds, timeout);
        self.waker.clear();
    }

    /// CPU time of the workers, without their helpers'.
    pub(super) fn worker_cpu_time(&self) -> Duration {
        self.workers.iter().map(|worker| worker.cpu).sum()
    }

    /// The calls that the helpers of each worker have made.
    pub(super) fn worker_calls(&self) -> impl Iterator<Item = CallTimingStatistics> {
        self.workers.iter().map(|worker| worker.calls)
    }
}

impl Drop for PrefaultThreadPool {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A worker that gets no core does not end in time.
        let threads = self.workers.drain(..).map(|worker| worker.thread);
        super::join_finished_until_deadline(threads.collect(), PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anonymous_mapping::AnonymousMapping;
    use crate::promote::stuck_target::{StuckTarget, ended_child};
    use hawkeye_policy::prefault::{PrefaultPredictor, PrefaultableMemory};
    use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
    use nix::sys::mman::ProtFlags;
    use std::os::fd::AsFd;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    const REGIONS: u64 = 16;

    fn own() -> Arc<ProcessHandle> {
        Arc::new(ProcessHandle::open(std::process::id()).expect("this process exists"))
    }

    /// The tasks of a predictor for regions from `first` on.
    fn tasks(process: &ProcessHandle, first: RegionAddr) -> Vec<PrefaultTask> {
        let end = first.start() + REGIONS * HUGE_PAGE_BYTES;
        let mut predictor = PrefaultPredictor::default();
        predictor.request_warm_start(process.id, REGIONS);
        predictor.on_new_mapping(Duration::ZERO, process.id, RegionAddr::containing(end - 1));
        let around = PrefaultableMemory { mapped: first.start()..end, room_regions: REGIONS };
        let next = || predictor.hand_out_next_prefault(Duration::ZERO, |_, _| Some(around.clone()));
        let mut tasks: Vec<PrefaultTask> = std::iter::from_fn(next).collect();
        tasks.sort_by_key(|task| task.region);
        tasks
    }

    fn jobs(
        handle: &Arc<ProcessHandle>,
        tasks: &[PrefaultTask],
        method: PrefaultMethod,
    ) -> Vec<PrefaultJob> {
        let job = |task: &PrefaultTask| PrefaultJob {
            task: *task,
            handle: Arc::clone(handle),
            method,
            batch: FillBatch::default(),
        };
        tasks.iter().map(job).collect()
    }

    fn all_done(pool: &mut PrefaultThreadPool, jobs: Vec<PrefaultJob>) -> Vec<PrefaultOutcome> {
        let mut calls = PrefaultHelperCalls::default();
        let count = jobs.len();
        let mut left = jobs.into_iter();
        let mut outcomes = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        // A second descriptor that never becomes readable.
        let other = Waker::new().expect("an eventfd can be created");
        while outcomes.len() < count && Instant::now() < deadline {
            while pool.has_ready_thread(&mut calls) {
                let Some(job) = left.next() else { break };
                pool.assign_or_run_job(job, &mut calls);
            }
            outcomes.extend(pool.take_next_outcome());
            pool.wait_for_outcome_or_fd(other.fd().as_fd(), Duration::from_millis(1));
        }
        outcomes
    }

    /// Workers are counted over the whole process, so tests that start some take turns.
    fn alone() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        wait_until_no_worker();
        turn
    }

    /// A joined thread is still listed for a moment.
    fn wait_until_no_worker() {
        let begun = Instant::now();
        while workers() > 0 && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(workers(), 0);
    }

    fn workers() -> usize {
        let threads = std::fs::read_dir("/proc/self/task");
        let threads = threads.expect("the folder can be read").flatten();
        let names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")));
        let fills = |name: &String| name.starts_with("hawkeye-fill-");
        names.flatten().filter(fills).count()
    }

    fn threads(n: u64) -> PrefaultThreadCount {
        PrefaultThreadCount::new(n).expect("the number of threads is valid")
    }

    #[test]
    fn fills_run_here_or_in_workers_that_end_with_the_pool() {
        let _alone = alone();
        let process = own();
        let length = ((REGIONS + 2) * HUGE_PAGE_BYTES) as usize;
        let memory = AnonymousMapping::map_with_protection(length, ProtFlags::PROT_READ);
        let memory = memory.expect("memory can be mapped");
        let from = memory.address() + 2 * HUGE_PAGE_BYTES;
        let tasks = tasks(&process, RegionAddr::containing(from));
        assert_eq!(tasks.len() as u64, REGIONS);
        for count in [1, 3] {
            let mut pool = PrefaultThreadPool::start(threads(count)).expect("the threads start");
            let outcomes = all_done(&mut pool, jobs(&process, &tasks, PrefaultMethod::Read));
            let mut done: Vec<_> = outcomes.iter().map(|o| o.task.region).collect();
            done.sort();
            let wanted: Vec<_> = tasks.iter().map(|task| task.region).collect();
            assert_eq!(done, wanted);
            let is_timed_fill = |outcome: &PrefaultOutcome| {
                outcome.result.is_ok() && !outcome.longest_call.is_zero()
            };
            assert!(outcomes.iter().all(is_timed_fill));
            let expected = if count == 1 { 0 } else { count as usize };
            assert_eq!(workers(), expected);
            assert_eq!(pool.worker_cpu_time().is_zero(), expected == 0);
            let is_timed = pool.worker_calls().any(|calls| !calls.longest.is_zero());
            assert_eq!(is_timed, expected > 0);
            // Dropping the pool must leave these jobs undone.
            for job in jobs(&process, &tasks, PrefaultMethod::Read) {
                pool.assign_or_run_job(job, &mut PrefaultHelperCalls::default());
            }
            let begun = Instant::now();
            drop(pool);
            assert!(begun.elapsed() < Duration::from_secs(10));
            wait_until_no_worker();
        }
        assert_eq!(Arc::strong_count(&process), 1, "no thread holds it");
    }

    #[test]
    fn an_ended_process_is_not_touched() {
        let process = Arc::new(ended_child());
        let tasks = tasks(&process, RegionAddr::containing(1 << 40));
        let mut pool = PrefaultThreadPool::start(threads(1)).expect("the threads start");
        let outcomes = all_done(&mut pool, jobs(&process, &tasks, PrefaultMethod::Read));
        assert_eq!(outcomes.len(), tasks.len());
        let gone = |o: &PrefaultOutcome| matches!(o.result, Err(LinuxError::NoSuchProcess(_)));
        assert!(outcomes.iter().all(gone));
    }

    /// Fills a region of `stuck`, some of this process, and one more of `stuck`. Returns the
    /// outcomes after the pool has ended.
    fn fill_beside(
        stuck: &Arc<ProcessHandle>,
        first: RegionAddr,
        count: u64,
    ) -> Vec<PrefaultOutcome> {
        let process = own();
        let (own, its) = (tasks(&process, first), tasks(stuck, first));
        let mut all = jobs(stuck, &its[..1], PrefaultMethod::Collapse);
        all.extend(jobs(&process, &own[..3], PrefaultMethod::Read));
        all.extend(jobs(stuck, &its[1..2], PrefaultMethod::Collapse));
        let mut pool = PrefaultThreadPool::start(threads(count)).expect("the threads start");
        all_done(&mut pool, all)
    }

    #[test]
    fn a_target_that_holds_its_lock_stops_neither_other_fills_nor_the_end() {
        let _alone = alone();
        for count in [1, 3] {
            // It requires root and FUSE.
            let Some(stuck) = StuckTarget::start() else {
                return;
            };
            let (tell, told) = mpsc::channel();
            let (handle, region) = (Arc::clone(&stuck.handle), stuck.untouched_region());
            std::thread::spawn(move || tell.send(fill_beside(&handle, region, count)));
            let filled = told.recv_timeout(Duration::from_secs(60));
            let outcomes = filled.expect("no thread waits for the target");
            wait_until_no_worker();
            let waited = outcomes.iter().map(|outcome| outcome.longest_call).max();
            assert!(waited >= Some(Duration::from_secs(1)), "{waited:?} of a call without answer");
            for outcome in &outcomes {
                match outcome.result {
                    Ok(()) => assert_ne!(outcome.task.process, stuck.handle.id),
                    Err(LinuxError::NotAnswering(pid)) => assert_eq!(pid, stuck.handle.id.pid),
                    _ => panic!("{:?}", outcome.result),
                }
            }
            let filled = outcomes.iter().filter(|o| o.result.is_ok());
            assert_eq!((outcomes.len(), filled.count()), (5, 3));
        }
    }
}
