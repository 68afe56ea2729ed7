//! Regions that recovery has split: does their memory stay given back?

use crate::observation::RegionSample;
use crate::page::{PAGES_PER_REGION, RegionAddr};
use std::collections::BTreeMap;
use std::time::Duration;

/// Memory that a program takes again sooner than this was not worth its split. Samples must show a
/// split region for this long.
pub const MAY_BE_REFILLED: Duration = Duration::from_secs(120);
/// How long a region is left as it is after a split was undone once. Doubled each further time.
const FIRST_HOLD: Duration = Duration::from_secs(240);
const MOST_DOUBLINGS: u8 = 4;
/// A split region that no sample shows for as long as the longest hold is forgotten, because its
/// memory may be unmapped.
pub(crate) const FORGET_UNSEEN: Duration = FIRST_HOLD.saturating_mul(1 << MOST_DOUBLINGS);
/// The most split regions that are remembered of one process: 64 GiB.
pub(crate) const MOST_REGIONS: usize = 1 << 15;
/// Base pages given back that a process must have before its refills tell something.
const EVIDENCE: f64 = 8.0 * PAGES_PER_REGION as f64;
/// Base pages after which older splits count half: 4 GiB.
const FORGET_AFTER: f64 = (1u32 << 20) as f64;

/// The split regions of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct SplitRegions {
    regions: BTreeMap<RegionAddr, SplitRegion>,
    /// Base pages given back, and how many of these the program soon took again.
    given: f64,
    taken_again: f64,
    /// Page walks per second that all regions which are still split are expected to cost.
    pub(super) lost_walks_per_s: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct SplitRegion {
    at: Duration,
    /// When it was split or last sampled.
    seen: Duration,
    given_pages: u16,
    /// Page walks per second that its split is expected to cost; 0 once it is huge again.
    walks_per_s: f64,
    /// Whether its memory may still be taken again soon.
    open: bool,
    /// Whether the manager has promoted it since.
    promoted: bool,
    times_undone: u8,
    hold: Option<RegionHold>,
}

/// A region that recovery and something else would change back and forth for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionHold {
    /// Which state it is left in.
    pub state: HeldState,
    /// How long it takes until the split is undone.
    pub undone_after: Duration,
    /// How often that happened.
    pub times: u8,
    /// The end of the hold.
    pub until: Duration,
}

impl RegionHold {
    /// The hold and its cause, as a clause.
    pub fn explain(&self, now: Duration) -> String {
        let (times, after_s) = (self.times, self.undone_after.as_secs());
        let left_s = self.until.saturating_sub(now).as_secs();
        match self.state {
            HeldState::Huge => format!(
                "{after_s} s after recovery had split it, it was full again ({times} times so far): recovery leaves it huge for {left_s} s more"
            ),
            HeldState::Split => format!(
                "promotion and recovery have undone each other here {times} times: it stays split for {left_s} s more"
            ),
        }
    }
}

/// The state in which a region is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldState {
    /// The program or the kernel fills it again. From outside, nothing prevents that
    /// (`process_madvise` has no `MADV_NOHUGEPAGE`). So each further split would cost its time and
    /// page faults, and would save memory for seconds.
    Huge,
    /// The manager's own promotions fill it again. Without them it costs page walks alone.
    Split,
}

impl SplitRegions {
    /// A region was split and gave `given_pages` back. Without effect on one that is new where
    /// [`MOST_REGIONS`] are known.
    pub(super) fn record_split(
        &mut self,
        now: Duration,
        region: RegionAddr,
        given_pages: u16,
        walks_per_s: f64,
    ) {
        if self.regions.len() >= MOST_REGIONS && !self.regions.contains_key(&region) {
            return;
        }
        let split = self.regions.entry(region).or_default();
        // While it was kept split, nothing could undo that.
        let since = split.hold.map_or(split.at, |hold| hold.until.max(split.at));
        if std::mem::take(&mut split.promoted) && now < since.saturating_add(8 * MAY_BE_REFILLED) {
            split.undo(now, HeldState::Split);
        }
        self.lost_walks_per_s += walks_per_s - split.walks_per_s;
        *split = SplitRegion { at: now, seen: now, given_pages, walks_per_s, open: true, ..*split };
        if self.given > FORGET_AFTER {
            self.given /= 2.0;
            self.taken_again /= 2.0;
        }
        self.given += f64::from(given_pages);
    }

    /// The manager made a region huge.
    pub(super) fn record_promotion(&mut self, region: RegionAddr) {
        if let Some(split) = self.regions.get_mut(&region) {
            self.lost_walks_per_s -= split.walks_per_s;
            (split.promoted, split.open, split.walks_per_s) = (true, false, 0.0);
        }
    }

    /// Takes in a sample of regions in order of address. A region that is missing is as it was, but
    /// not for ever ([`FORGET_UNSEEN`]).
    pub(super) fn observe(&mut self, at: Duration, sampled: &[RegionSample]) {
        for (region, split) in &mut self.regions {
            let found = sampled.binary_search_by_key(region, |sample| sample.region);
            let now_is = found.ok().and_then(|index| sampled.get(index));
            if now_is.is_some() {
                split.seen = at;
            }
            if now_is.is_some_and(RegionSample::is_huge) {
                split.walks_per_s = 0.0;
            }
            if !split.open {
                continue;
            }
            // More than half of what it gave back.
            let full = PAGES_PER_REGION.saturating_sub(split.given_pages / 2);
            if at >= split.at.saturating_add(MAY_BE_REFILLED) {
                split.open = false;
            } else if now_is.is_some_and(|sample| sample.present > full) {
                split.open = false;
                self.taken_again += f64::from(split.given_pages);
                split.undo(at, HeldState::Huge);
            }
        }
        // Longer than it holds, so that a region which is undone again is held for longer.
        let is_remembered = |hold: RegionHold| hold.until + hold_length(hold.times) > at;
        self.regions.retain(|_, split| {
            let counts = split.open || split.promoted || split.walks_per_s > 0.0;
            at < split.seen.saturating_add(FORGET_UNSEEN)
                && (counts || split.hold.is_some_and(is_remembered))
        });
        self.lost_walks_per_s = self.regions.values().map(|split| split.walks_per_s).sum();
    }

    /// Share of the memory given back that the program leaves alone for some time (over 0, at
    /// most 1).
    pub(super) fn kept_share(&self) -> f64 {
        1.0 - self.taken_again / (self.given + EVIDENCE)
    }

    /// The state in which a region is left, and why.
    pub(super) fn hold(&self, region: RegionAddr, now: Duration) -> Option<RegionHold> {
        self.regions.get(&region)?.hold.filter(|hold| hold.until > now)
    }
}

impl SplitRegion {
    fn undo(&mut self, now: Duration, state: HeldState) {
        self.times_undone = self.times_undone.saturating_add(1);
        self.hold = Some(RegionHold {
            state,
            undone_after: now.saturating_sub(self.at),
            times: self.times_undone,
            until: now + hold_length(self.times_undone),
        });
    }
}

/// How long a region is held that was undone this often (1 and up).
fn hold_length(times_undone: u8) -> Duration {
    FIRST_HOLD * (1 << times_undone.saturating_sub(1).min(MOST_DOUBLINGS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageOrder;
    use crate::test_support::{at_second, huge_sample, region, sample};

    fn with_present(index: u64, present: u16) -> RegionSample {
        RegionSample { present, ..sample(index, 1) }
    }

    #[test]
    fn a_region_that_its_program_fills_again_is_left_huge_and_longer_each_time() {
        let mut splits = SplitRegions::default();
        let mut holds = Vec::new();
        for start in [0, 400] {
            splits.record_split(at_second(start), region(1), 400, 70.0);
            assert_eq!(splits.lost_walks_per_s, 70.0);
            splits.observe(at_second(start + 20), &[with_present(1, 312)]);
            assert_eq!(splits.hold(region(1), at_second(start + 20)), None, "half is not more");
            splits.observe(at_second(start + 30), &[huge_sample(1, true)]);
            assert_eq!(splits.lost_walks_per_s, 0.0);
            holds.extend(splits.hold(region(1), at_second(start + 30)));
            splits.observe(at_second(start + 300), &[huge_sample(1, true)]);
        }
        let held = |times, until| RegionHold {
            state: HeldState::Huge,
            undone_after: at_second(30),
            times,
            until: at_second(until),
        };
        assert_eq!(holds, [held(1, 270), held(2, 910)]);
        assert_eq!(splits.hold(region(1), at_second(910)), None);
        assert!(splits.kept_share() < 0.9);
        // After twice the hold it is forgotten.
        splits.observe(at_second(1389), &[huge_sample(1, true)]);
        assert_eq!(splits.regions.len(), 1);
        splits.observe(at_second(1390), &[huge_sample(1, true)]);
        assert!(splits.regions.is_empty());
    }

    #[test]
    fn a_region_that_is_undone_after_each_hold_is_kept_split_for_longer_each_time() {
        let mut splits = SplitRegions::default();
        let mut now = at_second(0);
        splits.record_split(now, region(1), 400, 9.0);
        for seconds in [240, 480, 960, 1920, 3840, 3840] {
            splits.record_promotion(region(1));
            now += at_second(60);
            splits.record_split(now, region(1), 400, 9.0);
            let until = splits.hold(region(1), now).map(|hold| hold.until);
            assert_eq!(until, Some(now + at_second(seconds)));
            now += at_second(seconds);
        }
    }

    #[test]
    fn memory_that_stays_away_for_two_minutes_was_worth_it() {
        let mut splits = SplitRegions::default();
        splits.record_split(at_second(0), region(1), 400, 0.0);
        splits.observe(at_second(121), &[with_present(1, 112)]);
        splits.observe(at_second(150), &[huge_sample(1, true)]);
        assert_eq!(splits.hold(region(1), at_second(150)), None);
        assert_eq!(splits.kept_share(), 1.0);
        assert!(splits.regions.is_empty());
    }

    #[test]
    fn a_region_that_the_manager_promotes_in_vain_stays_split() {
        let mut splits = SplitRegions::default();
        splits.record_split(at_second(0), region(1), 400, 9.0);
        splits.record_promotion(region(1));
        splits.observe(at_second(20), &[huge_sample(1, true)]);
        assert_eq!(splits.hold(region(1), at_second(20)), None);
        splits.record_split(at_second(40), region(1), 400, 9.0);
        let hold = splits.hold(region(1), at_second(40)).map(|hold| (hold.state, hold.times));
        assert_eq!(hold, Some((HeldState::Split, 1)));
        assert_eq!(splits.lost_walks_per_s, 9.0);
    }

    #[test]
    fn an_unseen_region_is_as_it_was() {
        let mut splits = SplitRegions::default();
        splits.record_split(at_second(0), region(1), 512, 5.0);
        let other = RegionSample { order: PageOrder::HUGE, ..sample(2, 512) };
        splits.observe(at_second(500), &[other]);
        assert_eq!((splits.lost_walks_per_s, splits.kept_share()), (5.0, 1.0));
    }

    #[test]
    fn a_region_that_no_sample_shows_any_more_is_forgotten() {
        let mut splits = SplitRegions::default();
        for index in [1, 2, 3] {
            splits.record_split(at_second(0), region(index), 511, 20.0);
        }
        splits.record_promotion(region(3));
        splits.observe(at_second(3000), &[with_present(2, 1)]);
        assert_eq!((splits.regions.len(), splits.lost_walks_per_s), (3, 40.0));
        splits.observe(at_second(3840), &[]);
        assert_eq!(splits.regions.keys().copied().collect::<Vec<_>>(), [region(2)]);
        assert_eq!(splits.lost_walks_per_s, 20.0);
        splits.observe(at_second(6840), &[]);
        assert_eq!((splits.regions.len(), splits.lost_walks_per_s), (0, 0.0));
    }

    #[test]
    fn new_addresses_without_end_take_no_memory_without_end() {
        let mut splits = SplitRegions::default();
        let most = MOST_REGIONS as u64;
        for index in 0..most + 1000 {
            splits.record_split(at_second(0), region(index), 511, 1.0);
        }
        assert_eq!(splits.regions.len(), MOST_REGIONS);
        assert_eq!(splits.lost_walks_per_s, most as f64);
        // A known one is still updated.
        splits.record_split(at_second(1), region(0), 511, 2.0);
        assert_eq!(splits.lost_walks_per_s, most as f64 + 1.0);
    }
}
