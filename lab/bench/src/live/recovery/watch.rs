//! A program watched while somebody works on it: its speed over time, between those of two others that nobody touches, one under base
//! pages and one all huge. The machine's own speed changes by as much as huge pages gain within minutes, and so does what they gain.

use super::in_use::InUse;
use crate::error::BenchError;
use crate::live::programs::Program;
use crate::live::programs::speed::turn;
use crate::statistics::median;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Two programs like the one that is watched, which stay as they are.
pub(super) struct Yardsticks {
    pub(super) base: Box<dyn Program>,
    pub(super) huge: Box<dyn Program>,
}

/// A program with its yardsticks. Each works while the others pause; here all pause.
pub(super) struct Watched<'a> {
    pub(super) program: &'a mut dyn Program,
    pub(super) yardsticks: &'a mut Yardsticks,
}

/// What was seen of a program while somebody worked on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Its speed.
    pub moments: Vec<Moment>,
    /// Seconds since watching began, and how much of the memory that it uses was huge then, in per cent; nothing where nobody asked.
    pub in_use_huge: Vec<(f64, f64)>,
}

/// The program at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since watching began, in the middle of the turn.
    pub at_s: f64,
    /// So many seconds of watching it stands for: its turn, and what came between the one before and it.
    pub stands_for_s: f64,
    /// How many times as fast as the one under base pages, by operations per second of CPU time.
    pub speed: f64,
    /// How many times as fast as that the one is that is all huge, about then.
    pub huge_speed: f64,
}

/// As short as the programs' counting allows: what slows the machine down comes and goes within seconds.
pub(super) const YARDSTICK_TURN: Duration = Duration::from_millis(60);
/// The program works most of the time: what a manager sees of one that often pauses is more about its pauses than about its memory.
pub(super) const TURN: Duration = Duration::from_millis(240);
/// A turn of the program is held against so many turns of the one under base pages, the nearest in time: one before and one after.
const NEAREST: usize = 2;
/// What all huge gains is told by so many turns, as it changes more slowly.
const NEAREST_PAIRS: usize = 31;

/// A turn.
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

impl Watched<'_> {
    /// Watches for so long while nobody works on it: the median of what is to be told of each moment.
    pub(super) fn settled(
        &mut self,
        all: Duration,
        of: impl FnMut(&Moment) -> f64,
    ) -> Result<f64, BenchError> {
        let (begun, nap) = (Instant::now(), Duration::from_millis(10));
        let wait = |failed: &AtomicBool| {
            while begun.elapsed() < all && !failed.load(Ordering::Relaxed) {
                std::thread::sleep(nap);
            }
            Ok(())
        };
        let ((), seen) = self.watch(None, wait)?;
        Ok(median(&seen.moments.iter().map(of).collect::<Vec<f64>>()))
    }

    /// Watches, turn by turn, until `work` is done; how much of `in_use` is huge is looked at while all pause. `work` may look at the
    /// flag, which says that watching has failed.
    ///
    /// # Errors
    /// Those of `work`, or the programs could not be watched.
    pub(super) fn watch<T>(
        &mut self,
        in_use: Option<&mut InUse>,
        work: impl FnOnce(&AtomicBool) -> Result<T, BenchError>,
    ) -> Result<(T, Seen), BenchError> {
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
                let watched = self.looks(in_use, &over);
                failed.store(watched.is_err(), Ordering::Relaxed);
                watched
            });
            let worked = {
                let _over = Over(&over);
                work(&failed)
            };
            let watched = watching.join();
            let watched = watched.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let looks = watched?;
            let seen = Seen {
                moments: looks.moments(),
                in_use_huge: looks.in_use_huge,
            };
            Ok((worked?, seen))
        })
    }

    fn looks(
        &mut self,
        mut in_use: Option<&mut InUse>,
        over: &AtomicBool,
    ) -> Result<Looks, BenchError> {
        let begun = Instant::now();
        let look = |program: &mut dyn Program, length| -> Result<Look, BenchError> {
            let from_s = begun.elapsed().as_secs_f64();
            let per_cpu_s = turn(program, length)?.per_cpu_s;
            Ok(Look {
                from_s,
                to_s: begun.elapsed().as_secs_f64(),
                per_cpu_s,
            })
        };
        let mut looks = Looks::default();
        while !over.load(Ordering::Relaxed) {
            let Yardsticks { base, huge } = self.yardsticks;
            for (yardstick, seen) in [(base, &mut looks.base), (huge, &mut looks.huge)] {
                seen.push(look(yardstick.as_mut(), YARDSTICK_TURN)?);
                looks.program.push(look(self.program, TURN)?);
                if let Some(in_use) = &mut in_use {
                    let at_s = begun.elapsed().as_secs_f64();
                    looks.in_use_huge.push((at_s, in_use.huge_percent()?));
                }
            }
        }
        Ok(looks)
    }
}

/// All that was timed.
#[derive(Debug, Default)]
struct Looks {
    program: Vec<Look>,
    base: Vec<Look>,
    huge: Vec<Look>,
    in_use_huge: Vec<(f64, f64)>,
}

impl Looks {
    /// Each look at the program, held against those looks at the others that are nearest in time.
    fn moments(&self) -> Vec<Moment> {
        let base: Vec<(f64, f64)> = self
            .base
            .iter()
            .map(|look| (look.middle_s(), look.per_cpu_s))
            .collect();
        let pairs = self.base.iter().zip(&self.huge);
        let gains: Vec<(f64, f64)> = pairs
            .map(|(base, huge)| (base.to_s, huge.per_cpu_s / base.per_cpu_s))
            .collect();
        let mut ended_s = 0.0;
        let moments = self.program.iter().map(|look| {
            let at_s = look.middle_s();
            let moment = Moment {
                at_s,
                stands_for_s: look.to_s - ended_s,
                speed: look.per_cpu_s / nearest_median(&base, at_s, NEAREST),
                huge_speed: nearest_median(&gains, at_s, NEAREST_PAIRS),
            };
            ended_s = look.to_s;
            moment
        });
        moments.collect()
    }
}

/// Of values with their times, in order, the median of so many that are nearest to a time.
fn nearest_median(timed: &[(f64, f64)], at_s: f64, count: usize) -> f64 {
    let distance = |(time_s, _): &(f64, f64)| (time_s - at_s).abs();
    let mut nearest = timed.to_vec();
    nearest.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let values: Vec<f64> = nearest
        .iter()
        .take(count)
        .map(|(_, value)| *value)
        .collect();
    median(&values)
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
    fn what_slows_all_down_is_not_seen() {
        // The machine is half as fast from 120 s on.
        let speed = |at_s: f64| if at_s < 120.0 { 10.0 } else { 5.0 };
        let every_4_s = (0..60).map(|n| f64::from(n) * 4.0);
        let at = |shift_s: f64, times: f64| {
            let times_s = every_4_s.clone().map(move |begin_s| begin_s + shift_s);
            times_s
                .map(|at_s| look(at_s, times * speed(at_s)))
                .collect::<Vec<_>>()
        };
        let mut program: Vec<Look> = [at(1.0, 2.0), at(3.0, 2.0)].concat();
        program.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
        let looks = Looks {
            program,
            base: at(0.0, 1.0),
            huge: at(2.0, 3.0),
            in_use_huge: Vec::new(),
        };
        let moments = looks.moments();
        assert_eq!(moments.len(), 120);
        // Just around the change it is.
        let apart = |moment: &&Moment| (moment.at_s - 120.0).abs() > 4.0;
        let mut apart = moments.iter().filter(apart);
        assert!(apart.all(|moment| moment.speed == 2.0), "{moments:?}");
        assert!(
            moments.iter().all(|moment| moment.huge_speed == 3.0),
            "{moments:?}"
        );
        let all_s: f64 = moments.iter().map(|moment| moment.stands_for_s).sum();
        assert!((all_s - 240.0).abs() < 1e-9, "{all_s}");
    }
}
