//! Steps at a set rate, between which a workload does other things.

use crate::error::WorkloadResult;
use std::time::{Duration, Instant};

/// Longest time for the steps of one turn. Steps that are still due then are dropped.
const LONGEST_TURN: Duration = Duration::from_millis(100);

pub(crate) struct RateSchedule {
    per_s: f64,
    begun: Instant,
    longest_turn: Duration,
    /// Steps that were taken or dropped.
    past: f64,
}

impl RateSchedule {
    /// A schedule that begins now. The rate must be finite.
    pub(crate) fn new(per_s: f64) -> Self {
        Self { per_s, begun: Instant::now(), longest_turn: LONGEST_TURN, past: 0.0 }
    }

    /// Takes the steps that are due. A rate that is too high for the machine costs steps, but the
    /// workload still goes on.
    pub(crate) fn take_due_steps(
        &mut self,
        mut step: impl FnMut() -> WorkloadResult<()>,
    ) -> WorkloadResult<()> {
        let turn = Instant::now();
        while self.past < self.steps_until_now() {
            if turn.elapsed() > self.longest_turn {
                self.past = self.steps_until_now();
                break;
            }
            step()?;
            self.past += 1.0;
        }
        Ok(())
    }

    fn steps_until_now(&self) -> f64 {
        self.begun.elapsed().as_secs_f64() * self.per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_steps_of_turn(schedule: &mut RateSchedule) -> u64 {
        let mut steps = 0;
        let step = || {
            steps += 1;
            Ok(())
        };
        schedule.take_due_steps(step).expect("no step fails");
        steps
    }

    #[test]
    fn each_due_step_is_taken_once() {
        let mut schedule = RateSchedule::new(1e-3);
        schedule.longest_turn = Duration::MAX;
        // A step and a half are due. The third one is not due soon.
        schedule.past = -1.5;
        assert_eq!(count_steps_of_turn(&mut schedule), 2);
        assert_eq!(count_steps_of_turn(&mut schedule), 0);
        assert_eq!(count_steps_of_turn(&mut RateSchedule::new(0.0)), 0);
    }

    #[test]
    fn a_turn_ends_at_any_rate() {
        let mut schedule = RateSchedule::new(1e300);
        std::thread::sleep(Duration::from_millis(1));
        assert!(count_steps_of_turn(&mut schedule) > 0);
        assert!(count_steps_of_turn(&mut schedule) > 0);
    }
}
