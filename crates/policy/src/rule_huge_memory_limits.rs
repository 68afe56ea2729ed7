//! The most huge memory that all processes of one rule may have. It is the paper's limit, which an
//! administrator sets so that one program doesn't starve the others.

use crate::event::Event;
use crate::observation::{ProcessId, ProcessSample};
use crate::page::{HUGE_PAGE_BYTES, PageOrder};
use std::collections::HashMap;

/// Huge memory by rule: the last sample plus the changes since.
#[derive(Clone, Debug, Default)]
pub struct RuleHugeMemoryLimits {
    processes: HashMap<ProcessId, ProcessHugeMemory>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ProcessHugeMemory {
    rule: Option<usize>,
    limit_bytes: Option<u64>,
    huge_bytes: u64,
}

impl RuleHugeMemoryLimits {
    /// Takes in a sample of a process: its rules and its huge memory.
    pub fn observe_process(&mut self, sample: &ProcessSample) {
        let holding = ProcessHugeMemory {
            rule: sample.terms.rule,
            limit_bytes: sample.terms.max_huge_bytes,
            huge_bytes: sample.huge_bytes(),
        };
        self.processes.insert(sample.process, holding);
    }

    /// Takes in what happened. A process that was never sampled has no promotions, so it need not
    /// be known.
    pub fn apply_event(&mut self, event: &Event) {
        let process = event.process();
        let Some(holding) = process.and_then(|process| self.processes.get_mut(&process)) else {
            return;
        };
        let had = holding.huge_bytes;
        holding.huge_bytes = match *event {
            Event::Measured { huge_bytes, .. } => huge_bytes,
            // Smaller pages do not count, and larger ones were huge before.
            Event::Promoted { order: PageOrder::HUGE, .. } => had.saturating_add(HUGE_PAGE_BYTES),
            Event::Recovered { .. } => had.saturating_sub(HUGE_PAGE_BYTES),
            _ => had,
        };
    }

    /// Whether the rule of the process stays within its limit after one more huge page.
    pub fn allows_another_huge_page(&self, process: ProcessId) -> bool {
        let limit = self.processes.get(&process).and_then(|it| it.rule.zip(it.limit_bytes));
        limit.is_none_or(|(rule, limit)| {
            let more = self.huge_bytes_under_rule(rule).saturating_add(HUGE_PAGE_BYTES);
            more <= limit
        })
    }

    /// Huge memory of all processes under this rule, in bytes.
    pub fn huge_bytes_under_rule(&self, rule: usize) -> u64 {
        let of_rule = self.processes.values().filter(|h| h.rule == Some(rule));
        of_rule.fold(0, |sum, holding| sum.saturating_add(holding.huge_bytes))
    }

    /// Forgets the processes for which `there` is false.
    pub fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.processes.retain(|process, _| there(*process));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_settings::ProcessSettings;
    use crate::test_support::{huge_sample, process, promoted_event, recovered_event, region};
    use proptest::prelude::*;

    fn sampled(pid: u32, regions: u64, rule: usize, limit: Option<u64>) -> ProcessSample {
        let regions = (0..regions).map(|at| huge_sample(at, true)).collect();
        ProcessSample {
            terms: ProcessSettings {
                max_huge_bytes: limit.map(|regions| regions * HUGE_PAGE_BYTES),
                rule: Some(rule),
                ..ProcessSettings::default()
            },
            ..ProcessSample::from_present_pages(process(pid), regions)
        }
    }

    #[test]
    fn processes_of_a_rule_share_its_limit() {
        let mut limits = RuleHugeMemoryLimits::default();
        limits.observe_process(&sampled(1, 3, 0, Some(5)));
        limits.observe_process(&sampled(2, 1, 0, Some(5)));
        limits.observe_process(&sampled(3, 9, 1, None));
        assert!(limits.allows_another_huge_page(process(1)));
        limits.apply_event(&promoted_event(process(2), region(0)));
        // 5 huge pages are the limit; the rule of 3 has none, and 4 is not known.
        let allowed = [1, 2, 3, 4].map(|pid| limits.allows_another_huge_page(process(pid)));
        assert_eq!(allowed, [false, false, true, true]);
    }

    #[test]
    fn recovered_and_freed_memory_counts_no_longer_towards_the_limit() {
        let mut limits = RuleHugeMemoryLimits::default();
        limits.observe_process(&sampled(1, 3, 0, Some(4)));
        limits.observe_process(&sampled(2, 1, 0, Some(4)));
        assert!(!limits.allows_another_huge_page(process(1)));
        limits.apply_event(&recovered_event(process(1), region(0)));
        assert!(limits.allows_another_huge_page(process(1)));
        limits.apply_event(&promoted_event(process(1), region(0)));
        limits.retain_processes(|p| p == process(1));
        assert!(limits.allows_another_huge_page(process(1)));
        assert_eq!(limits.huge_bytes_under_rule(0), 3 * HUGE_PAGE_BYTES);
    }

    #[test]
    fn new_terms_apply_from_the_next_sample() {
        let mut limits = RuleHugeMemoryLimits::default();
        limits.observe_process(&sampled(1, 3, 0, Some(4)));
        limits.observe_process(&sampled(1, 3, 2, Some(3)));
        assert!(!limits.allows_another_huge_page(process(1)));
        assert_eq!(limits.huge_bytes_under_rule(0), 0);
        let huge_bytes = HUGE_PAGE_BYTES;
        limits.apply_event(&Event::Measured { process: process(1), rss_bytes: 0, huge_bytes });
        let after_freeing = limits.allows_another_huge_page(process(1));
        assert!(after_freeing);
    }

    proptest! {
        #[test]
        fn no_rule_is_ever_promoted_past_its_limit(
            steps in prop::collection::vec((0u32..4, 0u8..4), 1..200),
            limit in 1u64..8,
        ) {
            let mut limits = RuleHugeMemoryLimits::default();
            for pid in 0..4 {
                limits.observe_process(&sampled(pid, 0, (pid % 2) as usize, Some(limit)));
            }
            for (pid, step) in steps {
                let p = process(pid);
                match step {
                    0 => limits.apply_event(&recovered_event(p, region(0))),
                    1 => limits.retain_processes(|other| other != p),
                    _ if limits.allows_another_huge_page(p) => limits.apply_event(&promoted_event(p, region(0))),
                    _ => {}
                }
                for rule in 0..2 {
                    prop_assert!(limits.huge_bytes_under_rule(rule) <= limit * HUGE_PAGE_BYTES);
                }
            }
        }
    }
}
