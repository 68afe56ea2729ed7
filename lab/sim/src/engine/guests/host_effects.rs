//! What a guest does to its frames happens to the memory of its process at the host.

use super::guest_machine::{host_region_of_pageblock, pageblock_of_host_region};
use crate::engine::Engine;
use crate::engine::program::PhaseProgress;
use crate::kernel::{KernelError, PageAccessKind};
use crate::memory::{FrameContent, FrameRun};
use crate::page_bits::PageBits;
use std::time::Duration;

/// Time from a guest's access to memory that the host has not mapped until the host's fault handler
/// runs, and back. About 1,500 cycles each way on processors of these years, and KVM's own part.
/// Estimated.
const EXIT: Duration = Duration::from_nanos(1_500);

impl Engine {
    /// Runs all guests for a step; each of their cores has this share of a host's core.
    pub(in crate::engine) fn run_guests_for_step(&mut self, step: Duration, shares: &[f64]) {
        for (number, share) in shares.iter().enumerate() {
            let alive = self.guests.get(number).filter(|guest| guest.is_alive());
            let programs = alive.map_or(Vec::new(), |guest| guest.machine.thread_core_shares(&[]));
            for (index, own) in programs.into_iter().enumerate() {
                if let Some(guest) = self.guests.get_mut(number) {
                    guest.machine.run_program(index, step, share * own);
                }
                self.apply_guest_effects_at_host(number, Some(index));
            }
            let guest = self.guests.get_mut(number);
            if let Some(guest) = guest.filter(|guest| guest.is_alive()) {
                let done = guest.machine.kernel.run_kernel_threads_for_step(step);
                // The host's zeroing thread uses the same caches.
                let hosts = self.measuring.neighbour.traffic;
                guest.machine.measuring.neighbour.record_step(&done, step, hosts);
                guest.machine.prefault_for_step(step);
                if let Some(error) = guest.machine.broken.take() {
                    self.broken = Some(error);
                }
            }
            self.apply_guest_effects_at_host(number, None);
        }
    }

    /// Applies at the host what guests have done until now. No program waits for it.
    pub(in crate::engine) fn apply_all_guest_effects_at_host(&mut self) {
        for number in 0..self.guests.len() {
            self.apply_guest_effects_at_host(number, None);
        }
    }

    /// Applies at the host what a guest has done; a program of it waits meanwhile.
    fn apply_guest_effects_at_host(&mut self, number: usize, payer: Option<usize>) {
        let Some(guest) = self.guests.get_mut(number) else {
            return;
        };
        let inside = &mut guest.machine.kernel;
        let touched = inside.take_frame_content_changes().into_iter().map(|touch| {
            let access = match touch.content {
                FrameContent::Dirty => PageAccessKind::Write,
                FrameContent::Zeroed => PageAccessKind::WriteZeros,
            };
            (touch.frames, access)
        });
        let wanted = inside.take_accessed_host_swapped_frames().into_iter();
        let wanted = wanted.map(|frames| (frames, PageAccessKind::Read));
        let all: Vec<_> = touched.chain(wanted).collect();
        guest.stale |= !all.is_empty();
        let (mut time, mut swapped_in) = (Duration::ZERO, Duration::ZERO);
        for (frames, access) in all {
            let Some(took) = self.access_guest_frames_at_host(number, frames, access) else {
                return;
            };
            if access == PageAccessKind::Read {
                swapped_in += took;
            } else {
                time += took;
            }
        }
        let Some(guest) = self.guests.get_mut(number) else {
            return;
        };
        let payer = payer.and_then(|index| guest.machine.programs.get_mut(index));
        if let Some(program) = payer {
            program.owed_ns += time.as_nanos() as f64;
            program.charge_swap_time_not_yet_waited(swapped_in);
        }
    }

    /// A guest accesses frames; `None` if the host kills it during that.
    fn access_guest_frames_at_host(
        &mut self,
        number: usize,
        frames: FrameRun,
        access: PageAccessKind,
    ) -> Option<Duration> {
        let mut time = Duration::ZERO;
        for (block, first, count) in frames.split_by_pageblock() {
            let pages = PageBits::range(first, count);
            loop {
                let space = self.guests.get(number)?.space?;
                let region = host_region_of_pageblock(block);
                match self.kernel.touch_pages_of_region(space, region, pages, access) {
                    Ok(touched) => {
                        let exits = touched.faults.total().min(u64::from(u32::MAX)) as u32;
                        time += touched.time + EXIT * exits;
                        break;
                    }
                    Err(KernelError::OutOfMemory(_)) => {
                        let victim = self.kernel.out_of_memory_victim();
                        if !self.kill_space_owner(victim, self.now) {
                            return None;
                        }
                    }
                    Err(error) => {
                        self.broken = Some(error.into());
                        return None;
                    }
                }
            }
            self.guests.get_mut(number)?.moved.insert(block);
            self.report_swapped_frames_to_guest(number, block);
        }
        Some(time)
    }

    fn report_swapped_frames_to_guest(&mut self, number: usize, block: u32) {
        let each = self.kernel.expected_swapped_access_time() + EXIT;
        let Some(guest) = self.guests.get_mut(number) else {
            return;
        };
        let Some(space) = guest.space else {
            return;
        };
        let away = self.kernel.swapped_page_bits(space, host_region_of_pageblock(block));
        guest.machine.kernel.set_host_swapped_frames(block, away, each);
    }

    /// Processors and guests learn what the kernel remapped by itself.
    pub(in crate::engine) fn apply_kernel_remaps(&mut self) {
        for (space, region) in self.kernel.take_remapped_regions() {
            if let Some(number) = self.guest_index_of_space(Some(space)) {
                self.report_swapped_frames_to_guest(number, pageblock_of_host_region(region));
                if let Some(guest) = self.guests.get_mut(number) {
                    guest.record_host_remap(region);
                }
            }
            let mut programs = self.programs.iter_mut();
            let program = programs.find(|p| p.is_alive() && p.space == space);
            let seen = program.map_or(Ok(()), |p| p.update_mappings(&self.kernel, region));
            if let Err(error) = seen {
                self.broken = Some(error);
            }
        }
        let now = self.now;
        for guest in &mut self.guests {
            let looked = guest.update_host_page_sizes(&self.kernel, now);
            if let Err(error) = looked {
                self.broken = Some(error);
            }
        }
    }

    /// Whether pages are in swap, the host's included, and a program accesses memory.
    pub(in crate::engine) fn may_access_swapped_pages(&self) -> bool {
        let mut programs = self.programs.iter();
        programs.any(|program| {
            let accesses = matches!(program.work, PhaseProgress::Accesses { .. });
            accesses && program.is_alive() && self.kernel.may_have_swapped_pages(program.space)
        })
    }
}
