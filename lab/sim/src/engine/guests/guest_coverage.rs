//! A guest's accesses as its host sees them: what its programs do to the guest's memory.

use super::guest_machine::{GuestMachine, host_region_of_pageblock, pageblock_of_host_region};
use crate::engine::Engine;
use crate::engine::coverage::{build_process_sample, draw_page_count};
use crate::engine::figures::AccessTally;
use crate::engine::program::{SamplingWindow, WindowObserver};
use crate::engine::stream_sampler::touch_probability;
use crate::kernel::{RegionPartInPageblock, SimulatedKernel};
use crate::page_bits::PageBits;
use hawkeye_policy::{PAGES_PER_REGION, ProcessSample};
use std::time::Duration;

/// Reclaim looks for old pages when memory is at most this many times the high watermark.
const SHORT: u64 = 4;
/// Time between two reports of accesses to reclaim.
const MARK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
struct PageblockAccesses {
    pages: u16,
    runs: u16,
    /// Average number of accesses to each page.
    times: f64,
    walks_per_s: f64,
}

impl GuestMachine {
    /// Its host's manager samples its accesses from now on.
    pub(in crate::engine) fn open_window(&mut self, now: Duration) {
        self.window = Some(now);
        for program in self.machine.programs.iter_mut().filter(|p| p.is_alive()) {
            program.windows.insert(WindowObserver::Host, SamplingWindow::open(now));
        }
    }

    pub(in crate::engine) fn sample_of_host_window(
        &mut self,
        host: &SimulatedKernel,
        now: Duration,
    ) -> ProcessSample {
        let samples = self.space.and_then(|space| host.list_region_samples(space).ok());
        let mut regions = samples.unwrap_or_default();
        let (mut tally, mut busy_ns) = (AccessTally::default(), 0.0);
        let inside = &self.machine.kernel;
        let blocks = inside.memory().count_all_frames() / u64::from(PAGES_PER_REGION);
        let mut accessed = vec![PageblockAccesses::default(); blocks as usize];
        for program in self.machine.programs.iter_mut().filter(|p| p.is_alive()) {
            // Coverage counts from the start of the window, so another read continues it.
            let Some(window) = program.windows.remove(&WindowObserver::Host) else {
                continue;
            };
            tally.add(window.tally);
            busy_ns += window.busy_ns;
            let parts = program.stream_touched_shares(&window);
            for sample in inside.list_region_samples(program.space).unwrap_or_default() {
                let Some(marked) = program.region_accesses(sample.region, &window, &parts) else {
                    continue;
                };
                let used = f64::from(marked.used.count().max(1));
                let rng = &mut program.rng;
                for piece in inside.region_pieces_by_pageblock(program.space, sample.region) {
                    let RegionPartInPageblock { page, count, .. } = piece;
                    let here = PageBits::range(page, count);
                    let known = marked.touched.and(here).count();
                    let others = marked.used.and(here).minus(marked.touched).count();
                    let drawn = draw_page_count(others, marked.chance, rng);
                    let share = f64::from(marked.used.and(here).count());
                    let Some(at) = accessed.get_mut(piece.block as usize) else {
                        continue;
                    };
                    at.pages += known + drawn;
                    // As in a sample of its own: pages that are drawn one by one are scattered.
                    let scattered = 1.0 - f64::from(drawn) / f64::from(PAGES_PER_REGION);
                    at.runs +=
                        marked.count_accessed_runs((f64::from(drawn) * scattered).round() as u16);
                    at.times += marked.times * share + f64::from(known);
                    at.walks_per_s += marked.walks_per_s * share / used;
                }
            }
            program.windows.insert(WindowObserver::Host, window);
        }
        let rng = self.machine.programs.first_mut().map(|p| &mut p.rng);
        if let (Some(_), Some(rng)) = (self.window, rng) {
            for sample in &mut regions {
                let at = accessed.get(pageblock_of_host_region(sample.region) as usize);
                let at = at.copied().unwrap_or_default();
                if sample.is_huge() {
                    let any = rng.chance(touch_probability(at.times));
                    sample.accessed = if any { PAGES_PER_REGION } else { 0 };
                    sample.runs = u16::from(any);
                } else {
                    sample.accessed = at.pages.min(sample.present);
                    sample.runs = at.runs.clamp(u16::from(at.pages > 0), at.pages);
                    sample.walks_per_s = at.walks_per_s as u32;
                }
            }
        }
        let seen = self.window.map(|opened| (opened, tally, busy_ns));
        build_process_sample(self.id, regions, seen, now)
    }
}

impl Engine {
    /// Reports accessed pages to reclaim, where memory is so short that it may look for old ones.
    pub(in crate::engine) fn report_accessed_pages_to_reclaim(&mut self) {
        if !self.kernel.has_swap() || self.now < self.marked + MARK_EVERY {
            return;
        }
        self.marked = self.now;
        let now = self.now;
        let short = self.kernel.is_memory_short(SHORT);
        let guests = self.guests.iter_mut();
        let inside = guests.flat_map(|guest| guest.machine.programs.iter_mut());
        if !short {
            for program in self.programs.iter_mut().chain(inside) {
                program.windows.insert(WindowObserver::Reclaim, SamplingWindow::open(now));
            }
            return;
        }
        for program in self.programs.iter_mut().filter(|p| p.is_alive()) {
            for (region, pages) in program.draw_accessed_pages_for_reclaim(&self.kernel, now) {
                self.kernel.record_accessed_pages(program.space, region, pages);
            }
        }
        for guest in &mut self.guests {
            let Some(space) = guest.space else {
                continue;
            };
            let inside = &guest.machine.kernel;
            for program in guest.machine.programs.iter_mut().filter(|p| p.is_alive()) {
                for (region, pages) in program.draw_accessed_pages_for_reclaim(inside, now) {
                    for piece in inside.region_pieces_by_pageblock(program.space, region) {
                        let moved = pages.moved_run(piece.page, piece.count, piece.first);
                        let region = host_region_of_pageblock(piece.block);
                        self.kernel.record_accessed_pages(space, region, moved);
                    }
                }
            }
        }
    }
}
