//! A program watched while somebody works on it: its speed over time, against that of another one that nobody touches. The machine's
//! own speed changes by as much as huge pages gain, within minutes; it changes for both.

use crate::live::BenchError;
use crate::live::programs::Program;
use crate::live::programs::speed::{measure, turn};
use crate::live::report::median;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A program, and another one like it that stays as it is. Each works while the other pauses; here both pause.
pub(super) struct Pair<'a> {
    pub(super) program: &'a mut dyn Program,
    pub(super) yardstick: &'a mut dyn Program,
}

/// The program at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since watching began, in the middle of what was timed.
    pub at_s: f64,
    /// So many seconds of watching it stands for: what was timed, and the other one's turn before it.
    pub stands_for_s: f64,
    /// How many times as fast as the yardstick, by operations per second of CPU time.
    pub speed: f64,
}

/// The program is looked at so many times for each look at the yardstick.
const LOOKS: usize = 4;

/// Looks at the yardstick, the nearest in time, of which one is held against the median.
const NEAREST: usize = 5;

/// Something timed.
#[derive(Clone, Copy, Debug)]
struct Look {
    from_s: f64,
    to_s: f64,
    per_cpu_s: f64,
}

impl Look {
    fn middle_s(&self) -> f64 {
        f64::midpoint(self.from_s, self.to_s)
    }
}

impl Pair<'_> {
    /// How many times as fast as the yardstick the program is: the median of so many turns of both.
    pub(super) fn compare(&mut self, length: Duration, turns: usize) -> Result<f64, BenchError> {
        let ratios: Result<Vec<f64>, BenchError> = (0..turns)
            .map(|_| {
                let yardstick = turn(self.yardstick, length)?.per_cpu_s;
                Ok(turn(self.program, length)?.per_cpu_s / yardstick)
            })
            .collect();
        Ok(median(&ratios?))
    }

    /// Watches, `step` after `step`, until `work` is done. `work` may look at the flag, which says that watching has failed.
    ///
    /// # Errors
    /// Those of `work`, or the programs could not be watched.
    pub(super) fn watch<T>(
        &mut self,
        step: Duration,
        work: impl FnOnce(&AtomicBool) -> Result<T, BenchError>,
    ) -> Result<(T, Vec<Moment>), BenchError> {
        /// Says that it is over, also where the work panics.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (over, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let watched = self.looks(step, &over);
                failed.store(watched.is_err(), Ordering::Relaxed);
                watched
            });
            let worked = {
                let _over = Over(&over);
                work(&failed)
            };
            let watched = watching.join();
            let watched = watched.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (program, yardstick) = watched?;
            Ok((worked?, moments(&program, &yardstick)))
        })
    }

    /// Looks at the program and at the yardstick.
    fn looks(
        &mut self,
        step: Duration,
        over: &AtomicBool,
    ) -> Result<(Vec<Look>, Vec<Look>), BenchError> {
        let begun = Instant::now();
        let look = |program: &mut dyn Program| -> Result<Look, BenchError> {
            let from_s = begun.elapsed().as_secs_f64();
            let per_cpu_s = measure(program, step)?.per_cpu_s;
            Ok(Look {
                from_s,
                to_s: begun.elapsed().as_secs_f64(),
                per_cpu_s,
            })
        };
        let (mut program, mut yardstick) = (Vec::new(), Vec::new());
        while !over.load(Ordering::Relaxed) {
            self.yardstick.go()?;
            yardstick.push(look(self.yardstick)?);
            self.yardstick.stop()?;
            self.program.go()?;
            for _ in 0..LOOKS {
                program.push(look(self.program)?);
            }
            self.program.stop()?;
        }
        Ok((program, yardstick))
    }
}

/// Each look at the program, held against the looks at the yardstick that are nearest in time.
fn moments(program: &[Look], yardstick: &[Look]) -> Vec<Moment> {
    let mut ended_s = 0.0;
    let moments = program.iter().map(|look| {
        let distance = |other: &&Look| (other.middle_s() - look.middle_s()).abs();
        let mut nearest: Vec<&Look> = yardstick.iter().collect();
        nearest.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        let nearest: Vec<f64> = nearest
            .iter()
            .take(NEAREST)
            .map(|other| other.per_cpu_s)
            .collect();
        let moment = Moment {
            at_s: look.middle_s(),
            stands_for_s: look.to_s - ended_s,
            speed: look.per_cpu_s / median(&nearest),
        };
        ended_s = look.to_s;
        moment
    });
    moments.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(from_s: f64, per_cpu_s: f64) -> Look {
        Look {
            from_s,
            to_s: from_s + 1.0,
            per_cpu_s,
        }
    }

    #[test]
    fn what_slows_both_down_is_not_seen() {
        // The machine is half as fast from 100 s on.
        let speed = |at_s: f64| if at_s < 100.0 { 10.0 } else { 5.0 };
        let yardstick: Vec<Look> = (0..40)
            .map(|n| look(f64::from(n) * 5.0, speed(f64::from(n) * 5.0)))
            .collect();
        let times = (0..40).flat_map(|n| (1..5).map(move |step| f64::from(n * 5 + step)));
        let program: Vec<Look> = times.map(|at_s| look(at_s, 2.0 * speed(at_s))).collect();
        let moments = moments(&program, &yardstick);
        assert_eq!(moments.len(), program.len());
        // Just around the change it is.
        let apart = |moment: &&Moment| (moment.at_s - 100.0).abs() > 10.0;
        let mut apart = moments.iter().filter(apart);
        assert!(apart.all(|moment| moment.speed == 2.0), "{moments:?}");
        let all_s: f64 = moments.iter().map(|moment| moment.stands_for_s).sum();
        assert!((all_s - 200.0).abs() < 1e-9, "{all_s}");
    }
}
