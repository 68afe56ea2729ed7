//! Ingens: by utilisation, a share of huge pages for each process (Kwon et al., OSDI'16).

use crate::error::{SettingError, positive_up_to};
use crate::observation::{Observation, ProcessId, ProcessSample, RegionSample};
use crate::page::{HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, RegionAddr};
use crate::plan::Promotion;
use crate::policies::members::Members;
use crate::policy::{ExplainPolicy, Needs, Policy};
use crate::reason::Reason;
use crate::whole::u16_of;
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

/// What Ingens can be told. The defaults are the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IngensSettings {
    utilisation_percent: f64,
    fmfi_switch: f64,
}

impl IngensSettings {
    /// Share of a region that must be in use while memory is fragmented, unless set, in per cent.
    pub const DEFAULT_UTILISATION_PERCENT: f64 = 90.0;
    /// Free memory fragmentation index from which memory counts as fragmented, unless set.
    pub const DEFAULT_FMFI_SWITCH: f64 = 0.5;

    /// While the free memory fragmentation index is at or above `fmfi_switch` (0-1; 0: always), a
    /// region is promoted when `utilisation_percent` of it (over 0, at most 100) are present; else at
    /// the first chance.
    ///
    /// # Errors
    /// A value out of range.
    pub fn new(utilisation_percent: f64, fmfi_switch: f64) -> Result<Self, SettingError> {
        let utilisation_percent = positive_up_to(
            100.0,
            utilisation_percent,
            "utilisation (%)",
            "over 0 and at most 100",
        )?;
        if !(0.0..=1.0).contains(&fmfi_switch) {
            return Err(SettingError::new(
                "fragmentation index",
                fmfi_switch,
                "at least 0 and at most 1",
            ));
        }
        Ok(Self {
            utilisation_percent,
            fmfi_switch,
        })
    }

    /// How many base pages of a region must be present (1-512).
    fn min_present(self, fmfi: Option<f64>) -> u16 {
        if fmfi.is_some_and(|fmfi| fmfi < self.fmfi_switch) {
            return 1;
        }
        let pages = f64::from(PAGES_PER_REGION) * self.utilisation_percent / 100.0;
        // A cast from a float saturates; 90 % of 512 are 460.8 pages: 461.
        u16_of(pages.ceil()).clamp(1, PAGES_PER_REGION)
    }
}

impl Default for IngensSettings {
    fn default() -> Self {
        Self {
            utilisation_percent: Self::DEFAULT_UTILISATION_PERCENT,
            fmfi_switch: Self::DEFAULT_FMFI_SWITCH,
        }
    }
}

/// What is known of a region.
#[derive(Clone, Copy, Debug)]
struct Seen {
    region: RegionAddr,
    present: u16,
    /// The round in which faults made it one that may be promoted; none for what only a scan finds.
    queued: Option<u64>,
}

impl Seen {
    /// The queue first, in the order in which regions came into it; then as the scan, which has come so far, finds them: low
    /// to high addresses, and round again.
    fn turn(&self, scanned: Option<RegionAddr>) -> (u64, bool, RegionAddr) {
        let behind = self.queued.is_none() && scanned.is_some_and(|to| self.region <= to);
        (self.queued.unwrap_or(u64::MAX), behind, self.region)
    }
}

/// One process.
#[derive(Debug, Default)]
struct Member {
    weight: f64,
    resident_bytes: u64,
    /// Huge pages, those proposed since they were counted included.
    huge: u64,
    /// Huge pages that were not accessed in the window.
    idle: u64,
    /// In ascending address order.
    regions: Vec<Seen>,
    /// May be promoted, the next one last.
    waiting: Vec<Seen>,
    /// The last region that the scan has proposed.
    scanned: Option<RegionAddr>,
}

impl Member {
    fn observe(&mut self, sample: &ProcessSample, round: u64, min_present: u16) {
        let huge = || sample.regions.iter().filter(|r| r.is_huge());
        self.weight = sample.terms.weight;
        self.resident_bytes = sample.resident_bytes();
        self.huge = huge().count() as u64;
        self.idle = huge().filter(|r| r.accessed == 0).count() as u64;
        let mut regions: Vec<Seen> = sample
            .regions
            .iter()
            .map(|now| self.seen(now, round, min_present))
            .collect();
        self.waiting = sample
            .regions
            .iter()
            .zip(&regions)
            .filter(|(now, _)| may_be_promoted(now, min_present))
            .map(|(_, seen)| *seen)
            .collect();
        let scanned = self.scanned;
        self.waiting.sort_by_key(|seen| Reverse(seen.turn(scanned)));
        self.waiting.dedup_by_key(|seen| seen.region);
        regions.sort_by_key(|seen| seen.region);
        self.regions = regions;
    }

    /// A region as it is now, beside what it was. Pages of it were faulted in when it is new or has more of them
    /// than before; those that a promotion has filled in were not faulted.
    fn seen(&self, now: &RegionSample, round: u64, min_present: u16) -> Seen {
        let before = self.find(now.region).and_then(|at| self.regions.get(at));
        let faulted = before.is_none_or(|before| now.present > before.present);
        let queued = before
            .and_then(|before| before.queued)
            .or(faulted.then_some(round));
        Seen {
            region: now.region,
            present: now.present,
            queued: queued.filter(|_| may_be_promoted(now, min_present)),
        }
    }

    fn find(&self, region: RegionAddr) -> Option<usize> {
        self.regions
            .binary_search_by_key(&region, |seen| seen.region)
            .ok()
    }

    /// The promotion metric, as it is with one huge page more.
    fn importance(&self) -> f64 {
        let idle = self.idle as f64;
        let used = (self.huge + 1) as f64 - idle;
        let penalised = idle + Ingens::TAU * used;
        self.weight * self.resident_bytes as f64 / (HUGE_PAGE_BYTES as f64 * penalised)
    }

    /// Its turn has come, and nothing came of it: a scan may find it again.
    fn refused(&mut self, region: RegionAddr) {
        let at = self.find(region);
        if let Some(seen) = at.and_then(|at| self.regions.get_mut(at)) {
            seen.queued = None;
        }
    }
}

fn may_be_promoted(region: &RegionSample, min_present: u16) -> bool {
    !region.is_huge() && region.present >= min_present
}

/// Enough of the region is in use, and its process is furthest behind its share.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "utilisation")]
struct UtilisationReason {
    /// Base pages present.
    present: u16,
    /// Free memory fragmentation index (0-1), which decides how many are enough; `None` where it
    /// isn't known.
    fmfi: Option<f64>,
    /// The process's promotion metric: memory it holds over memory under its huge pages, idle ones
    /// weighing more (over 0).
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

/// Takes from the process whose promotion metric is highest: first regions that faults have filled up far enough, in the
/// order in which they did so, then others from low to high addresses, going on where it was.
///
/// The first are the released code's work list: a fault that takes a region over the threshold puts it at the end
/// (`hugepage_worklist`, filled by `list_add_tail`), and khugepaged works it off before it scans anything. So what was faulted
/// recently goes before what was faulted long ago and could not be promoted then; and a program that fills its memory from low to
/// high addresses gets its huge pages in this order too (HawkEye paper, sections 2.3 and 4).
///
/// The metric is the paper's `M = S / (H * (f + tau * (1 - f)))`: `S` is the process's claim, `H`
/// the memory under its huge pages, `f` the share of these that is idle. With `f * H` idle and
/// `(1 - f) * H` used, the divisor is `idle + tau * used`: an idle huge page weighs `1 / tau` times a
/// used one. The claim is the memory that the process holds, by its weight, as in the released
/// code; so processes end up with huge pages in proportion to their memory. `H` counts the huge page
/// in question: nothing is divided by 0, and equals take turns from the first one on.
///
/// - *Idle* is a huge page without an access in the window. Where there are no access bits none is.
/// - *When* faults filled a region is known to one observation: it is new, or holds more pages than before. Of the same
///   observation, low addresses come first.
/// - What is refused leaves the list. Of the released list's length of 513 regions nothing is kept: what does not fit into it is
///   found by the scan, in the same order where memory was filled in order.
/// - A proposal counts as a huge page until the next observation counts them anew, also if nothing
///   came of it: a process whose regions are all refused would otherwise be asked for ever.
/// - While fragmentation isn't known, memory counts as fragmented: what is promoted then is right in
///   both cases, and what the other rule wastes Ingens never takes back.
/// - Ingens knows no pace of its own; its thread goes on while there is something to promote.
#[derive(Debug)]
pub struct Ingens {
    settings: IngensSettings,
    members: Members<Member>,
    fmfi: Option<f64>,
    /// Observations so far.
    round: u64,
}

impl Ingens {
    /// Its name on the command line.
    pub const NAME: &'static str = "ingens";

    /// What a used huge page weighs beside an idle one, over 0 and at most 1 (1: no penalty). A
    /// quarter is our choice: it is what an idle memory tax of 75 % comes to, the default of the
    /// scheme for virtual machines that the metric resembles (Waldspurger, OSDI'02).
    pub const TAU: f64 = 0.25;

    /// Knows no process yet.
    pub fn new(settings: IngensSettings) -> Self {
        Self {
            settings,
            members: Members::default(),
            fmfi: None,
            round: 0,
        }
    }
}

impl Policy for Ingens {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// Present pages would do for utilisation; idleness needs access bits.
    fn needs(&self) -> Needs {
        Needs::COVERAGE
    }

    fn observe(&mut self, observation: &Observation) {
        self.round += 1;
        self.fmfi = observation.fmfi;
        let (round, min_present) = (self.round, self.settings.min_present(observation.fmfi));
        self.members.observe(observation, |sample, before| {
            let mut member = before.unwrap_or_default();
            member.observe(sample, round, min_present);
            member
        });
    }

    fn next_promotion(&mut self, _now: Duration) -> Option<Promotion> {
        let (importance, process, member) = self
            .members
            .iter_mut()
            .filter(|(_, m)| !m.waiting.is_empty())
            .map(|(process, m)| (m.importance(), process, m))
            // The first of equals stays: first come first.
            .reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        let next = member.waiting.pop()?;
        member.huge += 1;
        if next.queued.is_none() {
            member.scanned = Some(next.region);
        }
        Some(Promotion {
            process,
            region: next.region,
            order: PageOrder::HUGE,
            expected_present: next.present,
            saved_us_per_s: None,
            reason: Reason::new(UtilisationReason {
                present: next.present,
                fmfi: self.fmfi,
                importance,
            }),
        })
    }

    /// What became huge the next observation tells.
    fn settle(&mut self, process: ProcessId, region: RegionAddr, took: Option<Duration>) {
        if took.is_none() {
            if let Some(member) = self.members.get_mut(process) {
                member.refused(region);
            }
        }
    }
}

impl ExplainPolicy for Ingens {}

#[cfg(test)]
mod tests;
