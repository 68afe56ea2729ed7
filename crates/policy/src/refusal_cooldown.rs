//! Leaving a region alone for a while after the kernel refused it, or after its file seemed to lack
//! pages.

use crate::event::Event;
use crate::observation::ProcessId;
use crate::page::RegionAddr;
use std::collections::HashMap;
use std::time::Duration;

/// Refused candidates and when they may be tried again: after 30 s, doubled for each further
/// refusal, up to 16 times 30 s.
#[derive(Clone, Debug)]
pub struct RefusalCooldown {
    first: Duration,
    refused: HashMap<(ProcessId, RegionAddr), RefusalState>,
}

#[derive(Clone, Copy, Debug)]
struct RefusalState {
    until: Duration,
    next: Duration,
}

impl RefusalCooldown {
    /// Duration of the first refusal unless set (30 s).
    pub const DEFAULT_FIRST: Duration = Duration::from_secs(30);
    /// The longest cool-down, as a multiple of the first.
    const MAX_FACTOR: u32 = 16;

    /// A first refusal lasts `first`.
    pub fn new(first: Duration) -> Self {
        Self { first, refused: HashMap::new() }
    }

    /// Takes in what happened.
    pub fn apply_event(&mut self, now: Duration, event: &Event) {
        match *event {
            Event::Refused { process, region, again_soon: false, .. } => {
                self.record_refusal(process, region, now)
            }
            Event::FileHoles { process, region, .. } => self.record_refusal(process, region, now),
            Event::Promoted { process, region, .. } => self.forget_refusals(process, region),
            _ => {}
        }
    }

    pub(crate) fn record_refusal(&mut self, process: ProcessId, region: RegionAddr, now: Duration) {
        let longest = self.longest_cooldown();
        let refused = self
            .refused
            .entry((process, region))
            .or_insert(RefusalState { until: now, next: self.first });
        refused.until = now.saturating_add(refused.next);
        refused.next = refused.next.saturating_mul(2).min(longest);
    }

    /// Whether the region may be tried.
    pub fn allows(&self, process: ProcessId, region: RegionAddr, now: Duration) -> bool {
        self.cooling_until(process, region, now).is_none()
    }

    /// Until when the region is left alone; `None` if it is not.
    pub fn cooling_until(
        &self,
        process: ProcessId,
        region: RegionAddr,
        now: Duration,
    ) -> Option<Duration> {
        let until = self.refused.get(&(process, region))?.until;
        (now < until).then_some(until)
    }

    /// The region was promoted: its refusals are forgotten.
    pub(crate) fn forget_refusals(&mut self, process: ProcessId, region: RegionAddr) {
        self.refused.remove(&(process, region));
    }

    /// Forgets the processes for which `there` is false.
    pub fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.refused.retain(|(process, _), _| there(*process));
    }

    /// Forgets refusals with a cool-down that ended longer ago than the longest cool-down.
    /// Otherwise memory would grow with regions that no policy proposes any more.
    pub fn forget_expired(&mut self, now: Duration) {
        let longest = self.longest_cooldown();
        self.refused.retain(|_, refused| now < refused.until.saturating_add(longest));
    }

    fn longest_cooldown(&self) -> Duration {
        self.first.saturating_mul(Self::MAX_FACTOR)
    }
}

impl Default for RefusalCooldown {
    fn default() -> Self {
        Self::new(Self::DEFAULT_FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{at_second, process, region};

    #[test]
    fn each_refusal_lasts_twice_as_long_up_to_sixteen_times() {
        let mut cooldown = RefusalCooldown::default();
        let (p, r) = (process(1), region(1));
        let mut now = at_second(100);
        for seconds in [30, 60, 120, 240, 480, 480, 480] {
            assert!(cooldown.allows(p, r, now));
            cooldown.record_refusal(p, r, now);
            now += at_second(seconds);
            assert!(!cooldown.allows(p, r, now - Duration::from_nanos(1)));
            assert_eq!(cooldown.cooling_until(p, r, now - at_second(1)), Some(now));
            assert_eq!(cooldown.cooling_until(p, r, now), None);
        }
        assert!(cooldown.allows(p, r, now));
        let other = cooldown.allows(p, region(2), at_second(0));
        assert!(other, "other regions have no cool-down");
    }

    #[test]
    fn ended_processes_and_expired_entries_are_dropped() {
        let mut cooldown = RefusalCooldown::default();
        cooldown.record_refusal(process(1), region(1), at_second(0));
        cooldown.record_refusal(process(2), region(1), at_second(0));
        cooldown.retain_processes(|p| p == process(2));
        assert_eq!(cooldown.refused.len(), 1);
        cooldown.forget_expired(at_second(509));
        assert_eq!(cooldown.refused.len(), 1);
        cooldown.forget_expired(at_second(510));
        assert!(cooldown.refused.is_empty());
    }

    #[test]
    fn a_region_whose_file_has_holes_is_left_alone_for_a_while() {
        let mut cooldown = RefusalCooldown::default();
        let (process, region) = (process(1), region(1));
        let holes = Event::FileHoles { process, region, pages: 25 };
        cooldown.apply_event(at_second(100), &holes);
        assert_eq!(cooldown.cooling_until(process, region, at_second(100)), Some(at_second(130)));
    }
}
