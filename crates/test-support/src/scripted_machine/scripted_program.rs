//! A program of the scripted machine.

use super::costs;
use hawkeye_policy::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, ProcessSettings, RegionAddr,
    RegionSample, TranslationOverhead, TranslationOverheadSource,
};
use std::time::Duration;

/// Neighbouring regions that are used alike.
#[derive(Clone)]
pub struct ProgramPart {
    start: RegionAddr,
    /// Whether each region is huge. If so, all of its pages are present, and unused ones are zero.
    pub(super) huge: Vec<bool>,
    /// Its share of the program's accesses is its weight over the sum of all.
    weight: f64,
    /// Base pages in use in each region.
    pub(super) used_pages: u16,
}

impl ProgramPart {
    /// Fully used regions under base pages or huge pages.
    pub fn new(start: RegionAddr, regions: u32, huge: bool, weight: f64) -> Self {
        let huge = vec![huge; regions as usize];
        Self { start, huge, weight, used_pages: PAGES_PER_REGION }
    }

    /// The same with this many base pages in use in each region (0-512).
    pub fn using(self, used_pages: u16) -> Self {
        Self { used_pages, ..self }
    }

    fn present_pages(&self, huge: bool) -> u16 {
        if huge { PAGES_PER_REGION } else { self.used_pages }
    }

    /// Expected touches that set an access bit in one region, after this many accesses to a part of
    /// weight 1: one for each base page, one for a huge page.
    fn first_touches(&self, accesses: f64, huge: bool) -> f64 {
        let (accesses, used) =
            (accesses * self.weight / self.huge.len() as f64, f64::from(self.used_pages));
        if huge { accesses.min(1.0) } else { used * (1.0 - (-accesses / used.max(1.0)).exp()) }
    }

    /// `accesses`: to a part of weight 1, since access bits were cleared, if ever.
    fn region_samples(&self, accesses: Option<f64>) -> impl Iterator<Item = RegionSample> {
        self.huge.iter().zip(0..).map(move |(&huge, index)| {
            let present = self.present_pages(huge);
            let accessed = accesses.map_or(present, |accesses| {
                // 0 to 512 base pages, or whether a huge page was accessed.
                let touched = self.first_touches(accesses, huge).round() as u16;
                if huge { touched * PAGES_PER_REGION } else { touched }
            });
            let start = self.start.start() + index * HUGE_PAGE_BYTES;
            RegionSample {
                present,
                accessed,
                runs: u16::from(accessed > 0),
                order: PageOrder::base_or_huge(huge),
                ..RegionSample::new_full_and_untouched(RegionAddr::containing(start))
            }
        })
    }
}

/// A program.
#[derive(Clone, Default)]
pub struct ScriptedProgram {
    /// Its address space, in address order.
    pub parts: Vec<ProgramPart>,
    /// Share of its accesses to base pages that need no page walk (0-1).
    pub walkless_share: f64,
    /// The cgroup it is in.
    pub group: Option<&'static str>,
    /// The rules under which it is managed.
    pub terms: ProcessSettings,
    pub(crate) started: Duration,
    /// When its access bits were last cleared.
    pub(crate) cleared: Option<Duration>,
}

impl ScriptedProgram {
    fn regions(&self) -> impl Iterator<Item = (&ProgramPart, bool)> {
        self.parts.iter().flat_map(|part| part.huge.iter().map(move |huge| (part, *huge)))
    }

    /// Resident memory, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        let pages = self.regions().map(|(part, huge)| u64::from(part.present_pages(huge)));
        pages.sum::<u64>() * BASE_PAGE_BYTES
    }

    /// Memory under huge pages, in bytes.
    pub fn huge_bytes(&self) -> u64 {
        self.regions().filter(|(_, huge)| *huge).count() as u64 * HUGE_PAGE_BYTES
    }

    /// The share of its time that page walks take; `None` where it accesses nothing.
    pub fn overhead(&self) -> Option<TranslationOverhead> {
        let percent = (1.0 - costs::HUGE_ACCESS_NS / self.mean_access_ns()?) * 100.0;
        Some(TranslationOverhead::new_without_error(percent, TranslationOverheadSource::Counters))
    }

    fn total_weight(&self) -> f64 {
        self.parts.iter().map(|part| part.weight).sum()
    }

    fn mean_access_ns(&self) -> Option<f64> {
        let total = self.total_weight();
        let walk_ns = (1.0 - self.walkless_share) * (costs::BASE_ACCESS_NS - costs::HUGE_ACCESS_NS);
        let of = |(part, huge): (&ProgramPart, bool)| {
            let ns = costs::HUGE_ACCESS_NS + if huge { 0.0 } else { walk_ns };
            part.weight / part.huge.len() as f64 * ns
        };
        (total > 0.0).then(|| self.regions().map(of).sum::<f64>() / total)
    }

    /// Accesses to a part of weight 1 since access bits were cleared; `None` if they never were.
    fn accesses_since_clear(&self, now: Duration) -> Option<f64> {
        // The program runs on while a call clears or reads.
        let elapsed_ns = (now - self.cleared?).max(costs::CALL).as_secs_f64() * 1e9;
        Some(self.mean_access_ns().map_or(0.0, |ns| elapsed_ns / ns / self.total_weight()))
    }

    /// Expected first touches of pages since access bits were cleared.
    pub(super) fn first_touches(&self, now: Duration) -> f64 {
        let Some(accesses) = self.accesses_since_clear(now) else { return 0.0 };
        self.regions().map(|(part, huge)| part.first_touches(accesses, huge)).sum()
    }

    /// Clears all access bits; returns the number of regions under base pages.
    pub(super) fn clear_access_bits(&mut self, now: Duration) -> usize {
        self.cleared = Some(now);
        self.regions().filter(|(_, huge)| !huge).count()
    }

    /// Samples of all regions that are not empty.
    pub(super) fn region_samples(&self, now: Duration) -> Vec<RegionSample> {
        let accesses = self.accesses_since_clear(now);
        let all = self.parts.iter().flat_map(|part| part.region_samples(accesses));
        all.filter(|sample| sample.present > 0).collect()
    }

    /// Whether a region is huge, and how many of its base pages are in use.
    pub(super) fn region_mut(&mut self, address: RegionAddr) -> Option<(&mut bool, u16)> {
        self.parts.iter_mut().find_map(|part| {
            let offset = address.start().checked_sub(part.start.start())?;
            let huge = part.huge.get_mut(usize::try_from(offset / HUGE_PAGE_BYTES).ok()?)?;
            Some((huge, part.used_pages))
        })
    }
}
