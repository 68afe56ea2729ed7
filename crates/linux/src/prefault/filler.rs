//! The filler's loop: listen, look, have filled, look.

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
use hawkeye_policy::fault_ahead::{
    FaultAheadSettings, FillThreads, Filled, Predictor, Surroundings, Task,
};
use hawkeye_policy::whole::nanos_of;
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, ProcessId, Rate};
use nix::errno::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Without anything to do it looks this often who is still there.
const IDLE: Duration = Duration::from_millis(50);
/// A fill takes less.
const A_FILL: Duration = Duration::from_millis(1);
/// A region of which fewer base pages than this hold anything is not in use.
const IN_USE_PAGES: u16 = PAGES_PER_REGION / 4;

pub(super) struct Filler {
    began: Instant,
    shared: Arc<Shared>,
    frontier: Frontier,
    tables: PageTables,
    predictor: Predictor,
    known: HashMap<ProcessId, Known>,
    /// Of whom something is still to be filled on request.
    warm: HashMap<ProcessId, WarmStart>,
    /// Who does not use what is filled.
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
            predictor: Predictor::new(FaultAheadSettings::default()),
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
                // Who was heard of meanwhile is elsewhere by now.
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
        let (shared, set) = (&self.shared, Ordering::Relaxed);
        let helpers = self.calls.cpu() + self.pool.helper_cpu();
        let cpu = thread_cpu() + self.pool.cpu() + helpers;
        shared.cpu_ns.store(nanos_of(cpu), set);
        shared.helper_cpu_ns.store(nanos_of(helpers), set);
        shared.ahead.store(self.predictor.ahead(), set);
        shared.unused.store(self.predictor.unused(), set);
    }

    /// Nothing is heard for a while where all touches are random: each would cost its program some ten nanoseconds.
    fn pay_attention(&mut self) {
        let heard = self.attention.is_paid();
        let now_heard = self.attention.pay(self.now(), self.frontier.touches());
        if heard && !now_heard {
            self.frontier.pause();
        } else if now_heard && !heard {
            if let Err(error) = self.frontier.resume() {
                tracing::warn!("first touches are heard of no more: {error}");
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// How long nothing needs to be done unless somebody is heard of, or a fill.
    fn pause(&self, busy: bool) -> Duration {
        if busy {
            return Duration::ZERO;
        }
        let looks = self.warm.values().map(WarmStart::next_look);
        let peek = self.predictor.next_peek().map(|(at, _)| at);
        let next = looks.chain(peek).min();
        let next = next.map(|at| at.saturating_sub(self.now()));
        let pause = next.map_or(IDLE, |pause| pause.min(IDLE));
        // Shorter ones are not waited for at all, which would take a worker's core.
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
        // First: who comes to the end of what is filled was not faster than the fillers.
        self.hear_of_fills();
        let now = self.now();
        let mut followed: HashMap<u32, ProcessId> = HashMap::new();
        for (process, one) in self.shared.followed().iter_mut() {
            followed.insert(process.pid, *process);
            let warm = std::mem::take(&mut one.warm_regions);
            if warm > 0 {
                // It may be another program now.
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
        self.hear_again(now, &followed);
    }

    /// Whoever was muted for long enough may have changed.
    fn hear_again(&mut self, now: Duration, followed: &HashMap<u32, ProcessId>) {
        let is_there = |process: ProcessId| followed.get(&process.pid) == Some(&process);
        for process in self.muted.take_over(now, is_there) {
            self.frontier.unmute(process.pid);
            self.predictor.forget_given_up(process);
        }
    }

    /// Hears no more of whoever has no stream left that is filled.
    fn mute(&mut self, process: ProcessId) {
        let now = self.now();
        if !self.muted.contains(now, process) && self.predictor.given_up(now, process) {
            self.muted.add(now, process);
            self.frontier.mute(process.pid);
        }
    }

    /// Of whom a warm start is wanted: whoever touches memory inside the kernel (`MADV_POPULATE_WRITE`) is not heard of.
    /// Who has something to be filled already can wait longer.
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

    /// Whether what was filled is in use: empty huge pages tell of a program that takes a page here and there.
    fn look_at_witnesses(&mut self) {
        while let Some(task) = self.predictor.next_look() {
            let most = PAGES_PER_REGION - IN_USE_PAGES;
            let Some(empty) = self.empty_pages(task, most) else {
                self.predictor.lost(task);
                continue;
            };
            tracing::trace!("{:?} {}: {empty} empty", task.process, task.region);
            self.predictor.looked_at(task, empty < most);
        }
    }

    /// Looks how far programs have come in memory that is there: they cause no faults any more.
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

    /// Base pages of a filled region that are all zeros, up to so many; `None`: it is no huge page any more, or it can't
    /// be told.
    fn empty_pages(&mut self, task: Task, enough: u16) -> Option<u16> {
        let target = &self.known.get(&task.process)?.target;
        let empty = self.tables.scan_zeros(target, task.region, enough);
        empty.ok().flatten()
    }

    /// Has the region filled that is most urgent; whether there was one, and somebody to do it.
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

    /// What it takes to fill a region, if nothing is there.
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
        // What is known of mappings is older: one may be watched by userfaultfd since.
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

    /// What became of all that was handed over.
    fn hear_of_fills(&mut self) {
        while let Some(outcome) = self.pool.outcome() {
            let what = self.judge(&outcome);
            if what == Filled::Done {
                let took = nanos_of(outcome.took);
                self.shared.longest_ns.fetch_max(took, Ordering::Relaxed);
            }
            self.settle(outcome.task, what);
        }
    }

    /// Whether a huge page is there now.
    fn judge(&mut self, outcome: &Outcome) -> Filled {
        let Task {
            process, region, ..
        } = outcome.task;
        if let Err(error) = &outcome.result {
            tracing::debug!("{region} of {process} was not filled: {error}");
        }
        let Some(known) = self.known.get(&process) else {
            return Filled::Refused;
        };
        let now = look(&mut self.tables, &known.target, region);
        match (&outcome.result, now) {
            (Ok(()), Ok(Some(now))) if now.is_huge() => Filled::Done,
            // Its owner was faster, or is collapsing the same.
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

    /// Counts what became of a region, and goes on from there.
    fn settle(&mut self, task: Task, what: Filled) {
        if what == Filled::Done {
            self.shared.filled.fetch_add(1, Ordering::Relaxed);
            // Whoever else is followed may fall under the same limit.
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
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            // Once: of others that were under way the same will be heard.
            if let Some(warm) = self.warm.get_mut(&task.process).filter(|_| ended) {
                warm.not_yet(task.region);
            }
        }
    }
}
