//! Accesses to memory in swap: in that of the program's kernel or of its host.
//!
//! Accesses between two samples are not made one by one. Their distribution gives how many go to
//! pages in swap. Which pages these are is drawn with the probabilities of *all* accesses, as
//! access bits are. The program waits for each.

use super::error::Result;
use super::program::{PhaseProgress, Program, SamplingWindow, WindowObserver};
use super::stream_sampler::StreamSampler;
use crate::kernel::SimulatedKernel;
use crate::page_bits::PageBits;
use hawkeye_policy::RegionAddr;
use std::time::Duration;

/// Shortest time between two estimates.
const EVERY: Duration = Duration::from_millis(100);

impl Program {
    /// Brings in what was accessed since the last call, if that was at least `EVERY` ago or if
    /// `must` is set. Returns the average wait of an access from now on, in nanoseconds.
    pub(super) fn fetch_and_estimate_swap_waits(
        &mut self,
        kernel: &mut SimulatedKernel,
        now: Duration,
        must: bool,
    ) -> Result<f64> {
        let recent = |at| now < at + EVERY;
        if self.swapping.at.is_some_and(recent) && !must {
            return Ok(self.swapping.waits_ns);
        }
        let made = std::mem::take(&mut self.swapping.made);
        if made > 0.0 && kernel.may_have_swapped_pages(self.space) {
            self.draw_and_fetch_swapped_pages(kernel, made)?;
        }
        self.swapping.at = Some(now).filter(|_| !must);
        self.swapping.waits_ns = self.estimate_swap_wait_ns(kernel);
        Ok(self.swapping.waits_ns)
    }

    fn estimate_swap_wait_ns(&self, kernel: &SimulatedKernel) -> f64 {
        let PhaseProgress::Accesses { sources, .. } = &self.work else {
            return 0.0;
        };
        if !kernel.may_have_swapped_pages(self.space) {
            return 0.0;
        }
        let each = kernel.expected_swapped_access_time().as_nanos() as f64;
        let waits = sources.iter().map(|source| {
            let regions = self.swapped_regions_of_stream(source, kernel);
            let visits =
                regions.map(|(number, _, away)| source.page_visits_per_access(number, away));
            source.share * visits.sum::<f64>()
        });
        waits.sum::<f64>() * each
    }

    fn draw_and_fetch_swapped_pages(
        &mut self,
        kernel: &mut SimulatedKernel,
        made: f64,
    ) -> Result<()> {
        // Put back below: drawing needs the rest of the program too.
        let work = std::mem::replace(&mut self.work, PhaseProgress::Begin);
        let sources = match &work {
            PhaseProgress::Accesses { sources, .. } => sources.as_slice(),
            _ => &[],
        };
        let mut wanted = Vec::new();
        for source in sources {
            let away: Vec<_> = self.swapped_regions_of_stream(source, kernel).collect();
            for (number, region, away) in away {
                let accesses = made * source.share;
                let visited = source.draw_visited_pages(accesses, number, away, &mut self.rng);
                if !visited.is_empty() {
                    wanted.push((region, visited));
                }
            }
        }
        self.work = work;
        for (region, pages) in wanted {
            let time = kernel.fetch_or_report_swapped_pages(self.space, region, pages);
            self.update_mappings(kernel, region)?;
            self.charge_swap_time_not_yet_waited(time?);
        }
        Ok(())
    }

    /// Accessed pages were brought in: it owes the part of `time` not yet waited.
    pub(super) fn charge_swap_time_not_yet_waited(&mut self, time: Duration) {
        let time_ns = time.as_nanos() as f64;
        let already = self.swapping.waited_ns.min(time_ns);
        self.swapping.waited_ns -= already;
        self.owed_ns += time_ns - already;
    }

    /// Regions of a source with pages in swap that it uses.
    fn swapped_regions_of_stream<'a>(
        &'a self,
        source: &'a StreamSampler,
        kernel: &'a SimulatedKernel,
    ) -> impl Iterator<Item = (usize, RegionAddr, PageBits)> + 'a {
        let lot = self.lots.get(source.lot).into_iter();
        lot.flat_map(move |lot| {
            source.regions.clone().filter_map(move |number| {
                let region = lot.region_address(number);
                let away = kernel.swapped_page_bits(self.space, region).and(lot.used_pages(number));
                (!away.is_empty()).then_some((number, region, away))
            })
        })
    }

    pub(super) fn draw_accessed_pages_for_reclaim(
        &mut self,
        kernel: &SimulatedKernel,
        now: Duration,
    ) -> Vec<(RegionAddr, PageBits)> {
        let mut accessed = Vec::new();
        let next = SamplingWindow::open(now);
        let Some(window) = self.windows.insert(WindowObserver::Reclaim, next) else {
            return accessed;
        };
        for exposed in window.accesses.values().filter(|e| e.accesses > 0.0) {
            let source = &exposed.source;
            let Some(lot) = self.lots.get(source.lot) else {
                continue;
            };
            for number in source.regions.clone() {
                let region = lot.region_address(number);
                let there = kernel.present_pages(self.space, region).and(lot.used_pages(number));
                let visited =
                    source.draw_visited_pages(exposed.accesses, number, there, &mut self.rng);
                if !visited.is_empty() {
                    accessed.push((region, visited));
                }
            }
        }
        accessed
    }
}
