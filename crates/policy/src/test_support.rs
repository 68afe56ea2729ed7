//! Shorthand for this crate's unit tests.

use crate::coverage_averaging::CoverageAveraging;
use crate::event::{Event, PromotionEffect};
use crate::huge_page_reserve_planner::HugePageReadiness;
use crate::observation::{CoverageSource, Observation, ProcessId, ProcessSample, RegionSample};
use crate::page::{HUGE_PAGE_BYTES, PageOrder, RegionAddr};
use crate::policy::Policy;
use crate::promotion::{MeasuredPromotionCost, Promotion};
use crate::reason::Reason;
use crate::translation_overhead::{TranslationOverhead, TranslationOverheadSource};
use crate::walk_rate::PageBitmap;
use crate::walk_rate::region_probe_plan::xorshift;
use std::collections::HashSet;
use std::time::Duration;

/// The `index`th region of an address space.
pub fn region(index: u64) -> RegionAddr {
    RegionAddr::containing(index * HUGE_PAGE_BYTES)
}

/// A fully present region of base pages, `accessed` of them accessed.
pub fn sample(index: u64, accessed: u16) -> RegionSample {
    RegionSample {
        accessed,
        runs: u16::from(accessed > 0),
        written: 512,
        ..RegionSample::new_full_and_untouched(region(index))
    }
}

/// `pages` base pages of a region, all accessed, in `runs` runs; nothing else is present.
pub fn sample_in_runs(pages: u16, runs: u16) -> RegionSample {
    RegionSample { present: pages, runs, ..sample(0, pages) }
}

/// A huge region, accessed or not.
pub fn huge_sample(index: u64, accessed: bool) -> RegionSample {
    RegionSample { order: PageOrder::HUGE, ..sample(index, if accessed { 512 } else { 0 }) }
}

/// A process with this pid.
pub fn process(pid: u32) -> ProcessId {
    ProcessId { pid, start_ticks: 1 }
}

/// One round of samples.
pub fn observation(processes: &[(u32, Vec<RegionSample>)]) -> Observation {
    let sampled = |(pid, regions): &(u32, Vec<RegionSample>)| ProcessSample {
        source: CoverageSource::AccessBits,
        ..ProcessSample::from_present_pages(process(*pid), regions.clone())
    };
    Observation { processes: processes.iter().map(sampled).collect(), ..Observation::default() }
}

/// One round of processes, numbered from 1, with their overheads in per cent.
pub fn observation_with_overheads(
    processes: &[(Option<f64>, Vec<RegionSample>)],
    source: TranslationOverheadSource,
) -> Observation {
    let numbered: Vec<_> =
        (1u32..).zip(processes).map(|(pid, (_, regions))| (pid, regions.clone())).collect();
    let mut observation = observation(&numbered);
    for (sample, (percent, _)) in observation.processes.iter_mut().zip(processes) {
        sample.overhead =
            percent.map(|percent| TranslationOverhead::new_without_error(percent, source));
    }
    observation
}

/// An average that uses only the newest window.
pub fn newest_window_averaging() -> CoverageAveraging {
    CoverageAveraging::new(1.0).unwrap_or_default()
}

/// The next promotion of a policy, where a huge page is ready.
pub fn next_proposal(policy: &mut impl Policy) -> Option<Promotion> {
    policy.pop_next_promotion(at_second(0), HugePageReadiness::Ready, &HashSet::new())
}

/// All current proposals of a policy.
pub fn all_proposals(policy: &mut impl Policy) -> Vec<Promotion> {
    std::iter::from_fn(|| next_proposal(policy)).collect()
}

/// A promotion with a huge page that was ready took this much CPU time.
pub fn cost_with_ready_page(cpu: Duration) -> Option<MeasuredPromotionCost> {
    let supply = HugePageReadiness::Ready;
    Some(MeasuredPromotionCost { cpu, supply })
}

/// Seconds since the clock began.
pub fn at_second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A region that became huge.
pub fn promoted_event(process: ProcessId, region: RegionAddr) -> Event {
    Event::Promoted {
        process,
        region,
        order: PageOrder::HUGE,
        reason: Reason::new("a test"),
        file: None,
        took: Duration::ZERO,
        effect: PromotionEffect::default(),
    }
}

/// A huge page that was split and gave nothing back.
pub fn recovered_event(process: ProcessId, region: RegionAddr) -> Event {
    Event::Recovered {
        process,
        region,
        reason: Reason::new("a test"),
        bytes: 0,
        took: Duration::ZERO,
        searched_for: Duration::ZERO,
    }
}

/// Checks a reason's text for users, and its JSON.
pub fn assert_reason_text_and_json(reason: &Reason, text: &str, json: &str) {
    assert_eq!(reason.to_string(), text);
    assert_eq!(serde_json::to_string(reason).expect("a reason serializes"), json);
}

/// The largest of these minus the smallest.
pub fn spread_of(turns: &[u32]) -> Option<u32> {
    let (most, least) = turns.iter().max().zip(turns.iter().min())?;
    Some(most - least)
}

/// Random numbers, the same in every run.
pub struct Chance(Box<dyn FnMut() -> u64>);

impl Default for Chance {
    fn default() -> Self {
        Self(Box::new(xorshift(0x9e37_79b9_7f4a_7c15)))
    }
}

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.0)() % bound
    }

    /// Over 0, at most 1.
    pub fn uniform(&mut self) -> f64 {
        (((self.0)() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (G. Box and M. Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let angle = std::f64::consts::TAU * self.uniform();
        (-2.0 * self.uniform().ln()).sqrt() * angle.cos()
    }

    /// How many events of a rate fall into a time in which `mean` are expected.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        let (mut events, mut at) = (0, -self.uniform().ln());
        while at < mean {
            events += 1;
            at -= self.uniform().ln();
        }
        events
    }
}

/// A bitmap with these pages of a region.
pub fn bitmap_of(pages: impl IntoIterator<Item = u16>) -> PageBitmap {
    let mut bits = PageBitmap::default();
    pages.into_iter().for_each(|page| bits.insert(page));
    bits
}
