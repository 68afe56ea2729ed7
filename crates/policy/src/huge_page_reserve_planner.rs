//! A reserve of huge pages that are ready to be handed out: how many, and whether it pays.
//!
//! A huge page can cost far more than zeroing it: the hypervisor must back the memory (free page
//! reporting), or the kernel must compact. The reserve moves this cost out of promotions, to a
//! thread of idle priority. Where huge pages are cheap, it stays empty.

use crate::event::Event;
use crate::page::HUGE_PAGE_BYTES;
use crate::saturating_cast::u32_from_f64;
use crate::setting_error::{Setting, SettingError};
use std::time::Duration;

/// Limit of the reserve, in bytes: 0 to 1 GiB, and never over 1 % of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveLimit(u64);

impl Default for ReserveLimit {
    fn default() -> Self {
        Self(256 << 20)
    }
}

impl ReserveLimit {
    /// Largest limit, in bytes.
    pub const MAX_BYTES: u64 = 1 << 30;
    /// Share of memory that the reserve never exceeds: a hundredth.
    const MEMORY_SHARE: u64 = 100;

    /// No reserve.
    pub const OFF: Self = Self(0);

    /// A limit in bytes, at most [`Self::MAX_BYTES`]. Less than a huge page turns the reserve off.
    pub fn from_bytes(bytes: u64) -> Result<Self, SettingError> {
        let fits = bytes <= Self::MAX_BYTES;
        SettingError::error_unless_valid(fits, Setting::Reserve, bytes, "at most 1 GiB")?;
        Ok(Self(bytes))
    }

    /// The limit in bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Whether there is a reserve at all.
    pub fn is_off(self) -> bool {
        self.0 < HUGE_PAGE_BYTES
    }

    /// Most huge pages on a machine with this much memory.
    pub fn max_huge_pages(self, total_bytes: u64) -> u32 {
        u32_from_f64((self.0.min(total_bytes / Self::MEMORY_SHARE) / HUGE_PAGE_BYTES) as f64)
    }
}

/// What a reserve holds and has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveState {
    /// Huge pages that it holds.
    pub held: u32,
    /// Huge pages filled so far.
    pub filled: u64,
    /// Fills for which the kernel had no huge page.
    pub failed: u64,
    /// Huge pages given back for a promotion or prefault.
    pub served: u64,
    /// CPU time of all fills. They run at idle priority.
    pub fill_cpu: Duration,
}

/// How the kernel will get the next huge page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePageReadiness {
    /// It is free and backed by memory, or the reserve holds it.
    #[default]
    Ready,
    /// Its memory must be got first: by compaction, or from the hypervisor. `fill` is the CPU time
    /// of that, as last measured.
    NotReady {
        /// CPU time to get a huge page and zero it.
        fill: Duration,
    },
}

/// How many huge pages the reserve should hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveTarget {
    /// Pages beyond that are given back at once.
    pub pages: u32,
    /// Whether missing pages are filled. If not, it keeps what it has.
    pub fill: bool,
}

/// What the size of the reserve depends on, at one time.
#[derive(Clone, Copy, Debug)]
pub struct ReserveInput {
    /// The time.
    pub now: Duration,
    /// What the reserve holds.
    pub state: ReserveState,
    /// All memory, in bytes; 0 if unknown.
    pub total_bytes: u64,
    /// Bytes up to the high watermark. What the reserve holds counts as used.
    pub room_bytes: u64,
    /// Nothing may be promoted: memory pressure, a watermark, a pause.
    pub blocked: bool,
}

/// Decides how many huge pages the reserve should hold.
#[derive(Clone, Debug)]
pub struct HugePageReservePlanner {
    limit: ReserveLimit,
    /// The last time at which a promotion was due.
    last_use: Duration,
    /// Emptied for lack of memory: empty until this time.
    closed_until: Duration,
    /// The kernel had no huge page: not filled until this time.
    no_fill_until: Duration,
    /// When a fill was last seen, and what getting a huge page costs on average: by the fills, and
    /// by promotions that got theirs from the kernel.
    fill: Option<(Duration, Duration)>,
    /// The reserve when it was last looked at.
    seen: ReserveState,
    /// Average CPU time of a promotion for which the reserve gave a page.
    served: Duration,
}

impl HugePageReservePlanner {
    /// Empty after this time without use.
    pub const UNUSED_AFTER: Duration = Duration::from_secs(10);
    /// Empty for this long after memory was short. Not filled for this long after a failed fill.
    const CLOSED_FOR: Duration = Duration::from_secs(10);
    /// A fill cost is measured anew after this time.
    const MEASURED_FOR: Duration = Duration::from_secs(60);
    /// Assumed cost of a promotion from the reserve (measured: 445-462 us).
    const SERVED: Duration = Duration::from_micros(450);
    /// Weight of the newest promotion in the average.
    const NEWEST: f64 = 0.1;
    /// Weight of the newest fill. Costs are of two kinds, so a single fill says little.
    const NEWEST_FILL: f64 = 0.25;

    /// A planner that knows no cost yet.
    pub fn new(limit: ReserveLimit) -> Self {
        Self {
            limit,
            last_use: Duration::ZERO,
            closed_until: Duration::ZERO,
            no_fill_until: Duration::ZERO,
            fill: None,
            seen: ReserveState::default(),
            served: Self::SERVED,
        }
    }

    /// Takes in that a promotion was tried, and its CPU time: the call may wait for the process.
    pub fn apply_event(&mut self, now: Duration, event: &Event) {
        let Event::PromotionTried { done, cpu, from_reserve, .. } = *event else { return };
        self.record_demand(now);
        match (done, from_reserve) {
            (true, true) => self.record_promotion_from_reserve(cpu),
            (true, false) => self.record_promotion_without_reserve(cpu),
            (false, _) => {}
        }
    }

    /// A huge page is needed.
    pub fn record_demand(&mut self, now: Duration) {
        self.last_use = now;
    }

    /// The reserve could not be filled, or memory is short: it stays empty for a while.
    pub fn keep_empty(&mut self, now: Duration) {
        self.closed_until = now + Self::CLOSED_FOR;
    }

    /// A promotion for which the reserve gave a huge page took this much CPU time.
    fn record_promotion_from_reserve(&mut self, cpu: Duration) {
        self.served = self.served.mul_f64(1.0 - Self::NEWEST) + cpu.mul_f64(Self::NEWEST);
    }

    /// A promotion for which the kernel had to get a huge page took this much CPU time. Beyond what
    /// one from the reserve takes, it is what a fill would have cost.
    fn record_promotion_without_reserve(&mut self, cpu: Duration) {
        if let Some((_, fill)) = &mut self.fill {
            let cost = cpu.saturating_sub(self.served);
            *fill = fill.mul_f64(1.0 - Self::NEWEST) + cost.mul_f64(Self::NEWEST);
        }
    }

    /// Whether a page from the reserve at least halves the cost of a promotion: a fill costs as
    /// much as the rest of it. `None` until a fill was measured.
    pub fn is_worthwhile(&self) -> Option<bool> {
        self.fill.map(|(_, cost)| cost >= self.served)
    }

    /// How many huge pages the reserve should hold from now on.
    pub fn decide_target(&mut self, input: &ReserveInput) -> ReserveTarget {
        let ReserveInput { now, state, .. } = *input;
        self.record_fills(now, &state);
        if state.failed != self.seen.failed {
            self.no_fill_until = now + Self::CLOSED_FOR;
        }
        if state.served != self.seen.served {
            self.last_use = now;
        }
        self.seen = state;
        if input.blocked {
            self.keep_empty(now);
        }
        let unused = now.saturating_sub(self.last_use) >= Self::UNUSED_AFTER;
        if unused || now < self.closed_until {
            return ReserveTarget::default();
        }
        // Half of the room: the other half is for the programs.
        let room = u32_from_f64((input.room_bytes / 2 / HUGE_PAGE_BYTES) as f64);
        let most = self.limit.max_huge_pages(input.total_bytes);
        let most = most.min(state.held.saturating_add(room));
        let pages = match self.fill {
            Some(_) if self.is_worthwhile() == Some(true) => most,
            Some((at, _)) if now.saturating_sub(at) < Self::MEASURED_FOR => 0,
            // One page, to measure its cost.
            _ => most.min(1),
        };
        ReserveTarget { pages, fill: now >= self.no_fill_until }
    }

    /// Takes in the cost of the fills since the last call.
    fn record_fills(&mut self, now: Duration, state: &ReserveState) {
        let fills = u32_from_f64(state.filled.saturating_sub(self.seen.filled) as f64);
        if fills == 0 {
            return;
        }
        let mean = state.fill_cpu.saturating_sub(self.seen.fill_cpu) / fills;
        let before = self.fill.map_or(mean, |(_, cost)| cost);
        let old = (1.0 - Self::NEWEST_FILL).powi(fills.try_into().unwrap_or(i32::MAX));
        self.fill = Some((now, before.mul_f64(old) + mean.mul_f64(1.0 - old)));
    }

    /// How the kernel will get the next huge page. `free_blocks`: whether free blocks of this size
    /// exist.
    pub fn next_huge_page_readiness(&self, held: u32, free_blocks: bool) -> HugePageReadiness {
        match self.fill {
            Some((_, fill))
                if held == 0 && (!free_blocks || self.is_worthwhile() == Some(true)) =>
            {
                HugePageReadiness::NotReady { fill }
            }
            _ => HugePageReadiness::Ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn input(ms: u64, state: ReserveState) -> ReserveInput {
        ReserveInput {
            now: at(ms),
            state,
            total_bytes: 64 * GIB,
            room_bytes: 8 * GIB,
            blocked: false,
        }
    }

    fn filled(held: u32, filled: u64, fill_us: u64) -> ReserveState {
        ReserveState {
            held,
            filled,
            fill_cpu: Duration::from_micros(fill_us * filled),
            ..ReserveState::default()
        }
    }

    fn pages(planner: &mut HugePageReservePlanner, ms: u64, state: ReserveState) -> u32 {
        planner.decide_target(&input(ms, state)).pages
    }

    fn planner() -> HugePageReservePlanner {
        HugePageReservePlanner::new(ReserveLimit::default())
    }

    #[test]
    fn one_page_is_filled_to_measure_and_all_where_fills_are_expensive() {
        let mut planner = planner();
        assert_eq!(pages(&mut planner, 0, ReserveState::default()), 1);
        assert_eq!(planner.is_worthwhile(), None);
        assert_eq!(pages(&mut planner, 10, filled(1, 1, 4600)), 128);
        assert_eq!(planner.next_huge_page_readiness(1, true), HugePageReadiness::Ready);
        let fill = Duration::from_micros(4600);
        let expensive = HugePageReadiness::NotReady { fill };
        assert_eq!(planner.next_huge_page_readiness(0, true), expensive);
        assert_eq!(pages(&mut planner, 10_000, filled(128, 128, 4600)), 0);
        planner.record_demand(at(10_000));
        assert_eq!(pages(&mut planner, 10_001, filled(0, 128, 4600)), 128);
    }

    #[test]
    fn where_memory_is_backed_it_stays_empty_and_is_measured_again_after_a_minute() {
        let mut planner = planner();
        assert_eq!(pages(&mut planner, 0, ReserveState::default()), 1);
        assert_eq!(pages(&mut planner, 10, filled(1, 1, 90)), 0);
        planner.record_demand(at(60_000));
        assert_eq!(pages(&mut planner, 60_000, filled(0, 1, 90)), 0);
        assert_eq!(pages(&mut planner, 60_010, filled(0, 1, 90)), 1);
        assert_eq!(planner.next_huge_page_readiness(0, true), HugePageReadiness::Ready);
        let fill = Duration::from_micros(90);
        let compacts = HugePageReadiness::NotReady { fill };
        assert_eq!(planner.next_huge_page_readiness(0, false), compacts);
    }

    #[test]
    fn it_pays_by_the_measured_cost_of_promotions_that_it_served() {
        let mut planner = planner();
        planner.decide_target(&input(0, filled(1, 1, 300)));
        assert_eq!(planner.is_worthwhile(), Some(false));
        for _ in 0..100 {
            planner.record_promotion_from_reserve(Duration::from_micros(200));
        }
        assert_eq!(planner.is_worthwhile(), Some(true));
    }

    #[test]
    fn it_pays_where_promotions_without_it_are_dear_whatever_one_fill_cost() {
        let mut planner = planner();
        planner.record_demand(at(0));
        assert_eq!(pages(&mut planner, 0, filled(1, 1, 90)), 0);
        for _ in 0..3 {
            planner.record_promotion_without_reserve(Duration::from_micros(3000));
        }
        assert_eq!(planner.is_worthwhile(), Some(true));
        assert_eq!(pages(&mut planner, 10, filled(0, 1, 90)), 128);
        // Fills show that it is cheap again.
        assert_eq!(pages(&mut planner, 20, filled(128, 128, 90)), 0);
    }

    #[test]
    fn a_shortage_empties_it_at_once_and_for_a_while() {
        let mut planner = planner();
        assert_eq!(pages(&mut planner, 0, filled(1, 1, 4600)), 128);
        let blocked = ReserveInput { blocked: true, ..input(100, filled(100, 100, 4600)) };
        assert_eq!(planner.decide_target(&blocked).pages, 0);
        planner.record_demand(at(10_000));
        assert_eq!(pages(&mut planner, 10_000, filled(0, 100, 4600)), 0);
        assert_eq!(pages(&mut planner, 10_100, filled(0, 100, 4600)), 128);
        let failed = ReserveState { failed: 1, ..filled(0, 100, 4600) };
        // What it holds is needed most then.
        let kept = planner.decide_target(&input(10_200, failed));
        assert_eq!((kept.pages, kept.fill), (128, false));
        planner.record_demand(at(20_200));
        assert!(planner.decide_target(&input(20_200, failed)).fill);
    }

    #[test]
    fn limits_are_checked() {
        assert!(ReserveLimit::from_bytes(ReserveLimit::MAX_BYTES + 1).is_err());
        assert!(ReserveLimit::from_bytes(0).is_ok_and(ReserveLimit::is_off));
        assert!(!ReserveLimit::default().is_off());
    }

    proptest! {
        #[test]
        fn the_target_keeps_every_limit(
            limit_bytes in 0..=ReserveLimit::MAX_BYTES,
            total_bytes in 0..(1u64 << 42),
            steps in prop::collection::vec(
                (0u64..20_000, 0u32..1000, 0u64..9000, any::<bool>(), any::<bool>(), 0..4 * GIB),
                1..40,
            ),
        ) {
            let limit = ReserveLimit::from_bytes(limit_bytes).expect("it is in range");
            let mut planner = HugePageReservePlanner::new(limit);
            let (mut now, mut last_use, mut fills) = (Duration::ZERO, Duration::ZERO, 0);
            for (ms, held, fill_us, blocked, used, room_bytes) in steps {
                now += at(ms);
                fills += 1;
                if used {
                    planner.record_demand(now);
                    last_use = now;
                }
                let state = filled(held, fills, fill_us);
                let input = ReserveInput { now, state, total_bytes, room_bytes, blocked };
                let target = planner.decide_target(&input).pages;
                let bytes = u64::from(target) * HUGE_PAGE_BYTES;
                prop_assert!(bytes <= limit_bytes.min(total_bytes / 100));
                let added = u64::from(target.saturating_sub(held)) * HUGE_PAGE_BYTES;
                prop_assert!(added <= room_bytes / 2);
                if blocked || now - last_use >= HugePageReservePlanner::UNUSED_AFTER {
                    prop_assert_eq!(target, 0);
                }
                if planner.is_worthwhile() == Some(false) {
                    prop_assert_eq!(target, 0);
                }
            }
        }
    }
}
