//! Runs a program that replays a trace: all of its accesses, in their order.
//!
//! Nothing is drawn here: accessed pages and the regions that cause walks are counted.

use super::access_cost::AccessCost;
use super::error::Result;
use super::figures::AccessTally;
use super::program::{PhaseProgress, Program};
use super::trace_player::TracePlayer;
use crate::kernel::{PageAccessKind as Touch, SimulatedKernel};
use crate::mmu::translation::{Access, EntrySize, ProgramWork as CoreWork};
use crate::page_bits::PageBits;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use std::time::Duration;

/// One batch in this many is made access by access, to attribute its walks to regions.
const ONE_IN: u64 = 16;

impl Program {
    /// Makes the accesses of its trace until the time is used up or a fault has to be paid. Returns
    /// the time used, in nanoseconds, and whether the trace is over.
    pub(super) fn play_trace(
        &mut self,
        kernel: &mut SimulatedKernel,
        now: Duration,
        left_ns: f64,
        ghz: f64,
    ) -> Result<(f64, bool)> {
        // Put back below: accesses need the rest of the program too.
        let PhaseProgress::Playing(mut player) =
            std::mem::replace(&mut self.work, PhaseProgress::Begin)
        else {
            return Ok((0.0, true));
        };
        let played = self.play_trace_batches(&mut player, kernel, left_ns, ghz);
        self.work = PhaseProgress::Playing(player);
        let (spent_ns, tally, over) = played?;
        if tally.accesses > 0.0 {
            self.pace = Some(AccessCost {
                at: now,
                cycles: tally.cycles / tally.accesses,
                walk_cycles: tally.walk_cycles / tally.accesses,
                walks: Vec::new(),
            });
        }
        Ok((spent_ns, over))
    }

    fn play_trace_batches(
        &mut self,
        player: &mut TracePlayer,
        kernel: &mut SimulatedKernel,
        left_ns: f64,
        ghz: f64,
    ) -> Result<(f64, AccessTally, bool)> {
        let mut spent_ns = std::mem::take(&mut player.overdrawn_ns);
        let mut played = AccessTally::default();
        let scale = player.tape.scale;
        while spent_ns < left_ns && self.owed_ns <= 0.0 {
            let own_cycles = player.read_batch()?;
            if player.batch.is_empty() {
                return Ok((spent_ns, played, true));
            }
            self.touch_trace_pages(kernel, &player.batch)?;
            let work = CoreWork {
                millicycles_per_access: (own_cycles * 1000.0) as u32,
                waited_permille: (player.tape.waited_percent * 10.0) as u32,
            };
            let before = self.core.counters();
            if player.batches % ONE_IN == 0 {
                for access in player.batch.chunks(1) {
                    self.access_and_attribute_walks(kernel, access, work, scale)?;
                }
            } else {
                self.translate_accesses(kernel, &player.batch, work)?;
            }
            player.batches += 1;
            let made = self.core.counters().since(&before);
            let tally = AccessTally {
                accesses: scale * made.accesses as f64,
                cycles: scale * made.millicycles as f64 / 1000.0,
                walk_cycles: scale * made.walk_cycles() as f64,
            };
            self.add_access_tally(tally);
            played.add(tally);
            let ns = tally.cycles / ghz;
            self.record_busy_time(ns);
            spent_ns += ns;
        }
        player.overdrawn_ns = (spent_ns - left_ns).max(0.0);
        Ok((spent_ns.min(left_ns), played, false))
    }

    fn access_and_attribute_walks(
        &mut self,
        kernel: &mut SimulatedKernel,
        access: &[Access],
        work: CoreWork,
        scale: f64,
    ) -> Result<()> {
        let walks = |program: &Self| {
            let counters = program.core.counters();
            counters.walks_of_size(EntrySize::Base) + counters.walks_of_size(EntrySize::BaseGroup)
        };
        let before = walks(self);
        self.translate_accesses(kernel, access, work)?;
        let made = (walks(self) - before) * ONE_IN;
        if let (Some(access), true) = (access.first(), made > 0) {
            let region = RegionAddr::containing(access.address());
            for window in self.windows.values_mut() {
                *window.walks.entry(region).or_default() += scale * made as f64;
            }
        }
        Ok(())
    }

    /// Marks the pages of these accesses as in use and accessed, and brings in those in swap. Data
    /// that is read was written before: by the kernel, or by the program before the trace began.
    fn touch_trace_pages(&mut self, kernel: &mut SimulatedKernel, batch: &[Access]) -> Result<()> {
        let mut rest = batch;
        while let Some(first) = rest.first() {
            let region = RegionAddr::containing(first.address());
            let same = |a: &&Access| RegionAddr::containing(a.address()) == region;
            let count = rest.iter().take_while(same).count();
            let (here, others) = rest.split_at(count);
            rest = others;
            let pages = here.iter().fold(PageBits::EMPTY, |pages, access| {
                let page = access.address() / BASE_PAGE_BYTES % u64::from(PAGES_PER_REGION);
                pages.or(PageBits::range(page as u16, 1))
            });
            let new = self.mark_trace_pages_used(region, pages);
            if !new.is_empty() {
                let touched = kernel.touch_pages_of_region(self.space, region, new, Touch::Write);
                self.update_mappings(kernel, region)?;
                let ns = touched?.time.as_nanos() as f64;
                self.fault_ns += ns;
                self.owed_ns += ns;
            }
            self.record_touched_pages(region, pages);
            let away = kernel.swapped_page_bits(self.space, region).and(pages);
            if !away.is_empty() {
                let time = kernel.fetch_or_report_swapped_pages(self.space, region, away);
                self.update_mappings(kernel, region)?;
                self.owed_ns += time?.as_nanos() as f64;
            }
        }
        Ok(())
    }

    fn mark_trace_pages_used(&mut self, region: RegionAddr, pages: PageBits) -> PageBits {
        let behind = self.lots.partition_point(|lot| lot.start <= region.start());
        let lot = behind.checked_sub(1).and_then(|lot| self.lots.get_mut(lot));
        let found = lot.and_then(|lot| Some((lot.region_number(region)?, lot)));
        found.map_or(PageBits::EMPTY, |(number, lot)| {
            let new = pages.minus(lot.used_pages(number));
            lot.mark_pages_used(number, pages);
            new
        })
    }
}
