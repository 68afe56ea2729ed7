//! The filler's loop: listen, look, fill.

use super::attention::Attention;
use super::fill::fill;
use super::frontier::{Frontier, Watchlist};
use super::known::{Known, look, refresh};
use super::spare_core::{Scheduled, SpareCore};
use super::warm::WarmStart;
use super::{Followed, Shared};
use crate::error::LinuxError;
use crate::fragmentation;
use crate::page_tables::PageTables;
use crate::process::thread_cpu;
use hawkeye_policy::fault_ahead::{FaultAheadSettings, Filled, Predictor, Surroundings, Task};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, ProcessId, Rate, TokenBucket};
use nix::errno::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Without anything to do it looks this often who is still there.
const IDLE: Duration = Duration::from_millis(50);
/// A region of which fewer base pages than this hold anything is not in use.
const IN_USE_PAGES: u16 = PAGES_PER_REGION / 4;
/// So many fills from one look at free memory to the next.
const LOOK_EVERY: u32 = 16;
/// Free huge pages that are left to others.
const LEFT_FREE: u64 = 64;

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
    muted: HashMap<ProcessId, Muted>,
    spare_core: SpareCore,
    attention: Attention,
    bucket: Option<TokenBucket>,
    /// Fills until free memory is looked at again, and whether there was enough.
    until_look: u32,
    enough_free: bool,
}

/// Nothing is heard of a process that does not use what is filled, for a while and then for twice as long.
struct Muted {
    until: Duration,
    pause: Duration,
    silent: bool,
}

const FIRST_SILENCE: Duration = Duration::from_secs(1);
const LONGEST_SILENCE: Duration = Duration::from_secs(64);

impl Filler {
    pub(super) fn new(
        shared: Arc<Shared>,
        rate: Option<Rate>,
    ) -> Result<(Self, Watchlist), LinuxError> {
        let (frontier, watchlist) = Frontier::attach()?;
        let filler = Self {
            began: Instant::now(),
            shared,
            frontier,
            tables: PageTables::load()?,
            predictor: Predictor::new(FaultAheadSettings::default()),
            known: HashMap::new(),
            warm: HashMap::new(),
            muted: HashMap::new(),
            spare_core: SpareCore::default(),
            attention: Attention::default(),
            bucket: rate.map(evenly),
            until_look: 0,
            enough_free: true,
        };
        Ok((filler, watchlist))
    }

    pub(super) fn run(&mut self) {
        let mut busy = false;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let pause = self.spare_core.pause(self.now());
            if !pause.is_zero() {
                std::thread::sleep(pause.min(IDLE));
                // Who was heard of meanwhile is elsewhere by now.
                self.frontier.listen(Duration::ZERO);
                continue;
            }
            let wait = if busy { Duration::ZERO } else { self.pause() };
            self.pay_attention();
            self.listen(wait);
            self.look_for_new_mappings(busy);
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
        shared.cpu_ns.store(thread_cpu().as_nanos() as u64, set);
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

    /// How long nothing needs to be done unless somebody is heard of.
    fn pause(&self) -> Duration {
        let looks = self.warm.values().map(WarmStart::next_look);
        let peek = self.predictor.next_peek().map(|(at, _)| at);
        let next = looks.chain(peek).min();
        let next = next.map(|at| at.saturating_sub(self.now()));
        next.map_or(IDLE, |pause| pause.min(IDLE))
    }

    fn listen(&mut self, wait: Duration) {
        let heard = self.frontier.listen(wait);
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
        let (frontier, predictor) = (&self.frontier, &mut self.predictor);
        self.muted.retain(|process, muted| {
            let stays = followed.get(&process.pid) == Some(process);
            if !stays || (muted.until <= now && muted.silent) {
                muted.silent = false;
                frontier.unmute(process.pid);
                predictor.forget_given_up(*process);
            }
            stays
        });
    }

    /// Hears no more of whoever has no stream left that is filled.
    fn mute(&mut self, process: ProcessId) {
        let now = self.now();
        let muted = self.muted.get(&process).is_some_and(|m| now < m.until);
        if muted || !self.predictor.given_up(now, process) {
            return;
        }
        let before = self.muted.get(&process).map(|muted| muted.pause * 2);
        let pause = before.unwrap_or(FIRST_SILENCE).min(LONGEST_SILENCE);
        let muted = Muted {
            until: now + pause,
            pause,
            silent: true,
        };
        self.muted.insert(process, muted);
        self.frontier.mute(process.pid);
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
            let known = refresh(&mut self.known, &mut self.tables, *process, None, now);
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

    /// Fills the region that is most urgent; whether there was one.
    fn fill_next(&mut self) -> bool {
        let now = self.now();
        if !self.enough_free() || !self.may_run(now) {
            return false;
        }
        let (shared, tables, known) = (&self.shared, &mut self.tables, &mut self.known);
        let task = self.predictor.next_fill(now, |process, head| {
            let followed = shared.followed().get(&process).cloned()?;
            if followed.room_regions == 0 {
                return None;
            }
            let known = refresh(known, tables, process, Some(head), now)?;
            let mapped = known.around(head)?;
            Some(Surroundings {
                mapped: mapped.range.clone(),
                room_regions: followed.room_regions,
            })
        });
        let Some(task) = task else {
            return false;
        };
        if self
            .bucket
            .as_mut()
            .is_some_and(|bucket| !bucket.take(now, 1))
        {
            return false;
        }
        let begun = Instant::now();
        let what = self.fill(task);
        if what == Filled::Done {
            let took = begun.elapsed().as_nanos() as u64;
            self.shared.filled.fetch_add(1, Ordering::Relaxed);
            self.shared.longest_ns.fetch_max(took, Ordering::Relaxed);
            // Whoever else is followed may fall under the same limit.
            for (process, followed) in self.shared.followed().iter_mut() {
                followed.room_regions = followed.room_regions.saturating_sub(1);
                followed.filled_regions += u64::from(*process == task.process);
            }
        } else {
            if let Some(bucket) = &mut self.bucket {
                bucket.give_back(1);
            }
            if what == Filled::Refused {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                if let Some(warm) = self.warm.get_mut(&task.process) {
                    warm.not_yet(task.region);
                }
            }
        }
        tracing::trace!("{:?} {}: {what:?}", task.process, task.region);
        self.predictor.filled(now, task, what);
        true
    }

    /// Whether nobody else wants the core.
    fn may_run(&mut self, now: Duration) -> bool {
        Scheduled::now().is_none_or(|scheduled| self.spare_core.is_there(now, scheduled))
    }

    /// Whether enough free huge pages are left: whoever needs one would have to compact memory otherwise.
    fn enough_free(&mut self) -> bool {
        if self.until_look == 0 {
            self.until_look = LOOK_EVERY;
            self.enough_free = fragmentation::free_huge_pages().is_none_or(|free| free > LEFT_FREE);
        }
        self.until_look -= 1;
        self.enough_free
    }

    fn fill(&mut self, task: Task) -> Filled {
        let handle = match self.shared.followed().get(&task.process) {
            Some(Followed { handle, .. }) => Arc::clone(handle),
            None => return Filled::Refused,
        };
        let Some(known) = self.known.get(&task.process) else {
            return Filled::Refused;
        };
        let Some(method) = known.around(task.region).map(|mapped| mapped.method) else {
            return Filled::Refused;
        };
        match look(&mut self.tables, &known.target, task.region) {
            Ok(None) => {}
            Ok(Some(_)) => return Filled::Occupied,
            Err(_) => return Filled::Refused,
        }
        if !handle.alive() {
            return Filled::Refused;
        }
        let result = fill(&handle, task.region, method);
        if let Err(error) = &result {
            tracing::debug!(
                "{} of {} was not filled: {error}",
                task.region,
                task.process
            );
        }
        match (result, look(&mut self.tables, &known.target, task.region)) {
            (Ok(()), Ok(Some(now))) if now.huge => Filled::Done,
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
}

/// A neighbour feels a burst more than the same amount spread out.
fn evenly(rate: Rate) -> TokenBucket {
    const BURST_S: f64 = 1.0 / 16.0;
    let burst = (rate.get() * BURST_S).max(1.0);
    TokenBucket::new(rate, burst).unwrap_or_else(|_| TokenBucket::one_second(rate))
}
