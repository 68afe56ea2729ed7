//! The simulated clock and the steps in which the machine advances.

use super::core_shares::{self, CpuDemand};
use super::error::ProgramError;
use super::figures::ProgramOutcome;
use super::guests::GuestMachine;
use super::program::{PhaseProgress, Program, ProgramStatus};
use super::program_run::ProgramStep;
use super::zeroing_neighbour::ZeroingTrafficRates;
use super::{Engine, simulated_prefaulter};
use crate::kernel::SpaceId;
use std::time::Duration;

/// Longest step while memory is filled or freed: programs take turns, kernel threads keep up.
const FILLING_STEP: Duration = Duration::from_millis(10);
/// Longest step while pages are swapped: a page that is brought in evicts another.
const SWAPPING_STEP: Duration = Duration::from_millis(100);
const STEP: Duration = Duration::from_millis(500);

impl Engine {
    /// Runs everything until `target`, the end of all programs, or an error.
    pub(super) fn advance_to(&mut self, target: Duration) {
        while self.now < target && self.broken.is_none() {
            self.start_due_programs();
            if self.is_over() {
                return;
            }
            let step = self.next_step_length().min(target - self.now);
            let guests: Vec<_> = self.guests.iter().map(GuestMachine::cpu_demand).collect();
            let shares = self.thread_core_shares(&guests);
            let (own, guests) = shares.split_at(self.programs.len());
            for (index, share) in own.iter().enumerate() {
                self.run_program(index, step, *share);
            }
            self.prefault_for_step(step);
            self.run_guests_for_step(step, guests);
            let done = self.kernel.run_kernel_threads_for_step(step);
            let neighbour = &mut self.measuring.neighbour;
            neighbour.record_step(&done, step, ZeroingTrafficRates::default());
            self.now += step;
            self.report_accessed_pages_to_reclaim();
            self.apply_kernel_remaps();
        }
        // Managers of guests may have worked since the last step.
        self.apply_all_guest_effects_at_host();
        self.apply_kernel_remaps();
        self.start_due_programs();
        self.assert_consistent_in_debug();
    }

    /// The share of a core that each thread of its programs gets now, and then the share for each
    /// demand in `beside`.
    pub(super) fn thread_core_shares(&self, beside: &[CpuDemand]) -> Vec<f64> {
        let own = self.programs.iter().map(Program::cpu_demand);
        let demands: Vec<_> = own.chain(beside.iter().copied()).collect();
        core_shares::core_shares_by_demand(self.cores, &demands)
    }

    pub(super) fn count_busy_threads(&self) -> u32 {
        let each = self.programs.iter().map(|p| p.cpu_demand().threads);
        each.fold(0, u32::saturating_add)
    }

    /// A call of the manager's that takes `time`, while programs run on.
    pub(super) fn advance_by_manager_time(&mut self, time: Duration) {
        self.manager_cpu += time;
        if let Some(turn) = &mut self.turn {
            turn.busy_until = turn.busy_until.max(self.now) + time;
            return;
        }
        let target = self.now + time;
        self.advance_to(target);
        // No program runs any more, but the call still took its time.
        self.now = self.now.max(target);
    }

    pub(super) fn start_due_programs(&mut self) {
        for guest in &mut self.guests {
            guest.machine.now = self.now;
            guest.machine.start_due_programs();
        }
        for program in &mut self.programs {
            if program.life == ProgramStatus::ToCome && program.arrives <= self.now {
                program.life = ProgramStatus::Alive;
            }
        }
    }

    fn next_step_length(&self) -> Duration {
        let filling = |p: &Program| {
            let fills = matches!(
                p.work,
                PhaseProgress::Begin | PhaseProgress::Regions { .. } | PhaseProgress::Playing(_)
            );
            p.is_alive() && fills
        };
        let mut longest = STEP;
        let mut next: Option<Duration> = None;
        let machines = self.guests.iter().map(|guest| &*guest.machine);
        for machine in machines.chain([self]) {
            if machine.programs.iter().any(filling) {
                longest = longest.min(match machine.filler {
                    Some(_) => simulated_prefaulter::FILLING_STEP,
                    None => FILLING_STEP,
                });
            }
            if machine.may_access_swapped_pages() {
                longest = longest.min(SWAPPING_STEP);
            }
            let arrivals = machine.programs.iter().filter(|p| p.life == ProgramStatus::ToCome);
            next = arrivals.map(|p| p.arrives - self.now).chain(next).min();
        }
        next.map_or(longest, |next| next.min(longest)).max(Duration::from_nanos(1))
    }

    /// Runs one program for a step, in which each of its threads has this share of a core.
    pub(super) fn run_program(&mut self, index: usize, step: Duration, share: f64) {
        let (now, measuring) = (self.now, self.measuring);
        // What it owes after a kill of another program is paid in the next round.
        while let Some(program) = self.programs.get_mut(index).filter(|p| p.is_alive()) {
            let turn = ProgramStep { now, step, speed: share * f64::from(program.spec.threads) };
            match program.run(&mut self.kernel, turn, measuring) {
                Ok(left_ns) => {
                    program.record_peaks(&self.kernel);
                    program.record_moment(&self.kernel, now);
                    let shared_bytes = self.kernel.shared_file_bytes();
                    self.shared_file_peak_bytes = self.shared_file_peak_bytes.max(shared_bytes);
                    if program.current_phase().is_none() {
                        self.end_program(
                            index,
                            ProgramOutcome::Done,
                            turn.time_at_budget_left(left_ns),
                        );
                    }
                    return;
                }
                Err(ProgramError::OutOfMemory) => {
                    let victim = self.kernel.out_of_memory_victim();
                    if !self.kill_space_owner(victim, now) {
                        self.end_program(index, ProgramOutcome::Killed, now);
                    }
                }
                Err(ProgramError::Error(error)) => {
                    self.broken = Some(error);
                    return;
                }
            }
        }
    }

    pub(super) fn kill_space_owner(&mut self, victim: Option<SpaceId>, now: Duration) -> bool {
        if let Some(guest) = self.guest_index_of_space(victim) {
            self.kill_guest(guest, now);
            return true;
        }
        let alive = |p: &Program| p.is_alive() && Some(p.space) == victim;
        let found = self.programs.iter().position(alive);
        if let Some(index) = found {
            self.end_program(index, ProgramOutcome::Killed, now);
        }
        found.is_some()
    }

    pub(super) fn end_program(&mut self, index: usize, outcome: ProgramOutcome, at: Duration) {
        let Some(program) = self.programs.get_mut(index) else {
            return;
        };
        program.record_peaks(&self.kernel);
        program.useful_end_bytes = self.kernel.useful_bytes(program.space).unwrap_or(0);
        program.record_page_sizes(&self.kernel, at);
        program.life = ProgramStatus::Ended(outcome, at);
        // Freeing all of its memory is paid after its end.
        if let Err(error) = self.kernel.exit(program.space) {
            self.broken = Some(error.into());
        }
    }

    /// In debug builds: the processor's view of each program equals what the kernel has mapped, and
    /// the kernel's own rules hold. The kernel checks those itself after each of its steps.
    pub(super) fn assert_consistent_in_debug(&self) {
        #[cfg(debug_assertions)]
        for program in self.programs.iter().filter(|p| p.is_alive()) {
            program.assert_consistent_in_debug(&self.kernel);
        }
        #[cfg(debug_assertions)]
        for guest in &self.guests {
            guest.assert_consistent_in_debug(&self.kernel);
        }
    }
}
