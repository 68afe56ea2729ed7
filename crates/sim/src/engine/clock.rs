//! Time goes on.

use super::Engine;
use super::figures::Outcome;
use super::measuring::KernelOrEngine;
use super::program::{Life, Program, Work};
use crate::kernel::SpaceId;
use std::time::Duration;

/// Longest step while memory is filled or freed: programs that do so take turns, and the kernel's threads keep up.
const FILLING_STEP: Duration = Duration::from_millis(10);
/// Longest step otherwise.
const STEP: Duration = Duration::from_millis(500);

impl Engine {
    /// Lets everything run until `target`, or until all have ended or something is broken.
    pub(super) fn advance_to(&mut self, target: Duration) {
        while self.now < target && self.broken.is_none() {
            self.arrive();
            if self.is_over() {
                return;
            }
            let step = self.next_step().min(target - self.now);
            let busy = self.programs.iter().filter(|p| p.is_busy()).count();
            let share = (f64::from(self.cores) / busy.max(1) as f64).min(1.0);
            for index in 0..self.programs.len() {
                self.run(index, step, share);
            }
            self.kernel.step(step);
            self.now += step;
        }
        self.arrive();
        self.debug_check();
    }

    /// A call of the manager's that takes it `time`, in which programs run on.
    pub(super) fn spend(&mut self, time: Duration) {
        self.manager_cpu += time;
        let target = self.now + time;
        self.advance_to(target);
        // Nobody runs any more, and still it took its time.
        self.now = self.now.max(target);
    }

    fn arrive(&mut self) {
        for program in &mut self.programs {
            if program.life == Life::ToCome && program.arrives <= self.now {
                program.life = Life::Alive;
            }
        }
    }

    fn next_step(&self) -> Duration {
        let filling =
            |p: &Program| p.is_alive() && matches!(p.work, Work::Begin | Work::Regions { .. });
        let filling = self.programs.iter().any(filling);
        let longest = if filling { FILLING_STEP } else { STEP };
        let arrivals = self.programs.iter().filter(|p| p.life == Life::ToCome);
        let next = arrivals.map(|p| p.arrives - self.now).min();
        next.map_or(longest, |next| next.min(longest))
            .max(Duration::from_nanos(1))
    }

    /// Lets one program run for its share of a step.
    fn run(&mut self, index: usize, step: Duration, share: f64) {
        let (now, measuring) = (self.now, self.measuring);
        // What it owes after a kill of another is paid in the next round.
        while let Some(program) = self.programs.get_mut(index).filter(|p| p.is_alive()) {
            let budget_ns = step.as_nanos() as f64 * share;
            match program.run(&mut self.kernel, now, budget_ns, measuring) {
                Ok(left_ns) => {
                    program.note(&self.kernel);
                    program.chart(now);
                    if program.current().is_none() {
                        let ran = Duration::from_nanos(((budget_ns - left_ns) / share) as u64);
                        self.end(index, Outcome::Done, now + ran);
                    }
                    return;
                }
                Err(KernelOrEngine::OutOfMemory) => {
                    let victim = self.kernel.out_of_memory_victim();
                    if !self.kill(victim, now) {
                        self.end(index, Outcome::Killed, now);
                    }
                }
                Err(KernelOrEngine::Error(error)) => {
                    self.broken = Some(error);
                    return;
                }
            }
        }
    }

    fn kill(&mut self, victim: Option<SpaceId>, now: Duration) -> bool {
        let alive = |p: &Program| p.is_alive() && Some(p.space) == victim;
        let found = self.programs.iter().position(alive);
        if let Some(index) = found {
            self.end(index, Outcome::Killed, now);
        }
        found.is_some()
    }

    fn end(&mut self, index: usize, outcome: Outcome, at: Duration) {
        let Some(program) = self.programs.get_mut(index) else {
            return;
        };
        program.note(&self.kernel);
        program.note_useful(&self.kernel);
        program.life = Life::Ended(outcome, at);
        // Freeing everything is paid after its end.
        if let Err(error) = self.kernel.exit(program.space) {
            self.broken = Some(error.into());
        }
    }

    /// In debug builds: the kernel's own rules hold (it checks them itself after each of its steps), and what the
    /// processor knows of each program is what the kernel has mapped.
    pub(super) fn debug_check(&self) {
        #[cfg(debug_assertions)]
        for program in self.programs.iter().filter(|p| p.is_alive()) {
            for sample in self.kernel.samples(program.space).unwrap_or_default() {
                let size = program.seen.size(program.seen_space, sample.region);
                let huge = size == Some(crate::mmu::translation::LeafSize::Huge);
                assert_eq!(huge, sample.huge, "{} of {}", sample.region, program.id);
                let seen = program.seen.present(program.seen_space, sample.region);
                let pages: u32 = seen.iter().map(|word| word.count_ones()).sum();
                let there = u32::from(sample.present) + u32::from(sample.zero_mapped);
                assert!(
                    huge || pages == there,
                    "{} of {}",
                    sample.region,
                    program.id
                );
            }
        }
    }
}
