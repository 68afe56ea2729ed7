//! Phases that fill memory or give it back, region by region.

use super::area_layout::byte_range_of_pages;
use super::error::Result;
use super::program::{PhaseProgress, Program};
use crate::kernel::{PageAccessKind, SimulatedKernel};
use crate::page_bits::PageBits;
use crate::workloads::{FillContent, Phase};
use hawkeye_policy::PAGES_PER_REGION;

impl Program {
    pub(super) fn fill_or_free_next_region(
        &mut self,
        kernel: &mut SimulatedKernel,
    ) -> Result<bool> {
        let PhaseProgress::Regions { lot, next, end, round } = self.work else {
            return Ok(true);
        };
        if next >= end {
            return Ok(true);
        }
        let mut rounds = 1;
        match self.current_phase().cloned() {
            Some(phase @ Phase::Fill { .. }) => self.fill_region(kernel, (lot, next), &phase)?,
            Some(Phase::Free { share, rounds: all, page_ns, .. }) => {
                rounds = all;
                // A share of what earlier rounds have left.
                let each = share / f64::from(all);
                let now = each / (1.0 - each * f64::from(round));
                self.free_random_part_of_region(kernel, (lot, next), now, page_ns)?;
            }
            _ => {}
        }
        let last = next + 1 >= end && round + 1 >= rounds;
        if let PhaseProgress::Regions { next, round, .. } = &mut self.work {
            *next += 1;
            if *next >= end && !last {
                // Rounds belong to a phase that begins with the first region.
                (*next, *round) = (0, *round + 1);
            }
        }
        Ok(last)
    }

    fn fill_region(
        &mut self,
        kernel: &mut SimulatedKernel,
        (lot, number): (usize, usize),
        phase: &Phase,
    ) -> Result<()> {
        let (
            Phase::Fill {
                pages_per_region, pages_per_run, page_ns, content, waited_percent, ..
            },
            Some(held),
        ) = (phase, self.lots.get_mut(lot))
        else {
            return Ok(());
        };
        let region = held.region_address(number);
        for mapping in held.take_unmapped_byte_ranges(number) {
            kernel.map(self.space, mapping)?;
        }
        let pages = match pages_per_run {
            1 => PageBits::evenly_spread(*pages_per_region),
            // The same pages each time.
            run => PageBits::scattered_runs(*pages_per_region, *run, number as u64),
        };
        let pages = pages.and(held.mapped_pages(number));
        let access = match content {
            FillContent::Data => PageAccessKind::Write,
            FillContent::Zeros => PageAccessKind::WriteZeros,
        };
        let touched = kernel.touch_pages_of_region(self.space, region, pages, access);
        held.mark_pages_used(number, pages);
        self.update_mappings(kernel, region)?;
        let touched = touched?;
        // First touches of cold memory cost time only here, not in the processor's model.
        let costs = kernel.costs();
        let cold_ns = (touched.cold * costs.cold_touch_ns) as f64 * (waited_percent / 100.0);
        let after_ns = touched.faults.total() * costs.after_fault_ns;
        let fault_ns = touched.time.as_nanos() as f64;
        self.fault_ns += fault_ns;
        self.owed_ns += fault_ns + cold_ns + after_ns as f64 + page_ns * f64::from(pages.count());
        self.record_touched_pages(region, pages);
        Ok(())
    }

    fn free_random_part_of_region(
        &mut self,
        kernel: &mut SimulatedKernel,
        (lot, number): (usize, usize),
        share: f64,
        page_ns: f64,
    ) -> Result<()> {
        let Some(held) = self.lots.get_mut(lot) else {
            return Ok(());
        };
        let region = held.region_address(number);
        if held.is_mapped_in_pieces() {
            return self.unmap_random_pieces(kernel, (lot, number), share, page_ns);
        }
        let mut pages = held.used_pages(number);
        if share < 1.0 {
            for page in 0..PAGES_PER_REGION {
                if pages.contains(page) && !self.rng.chance(share) {
                    pages.remove(page);
                }
            }
        }
        if pages.is_empty() {
            return Ok(());
        }
        held.mark_pages_unused(number, pages);
        // The phase gives back all that is in use: unmap everything that is present.
        let all = held.used_pages(number).is_empty();
        let given = if all { PageBits::FULL } else { pages };
        let paid = kernel.free_pages_of_region(self.space, region, given)?;
        self.owed_ns += paid.as_nanos() as f64 + page_ns * f64::from(pages.count());
        self.update_mappings(kernel, region)?;
        Ok(())
    }

    fn unmap_random_pieces(
        &mut self,
        kernel: &mut SimulatedKernel,
        (lot, number): (usize, usize),
        share: f64,
        page_ns: f64,
    ) -> Result<()> {
        let Some(held) = self.lots.get_mut(lot) else {
            return Ok(());
        };
        let region = held.region_address(number);
        let mapped = held.mapped_pages(number);
        for piece in held.pieces_in_region(number).filter(|piece| piece.is_subset_of(mapped)) {
            if !self.rng.chance(share) {
                continue;
            }
            let used = held.used_pages(number).and(piece).count();
            held.record_unmapped_piece(number, piece);
            let paid = kernel.unmap(self.space, byte_range_of_pages(region, piece))?;
            self.owed_ns += paid.as_nanos() as f64 + page_ns * f64::from(used);
        }
        self.update_mappings(kernel, region)?;
        Ok(())
    }
}
