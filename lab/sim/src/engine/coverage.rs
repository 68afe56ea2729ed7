//! Sampling's view of a program: access bits as all accesses of the window set them.

use super::access_cost::WalksByEntrySize;
use super::figures::AccessTally;
use super::program::{Program, SamplingWindow, WindowObserver};
use super::shared_memory::hide_accesses_of_several_mappers;
use super::stream_sampler::{TouchedShare, touch_probability};
use crate::kernel::SimulatedKernel;
use crate::mmu::TlbGroupCondition;
use crate::mmu::translation::{EntrySize, LeafSize};
use crate::page_bits::PageBits;
use crate::rng::SimulationRng;
use hawkeye_policy::{
    CoverageSource, MemoryOutsideRegions, PAGES_PER_REGION, PageOrder, PageOrderSet, ProcessId,
    ProcessSample, ProcessSettings, RegionAddr, RegionSample, TranslationOverhead,
    TranslationOverheadSource,
};
use rand_distr::{Binomial, Distribution};
use std::ops::Range;
use std::time::Duration;

pub(super) struct StreamTouchedShare {
    lot: usize,
    regions: Range<usize>,
    exposure: TouchedShare,
    /// Average number of accesses to each page in use.
    times: f64,
    /// Walks for each page in use, per second of CPU time, by the TLB entry's size.
    walks_per_page: WalksByEntrySize,
}

pub(super) struct RegionAccesses {
    pub(super) touched: PageBits,
    /// The chance that each other page in use was accessed.
    pub(super) chance: f64,
    /// Average number of accesses to each of these, in the window.
    pub(super) times: f64,
    /// Walks for all its pages, per second of CPU time, if they are base pages.
    pub(super) walks_per_s: f64,
    /// The same if it is one page, or part of one.
    large_walks_per_s: f64,
    /// Whether accessed pages lie side by side.
    swept: bool,
    pub(super) used: PageBits,
}

/// A live manager cannot tell shorter times to a page's first access apart than 50 us.
const MOST_TOUCHES_PER_S: f64 = 20_000.0;

impl RegionAccesses {
    /// Runs of accessed pages, given the number that lie scattered. A swept region is one run.
    pub(super) fn count_accessed_runs(&self, scattered: u16) -> u16 {
        if self.swept { 1 } else { scattered + self.touched.count_runs() }
    }
}

impl Program {
    pub(super) fn sample_of_manager_window(
        &mut self,
        kernel: &SimulatedKernel,
        now: Duration,
        promotable: PageOrderSet,
    ) -> ProcessSample {
        let mut regions = kernel.list_region_samples(self.space).unwrap_or_default();
        // Memory that could never be huge is no region of a process (`MemoryOutsideRegions`).
        regions.retain(|sample| kernel.is_region_in_one_mapping(self.space, sample.region));
        let beyond_huge = promotable.largest() > Some(PageOrder::HUGE);
        let window = self.windows.remove(&WindowObserver::Manager);
        let parts = window.as_ref().map_or_else(Vec::new, |w| self.stream_touched_shares(w));
        for sample in &mut regions {
            if kernel.faults.counts_faulted && !sample.is_huge() {
                sample.present = self.faulted_page_bits(kernel, sample.region).count();
            }
            match &window {
                Some(window) => {
                    let large_walks = self.fill_region_sample(sample, kernel, window, &parts, now);
                    if beyond_huge && sample.is_huge() {
                        sample.walks_per_s = large_walks as u32;
                    }
                }
                None => {
                    sample.accessed = sample.present;
                    sample.runs = u16::from(sample.present > 0);
                }
            }
        }
        let seen = window.as_ref().map(|w| (w.opened, w.tally, w.busy_ns));
        let figures = kernel.space_figures(self.space).ok();
        let mut sample = ProcessSample {
            outside: kernel.memory_outside_regions(self.space).unwrap_or_default(),
            faults: figures.map(|figures| figures.faults.total()),
            age: now.saturating_sub(self.arrives),
            ..build_process_sample(self.id, regions, seen, now)
        };
        hide_accesses_of_several_mappers(&mut sample, kernel, self.space);
        // Coverage counts from the *start* of the window, so another read continues it.
        self.windows.extend(window.map(|window| (WindowObserver::Manager, window)));
        sample
    }

    fn faulted_page_bits(&self, kernel: &SimulatedKernel, region: RegionAddr) -> PageBits {
        let lots = self.lots.iter();
        let mut used = lots.filter_map(|lot| Some(lot.used_pages(lot.region_number(region)?)));
        let used = used.next().unwrap_or(PageBits::EMPTY);
        used.and(kernel.present_pages(self.space, region))
    }

    pub(super) fn stream_touched_shares(&self, window: &SamplingWindow) -> Vec<StreamTouchedShare> {
        let cpu_s = cpu_seconds_in_window(window);
        let exposed = window.accesses.values().filter(|e| e.accesses > 0.0);
        let parts = exposed.filter_map(|exposed| {
            let source = &exposed.source;
            let lot = self.lots.get(source.lot)?;
            let mut in_use = [0_u64; EntrySize::ALL.len()];
            for number in source.regions.clone() {
                let sizes = self
                    .count_pages_by_entry_size(lot.region_address(number), lot.used_pages(number));
                for (sum, pages) in in_use.iter_mut().zip(sizes) {
                    *sum += u64::from(pages);
                }
            }
            let mut walks_per_page = exposed.walks;
            for (walks, pages) in walks_per_page.iter_mut().zip(in_use) {
                *walks = *walks / cpu_s / pages.max(1) as f64;
            }
            let pages = lot.count_used_pages(source.regions.clone());
            Some(StreamTouchedShare {
                lot: source.lot,
                regions: source.regions.clone(),
                exposure: source.touched_share(exposed.accesses),
                times: exposed.accesses / pages.max(1) as f64,
                walks_per_page,
            })
        });
        parts.collect()
    }

    fn count_pages_by_entry_size(
        &self,
        region: RegionAddr,
        pages: PageBits,
    ) -> [u16; EntrySize::ALL.len()] {
        let mut entries = [0; EntrySize::ALL.len()];
        let Some(size) = self.seen.page_size(region) else {
            return entries;
        };
        // In a virtual machine the host may map by smaller pages than the guest.
        let host = self.seen.host_page_size(region);
        let whole = match size {
            LeafSize::Base => None,
            LeafSize::Huge if self.seen.is_in_huge_group(region) => Some(EntrySize::HugeGroup),
            size => Some(size.into()),
        };
        let grouped = match whole {
            Some(_) => PageBits::EMPTY,
            None => self.page_bits_in_tlb_groups(region).and(pages),
        };
        let mut add = |size: EntrySize, pages: u16| {
            if let Some(sum) = entries.get_mut(size.min(host) as usize) {
                *sum += pages;
            }
        };
        add(EntrySize::BaseGroup, grouped.count());
        add(whole.unwrap_or(EntrySize::Base), pages.minus(grouped).count());
        entries
    }

    /// The effect of a window's accesses on a region; `None` if it is in no area.
    pub(super) fn region_accesses(
        &self,
        region: RegionAddr,
        window: &SamplingWindow,
        parts: &[StreamTouchedShare],
    ) -> Option<RegionAccesses> {
        let lots = self.lots.iter().enumerate();
        let mut found =
            lots.filter_map(|(lot, held)| Some((lot, held, held.region_number(region)?)));
        let (lot, held, number) = found.next()?;
        let known = window.touched.get(&region);
        let traced = window.walks.get(&region).copied().unwrap_or(0.0);
        let used = held.used_pages(number);
        let (mut missed, mut times, mut swept) = (1.0, 0.0, false);
        let (mut per_single, mut per_grouped, mut large_walks) = (0.0, 0.0, 0.0);
        let entries = self.count_pages_by_entry_size(region, used);
        let [_, grouped, large @ ..] = entries.map(f64::from);
        let single = f64::from(used.count()) - grouped;
        for part in parts {
            if part.lot != lot || !part.regions.contains(&number) {
                continue;
            }
            let chance = part.exposure.touch_chance_in_region(number - part.regions.start);
            missed *= 1.0 - chance;
            swept |= matches!(part.exposure, TouchedShare::Swept { .. });
            times += if chance > 0.0 { part.times } else { 0.0 };
            let [of_single, of_grouped, per_large @ ..] = part.walks_per_page;
            per_single += of_single;
            per_grouped += of_grouped;
            let each = per_large.iter().zip(large);
            large_walks += each.map(|(walks, pages)| walks * pages).sum::<f64>();
        }
        Some(RegionAccesses {
            touched: known.copied().unwrap_or(PageBits::EMPTY),
            chance: 1.0 - missed,
            times,
            walks_per_s: per_single * single
                + per_grouped * grouped
                + traced / cpu_seconds_in_window(window),
            large_walks_per_s: large_walks,
            swept,
            used,
        })
    }

    /// Sets a region's access figures; returns walks per CPU second as if it were one page.
    fn fill_region_sample(
        &mut self,
        sample: &mut RegionSample,
        kernel: &SimulatedKernel,
        window: &SamplingWindow,
        parts: &[StreamTouchedShare],
        now: Duration,
    ) -> f64 {
        let Some(marked) = self.region_accesses(sample.region, window, parts) else {
            return 0.0;
        };
        let known = marked.touched;
        if sample.is_huge() {
            let pages = f64::from(marked.used.count());
            let any = !known.is_empty() || self.rng.chance(touch_probability(marked.times * pages));
            sample.accessed = if any { PAGES_PER_REGION } else { 0 };
            sample.runs = u16::from(any);
            sample.walks_per_s = 0;
            let lasted_s = now.saturating_sub(window.opened).as_secs_f64();
            let touches_per_s = marked.times * pages / lasted_s.max(f64::MIN_POSITIVE);
            sample.touches_per_s = Some(touches_per_s.min(MOST_TOUCHES_PER_S) as u32);
            return marked.large_walks_per_s;
        }
        let there = self.faulted_page_bits(kernel, sample.region);
        let together = self.page_bits_sharing_access_bits(sample.region);
        let alone = together.map_or(there, |(pages, _)| there.minus(pages));
        let left = alone.minus(known).count();
        let mut drawn = draw_page_count(left, marked.chance, &mut self.rng);
        let mut scattered = f64::from(drawn);
        sample.accessed = known.and(alone).count() + drawn;
        if let Some((pages, order)) = together {
            let group = 1 << order;
            let accessed = self.count_accessed_groups((pages, order), there, &marked);
            sample.accessed += accessed * group;
            drawn += accessed * group;
            scattered += f64::from(accessed);
        }
        sample.walks_per_s = marked.walks_per_s as u32;
        // Runs of pages drawn independently; swept or known pages are one run.
        let share = f64::from(drawn) / f64::from(PAGES_PER_REGION);
        let scattered = (scattered * (1.0 - share)).round() as u16;
        sample.runs = match sample.accessed {
            0 => 0,
            _ => marked.count_accessed_runs(scattered).max(1),
        };
        marked.large_walks_per_s
    }

    fn page_bits_in_tlb_groups(&self, region: RegionAddr) -> PageBits {
        let Some(group) = self.seen.groups().base else {
            return PageBits::EMPTY;
        };
        let groups = self.seen.bit_per_base_page_group(region);
        let size = 1 << group.order;
        let all = (0..PAGES_PER_REGION >> group.order).filter(|number| groups >> number & 1 == 1);
        all.fold(PageBits::EMPTY, |pages, number| pages.or(PageBits::range(number * size, size)))
    }

    /// Pages in groups that have one access bit for all their pages, and the order of these groups.
    fn page_bits_sharing_access_bits(&self, region: RegionAddr) -> Option<(PageBits, u32)> {
        let group = self.seen.groups().base?;
        let marked = group.condition == TlbGroupCondition::Marked;
        let pages = marked.then(|| self.page_bits_in_tlb_groups(region))?;
        (!pages.is_empty()).then_some((pages, group.order))
    }

    /// The number of a region's accessed groups: those in which any page in use was accessed.
    fn count_accessed_groups(
        &mut self,
        (pages, order): (PageBits, u32),
        there: PageBits,
        marked: &RegionAccesses,
    ) -> u16 {
        let known = marked.touched.and(pages).widened_to_blocks(order);
        let mut accessed = known.count() >> order;
        for (first, count) in pages.minus(known).runs() {
            for first in (first..first + count).step_by(1 << order) {
                let used = there.and(PageBits::range(first, 1 << order)).count();
                let none = (1.0 - marked.chance).powi(used.into());
                accessed += u16::from(self.rng.chance(1.0 - none));
            }
        }
        accessed
    }
}

/// A process at `now`, sampled in a window: start, accesses, CPU time in nanoseconds.
pub(super) fn build_process_sample(
    process: ProcessId,
    regions: Vec<RegionSample>,
    window: Option<(Duration, AccessTally, f64)>,
    now: Duration,
) -> ProcessSample {
    let ran = window.filter(|(_, tally, _)| tally.cycles > 0.0);
    let lasted_ns = |opened| now.saturating_sub(opened).as_nanos() as f64;
    ProcessSample {
        outside: MemoryOutsideRegions::default(),
        faults: None,
        process,
        source: match window {
            Some(_) => CoverageSource::AccessBits,
            None => CoverageSource::Population,
        },
        regions,
        first_touches: 0,
        overhead: ran.map(|(_, tally, _)| {
            TranslationOverhead::new_without_error(
                tally.overhead_percent(),
                TranslationOverheadSource::Counters,
            )
        }),
        walks_seen: 1.0,
        cpu_cores: window.map_or(1.0, |(opened, _, busy_ns)| busy_ns / lasted_ns(opened).max(1.0)),
        age: now,
        terms: ProcessSettings::default(),
    }
}

fn cpu_seconds_in_window(window: &SamplingWindow) -> f64 {
    (window.busy_ns / 1e9).max(1e-9)
}

pub(super) fn draw_page_count(pages: u16, chance: f64, rng: &mut SimulationRng) -> u16 {
    let law = Binomial::new(pages.into(), chance.clamp(0.0, 1.0));
    law.map_or(0, |law| law.sample(rng) as u16)
}
