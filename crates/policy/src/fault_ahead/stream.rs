//! One stream of first touches and the window ahead of it.

use super::{Advance, Surroundings};
use crate::page::{HUGE_PAGE_BYTES, RegionAddr};
use crate::whole::i64_of;
use std::collections::BTreeSet;
use std::time::Duration;

/// How far ahead is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAheadSettings {
    /// First window, in regions (1 or more).
    pub first_window: u32,
    /// Largest window, in regions: more than this is never filled in vain.
    pub largest_window: u32,
    /// Regions that a program faster than the filler is left to fault in by itself, so that both work at once.
    pub left_to_program: u32,
    /// A stream that was not heard of for this long has ended.
    pub forgotten_after: Duration,
}

impl Default for FaultAheadSettings {
    /// From 4 MiB to 128 MiB ahead.
    fn default() -> Self {
        Self {
            first_window: 2,
            largest_window: 64,
            left_to_program: 4,
            forgotten_after: Duration::from_secs(10),
        }
    }
}

/// A region is seen for what it is when its program is so many steps further. Allocators write the head and the end
/// of what they hand out, which is filled only then.
const LEFT_BEHIND: i64 = 4;

/// A program's way through new memory.
///
/// Positions are counted in steps from where it was first heard of, in its own direction: what lies behind is
/// smaller.
#[derive(Clone, Debug)]
pub struct Stream {
    origin: RegionAddr,
    step: i32,
    /// Where its program was last heard of.
    head: i64,
    /// First position that has not been handed out to be filled.
    next: i64,
    /// Positions that were, and of which nothing has been heard since.
    under_way: BTreeSet<i64>,
    /// Positions before this were left to its program.
    filled_from: i64,
    /// In regions; 0: given up.
    window: u32,
    /// Whether its program was seen to use what it passes through.
    proven: bool,
    /// The first position of this window that was filled: it stands for the others.
    witness: Option<i64>,
    /// Whether it is filled because somebody asked for it, whatever is used.
    asked_for: bool,
    heard_at: Duration,
    /// Time that its program takes for a step, once it was heard of twice.
    pace: Option<Duration>,
    /// When to look whether its program has come halfway through what is filled.
    peek_at: Option<Duration>,
}

/// Looks at memory in between are not closer together than this: each takes some ten microseconds, or a hundred where
/// all of the region is zeros.
const SHORTEST_PEEK: Duration = Duration::from_micros(500);
const LONGEST_PEEK: Duration = Duration::from_secs(1);

impl Stream {
    /// A stream that was just recognised.
    pub fn new(now: Duration, advance: Advance, settings: &FaultAheadSettings) -> Self {
        Self {
            origin: advance.region,
            step: advance.step,
            head: 0,
            next: 1,
            under_way: BTreeSet::new(),
            filled_from: 1,
            window: settings.first_window,
            proven: advance.dense,
            witness: None,
            asked_for: false,
            heard_at: now,
            pace: None,
            peek_at: None,
        }
    }

    /// One that was asked for, down from the end of a mapping: most programs come from the other side, and both work
    /// at once. `last`: the mapping's last whole region.
    pub fn down_from(now: Duration, last: RegionAddr) -> Self {
        Self {
            origin: last,
            step: -1,
            head: 0,
            next: 0,
            under_way: BTreeSet::new(),
            filled_from: 0,
            window: u32::MAX,
            proven: true,
            witness: None,
            asked_for: true,
            heard_at: now,
            pace: None,
            peek_at: None,
        }
    }

    /// Its program is known to use what it passes through.
    pub fn trust(&mut self) {
        self.proven = true;
    }

    /// Whether its program is known to use what it passes through.
    pub fn is_proven(&self) -> bool {
        self.proven
    }

    /// Whether it is filled because somebody asked for it, whoever is heard of.
    pub fn asked_for(&self) -> bool {
        self.asked_for
    }

    /// Some program was heard of: returns whether it was this stream's.
    pub fn hear(&mut self, now: Duration, advance: Advance, settings: &FaultAheadSettings) -> bool {
        let Some(at) = self.position(advance.region) else {
            return false;
        };
        // What lies behind was passed; far ahead is another stream.
        let reach = self.next + i64::from(settings.largest_window);
        if advance.step.signum() != self.step.signum() || !(self.head..=reach).contains(&at) {
            return false;
        }
        // What is still under way was not filled in time.
        let outrun = self.surplus() < u64::from(self.window) || !self.under_way.is_empty();
        self.come_to(now, at);
        let under_way_ahead = i64_of(self.under_way.range(at + 1..).count() as u64);
        if at + 1 + under_way_ahead >= self.next {
            self.caught_up(outrun, settings);
        }
        if advance.dense {
            self.proven = true;
            self.window = self.window.max(settings.first_window);
        }
        true
    }

    /// Its program is here now.
    fn come_to(&mut self, now: Duration, at: i64) {
        let steps = u32::try_from(at - self.head).unwrap_or(1).max(1);
        let latest = now.saturating_sub(self.heard_at) / steps;
        self.pace = Some(self.pace.map_or(latest, |pace| (pace + latest) / 2));
        self.head = at;
        self.heard_at = now;
        self.peek_at = None;
    }

    /// The region halfway through what is filled, and when its program is expected to have come to it: of memory that
    /// is there nothing is heard, so it is looked at. `None` while the window is not full.
    pub fn peek(&self) -> Option<(Duration, RegionAddr)> {
        let ahead = self.surplus();
        let full = self.window > 0 && ahead >= u64::from(self.window);
        if ahead < 2 || !full || self.asked_for {
            return None;
        }
        let halfway = self.halfway();
        if self.under_way.contains(&halfway) {
            return None;
        }
        let steps = u32::try_from(halfway - self.head).ok()?;
        let expected = || {
            // It may be faster now that it doesn't fault.
            let way = self.pace? * steps / 2;
            Some(self.heard_at + way.clamp(SHORTEST_PEEK, LONGEST_PEEK))
        };
        let at = self.peek_at.or_else(expected)?;
        Some((at, self.region(halfway)?))
    }

    /// Whether its program was seen to have come halfway: then the window goes on from there.
    pub fn peeked(&mut self, now: Duration, halfway: bool, settings: &FaultAheadSettings) {
        if halfway {
            self.come_to(now, self.halfway());
            self.widen(settings);
        } else {
            let waited = now.saturating_sub(self.heard_at);
            self.peek_at = Some(now + (waited / 4).clamp(SHORTEST_PEEK, LONGEST_PEEK));
        }
    }

    fn widen(&mut self, settings: &FaultAheadSettings) {
        if self.proven {
            let doubled = self.window.saturating_mul(2).min(settings.largest_window);
            self.window = self.window.max(doubled);
        }
    }

    /// Its program has come through all that was filled: the window starts again ahead of it.
    fn caught_up(&mut self, outrun: bool, settings: &FaultAheadSettings) {
        if !outrun {
            self.widen(settings);
        }
        let left = if self.proven && outrun {
            i64::from(settings.left_to_program)
        } else {
            0
        };
        let restart = self.head + 1 + left;
        // Where fills are under way beyond that, it comes to those next.
        if restart >= self.next {
            self.next = restart;
            self.filled_from = restart;
        }
    }

    /// The position before the first that may be filled and that its program has not come to.
    fn before_filled(&self) -> i64 {
        self.head.max(self.filled_from - 1)
    }

    fn halfway(&self) -> i64 {
        self.before_filled() + i64_of(self.surplus().div_ceil(2))
    }

    /// The next region to fill, if one is due: within the window and the mapping.
    pub fn due(&self, surroundings: &Surroundings) -> Option<RegionAddr> {
        if !self.wants() || surroundings.room_regions == 0 {
            return None;
        }
        let region = self.region(self.next)?;
        let mapped = &surroundings.mapped;
        (mapped.start <= region.start() && region.end() <= mapped.end).then_some(region)
    }

    /// Whether the window has room.
    pub fn wants(&self) -> bool {
        let waits_for_proof = !self.proven && self.passed_witness().is_some();
        self.surplus() < u64::from(self.window) && !waits_for_proof
    }

    /// The region that was due is being filled from now on.
    pub fn handed_out(&mut self) {
        self.under_way.insert(self.next);
        self.next += 1;
    }

    /// A region that was handed out has been dealt with; `filled` if it is there for this reason only.
    pub fn dealt_with(&mut self, region: RegionAddr, filled: bool) {
        let at = self.position(region);
        let Some(at) = at.filter(|at| self.under_way.remove(at)) else {
            return;
        };
        if filled && self.witness.is_none() && !self.asked_for {
            self.witness = Some(at);
        }
    }

    /// A filled region that its program has left behind: whether it is in use tells whether to go on.
    pub fn passed_witness(&self) -> Option<RegionAddr> {
        let at = self.witness.filter(|at| at + LEFT_BEHIND <= self.head)?;
        self.region(at)
    }

    /// Whether the passed witness is in use. One that isn't ends the stream: its program takes a page here and there.
    pub fn looked_at(&mut self, in_use: bool) {
        self.witness = None;
        self.proven = in_use;
        if !in_use {
            self.window = 0;
        }
    }

    /// Whether it can be forgotten.
    pub fn has_ended(&self, now: Duration, settings: &FaultAheadSettings) -> bool {
        let unheard = now.saturating_sub(self.heard_at) > settings.forgotten_after;
        unheard && !(self.asked_for && self.window > 0)
    }

    /// Regions that were handed out and that its program was not yet heard in.
    pub fn surplus(&self) -> u64 {
        u64::try_from(self.next - 1 - self.before_filled()).unwrap_or(0)
    }

    /// Window, in regions; 0 when it is given up.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Where its program was last heard of.
    pub fn head(&self) -> RegionAddr {
        self.region(self.head).unwrap_or(self.origin)
    }

    /// When it was last heard of.
    pub fn heard_at(&self) -> Duration {
        self.heard_at
    }

    fn position(&self, region: RegionAddr) -> Option<i64> {
        let bytes = i64_of(region.start()) - i64_of(self.origin.start());
        let step = i64::from(self.step) * i64_of(HUGE_PAGE_BYTES);
        (step != 0 && bytes % step == 0).then(|| bytes / step)
    }

    fn region(&self, position: i64) -> Option<RegionAddr> {
        let bytes = position.checked_mul(i64::from(self.step) * i64_of(HUGE_PAGE_BYTES))?;
        let start = self.origin.start().checked_add_signed(bytes)?;
        Some(RegionAddr::containing(start))
    }
}
