//! What sampling sees of a program: its regions, with access bits as all accesses of the window would have set them.

use super::accesses::{Exposure, touched};
use super::program::{Program, Viewer, Window};
use crate::bits::PageBits;
use crate::kernel::Kernel;
use crate::mmu::translation::LeafSize;
use crate::rng::Rng;
use hawkeye_policy::{
    CoverageSource, OutsideRegions, Overhead, OverheadSource, PAGES_PER_REGION, ProcessSample,
    RegionAddr, RegionSample, Terms,
};
use rand_distr::{Binomial, Distribution};
use std::ops::Range;
use std::time::Duration;

/// A stream's part in a window.
pub(super) struct Part {
    lot: usize,
    regions: Range<usize>,
    exposure: Exposure,
    /// Times that each page in use was accessed, on average.
    times: f64,
    /// Walks for each page in use under base pages, per second of CPU time.
    walks_per_page: f64,
}

/// What all accesses of a window did to a region.
pub(super) struct Marked {
    /// Pages that are known to have been accessed in it.
    pub(super) touched: PageBits,
    /// How likely each other page in use was accessed.
    pub(super) chance: f64,
    /// Times that each was, on average.
    pub(super) times: f64,
    /// Walks for all its pages, per second of CPU time.
    pub(super) walks_per_s: f64,
    /// Accessed pages lie side by side.
    swept: bool,
    /// Pages in use.
    pub(super) used: PageBits,
}

impl Marked {
    /// Runs of accessed pages, given so many that lie scattered: what is swept is one.
    pub(super) fn runs(&self, scattered: u16) -> u16 {
        if self.swept {
            1
        } else {
            scattered + self.touched.runs()
        }
    }
}

impl Program {
    /// What a sample shows at `now`.
    pub(super) fn observe(&mut self, kernel: &Kernel, now: Duration) -> ProcessSample {
        let mut regions = kernel.samples(self.space).unwrap_or_default();
        let window = self.windows.remove(&Viewer::Manager);
        let source = if window.is_some() {
            CoverageSource::AccessBits
        } else {
            CoverageSource::Population
        };
        let parts = window.as_ref().map_or_else(Vec::new, |w| self.parts(w));
        for sample in &mut regions {
            if kernel.faults.counts_faulted() && !sample.is_huge() {
                sample.present = self.faulted(kernel, sample.region).count();
            }
            match &window {
                Some(window) => self.mark(sample, kernel, window, &parts),
                None => {
                    sample.accessed = sample.present;
                    sample.runs = u16::from(sample.present > 0);
                }
            }
        }
        let lasted_ns = |w: &Window| now.saturating_sub(w.opened).as_nanos() as f64;
        let ran = window.as_ref().filter(|w| w.tally.cycles > 0.0);
        let sample = ProcessSample {
            outside: OutsideRegions::default(),
            faults: kernel
                .space_figures(self.space)
                .ok()
                .map(|figures| figures.faults.total()),
            process: self.id,
            source,
            regions,
            first_touches: 0,
            overhead: ran
                .map(|w| Overhead::exact(w.tally.overhead_percent(), OverheadSource::Counters)),
            cpu_cores: window
                .as_ref()
                .map_or(1.0, |w| w.busy_ns / lasted_ns(w).max(1.0)),
            terms: Terms::default(),
        };
        // Coverage since the window was *started*: another read goes on with it.
        self.windows
            .extend(window.map(|window| (Viewer::Manager, window)));
        sample
    }

    /// Pages of a region that were faulted in and not freed.
    fn faulted(&self, kernel: &Kernel, region: RegionAddr) -> PageBits {
        let lots = self.lots.iter();
        let mut used = lots.filter_map(|lot| Some(lot.used(lot.number(region)?)));
        let used = used.next().unwrap_or(PageBits::EMPTY);
        used.and(kernel.present(self.space, region))
    }

    pub(super) fn parts(&self, window: &Window) -> Vec<Part> {
        let cpu_s = cpu_s(window);
        let exposed = window.accesses.values().filter(|e| e.accesses > 0.0);
        let parts = exposed.filter_map(|exposed| {
            let source = &exposed.source;
            let lot = self.lots.get(source.lot)?;
            let base = source.regions.clone().filter(|number| {
                // What one TLB entry holds: in a virtual machine the host may have less than the guest.
                let region = lot.region(*number);
                let size = self.seen.size(self.seen_space, region);
                let host = self.seen.host(self.seen_space, region);
                size.map(|size| size.min(host)) == Some(LeafSize::Base)
            });
            let base_pages: u64 = base.map(|n| u64::from(lot.used(n).count())).sum();
            let pages = lot.count_used(source.regions.clone());
            Some(Part {
                lot: source.lot,
                regions: source.regions.clone(),
                exposure: source.exposure(exposed.accesses),
                times: exposed.accesses / pages.max(1) as f64,
                walks_per_page: exposed.base_walks / cpu_s / base_pages.max(1) as f64,
            })
        });
        parts.collect()
    }

    /// What a window's accesses did to a region; nothing if it is in no area.
    pub(super) fn marked(
        &self,
        region: RegionAddr,
        window: &Window,
        parts: &[Part],
    ) -> Option<Marked> {
        let lots = self.lots.iter().enumerate();
        let mut found = lots.filter_map(|(lot, held)| Some((lot, held, held.number(region)?)));
        let (lot, held, number) = found.next()?;
        let known = window.touched.get(&region);
        let traced = window.walks.get(&region).copied().unwrap_or(0.0);
        let used = held.used(number);
        let (mut missed, mut times, mut walks, mut swept) = (1.0, 0.0, 0.0, false);
        for part in parts {
            if part.lot != lot || !part.regions.contains(&number) {
                continue;
            }
            let chance = part.exposure.of_region(number - part.regions.start);
            missed *= 1.0 - chance;
            swept |= matches!(part.exposure, Exposure::Swept { .. });
            times += if chance > 0.0 { part.times } else { 0.0 };
            walks += part.walks_per_page;
        }
        Some(Marked {
            touched: known.copied().unwrap_or(PageBits::EMPTY),
            chance: 1.0 - missed,
            times,
            walks_per_s: walks * f64::from(used.count()) + traced / cpu_s(window),
            swept,
            used,
        })
    }

    /// Sets the figures of accesses of one region.
    fn mark(
        &mut self,
        sample: &mut RegionSample,
        kernel: &Kernel,
        window: &Window,
        parts: &[Part],
    ) {
        let Some(marked) = self.marked(sample.region, window, parts) else {
            return;
        };
        let known = marked.touched;
        if sample.is_huge() {
            let pages = f64::from(marked.used.count());
            let any = !known.is_empty() || self.rng.chance(touched(marked.times * pages));
            sample.accessed = if any { PAGES_PER_REGION } else { 0 };
            sample.runs = u16::from(any);
            sample.walks_per_s = 0;
            return;
        }
        let there = self.faulted(kernel, sample.region);
        let left = there.minus(known).count();
        let drawn = draw(left, marked.chance, &mut self.rng);
        sample.accessed = known.count() + drawn;
        sample.walks_per_s = marked.walks_per_s as u32;
        // Runs of pages drawn independently; what is swept or known is one.
        let share = f64::from(drawn) / f64::from(PAGES_PER_REGION);
        let scattered = (f64::from(drawn) * (1.0 - share)).round() as u16;
        sample.runs = match sample.accessed {
            0 => 0,
            _ => marked.runs(scattered).max(1),
        };
    }
}

/// CPU time of a window, in seconds.
fn cpu_s(window: &Window) -> f64 {
    (window.busy_ns / 1e9).max(1e-9)
}

/// How many of so many pages were touched.
pub(super) fn draw(pages: u16, chance: f64, rng: &mut Rng) -> u16 {
    let law = Binomial::new(pages.into(), chance.clamp(0.0, 1.0));
    law.map_or(0, |law| law.sample(rng) as u16)
}
