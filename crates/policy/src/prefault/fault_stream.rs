//! One stream of first touches and the window ahead of it.

use super::{PrefaultableMemory, RegionTouch, StreamFaultReport};
use crate::page::{HUGE_PAGE_BYTES, RegionAddr};
use crate::saturating_cast::i64_from_u64;
use std::collections::BTreeSet;
use std::time::Duration;

/// The first window, in regions: 4 MiB.
pub(super) const FIRST_WINDOW: u32 = 2;
/// The largest window, in regions. At most these 128 MiB are filled in vain.
pub(super) const LARGEST_WINDOW: u32 = 64;
/// Regions left to a program that is faster than the filler, so that both work at once.
const LEFT_TO_PROGRAM: i64 = 4;
/// A stream without a report for this long has ended.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// A region is judged only when its program is this many steps further. Allocators write the head
/// and the end of what they hand out, and the region is filled only after that.
const LEFT_BEHIND: i64 = 4;

/// A stream tries at most this many regions once more.
const MOST_LEFT_FOR_LATER: usize = 8;

/// A program's way through new memory.
///
/// Positions are counted in steps from the first report, in the stream's own direction. Smaller
/// positions lie behind.
#[derive(Clone, Debug)]
pub struct FaultStream {
    origin: RegionAddr,
    step: i32,
    head: i64,
    /// First position that has not been handed out to be filled.
    next: i64,
    /// Positions that were handed out and have no result yet.
    under_way: BTreeSet<i64>,
    /// Positions before this were left to the program.
    filled_from: i64,
    /// The window in regions; 0: given up.
    pub(super) window: u32,
    /// Whether the program is known to use what it passes through.
    pub(super) proven: bool,
    /// The first filled position of this window. It is checked in place of the others.
    witness: Option<i64>,
    /// Whether the next region lies beyond the mapping. Its program enlarges the mapping as it
    /// goes, so it reaches new memory first.
    held_by_mapping: bool,
    /// Positions that the program was touching when they were handed out, and that are not known
    /// to be filled. Where the mapping holds the stream up, those that the program has left are
    /// tried once more.
    left_for_later: BTreeSet<i64>,
    /// Whether it is filled because a user asked for it, whether in use or not.
    pub(super) asked_for: bool,
    pub(super) heard_at: Duration,
    /// Time that the program takes for a step, known after two reports.
    pace: Option<Duration>,
    /// When to check whether the program has passed half of what is filled.
    peek_at: Option<Duration>,
}

/// The shortest time between such checks. Each takes some ten microseconds, or a hundred where all
/// of the region is zeros.
const SHORTEST_PEEK: Duration = Duration::from_micros(500);
const LONGEST_PEEK: Duration = Duration::from_secs(1);

impl FaultStream {
    /// A stream that was just recognised.
    pub fn new(now: Duration, report: StreamFaultReport) -> Self {
        Self {
            origin: report.region,
            step: report.step,
            head: 0,
            next: 1,
            under_way: BTreeSet::new(),
            filled_from: 1,
            window: FIRST_WINDOW,
            proven: report.dense,
            witness: None,
            held_by_mapping: false,
            left_for_later: BTreeSet::new(),
            asked_for: false,
            heard_at: now,
            pace: None,
            peek_at: None,
        }
    }

    /// A stream on request, down from the end of a mapping. Most programs come from the other side,
    /// so both work at once. `last` is the mapping's last whole region.
    pub fn from_mapping_end(now: Duration, last: RegionAddr) -> Self {
        let report = StreamFaultReport { region: last, step: -1, dense: true };
        Self {
            next: 0,
            filled_from: 0,
            window: u32::MAX,
            asked_for: true,
            ..Self::new(now, report)
        }
    }

    /// Takes in a report of first touches; returns whether it belongs to this stream.
    pub fn accept_fault_report(&mut self, now: Duration, report: StreamFaultReport) -> bool {
        let Some(at) = self.position_of_region(report.region) else { return false };
        // The program has already passed what lies behind, and touches far ahead belong to another
        // stream.
        let reach = self.next + i64::from(LARGEST_WINDOW);
        if report.step.signum() != self.step.signum() || !(self.head..=reach).contains(&at) {
            return false;
        }
        // Fills ahead that are still under way were too late.
        let outrun = self.count_unreached_regions() < u64::from(self.window)
            || self.under_way.range(self.head + 1..).next().is_some();
        self.move_program_to(now, at);
        let under_way_ahead = i64_from_u64(self.under_way.range(at + 1..).count() as u64);
        if self.held_by_mapping {
            if at >= self.next {
                self.on_mapping_enlarged();
            }
        } else if at + 1 + under_way_ahead >= self.next {
            self.on_program_caught_up(outrun);
        }
        if report.dense {
            self.proven = true;
            self.window = self.window.max(FIRST_WINDOW);
        }
        true
    }

    fn move_program_to(&mut self, now: Duration, at: i64) {
        let steps = u32::try_from(at - self.head).unwrap_or(1).max(1);
        let latest = now.saturating_sub(self.heard_at) / steps;
        self.pace = Some(self.pace.map_or(latest, |pace| (pace + latest) / 2));
        self.head = at;
        self.heard_at = now;
        self.peek_at = None;
    }

    /// The region halfway through what is filled, and when the program is expected there. The
    /// kernel reports nothing for memory that is present, so the region is checked. `None` while
    /// the window is not full.
    pub fn planned_progress_check(&self) -> Option<(Duration, RegionAddr)> {
        let ahead = self.count_unreached_regions();
        let full = self.window > 0 && ahead >= u64::from(self.window);
        if ahead < 2 || !full || self.asked_for {
            return None;
        }
        let halfway = self.halfway_position();
        if self.under_way.contains(&halfway) {
            return None;
        }
        let steps = u32::try_from(halfway - self.head).ok()?;
        let at = self.peek_at.or_else(|| {
            // The program may be faster now that it doesn't fault.
            let way = self.pace? * steps / 2;
            Some(self.heard_at + way.clamp(SHORTEST_PEEK, LONGEST_PEEK))
        })?;
        Some((at, self.region_at_position(halfway)?))
    }

    /// Takes in whether the program has passed half. If so, the window goes on from there.
    pub fn on_progress_check_result(&mut self, now: Duration, halfway: bool) {
        if halfway {
            self.move_program_to(now, self.halfway_position());
            self.double_window_if_proven();
        } else {
            let waited = now.saturating_sub(self.heard_at);
            self.peek_at = Some(now + (waited / 4).clamp(SHORTEST_PEEK, LONGEST_PEEK));
        }
    }

    fn double_window_if_proven(&mut self) {
        if self.proven {
            let doubled = self.window.saturating_mul(2).min(LARGEST_WINDOW);
            self.window = self.window.max(doubled);
        }
    }

    /// The program has passed all that was filled. The window starts again ahead of it.
    fn on_program_caught_up(&mut self, outrun: bool) {
        if !outrun {
            self.double_window_if_proven();
        }
        let left = if self.proven && outrun { LEFT_TO_PROGRAM } else { 0 };
        let restart = self.head + 1 + left;
        // Where fills are under way beyond that, the program reaches those next.
        if restart >= self.next {
            self.next = restart;
            self.filled_from = restart;
        }
    }

    /// The program has touched the first region of what it has added to its mapping. That region is
    /// filled around its few base pages, as a huge-page fault would have done.
    fn on_mapping_enlarged(&mut self) {
        self.held_by_mapping = false;
        self.next = if self.proven { self.head } else { self.head + 1 };
        self.filled_from = self.next;
    }

    fn position_before_filled(&self) -> i64 {
        self.head.max(self.filled_from - 1)
    }

    fn halfway_position(&self) -> i64 {
        self.position_before_filled() + i64_from_u64(self.count_unreached_regions().div_ceil(2))
    }

    /// The next region to fill, if one is due: within the window and the mapping.
    pub fn region_to_prefault(&mut self, surroundings: &PrefaultableMemory) -> Option<RegionAddr> {
        if !self.has_room_to_prefault() || surroundings.room_regions == 0 {
            return None;
        }
        let next = self.region_at_position(self.next)?;
        self.held_by_mapping = !surroundings.contains(next);
        if !self.held_by_mapping {
            return Some(next);
        }
        let left = self.left_for_later.range(..self.head);
        let mut left = left.filter_map(|at| self.region_at_position(*at));
        left.find(|region| surroundings.contains(*region))
    }

    /// What the program is known to have done in a region that is due.
    pub fn touch_of_region(&self, region: RegionAddr) -> RegionTouch {
        match self.position_of_region(region) {
            Some(at) if at == self.head && !self.asked_for => RegionTouch::BeingTouched,
            Some(at) if self.left_for_later.contains(&at) => RegionTouch::LeftBehind,
            _ => RegionTouch::Untouched,
        }
    }

    /// Whether the window has room.
    pub fn has_room_to_prefault(&self) -> bool {
        let waits_for_proof = !self.proven && self.region_to_check_use().is_some();
        self.count_unreached_regions() < u64::from(self.window) && !waits_for_proof
    }

    /// The region that was due is now being filled. `touch` is that of the region.
    pub fn on_prefault_handed_out(&mut self, region: RegionAddr, touch: RegionTouch) {
        let Some(at) = self.position_of_region(region) else { return };
        self.under_way.insert(at);
        if touch == RegionTouch::LeftBehind {
            self.left_for_later.remove(&at);
            return;
        }
        self.next += 1;
        if touch == RegionTouch::BeingTouched {
            self.left_for_later.insert(at);
            // The oldest one is most likely to be freed.
            if self.left_for_later.len() > MOST_LEFT_FOR_LATER {
                self.left_for_later.pop_first();
            }
        }
    }

    /// A region that was handed out is done; `filled` if it is present only because of this fill.
    pub fn on_prefault_result(&mut self, region: RegionAddr, filled: bool) {
        let at = self.position_of_region(region);
        let Some(at) = at.filter(|at| self.under_way.remove(at)) else { return };
        if filled {
            self.left_for_later.remove(&at);
        }
        if filled && self.witness.is_none() && !self.asked_for {
            self.witness = Some(at);
        }
    }

    /// A filled region that the program has left behind. Whether it is in use decides whether to go
    /// on.
    pub fn region_to_check_use(&self) -> Option<RegionAddr> {
        let at = self.witness.filter(|at| at + LEFT_BEHIND <= self.head)?;
        self.region_at_position(at)
    }

    /// Takes in whether the passed witness is in use. If not, the stream ends, because its program
    /// touches only scattered pages.
    pub fn on_use_check_result(&mut self, in_use: bool) {
        self.witness = None;
        self.proven = in_use;
        if !in_use {
            self.window = 0;
        }
    }

    /// Whether the stream can be forgotten.
    pub fn has_ended(&self, now: Duration) -> bool {
        let unheard = now.saturating_sub(self.heard_at) > FORGOTTEN_AFTER;
        unheard && !(self.asked_for && self.window > 0)
    }

    /// Regions that were handed out and in which no report has placed the program yet.
    pub fn count_unreached_regions(&self) -> u64 {
        u64::try_from(self.next - 1 - self.position_before_filled()).unwrap_or(0)
    }

    /// The region of the last report.
    pub fn last_reported_region(&self) -> RegionAddr {
        self.region_at_position(self.head).unwrap_or(self.origin)
    }

    fn position_of_region(&self, region: RegionAddr) -> Option<i64> {
        let bytes = i64_from_u64(region.start()) - i64_from_u64(self.origin.start());
        let step = i64::from(self.step) * i64_from_u64(HUGE_PAGE_BYTES);
        (step != 0 && bytes % step == 0).then(|| bytes / step)
    }

    fn region_at_position(&self, position: i64) -> Option<RegionAddr> {
        let bytes = position.checked_mul(i64::from(self.step) * i64_from_u64(HUGE_PAGE_BYTES))?;
        Some(RegionAddr::containing(self.origin.start().checked_add_signed(bytes)?))
    }
}
