//! The most huge memory that all processes of one rule may have. It is the paper's limit, which an
//! administrator sets so that one program doesn't starve the others.

use crate::event::Event;
use crate::observation::{ProcessId, ProcessSample};
use crate::page::{HUGE_PAGE_BYTES, PageOrder};
use crate::process_settings::ProcessSettings;
use std::collections::HashMap;

/// Huge memory by rule: as last sampled or measured, plus the changes since.
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

    /// Takes in the rule of a process now. It may be prefaulted before its first sample.
    pub fn update_rule(&mut self, process: ProcessId, settings: &ProcessSettings) {
        let holding = self.processes.entry(process).or_default();
        (holding.rule, holding.limit_bytes) = (settings.rule, settings.max_huge_bytes);
    }

    /// Adds memory that was prefaulted. It counts until the process is next measured.
    pub fn add_prefaulted_bytes(&mut self, process: ProcessId, bytes: u64) {
        if let Some(holding) = self.processes.get_mut(&process) {
            holding.huge_bytes = holding.huge_bytes.saturating_add(bytes);
        }
    }

    /// Takes in what happened. A process of which neither a rule nor a sample is known has no
    /// promotions, so it need not be known.
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
        self.limit_and_use_of_rule(process)
            .is_none_or(|(limit, used)| used.saturating_add(HUGE_PAGE_BYTES) <= limit)
    }

    /// The processes of rules for which one more huge page would be too much.
    pub fn processes_at_limit(&self) -> impl Iterator<Item = ProcessId> {
        let left = self.bytes_left_by_process().into_iter();
        left.filter(|(_, bytes)| *bytes < HUGE_PAGE_BYTES).map(|(process, _)| process)
    }

    /// The limit of the process's rule, and the huge memory of all processes under it, in bytes.
    /// `None` where there is no limit.
    pub fn limit_and_use_of_rule(&self, process: ProcessId) -> Option<(u64, u64)> {
        let holding = self.processes.get(&process)?;
        let (rule, limit) = holding.rule.zip(holding.limit_bytes)?;
        Some((limit, self.huge_bytes_under_rule(rule)))
    }

    /// What the limits leave, in bytes, of each process under one. Processes of a rule share it.
    pub fn bytes_left_by_process(&self) -> HashMap<ProcessId, u64> {
        let mut used: HashMap<usize, u64> = HashMap::new();
        for holding in self.processes.values() {
            if let Some(rule) = holding.rule {
                let sum = used.entry(rule).or_default();
                *sum = sum.saturating_add(holding.huge_bytes);
            }
        }
        let left = |holding: &ProcessHugeMemory| {
            let (rule, limit) = holding.rule.zip(holding.limit_bytes)?;
            Some(limit.saturating_sub(used.get(&rule).copied().unwrap_or(0)))
        };
        self.processes.iter().filter_map(|(process, it)| Some((*process, left(it)?))).collect()
    }

    fn huge_bytes_under_rule(&self, rule: usize) -> u64 {
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
        let mut full: Vec<_> = limits.processes_at_limit().map(|process| process.pid).collect();
        full.sort_unstable();
        assert_eq!(full, [1, 2]);
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

    #[test]
    fn the_limit_holds_for_prefault_before_the_first_sample() {
        let mut limits = RuleHugeMemoryLimits::default();
        let rule = |rule| ProcessSettings {
            max_huge_bytes: Some(4 * HUGE_PAGE_BYTES),
            rule: Some(rule),
            ..ProcessSettings::default()
        };
        for (pid, settings) in [(1, rule(0)), (2, rule(0)), (3, rule(1))] {
            limits.update_rule(process(pid), &settings);
        }
        limits.update_rule(process(4), &ProcessSettings::default());
        let left = |limits: &RuleHugeMemoryLimits| {
            let left = limits.bytes_left_by_process();
            [1, 2, 3, 4].map(|pid| left.get(&process(pid)).map(|bytes| bytes / HUGE_PAGE_BYTES))
        };
        assert_eq!(left(&limits), [Some(4), Some(4), Some(4), None]);
        limits.add_prefaulted_bytes(process(1), 3 * HUGE_PAGE_BYTES);
        assert_eq!(left(&limits), [Some(1), Some(1), Some(4), None]);
        let huge_bytes = 5 * HUGE_PAGE_BYTES;
        limits.apply_event(&Event::Measured { process: process(2), rss_bytes: 0, huge_bytes });
        assert_eq!(left(&limits), [Some(0), Some(0), Some(4), None]);
        // It executes a program of another rule, with what it has.
        limits.update_rule(process(2), &rule(1));
        assert_eq!(left(&limits), [Some(1), Some(0), Some(0), None]);
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
