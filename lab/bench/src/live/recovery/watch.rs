//! Watches a program while a manager or khugepaged works on it. Its speed over time is measured
//! between the speeds of two yardsticks that are left alone, one under base pages and one all huge.
//! Within minutes the machine's own speed changes by as much as huge pages gain, and so does that
//! gain.

use super::in_use::InUse;
use crate::live::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Two programs like the watched one, which stay as they are.
pub(super) struct Yardsticks {
    pub(super) base: Box<dyn Program>,
    pub(super) huge: Box<dyn Program>,
}

/// A program with its yardsticks. Each works while the others pause; here all pause.
pub(super) struct Watched<'a> {
    pub(super) program: &'a mut dyn Program,
    pub(super) yardsticks: &'a mut Yardsticks,
}

/// Observations of a program while a manager or khugepaged worked on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    pub moments: Vec<Moment>,
    /// Seconds since watching began, and the share of the used memory that was huge then, in per
    /// cent; empty if it was not requested.
    pub in_use_huge: Vec<(f64, f64)>,
}

/// The program at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since watching began, in the middle of the turn.
    pub at_s: f64,
    /// Seconds of watching that this moment stands for: its turn, and the time since the turn
    /// before.
    pub stands_for_s: f64,
    /// Speed as a multiple of the base-page yardstick's, by operations per second of CPU time.
    pub speed: f64,
    /// Speed of the all-huge yardstick around that time, as a multiple of the base-page
    /// yardstick's.
    pub huge_speed: f64,
}

/// As short as the programs' counting allows: slow phases of the machine come and go within
/// seconds.
pub(super) const YARDSTICK_TURN: Duration = Duration::from_millis(60);
/// The program works most of the time. Otherwise a manager would see its pauses more than its use
/// of memory.
pub(super) const TURN: Duration = Duration::from_millis(240);
/// Number of base-page yardstick turns that a turn of the program is compared with, the nearest in
/// time: one before and one after.
const NEAREST: usize = 2;
/// Number of turns that the all-huge gain is estimated from, as it changes more slowly.
const NEAREST_PAIRS: usize = 31;

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
    /// Watches for `all` while the program is left alone; returns the median of a figure over all
    /// moments.
    pub(super) fn settled(&mut self, all: Duration, of: impl Fn(&Moment) -> f64) -> Result<f64> {
        let begun = Instant::now();
        let looks = self.looks(None, || begun.elapsed() < all)?;
        Ok(median(
            &looks.moments().iter().map(of).collect::<Vec<f64>>(),
        ))
    }

    /// Watches, turn by turn, until `work` is done; the huge share of `in_use` is measured while
    /// all programs pause. `work` may read the flag, which is set when watching has failed.
    pub(super) fn watch<T>(
        &mut self,
        in_use: &mut InUse,
        work: impl FnOnce(&AtomicBool) -> Result<T>,
    ) -> Result<(T, Seen)> {
        /// Sets the flag at the end, also if the work panics.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (over, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let watched = self.looks(Some(in_use), || !over.load(Ordering::Relaxed));
                failed.store(watched.is_err(), Ordering::Relaxed);
                watched
            });
            let worked = {
                let _over = Over(&over);
                work(&failed)
            };
            let looks = joined(watching)?;
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
        goes_on: impl Fn() -> bool,
    ) -> Result<Looks> {
        let begun = Instant::now();
        let look = |program: &mut dyn Program, length| -> Result<Look> {
            let from_s = begun.elapsed().as_secs_f64();
            let per_cpu_s = turn(program, length)?.per_cpu_s;
            Ok(Look {
                from_s,
                to_s: begun.elapsed().as_secs_f64(),
                per_cpu_s,
            })
        };
        let mut looks = Looks::default();
        while goes_on() {
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

#[derive(Debug, Default)]
struct Looks {
    program: Vec<Look>,
    base: Vec<Look>,
    huge: Vec<Look>,
    in_use_huge: Vec<(f64, f64)>,
}

impl Looks {
    /// Compares each observation of the program with the yardsticks' observations that are nearest
    /// in time.
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

/// The median of the `count` values that are nearest to a time. The values come with their times,
/// in order.
fn nearest_median(timed: &[(f64, f64)], at_s: f64, count: usize) -> f64 {
    let distance = |(time_s, _): &(f64, f64)| (time_s - at_s).abs();
    let mut nearest = timed.to_vec();
    nearest.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    nearest.truncate(count);
    median_of(&nearest, |(_, value)| *value)
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
        // Moments around the change are wrong.
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
