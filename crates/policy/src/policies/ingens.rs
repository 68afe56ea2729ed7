//! Ingens: promotes by utilisation, with a share of huge pages for each process (Kwon et al.,
//! OSDI'16).

use crate::file_region::FileRegion;
use crate::huge_page_reserve_planner::HugePageReadiness;
use crate::observation::{Observation, ProcessId, ProcessSample, RegionSample};
use crate::page::{HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use crate::policy::{ExplainPolicy, Policy};
use crate::process_states::ProcessStates;
use crate::promotion::{MeasuredPromotionCost, Promotion};
use crate::reason::Reason;
use crate::sample_kinds::SampleKinds;
use crate::saturating_cast::u16_from_f64;
use crate::setting_error::{Setting, SettingError, check_positive_percent};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

/// Settings of Ingens. The defaults are the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IngensSettings {
    utilisation_percent: f64,
    fmfi_switch: f64,
}

impl IngensSettings {
    /// While the free memory fragmentation index is at or above `fmfi_switch` (0-1; 0: always),
    /// memory counts as fragmented. A region is then promoted only when `utilisation_percent` of
    /// it (over 0, at most 100) is present. In other memory it is promoted at the first chance.
    pub fn new(utilisation_percent: f64, fmfi_switch: f64) -> Result<Self, SettingError> {
        let utilisation_percent =
            check_positive_percent(utilisation_percent, Setting::Utilisation)?;
        let fits = (0.0..=1.0).contains(&fmfi_switch);
        let allowed = "at least 0 and at most 1";
        SettingError::error_unless_valid(fits, Setting::FragmentationIndex, fmfi_switch, allowed)?;
        Ok(Self { utilisation_percent, fmfi_switch })
    }

    /// The same with this utilisation (%).
    pub fn with_utilisation_percent(self, percent: f64) -> Result<Self, SettingError> {
        Self::new(percent, self.fmfi_switch)
    }

    /// How many base pages of a region must be present (1-512).
    fn min_present_pages(self, fmfi: Option<f64>) -> u16 {
        if fmfi.is_some_and(|fmfi| fmfi < self.fmfi_switch) {
            return 1;
        }
        let pages = f64::from(PAGES_PER_REGION) * self.utilisation_percent / 100.0;
        // A cast from a float saturates; 90 % of 512 is 460.8 pages: 461.
        u16_from_f64(pages.ceil()).clamp(1, PAGES_PER_REGION)
    }
}

impl Default for IngensSettings {
    fn default() -> Self {
        Self { utilisation_percent: 90.0, fmfi_switch: 0.5 }
    }
}

#[derive(Clone, Copy, Debug)]
struct RegionFaultState {
    region: RegionAddr,
    present: u16,
    file: Option<FileRegion>,
    /// The round in which faults made the region eligible; `None` for one that only a scan finds.
    queued: Option<u64>,
}

impl RegionFaultState {
    /// First the queue, in order of arrival. Then upwards from `scanned`, and from the start again.
    fn waiting_order_key(&self, scanned: Option<RegionAddr>) -> (u64, bool, RegionAddr) {
        let behind = self.queued.is_none() && scanned.is_some_and(|to| self.region <= to);
        (self.queued.unwrap_or(u64::MAX), behind, self.region)
    }
}

#[derive(Debug, Default)]
struct IngensProcess {
    weight: f64,
    resident_bytes: u64,
    /// Huge pages, including those proposed since the last count.
    huge: u64,
    /// Huge pages that were not accessed in the window.
    idle: u64,
    regions: HashMap<RegionAddr, RegionFaultState>,
    waiting: Vec<RegionFaultState>,
    /// The last region that the scan proposed.
    scanned: Option<RegionAddr>,
}

impl IngensProcess {
    fn observe(&mut self, sample: &ProcessSample, round: u64, min_present: u16) {
        let huge = || sample.regions.iter().filter(|r| r.is_huge());
        self.weight = sample.terms.weight;
        self.resident_bytes = sample.resident_bytes_in_regions();
        self.huge = huge().count() as u64;
        self.idle = huge().filter(|r| r.accessed == 0).count() as u64;
        let states = sample.regions.iter().map(|now| {
            let state = self.fault_state_after_sample(now, round, min_present);
            (now.region, state)
        });
        let regions: HashMap<RegionAddr, RegionFaultState> = states.collect();
        let may_be_promoted = |region: &&RegionSample| may_be_promoted(region, min_present);
        let waiting = sample.regions.iter().filter(may_be_promoted);
        self.waiting = waiting.map(|now| regions[&now.region]).collect();
        let scanned = self.scanned;
        self.waiting.sort_by_key(|seen| Reverse(seen.waiting_order_key(scanned)));
        self.waiting.dedup_by_key(|seen| seen.region);
        self.regions = regions;
    }

    /// Compares a region's sample with what was known of it. Pages were faulted in when the region
    /// is new or has more of them than before. Pages that a promotion added were not faulted.
    fn fault_state_after_sample(
        &self,
        now: &RegionSample,
        round: u64,
        min_present: u16,
    ) -> RegionFaultState {
        let before = self.regions.get(&now.region);
        let faulted = before.is_none_or(|before| now.present > before.present);
        let queued = before.and_then(|before| before.queued).or(faulted.then_some(round));
        RegionFaultState {
            region: now.region,
            present: now.present,
            file: now.file,
            queued: queued.filter(|_| may_be_promoted(now, min_present)),
        }
    }

    fn importance(&self) -> f64 {
        let idle = self.idle as f64;
        let used = (self.huge + 1) as f64 - idle;
        let penalised = idle + Ingens::TAU * used;
        self.weight * self.resident_bytes as f64 / (HUGE_PAGE_BYTES as f64 * penalised)
    }
}

fn may_be_promoted(region: &RegionSample, min_present: u16) -> bool {
    !region.is_huge() && region.present >= min_present
}

/// Enough of the region is in use, and its process is furthest behind its share.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "utilisation")]
struct UtilisationReason {
    present: u16,
    /// 0-1; it decides how many pages are enough.
    fmfi: Option<f64>,
    /// The process's promotion metric: its memory divided by its memory under huge pages, in which
    /// idle huge pages weigh more (over 0).
    importance: f64,
}

impl fmt::Display for UtilisationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present = self.present;
        write!(f, "{present} of 512 base pages present with ")?;
        match self.fmfi {
            Some(fmfi) => write!(f, "a fragmentation of {fmfi:.2}")?,
            None => write!(f, "unknown fragmentation")?,
        }
        write!(f, ", importance {:.2}", self.importance)
    }
}

/// Takes from the process with the highest promotion metric: first regions that faults have filled
/// far enough, in order of arrival, then the others upwards from where the scan stopped.
///
/// The queue is the released code's work list (`hugepage_worklist`, filled by `list_add_tail`). A
/// fault that takes a region over the threshold puts it at the end. khugepaged finishes the list
/// before it scans anything. A program that fills its memory from low to high addresses gets its
/// huge pages in this order too (HawkEye paper, sections 2.3 and 4).
///
/// The metric is the paper's `M = S / (H * (f + tau * (1 - f)))`. `S` is the process's claim, `H`
/// the memory under its huge pages, and `f` the share of these that is idle. With `f * H` idle and
/// `(1 - f) * H` used, the divisor is `idle + tau * used`: an idle huge page weighs `1 / tau` times
/// a used one. The claim is the process's memory times its weight, as in the released code. `H`
/// includes the huge page in question: nothing is divided by 0, and equal processes take turns.
///
/// - A huge page is *idle* if it had no access in the window. Without access bits none is idle.
/// - Only observations show *when* faults filled a region: it is new, or has more pages than
///   before. Within one observation, low addresses come first.
/// - A refused region leaves the list. The released list's length of 513 regions is not reproduced:
///   the scan finds what does not fit, in the same order where memory was filled in order.
/// - A proposal counts as a huge page until the next observation counts again, even if it failed.
///   Otherwise a process with only refused regions would be chosen for ever.
/// - While fragmentation isn't known, memory counts as fragmented: Ingens never takes back what the
///   other rule wastes.
/// - Ingens has no pace of its own; its thread goes on while there is something to promote.
#[derive(Debug)]
pub struct Ingens {
    settings: IngensSettings,
    members: ProcessStates<IngensProcess>,
    fmfi: Option<f64>,
    round: u64,
}

impl Ingens {
    /// Weight of a used huge page relative to an idle one, over 0 and at most 1 (1: no penalty). A
    /// quarter is our choice. It corresponds to an idle memory tax of 75 %, the default of the
    /// scheme for virtual machines that the metric resembles (Waldspurger, OSDI'02).
    pub const TAU: f64 = 0.25;

    /// A policy that knows no process yet.
    pub fn new(settings: IngensSettings) -> Self {
        Self { settings, members: ProcessStates::default(), fmfi: None, round: 0 }
    }
}

impl Policy for Ingens {
    fn name(&self) -> &'static str {
        "ingens"
    }

    /// Present pages are enough for utilisation; idleness needs access bits.
    fn sample_kinds(&self) -> SampleKinds {
        SampleKinds::COVERAGE
    }

    fn observe(&mut self, observation: &Observation) {
        self.round += 1;
        self.fmfi = observation.fmfi;
        let (round, min_present) = (self.round, self.settings.min_present_pages(observation.fmfi));
        let members = self.members.states_to_update(observation, IngensProcess::default);
        for (sample, member) in members {
            member.observe(sample, round, min_present);
        }
    }

    fn pop_next_promotion(
        &mut self,
        _now: Duration,
        _supply: HugePageReadiness,
        held: &HashSet<ProcessId>,
    ) -> Option<Promotion> {
        let (importance, process, member) = self
            .members
            .iter_mut_of_free(held)
            .filter(|(_, m)| !m.waiting.is_empty())
            .map(|(process, m)| (m.importance(), process, m))
            // Of equal ones the first stays: first come, first served.
            .reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        let next = member.waiting.pop()?;
        member.huge += 1;
        if next.queued.is_none() {
            member.scanned = Some(next.region);
        }
        let reason =
            Reason::new(UtilisationReason { present: next.present, fmfi: self.fmfi, importance });
        Some(Promotion::to_huge_page(process, next.region, next.present, next.file, reason))
    }

    fn on_promotion_result(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        cost: Option<MeasuredPromotionCost>,
    ) {
        let failed = self.members.get_mut(process).filter(|_| cost.is_none());
        // A scan may find the region again.
        if let Some(seen) = failed.and_then(|member| member.regions.get_mut(&region)) {
            seen.queued = None;
        }
    }
}

impl ExplainPolicy for Ingens {}

#[cfg(test)]
mod tests;
