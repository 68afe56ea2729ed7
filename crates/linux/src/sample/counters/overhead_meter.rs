//! Overhead from counts: (walk cycles of loads + of stores) over cycles (paper, Table 4).

use super::events::WalkEventSet;
use hawkeye_policy::{TranslationOverhead, TranslationOverheadSource};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of one thread since its counters were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounts {
    /// Page walks of loads, or cycles in them.
    pub loads: u64,
    /// The same for stores; 0 where both are counted together.
    pub stores: u64,
    /// Cycles.
    pub cycles: u64,
    /// Time for which counting was requested, in nanoseconds.
    pub enabled_ns: u64,
    /// Time for which the kernel really counted, in nanoseconds: less if it multiplexes counters.
    pub running_ns: u64,
}

/// All threads of a process, by thread id.
pub type ThreadCounts = BTreeMap<u32, EventCounts>;

/// What all threads counted in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CountedSum {
    /// Loads and stores, or what is counted in their place.
    pub events: f64,
    /// Cycles.
    pub cycles: f64,
    /// Time for which counting was requested, in nanoseconds.
    pub enabled_ns: f64,
    /// Time for which the kernel really counted, in nanoseconds.
    pub running_ns: f64,
}

impl CountedSum {
    /// Of the threads of `now`. New threads count from their start.
    pub fn since(before: &ThreadCounts, now: &ThreadCounts) -> Self {
        let mut sum = Self::default();
        for (thread, counts) in now {
            // Counters that went back belong to a new thread with a reused id.
            let known = before.get(thread);
            let known = known.filter(|before| before.enabled_ns <= counts.enabled_ns);
            let before = known.copied().unwrap_or_default();
            let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
            let enabled_ns = since(counts.enabled_ns, before.enabled_ns);
            let running_ns = since(counts.running_ns, before.running_ns);
            if running_ns <= 0.0 {
                continue;
            }
            // Multiplexed counters saw only a part of the time.
            let scale = (enabled_ns / running_ns).max(1.0);
            sum.events +=
                scale * (since(counts.loads, before.loads) + since(counts.stores, before.stores));
            sum.cycles += scale * since(counts.cycles, before.cycles);
            sum.enabled_ns += enabled_ns.max(running_ns);
            sum.running_ns += running_ns;
        }
        sum
    }
}

/// Computes overhead from the counters of one process.
///
/// Two hardware threads of a core share its page walkers. Cycles in walks then include waits for
/// the sibling's walks, so the overhead is more than huge pages would save.
#[derive(Clone, Debug, Default)]
pub struct OverheadMeter {
    before: ThreadCounts,
}

impl OverheadMeter {
    /// The overhead since the last call; `None` if nothing was counted. Threads that ended since
    /// then are lost from it; new threads count from their start.
    pub fn overhead_since_last_counts(
        &mut self,
        now: ThreadCounts,
        events: &WalkEventSet,
    ) -> Option<TranslationOverhead> {
        let counted = CountedSum::since(&self.before, &now);
        self.before = now;
        let CountedSum { events: walks, cycles, enabled_ns, running_ns } = counted;
        if cycles <= 0.0 {
            return None;
        }
        let percent = (walks * events.cycles_per_count * 100.0 / cycles).clamp(0.0, 100.0);
        // The overhead in the time without counts is unknown, which widens the bounds.
        let unseen = 1.0 - running_ns / enabled_ns;
        let factor = if events.is_estimate() { 2.0 } else { 1.0 };
        Some(TranslationOverhead {
            percent,
            huge_percent: 0.0,
            low_percent: percent * (1.0 - unseen) / factor,
            high_percent: (percent * (1.0 + unseen) * factor).min(100.0),
            at_least: false,
            source: TranslationOverheadSource::Counters,
        })
    }
}

#[cfg(test)]
mod tests;
