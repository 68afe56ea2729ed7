//! When the growth of a cgroup is slowed, so that recovery can keep pace, and for how long.

use super::MemoryScope;
use crate::event::Event;
use crate::observation::CgroupMemory;
use crate::page::BASE_PAGE_BYTES;
use crate::saturating_cast::u64_from_f64;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// A cgroup that should grow more slowly.
#[derive(Clone, Debug, PartialEq)]
pub struct ThrottleRequest {
    /// Its path.
    pub cgroup: String,
    /// Growth is slowed above this share of its limit, in per cent.
    pub from_percent: f64,
}

/// The longest throttling of one cgroup without a pause.
const LONGEST: Duration = Duration::from_secs(10);
/// The longest throttling of one cgroup in a minute, in sum.
const MOST_IN_A_MINUTE: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);
/// Pause after one that lasted for `LONGEST`.
const REST: Duration = Duration::from_secs(5);
/// Pause after one of at least `HELPS_BY` in which nothing was recovered, and after a refusal.
const LONG_REST: Duration = Duration::from_secs(10);
const HELPS_BY: Duration = Duration::from_secs(1);
/// Time after which PSI "avg10" no longer shows the waiting that throttling caused.
const PRESSURE_LASTS: Duration = Duration::from_secs(30);
/// Room that a level leaves above the present use, as a share of the limit.
const HEADROOM_SHARE: u64 = 32;

/// The use above which the kernel is to slow the growth of a cgroup, in bytes: a multiple of 4 KiB.
/// `current_bytes` includes page cache. `None`: the cgroup is too full for any level under its
/// limit.
///
/// The level is never under the present use. If it were, the kernel would reclaim inside the
/// manager's own write of `memory.high`.
pub fn throttle_level_bytes(
    limit_bytes: u64,
    current_bytes: u64,
    from_percent: f64,
) -> Option<u64> {
    let room = limit_bytes.saturating_sub(current_bytes);
    let above_use = current_bytes + (limit_bytes / HEADROOM_SHARE).min(room / 2);
    let wanted = u64_from_f64(limit_bytes as f64 * from_percent / 100.0).max(above_use);
    let level = wanted / BASE_PAGE_BYTES * BASE_PAGE_BYTES;
    (level > current_bytes && level < limit_bytes).then_some(level)
}

/// The throttling of one cgroup, now and in the last minute.
#[derive(Clone, Debug, Default)]
struct CgroupThrottle {
    since: Option<Duration>,
    /// Start and end of those that ended in the last minute.
    past: Vec<(Duration, Duration)>,
    not_before: Duration,
    /// Memory recovered since it began.
    recovered_bytes: u64,
}

impl CgroupThrottle {
    fn is_within_longest(&self, now: Duration) -> bool {
        self.since.is_some_and(|since| now < since + LONGEST)
    }

    fn forget_past(&mut self, now: Duration) {
        self.past.retain(|(_, end)| now < *end + MINUTE);
    }

    /// Whether a new one may begin, and go on for the longest time.
    fn may_begin(&self, now: Duration) -> bool {
        let recent = self.past.iter().filter(|(_, end)| now < *end + MINUTE);
        let spent: Duration = recent.map(|(start, end)| end.saturating_sub(*start)).sum();
        now >= self.not_before && spent + LONGEST <= MOST_IN_A_MINUTE
    }

    fn begin(&mut self, now: Duration) {
        // A changed limit changes the level of one that goes on.
        if self.since.is_none() {
            self.since = Some(now);
            self.recovered_bytes = 0;
        }
    }

    fn end(&mut self, now: Duration) {
        let Some(since) = self.since.take() else { return };
        self.past.push((since, now));
        if self.recovered_bytes == 0 && now >= since + HELPS_BY {
            self.not_before = now + LONG_REST;
        } else if now >= since + LONGEST {
            self.not_before = now + REST;
        }
    }

    fn caused_pressure_lately(&self, now: Duration) -> bool {
        let ended = self.past.iter().map(|(_, end)| *end).max();
        self.since.is_some() || ended.is_some_and(|end| now < end + PRESSURE_LASTS)
    }

    fn is_idle(&self, now: Duration) -> bool {
        self.since.is_none() && self.past.is_empty() && now >= self.not_before
    }
}

/// The throttling of all cgroups, by path. A cgroup is forgotten when nothing of it counts any
/// more, not when it vanishes: a new one at its path does not get more.
#[derive(Clone, Debug, Default)]
pub(super) struct GrowthThrottles(HashMap<String, CgroupThrottle>);

impl GrowthThrottles {
    /// Whether a cgroup from which memory is recovered should be throttled now. `outruns`: its
    /// growth is faster than recovery.
    pub(super) fn is_wanted(&self, now: Duration, cgroup: &str, outruns: bool) -> bool {
        match self.0.get(cgroup) {
            Some(throttle) if throttle.since.is_some() => throttle.is_within_longest(now),
            Some(throttle) => outruns && throttle.may_begin(now),
            None => outruns,
        }
    }

    pub(super) fn is_active(&self, cgroup: &str) -> bool {
        self.0.get(cgroup).is_some_and(|throttle| throttle.since.is_some())
    }

    pub(super) fn any_active(&self) -> bool {
        self.0.values().any(|throttle| throttle.since.is_some())
    }

    /// Whether one is active and not overdue. It is overdue if its end has failed.
    pub(super) fn any_within_longest(&self, now: Duration) -> bool {
        self.0.values().any(|throttle| throttle.is_within_longest(now))
    }

    pub(super) fn record_recovered(&mut self, cgroup: &str, bytes: u64) {
        if let Some(throttle) = self.0.get_mut(cgroup) {
            throttle.recovered_bytes = throttle.recovered_bytes.saturating_add(bytes);
        }
    }

    pub(super) fn apply_event(&mut self, now: Duration, event: &Event) {
        match event {
            Event::GrowthThrottled { cgroup, .. } => {
                self.0.entry(cgroup.clone()).or_default().begin(now);
            }
            Event::GrowthReleased { cgroup, .. } => {
                if let Some(throttle) = self.0.get_mut(cgroup) {
                    throttle.end(now);
                }
            }
            Event::GrowthNotThrottled { cgroup, .. } => {
                self.0.entry(cgroup.clone()).or_default().not_before = now + LONG_REST;
            }
            _ => return,
        }
        self.0.values_mut().for_each(|throttle| throttle.forget_past(now));
        self.0.retain(|_, throttle| !throttle.is_idle(now));
    }

    /// The part of the memory pressure of the machine or of a cgroup that throttling of cgroups in
    /// it caused, in per cent. It is an upper bound: their tasks may have waited for other reasons,
    /// and at the same time.
    pub(super) fn pressure_caused_percent(
        &self,
        now: Duration,
        scope: &MemoryScope,
        groups: &[CgroupMemory],
    ) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let is_within = |group: &str| match scope {
            MemoryScope::Machine => true,
            MemoryScope::Group(own) => is_nested(group, own),
        };
        let throttled: Vec<&CgroupMemory> = groups
            .iter()
            .filter(|group| is_within(&group.name))
            .filter(|group| {
                self.0.get(&group.name).is_some_and(|it| it.caused_pressure_lately(now))
            })
            .collect();
        // The pressure of a cgroup includes that of cgroups nested in it.
        let is_outermost =
            |group: &&&CgroupMemory| !throttled.iter().any(|it| is_nested(&group.name, &it.name));
        let outermost = throttled.iter().filter(is_outermost);
        outermost.filter_map(|group| group.pressure_percent).sum()
    }
}

fn is_nested(cgroup: &str, within: &str) -> bool {
    cgroup != within && Path::new(cgroup).starts_with(within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::MemoryUse;
    use crate::test_support::at_second;
    use proptest::prelude::*;

    fn throttled(cgroup: &str) -> Event {
        Event::GrowthThrottled { cgroup: cgroup.to_owned(), level_bytes: 1, limit_bytes: 2 }
    }

    fn released(cgroup: &str) -> Event {
        Event::GrowthReleased { cgroup: cgroup.to_owned(), because: "test".to_owned() }
    }

    #[test]
    fn a_level_is_above_the_use_and_under_the_limit() {
        let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes >> 20);
        let level = |current: u64| throttle_level_bytes(2048 << 20, current << 20, 85.0);
        assert_eq!(mib(level(1500)), Some(1740));
        assert_eq!(mib(level(1800)), Some(1864));
        // Half of what is left.
        assert_eq!(mib(level(2028)), Some(2038));
        assert_eq!(level(2048), None);
        assert_eq!(level(3000), None);
        assert_eq!(throttle_level_bytes(0, 0, 85.0), None);
    }

    proptest! {
        #[test]
        fn any_level_is_above_the_use_and_under_the_limit(
            limit in 0u64..1 << 50,
            current in 0u64..1 << 50,
            percent in 0.1..100.0f64,
        ) {
            if let Some(level) = throttle_level_bytes(limit, current, percent) {
                prop_assert!(current < level && level < limit);
                prop_assert_eq!(level % BASE_PAGE_BYTES, 0);
            }
        }

        /// However often it is wanted and released, and whatever was recovered.
        #[test]
        fn no_minute_has_more_than_its_share(
            steps in prop::collection::vec((0u64..4000, any::<bool>(), any::<bool>()), 1..300),
        ) {
            let mut throttles = GrowthThrottles::default();
            let (mut now, mut active, mut spans) = (Duration::ZERO, None, Vec::new());
            for (ms, outruns, recovers) in steps {
                now += Duration::from_millis(ms);
                if recovers {
                    throttles.record_recovered("/a", 4096);
                }
                match (throttles.is_wanted(now, "/a", outruns), active) {
                    (true, None) => {
                        throttles.apply_event(now, &throttled("/a"));
                        active = Some(now);
                    }
                    (wanted, Some(since)) if !wanted || !outruns => {
                        // The loop asks at least every four seconds here.
                        throttles.apply_event(now, &released("/a"));
                        prop_assert!(now < since + LONGEST + Duration::from_secs(4));
                        spans.push((since, now));
                        active = None;
                    }
                    _ => {}
                }
                let recent = spans.iter().filter(|(_, end)| now < *end + MINUTE);
                let spent: Duration = recent.map(|(start, end)| *end - *start).sum();
                prop_assert!(spent <= MOST_IN_A_MINUTE + Duration::from_secs(8), "{:?}", spent);
            }
        }
    }

    #[test]
    fn it_ends_after_ten_seconds_and_rests() {
        let mut throttles = GrowthThrottles::default();
        assert!(!throttles.is_wanted(at_second(0), "/a", false));
        assert!(throttles.is_wanted(at_second(0), "/a", true));
        throttles.apply_event(at_second(0), &throttled("/a"));
        throttles.record_recovered("/a", 4096);
        // Slowed growth no longer outruns recovery.
        assert!(throttles.is_wanted(at_second(9), "/a", false));
        // A new level does not make it longer.
        throttles.apply_event(at_second(9), &throttled("/a"));
        assert!(!throttles.is_wanted(at_second(10), "/a", true));
        assert!(throttles.any_active());
        assert!(!throttles.any_within_longest(at_second(10)));
        throttles.apply_event(at_second(10), &released("/a"));
        assert!(!throttles.any_active());
        assert!(!throttles.is_wanted(at_second(14), "/a", true));
        assert!(throttles.is_wanted(at_second(15), "/a", true));
    }

    #[test]
    fn one_that_did_not_help_and_a_refusal_rest_longer() {
        let mut throttles = GrowthThrottles::default();
        throttles.apply_event(at_second(0), &throttled("/a"));
        throttles.apply_event(at_second(1), &released("/a"));
        let why = "it may swap".to_owned();
        let refused = Event::GrowthNotThrottled { cgroup: "/b".to_owned(), why };
        throttles.apply_event(at_second(1), &refused);
        for cgroup in ["/a", "/b"] {
            assert!(!throttles.is_wanted(at_second(10), cgroup, true));
            assert!(throttles.is_wanted(at_second(11), cgroup, true));
        }
        assert!(throttles.is_wanted(at_second(1), "/c", true));
        // One that ends at once says nothing.
        throttles.apply_event(at_second(1), &throttled("/c"));
        throttles.apply_event(at_second(1), &released("/c"));
        assert!(throttles.is_wanted(at_second(1), "/c", true));
        throttles.apply_event(at_second(90), &refused);
        assert_eq!(throttles.0.len(), 1, "what is over is forgotten");
    }

    #[test]
    fn pressure_of_throttled_cgroups_counts_once_and_for_a_while() {
        let group = |name: &str, percent| CgroupMemory {
            name: name.to_owned(),
            usage: MemoryUse { used_bytes: 0, total_bytes: 1 },
            pressure_percent: Some(percent),
            members: Vec::new(),
        };
        let groups =
            [group("/a", 40.0), group("/a/b", 30.0), group("/ab", 20.0), group("/c", 10.0)];
        let mut throttles = GrowthThrottles::default();
        for cgroup in ["/a/b", "/c"] {
            throttles.apply_event(at_second(0), &throttled(cgroup));
        }
        let caused = |throttles: &GrowthThrottles, at, scope: &str| {
            let scope = match scope {
                "" => MemoryScope::Machine,
                path => MemoryScope::Group(path.to_owned()),
            };
            throttles.pressure_caused_percent(at_second(at), &scope, &groups)
        };
        let all = ["", "/a", "/a/b", "/ab", "/c"].map(|scope| caused(&throttles, 1, scope));
        assert_eq!(all, [40.0, 30.0, 0.0, 0.0, 0.0]);
        // Nested ones do not count twice.
        throttles.apply_event(at_second(2), &throttled("/a"));
        assert_eq!(caused(&throttles, 3, ""), 50.0);
        for cgroup in ["/a/b", "/a", "/c"] {
            throttles.apply_event(at_second(4), &released(cgroup));
        }
        assert_eq!(caused(&throttles, 33, ""), 50.0);
        assert_eq!(caused(&throttles, 34, ""), 0.0);
    }
}
