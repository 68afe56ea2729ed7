//! The filler: a thread that prefaults memory on its own core, by the live machine's predictor.
//!
//! As there, it fills a region by faulting in a huge page, which holds up no other thread. It
//! checks whether the program comes through the filled regions. A stream ends when the program
//! passes a filled region without using it. The filler never goes past a mapping, the room that the
//! manager allows, or the last free huge pages.

use super::Engine;
use super::program::Program;
use crate::kernel::{KernelError, SimulatedKernel};
use hawkeye_policy::prefault::{
    PrefaultPredictor, PrefaultResult, PrefaultTask, PrefaultableMemory,
};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, ProcessId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A region with fewer base pages that hold data than this is not in use.
const IN_USE_PAGES: u16 = PAGES_PER_REGION / 4;
/// Free huge pages that are left to others.
const LEFT_FREE: u64 = 64;
/// Longest step of a machine with a filler, while memory is filled: about the time that one region
/// takes it.
pub(super) const FILLING_STEP: Duration = Duration::from_micros(500);

#[derive(Debug, Default)]
pub(super) struct SimulatedPrefaulter {
    predictor: PrefaultPredictor,
    pub(super) room: BTreeMap<ProcessId, u64>,
    /// Bytes filled since the manager last asked.
    pub(super) filled: BTreeMap<ProcessId, u64>,
    busy_until: Duration,
    pub(super) cpu: Duration,
    pub(super) regions: u64,
}

impl SimulatedPrefaulter {
    fn run_tasks(
        &mut self,
        kernel: &mut SimulatedKernel,
        programs: &mut [Program],
        from: Duration,
        until: Duration,
    ) {
        let now = from.max(self.busy_until);
        for (space, advance) in kernel.take_stream_advances() {
            let heard = programs.iter().find(|p| p.space == space);
            if let Some(program) = heard {
                self.predictor.on_fault_report(now, program.id, advance);
            }
        }
        let alive = |id| programs.iter().any(|p| p.id == id && p.is_alive());
        self.predictor.retain_processes(alive);
        self.predictor.forget_ended_streams(now);
        let mut now = now;
        while now < until {
            let Some(took) = self.do_next_task(kernel, programs, now) else {
                break;
            };
            self.cpu += took;
            now += took;
            self.busy_until = now;
        }
    }

    /// Does the most urgent piece of work; returns how long it takes, or `None` if there is none.
    fn do_next_task(
        &mut self,
        kernel: &mut SimulatedKernel,
        programs: &mut [Program],
        now: Duration,
    ) -> Option<Duration> {
        if let Some(task) = self.predictor.next_use_check() {
            let (in_use, took) = scan_prefaulted_region_for_use(
                kernel,
                programs,
                task,
                PAGES_PER_REGION - IN_USE_PAGES,
            );
            match in_use {
                Some(in_use) => self.predictor.on_use_check_result(task, in_use),
                None => self.predictor.on_prefaulted_region_gone(task),
            }
            return Some(took);
        }
        if let Some((_, task)) = self.predictor.next_progress_check().filter(|(at, _)| *at <= now) {
            let (in_use, took) =
                scan_prefaulted_region_for_use(kernel, programs, task, PAGES_PER_REGION);
            match in_use {
                Some(in_use) => self.predictor.on_progress_check_result(now, task, in_use),
                None => self.predictor.on_prefaulted_region_gone(task),
            }
            return Some(took);
        }
        let free = kernel.figures();
        if free.zeroed_huge_frames + free.dirty_huge_frames <= LEFT_FREE {
            return None;
        }
        let room = &self.room;
        let task = self.predictor.hand_out_next_prefault(now, |process, head| {
            let room_regions = room.get(&process).copied().filter(|room| *room > 0)?;
            let program = programs.iter().find(|p| p.id == process)?;
            let mut lots = program.lots.iter();
            let lot = lots.find(|lot| lot.region_number(head).is_some())?;
            Some(PrefaultableMemory { mapped: lot.byte_range(), room_regions })
        })?;
        let program = programs.iter_mut().find(|p| p.id == task.process)?;
        let (what, took) = match kernel.prefault_region(program.space, task.region) {
            Ok(paid) => (PrefaultResult::Done, paid),
            // Its program touched the region first.
            Err(KernelError::NotCandidate(..)) => (PrefaultResult::Occupied, LOOK),
            Err(_) => (PrefaultResult::Refused, LOOK),
        };
        if what == PrefaultResult::Done {
            self.regions += 1;
            *self.filled.entry(task.process).or_default() += HUGE_PAGE_BYTES;
            // All other followed processes share the same limit.
            for room in self.room.values_mut() {
                *room = room.saturating_sub(1);
            }
            if program.update_mappings(kernel, task.region).is_err() {
                self.predictor.on_prefaulted_region_gone(task);
                return Some(took);
            }
        }
        self.predictor.on_prefault_result(now, task, what);
        Some(took)
    }
}

/// Time to find that a region is not to be filled: one look at its page table.
const LOOK: Duration = Duration::from_micros(1);

/// Whether fewer than `most` base pages are zero, and the scan's time; `None`: not huge any more.
fn scan_prefaulted_region_for_use(
    kernel: &mut SimulatedKernel,
    programs: &[Program],
    task: PrefaultTask,
    most: u16,
) -> (Option<bool>, Duration) {
    let program = programs.iter().find(|p| p.id == task.process);
    let seen = program.and_then(|p| kernel.scan_zeros(p.space, task.region, most).ok());
    seen.map_or((None, LOOK), |s| (Some(s.zero_pages < most), s.took))
}

impl Engine {
    /// Runs the filler for a step that begins now, if there is a filler and a core for it.
    pub(super) fn prefault_for_step(&mut self, step: Duration) {
        let busy = self.count_busy_threads();
        let Some(filler) = &mut self.filler else {
            return;
        };
        if busy >= self.cores {
            // Other threads use its core. Programs that advanced meanwhile are elsewhere by then.
            self.kernel.take_stream_advances();
            return;
        }
        let until = self.now + step;
        filler.run_tasks(&mut self.kernel, &mut self.programs, self.now, until);
    }
}
