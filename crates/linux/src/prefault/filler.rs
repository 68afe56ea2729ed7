//! The filler's loop: it reads reports, looks at mappings and filled regions, and hands out fills.

use super::attention::Attention;
use super::calls::FillCalls;
use super::frontier::{Frontier, Watchlist};
use super::known::{Known, look, refresh};
use super::limits::Limits;
use super::muted::Muted;
use super::pool::Pool;
use super::warm::WarmStart;
use super::worker::{Job, Outcome};
use super::{Followed, Shared};
use crate::error::{LinuxError, Result};
use crate::processes::mappings::region_eligible;
use crate::processes::process::thread_cpu;
use crate::sample::page_tables::PageTables;
use hawkeye_policy::fault_ahead::{FillThreads, Filled, Predictor, Surroundings, Task};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, ProcessId, Rate};
use nix::errno::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often an idle filler checks which processes remain.
const IDLE: Duration = Duration::from_millis(50);
/// An upper bound of the time that a fill takes.
const A_FILL: Duration = Duration::from_millis(1);
/// A region in which fewer base pages than this hold data is not in use.
const IN_USE_PAGES: u16 = PAGES_PER_REGION / 4;

pub(super) struct Filler {
    began: Instant,
    shared: Arc<Shared>,
    frontier: Frontier,
    tables: PageTables,
    predictor: Predictor,
    known: HashMap<ProcessId, Known>,
    /// Processes with a warm start that is not complete.
    warm: HashMap<ProcessId, WarmStart>,
    /// Processes that do not use what is filled.
    muted: Muted,
    pool: Pool,
    calls: FillCalls,
    attention: Attention,
    limits: Limits,
}

impl Filler {
    pub(super) fn new(
        shared: Arc<Shared>,
        rate: Option<Rate>,
        threads: FillThreads,
    ) -> Result<(Self, Watchlist)> {
        let (frontier, watchlist) = Frontier::attach()?;
        let filler = Self {
            began: Instant::now(),
            shared,
            frontier,
            tables: PageTables::load()?,
            predictor: Predictor::default(),
            known: HashMap::new(),
            warm: HashMap::new(),
            muted: Muted::default(),
            pool: Pool::start(threads)?,
            calls: FillCalls::start()?,
            attention: Attention::default(),
            limits: Limits::new(rate),
        };
        Ok((filler, watchlist))
    }

    pub(super) fn run(&mut self) {
        let mut busy = false;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let pause = self.pool.pause();
            if !pause.is_zero() {
                std::thread::sleep(pause.min(IDLE));
                self.hear_of_fills();
                // Processes reported meanwhile are elsewhere by now.
                self.frontier.take();
                continue;
            }
            let wait = self.pause(busy);
            self.pay_attention();
            self.listen(wait);
            self.look_for_new_mappings(busy || self.predictor.under_way() > 0);
            self.look_at_witnesses();
            self.peek();
            busy = self.fill_next();
            self.publish();
        }
        tracing::debug!(
            "{} reports of first touches were lost",
            self.frontier.lost()
        );
    }

    fn publish(&self) {
        let mut done = self.shared.done();
        done.helper_cpu = self.calls.cpu() + self.pool.helper_cpu();
        done.cpu = thread_cpu() + self.pool.cpu() + done.helper_cpu;
        done.ahead = self.predictor.ahead();
        done.unused = self.predictor.unused();
    }

    /// Stops the reports for a while where all touches are random: each report costs its program
    /// some ten nanoseconds.
    fn pay_attention(&mut self) {
        let heard = self.attention.is_paid();
        let now_heard = self.attention.pay(self.now(), self.frontier.touches());
        if heard && !now_heard {
            self.frontier.pause();
        } else if now_heard && !heard {
            if let Err(error) = self.frontier.resume() {
                tracing::warn!("watching first touches could not be resumed: {error}");
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// How long the filler can wait for a report or for the end of a fill.
    fn pause(&self, busy: bool) -> Duration {
        if busy {
            return Duration::ZERO;
        }
        let looks = self.warm.values().map(WarmStart::next_look);
        let peek = self.predictor.next_peek().map(|(at, _)| at);
        let next = looks.chain(peek).min();
        let next = next.map(|at| at.saturating_sub(self.now()));
        let pause = next.map_or(IDLE, |pause| pause.min(IDLE));
        // `FillPool::wait` returns at once for a shorter time; such a loop would use a worker's
        // core.
        let fills = self.predictor.under_way() > 0;
        if fills { pause.max(A_FILL) } else { pause }
    }

    fn listen(&mut self, wait: Duration) {
        let heard = if self.pool.has_workers() {
            self.pool.wait(self.frontier.fd(), wait);
            self.frontier.take()
        } else {
            self.frontier.listen(wait)
        };
        // This comes first: a process that reaches the end of what is filled was not faster than
        // the fillers.
        self.hear_of_fills();
        let now = self.now();
        let mut followed: HashMap<u32, ProcessId> = HashMap::new();
        for (process, one) in self.shared.followed().iter_mut() {
            followed.insert(process.pid, *process);
            let warm = std::mem::take(&mut one.warm_regions);
            if warm > 0 {
                // The process may run another program now.
                self.known.remove(process);
                self.predictor.forget(*process);
                self.predictor.warm(*process, warm);
                let bytes = warm * HUGE_PAGE_BYTES;
                self.warm.insert(*process, WarmStart::new(now, bytes));
            }
        }
        self.predictor.forget_ended(now);
        for one in heard {
            tracing::trace!("{one:?}");
            if let Some(process) = followed.get(&one.pid) {
                self.predictor.hear(now, *process, one.advance);
                self.mute(*process);
            }
        }
        let is_there = |process: ProcessId| followed.get(&process.pid) == Some(&process);
        self.known.retain(|process, _| is_there(*process));
        self.warm.retain(|process, _| is_there(*process));
        self.predictor.retain(is_there);
        // A process that was suppressed for long enough may have changed.
        for process in self.muted.take_over(now, is_there) {
            self.frontier.unmute(process.pid);
            self.predictor.forget_given_up(process);
        }
    }

    /// Suppresses the reports of a process that no longer has a stream worth filling.
    fn mute(&mut self, process: ProcessId) {
        let now = self.now();
        if !self.muted.contains(now, process) && self.predictor.given_up(now, process) {
            self.muted.add(now, process);
            self.frontier.mute(process.pid);
        }
    }

    /// Looks for new mappings of processes with a warm start. Memory touched inside the kernel
    /// (`MADV_POPULATE_WRITE`) is not reported, so the mappings are read. Where something is left
    /// to fill already, this can wait longer.
    fn look_for_new_mappings(&mut self, busy: bool) {
        let now = self.now();
        let may_be_late = if busy { IDLE } else { Duration::ZERO };
        let predictor = &mut self.predictor;
        self.warm.retain(|process, warm| {
            if warm.is_over(now) {
                predictor.cool(*process);
            }
            predictor.still_warm(*process) > 0
        });
        for (process, warm) in &mut self.warm {
            if now < warm.next_look() + may_be_late {
                continue;
            }
            let calls = self.calls.next();
            let known = refresh(&mut self.known, &self.tables, calls, *process, None, now);
            let mapped = known.map(Known::ranges).unwrap_or_default();
            for last in warm.look(now, &mapped) {
                self.predictor.mapped(now, *process, last);
            }
        }
    }

    /// Checks whether filled regions are in use. Empty huge pages mean that the program takes a
    /// page here and there.
    fn look_at_witnesses(&mut self) {
        while let Some(task) = self.predictor.next_look() {
            let most = PAGES_PER_REGION - IN_USE_PAGES;
            let Some(empty) = self.empty_pages(task, most) else {
                self.predictor.lost(task);
                continue;
            };
            tracing::trace!(
                "{:?} {}: {empty} base pages empty",
                task.process,
                task.region
            );
            self.predictor.looked_at(task, empty < most);
        }
    }

    /// Checks how far programs have come in filled memory, where they cause no faults.
    fn peek(&mut self) {
        while let Some((at, task)) = self.predictor.next_peek() {
            let now = self.now();
            if now < at {
                return;
            }
            match self.empty_pages(task, PAGES_PER_REGION) {
                Some(empty) => self.predictor.peeked(now, task, empty < PAGES_PER_REGION),
                None => self.predictor.lost(task),
            }
        }
    }

    /// Zero-filled base pages of a filled region, at most `enough`. `None`: it is no huge page any
    /// more, or it cannot be read.
    fn empty_pages(&mut self, task: Task, enough: u16) -> Option<u16> {
        let target = &self.known.get(&task.process)?.target;
        let empty = self.tables.scan_zeros(target, task.region, enough);
        empty.ok().flatten()
    }

    /// Hands out the most urgent fill. Returns whether there was one and a thread was ready.
    fn fill_next(&mut self) -> bool {
        let now = self.now();
        if !self.pool.is_ready(&mut self.calls)
            || !self.limits.allow(now, self.predictor.under_way())
        {
            return false;
        }
        let (shared, tables, known) = (&self.shared, &self.tables, &mut self.known);
        let calls = self.calls.next();
        let task = self.predictor.next_fill(now, |process, head| {
            let followed = shared.followed().get(&process).cloned()?;
            if followed.room_regions == 0 {
                return None;
            }
            let known = refresh(known, tables, calls, process, Some(head), now)?;
            let mapped = known.around(head)?;
            Some(Surroundings {
                mapped: mapped.range.clone(),
                room_regions: followed.room_regions,
            })
        });
        let Some(task) = task else {
            self.limits.give_back();
            return false;
        };
        match self.prepare(task) {
            Ok(job) => self.pool.hand_over(job, &mut self.calls),
            Err(what) => self.settle(task, what),
        }
        true
    }

    /// The job that fills a region, if the region is empty.
    fn prepare(&mut self, task: Task) -> Result<Job, Filled> {
        let handle = match self.shared.followed().get(&task.process) {
            Some(Followed { handle, .. }) => Arc::clone(handle),
            None => return Err(Filled::Refused),
        };
        let known = self.known.get(&task.process).ok_or(Filled::Refused)?;
        let mapped = known.around(task.region).ok_or(Filled::Refused)?;
        match look(&mut self.tables, &known.target, task.region) {
            Ok(None) => {}
            Ok(Some(_)) => return Err(Filled::Occupied),
            Err(_) => return Err(Filled::Refused),
        }
        // The known mappings are older; userfaultfd may watch one since.
        match self.tables.mapping_at(&known.target, task.region.start()) {
            Ok(Some(now)) if region_eligible(std::slice::from_ref(&now), task.region).is_ok() => {}
            Err(error) if error.errno() == Some(Errno::EBUSY) => return Err(Filled::Occupied),
            _ => return Err(Filled::Refused),
        }
        Ok(Job {
            task,
            handle,
            method: mapped.method,
        })
    }

    /// Handles the outcomes of all jobs that have ended.
    fn hear_of_fills(&mut self) {
        while let Some(outcome) = self.pool.outcome() {
            let what = self.judge(&outcome);
            if what == Filled::Done {
                let mut done = self.shared.done();
                done.longest = done.longest.max(outcome.took);
            }
            self.settle(outcome.task, what);
        }
    }

    /// Judges an outcome by whether a huge page is there now.
    fn judge(&mut self, outcome: &Outcome) -> Filled {
        let Task {
            process, region, ..
        } = outcome.task;
        if let Err(error) = &outcome.result {
            tracing::debug!("region {region} of process {process} was not filled: {error}");
        }
        let Some(known) = self.known.get(&process) else {
            return Filled::Refused;
        };
        let now = look(&mut self.tables, &known.target, region);
        match (&outcome.result, now) {
            (Ok(()), Ok(Some(now))) if now.is_huge() => Filled::Done,
            // The owner was faster, or is collapsing the same region.
            (
                Err(LinuxError::Call {
                    errno: Errno::EAGAIN | Errno::EBUSY,
                    ..
                }),
                _,
            ) => Filled::Occupied,
            _ => Filled::Refused,
        }
    }

    /// Counts the result of a fill and reports it to the predictor.
    fn settle(&mut self, task: Task, what: Filled) {
        if what == Filled::Done {
            self.shared.done().filled += 1;
            // Other followed processes may have the same limit.
            for (process, followed) in self.shared.followed().iter_mut() {
                followed.room_regions = followed.room_regions.saturating_sub(1);
                followed.filled_regions += u64::from(*process == task.process);
            }
        } else {
            self.limits.give_back();
        }
        tracing::trace!("{:?} {}: {what:?}", task.process, task.region);
        let ended = self.predictor.filled(self.now(), task, what);
        if what == Filled::Refused {
            self.shared.done().refused += 1;
            // Only once: the other regions under way will be refused as well.
            if let Some(warm) = self.warm.get_mut(&task.process).filter(|_| ended) {
                warm.not_yet(task.region);
            }
        }
    }
}
