//! Measures the present cost of a program's accesses by a sample of them.

use super::access_cost::{AccessCost, WalksByEntrySize};
use super::error::Result;
use super::program::{PhaseProgress, Program};
use super::stream_sampler::StreamSampler;
use crate::kernel::{PageAccessKind as Touch, SimulatedKernel};
use crate::mmu::translation::{
    Access, AccessFault, LeafSize, ProgramWork as CoreWork, TranslationCounters,
};
use crate::page_bits::PageBits;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use std::time::Duration;

/// Accesses in a round, in which each stream makes its share, one stream after the other.
const ROUND: f64 = 64.0;
/// Accesses that the rarest stream should have in a sample; the sample is enlarged for it.
const RAREST: f64 = 1000.0;
/// Largest factor by which a sample is enlarged.
const MOST_TIMES: f64 = 50.0;

/// Accesses to each line of tables before the first sample of a phase, so that the caches hold what
/// they hold in the long run.
const WARM: f64 = 3.0;
/// Most accesses for that.
const MOST_TO_WARM_UP: u32 = 5_000_000;
/// Fewest accesses for that, in samples: enough to fill the last-level cache with tables.
const WARM_UP_SAMPLES: u32 = 100;
/// Streams with a smaller share of accesses find in the caches what the others leave them.
const RARE: f64 = 0.05;
const ENTRIES_PER_LINE: f64 = 8.0;

impl Program {
    /// Uncounted accesses at the start of a phase, given the number in a sample.
    pub(super) fn needed_warm_up_accesses(&self, sample: u32) -> u32 {
        let least = sample.saturating_mul(WARM_UP_SAMPLES);
        let PhaseProgress::Accesses { sources, .. } = &self.work else {
            return least;
        };
        let often = |s: &&StreamSampler| s.share >= RARE && s.is_scattered();
        let needed = sources.iter().filter(often).map(|source| {
            let size = |number: &usize| {
                let region = self.lots.get(source.lot)?.region_address(*number);
                self.seen.page_size(region)
            };
            let regions = source.regions.clone();
            let base = regions.filter(|n| size(n) == Some(LeafSize::Base)).count();
            let entries = base * usize::from(PAGES_PER_REGION);
            WARM * entries as f64 / ENTRIES_PER_LINE / source.share
        });
        let needed = needed.fold(0.0, f64::max) as u32;
        needed.min(MOST_TO_WARM_UP).max(least)
    }

    pub(super) fn measure_access_cost(
        &mut self,
        kernel: &mut SimulatedKernel,
        now: Duration,
        accesses: u32,
    ) -> Result<AccessCost> {
        // Put back below: drawing needs the rest of the program too.
        let PhaseProgress::Accesses { left, idle_ns, mut sources } =
            std::mem::replace(&mut self.work, PhaseProgress::Begin)
        else {
            return Ok(AccessCost { at: now, cycles: 1.0, ..AccessCost::default() });
        };
        let sampled = self.simulate_access_sample(kernel, &mut sources, accesses);
        let shares: Vec<(f64, f64)> = sources.iter().map(|s| (s.share, s.cycles)).collect();
        self.work = PhaseProgress::Accesses { left, idle_ns, sources };
        let mut pace = AccessCost { at: now, ..AccessCost::default() };
        // Weighted by shares, not by the accesses that the turns happened to add up to.
        for (counted, (share, own)) in sampled?.iter().zip(shares) {
            if counted.accesses == 0 {
                // Every access drawn for it went to swap.
                pace.cycles += share * own;
                pace.walks.push(WalksByEntrySize::default());
                continue;
            }
            let made = counted.accesses as f64;
            pace.cycles += share * counted.millicycles as f64 / 1000.0 / made;
            pace.walk_cycles += share * counted.walk_cycles() as f64 / made;
            pace.walks.push(counted.walks_by_size.map(|walks| walks as f64 / made));
        }
        Ok(pace)
    }

    fn simulate_access_sample(
        &mut self,
        kernel: &mut SimulatedKernel,
        sources: &mut [StreamSampler],
        accesses: u32,
    ) -> Result<Vec<TranslationCounters>> {
        let mut counted = vec![TranslationCounters::default(); sources.len()];
        let mut due: Vec<f64> = vec![0.0; sources.len()];
        let mut batch = Vec::with_capacity(ROUND as usize);
        let rarest = sources.iter().map(|s| s.share).fold(1.0, f64::min);
        let most = f64::from(accesses) * MOST_TIMES;
        let wanted = f64::from(accesses).max((RAREST / rarest).min(most));
        for _ in 0..(wanted / ROUND).ceil() as u64 {
            for (stream, source) in sources.iter_mut().enumerate() {
                due[stream] += source.share * ROUND;
                let turn = due[stream].floor();
                if turn < 1.0 {
                    continue;
                }
                due[stream] -= turn;
                batch.clear();
                for _ in 0..turn as usize {
                    if let Some(lot) = self.lots.get(source.lot) {
                        batch.push(source.draw_access(lot, &mut self.rng));
                    }
                }
                let work = CoreWork {
                    millicycles_per_access: (source.cycles * 1000.0) as u32,
                    waited_permille: source.waited_permille,
                };
                let before = self.core.counters();
                self.translate_accesses(kernel, &batch, work)?;
                let made = self.core.counters().since(&before);
                add_translation_counters(&mut counted[stream], &made);
            }
        }
        Ok(counted)
    }

    /// Makes accesses; repeats one that faults after the fault, and leaves out those to swap.
    pub(super) fn translate_accesses(
        &mut self,
        kernel: &mut SimulatedKernel,
        batch: &[Access],
        work: CoreWork,
    ) -> Result<()> {
        let mut left = batch;
        while !left.is_empty() {
            let done = self.core.translate(&mut self.seen, left, work);
            left = left.get(done.accesses..).unwrap_or_default();
            let Some(AccessFault::Unmapped(access) | AccessFault::Protected(access)) = done.fault
            else {
                continue;
            };
            let touch = if access.is_store() { Touch::Write } else { Touch::Read };
            let region = RegionAddr::containing(access.address());
            let page = access.address() / BASE_PAGE_BYTES % u64::from(PAGES_PER_REGION);
            let pages = PageBits::range(page as u16, 1);
            if !kernel.swapped_page_bits(self.space, region).and(pages).is_empty() {
                // `swap_waits.rs` accounts for all waits; a sample's would count twice.
                left = left.get(1..).unwrap_or_default();
                continue;
            }
            let touched = kernel.touch_pages_of_region(self.space, region, pages, touch)?;
            self.owed_ns += touched.time.as_nanos() as f64;
            self.update_mappings(kernel, region)?;
        }
        Ok(())
    }
}

fn add_translation_counters(sum: &mut TranslationCounters, more: &TranslationCounters) {
    sum.accesses += more.accesses;
    sum.millicycles += more.millicycles;
    sum.load_walk_cycles += more.load_walk_cycles;
    sum.store_walk_cycles += more.store_walk_cycles;
    for (sum, more) in sum.walks_by_size.iter_mut().zip(more.walks_by_size) {
        *sum += more;
    }
}
