//! The estimate of overhead beside the truth: what huge pages gain each of nine programs.

use super::Scale;
use super::estimate::estimate;
use super::host::{Host, need_bytes};
use super::programs::huge::{huge_percent, promote_all};
use super::programs::speed::{Speed, turn};
use super::programs::{Kind, NINE, Program};
use super::report::Report;
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_policy::Overhead;
use std::fmt;
use std::time::Duration;

/// How much of its time huge pages save a program, coarsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Under 3 %.
    Little,
    /// 3 % to 15 %.
    Some,
    /// Over 15 %.
    Much,
}

impl Class {
    /// The class of a share of time, in per cent.
    pub fn of(percent: f64) -> Self {
        if percent < 3.0 {
            Self::Little
        } else if percent <= 15.0 {
            Self::Some
        } else {
            Self::Much
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Little => "under 3 %",
            Self::Some => "3-15 %",
            Self::Much => "over 15 %",
        })
    }
}

/// A program's true gain and what was estimated, in per cent of its CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The share of its time that huge pages save.
    pub gain_percent: f64,
    /// The estimate, made under base pages.
    pub estimate: Overhead,
}

impl Compared {
    /// Whether the estimate tells the right class. "At least" so much is no wrong word about more.
    pub fn right(&self) -> bool {
        let (truth, told) = (
            Class::of(self.gain_percent),
            Class::of(self.estimate.percent),
        );
        truth == told || self.estimate.at_least && told < truth
    }
}

/// Pairs of programs, by their places, of which the first gains under 3 % and is estimated above the
/// second, which gains over 10 %.
pub fn misranked(compared: &[Compared]) -> Vec<(usize, usize)> {
    let (little, much) = (
        |one: &Compared| one.gain_percent < 3.0,
        |one: &Compared| one.gain_percent > 10.0,
    );
    let places = || compared.iter().enumerate();
    places()
        .filter(|(_, low)| little(low))
        .flat_map(|(at, low)| {
            places()
                .filter(|(_, high)| much(high))
                .filter(|(_, high)| low.estimate.percent > high.estimate.percent)
                .map(move |(above, _)| (at, above))
        })
        .collect()
}

/// The share of its CPU time that a program saves, in per cent, when it does as much at another speed.
/// Negative where it is slower.
pub fn gain_percent(base_per_cpu_s: f64, huge_per_cpu_s: f64) -> f64 {
    (1.0 - base_per_cpu_s / huge_per_cpu_s) * 100.0
}

#[derive(Clone, Copy)]
struct Sizes {
    mib: u64,
    turns: usize,
    turn: Duration,
    estimate_s: f64,
}

/// What was seen of one program.
struct Seen {
    base: Speed,
    huge: Speed,
    /// Memory of each instance under huge pages, in per cent.
    base_huge_percent: f64,
    huge_huge_percent: f64,
    estimate: Result<Overhead, BenchError>,
}

impl Seen {
    fn gain_percent(&self) -> f64 {
        gain_percent(self.base.per_cpu_s, self.huge.per_cpu_s)
    }
}

/// Nine programs of 1 or 3 GiB, each under base pages and all huge, in turn.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            mib: 256,
            turns: 1,
            turn: Duration::from_millis(200),
            estimate_s: 0.5,
        },
        Scale::Full => Sizes {
            mib: 3072,
            turns: 7,
            turn: Duration::from_secs(1),
            estimate_s: 10.0,
        },
    };
    let mut report = Report::new("run-rate");
    let mut compared = Vec::new();
    let mut names = Vec::new();
    for kind in NINE {
        // One that can't be had here says nothing about the others.
        let seen = match measure(host, kind, sizes) {
            Ok(seen) => seen,
            Err(error) => {
                report.note(format!("{} could not be measured: {error}", kind.name()));
                continue;
            }
        };
        describe(kind, &seen, &mut report);
        if let Ok(estimate) = seen.estimate {
            names.push(kind.name());
            compared.push(Compared {
                gain_percent: seen.gain_percent(),
                estimate,
            });
        }
    }
    conclude(&compared, &names, &mut report);
    report.note(format!(
        "{} MiB each (a power of two for the JVM); two instances in turn, one all huge; median of {} turns of {} s, by operations per second of CPU time. Redis: values of 4 KiB; memcached: 1 KiB; 16 connections with 16 requests each.",
        sizes.mib,
        sizes.turns,
        sizes.turn.as_secs_f64(),
    ));
    Ok(report)
}

fn measure(host: &Host, kind: Kind, sizes: Sizes) -> Result<Seen, BenchError> {
    need_bytes(2 * kind.resident_bytes(sizes.mib))?;
    let mut base = kind.start(host, sizes.mib)?;
    let mut huge = kind.start(host, sizes.mib)?;
    let huge_huge_percent = promote_all(huge.pid())?;
    let (mut base_speeds, mut huge_speeds) = (Vec::new(), Vec::new());
    // The first turn of each only warms caches and, in a JVM, the compiler up.
    for _ in 0..=sizes.turns {
        base_speeds.push(turn(base.as_mut(), sizes.turn)?);
        huge_speeds.push(turn(huge.as_mut(), sizes.turn)?);
    }
    Ok(Seen {
        base: typical(&base_speeds[1..]),
        huge: typical(&huge_speeds[1..]),
        base_huge_percent: huge_percent(base.pid())?,
        huge_huge_percent,
        estimate: estimate_running(host, base.as_mut(), sizes.estimate_s),
    })
}

fn estimate_running(
    host: &Host,
    program: &mut dyn Program,
    seconds: f64,
) -> Result<Overhead, BenchError> {
    program.go()?;
    let estimate = estimate(host, program.pid(), seconds);
    program.stop()?;
    estimate
}

fn typical(speeds: &[Speed]) -> Speed {
    let median_of =
        |part: fn(&Speed) -> f64| median(&speeds.iter().map(part).collect::<Vec<f64>>());
    Speed {
        per_s: median_of(|speed| speed.per_s),
        per_cpu_s: median_of(|speed| speed.per_cpu_s),
    }
}

fn describe(kind: Kind, seen: &Seen, report: &mut Report) {
    if let Some(doubt) = doubt(seen.base_huge_percent, seen.huge_huge_percent) {
        report.note(format!("{}: {doubt}.", kind.name()));
    }
    let gain_percent = seen.gain_percent();
    let estimate = match seen.estimate {
        Ok(estimate) => {
            let one = Compared {
                gain_percent,
                estimate,
            };
            let told = Class::of(estimate.percent);
            let verdict = if one.right() { "right" } else { "WRONG" };
            format!("estimate {estimate}: class {told}, {verdict}")
        }
        Err(ref error) => format!("no estimate: {error}"),
    };
    report.row(
        format!("{}: true gain", kind.name()),
        gain_percent,
        "%",
        format!(
            "{}; {estimate}; {:.2} / {:.2} M/s; {:.1} / {:.1} % of memory huge",
            Class::of(gain_percent),
            seen.base.per_s / 1e6,
            seen.huge.per_s / 1e6,
            seen.base_huge_percent,
            seen.huge_huge_percent,
        ),
    );
}

/// Below this share of huge memory an all-huge program, and above the rest of it a base-page one, is not
/// what its name says, in per cent.
const MOSTLY_PERCENT: f64 = 95.0;

/// What is wrong with a comparison of two instances with so much of their memory huge, if anything is.
fn doubt(base_huge_percent: f64, huge_huge_percent: f64) -> Option<String> {
    if base_huge_percent > 100.0 - MOSTLY_PERCENT {
        return Some(format!(
            "{base_huge_percent:.1} % of its base pages became huge meanwhile: somebody else promotes here, and its gain is larger than this"
        ));
    }
    (huge_huge_percent < MOSTLY_PERCENT).then(|| {
        format!(
            "only {huge_huge_percent:.1} % of it could be made huge: its gain is larger than this"
        )
    })
}

fn conclude(compared: &[Compared], names: &[&str], report: &mut Report) {
    if compared.is_empty() {
        return;
    }
    let right = compared.iter().filter(|one| one.right()).count();
    report.row(
        "classes right",
        right as f64,
        "programs",
        format!("of {}; goal: all 9", compared.len()),
    );
    let wrong = misranked(compared);
    report.row(
        "under 3 % ranked above over 10 %",
        wrong.len() as f64,
        "pairs",
        "goal: 0",
    );
    for (above, below) in wrong {
        report.note(format!("{} ranked above {}.", names[above], names[below]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::OverheadSource;

    fn compared(gain_percent: f64, told_percent: f64, at_least: bool) -> Compared {
        let exact = Overhead::exact(told_percent, OverheadSource::RunRate);
        Compared {
            gain_percent,
            estimate: Overhead { at_least, ..exact },
        }
    }

    #[test]
    fn gain_is_the_share_of_time_saved() {
        assert_eq!(gain_percent(20.0, 40.0), 50.0);
        assert_eq!(gain_percent(40.0, 40.0), 0.0);
        assert!(gain_percent(41.0, 40.0) < 0.0);
    }

    #[test]
    fn classes_meet_at_their_limits() {
        let classes = [-1.0, 2.99, 3.0, 15.0, 15.1].map(Class::of);
        let wanted = [
            Class::Little,
            Class::Little,
            Class::Some,
            Class::Some,
            Class::Much,
        ];
        assert_eq!(classes, wanted);
    }

    #[test]
    fn memory_that_is_not_what_it_should_be_is_told() {
        assert_eq!(doubt(1.0, 99.0), None);
        let told = |base, huge| doubt(base, huge).unwrap_or_default();
        assert!(told(82.8, 100.0).contains("somebody else"));
        assert!(told(0.0, 60.0).contains("only 60.0 %"));
    }

    #[test]
    fn at_least_is_right_about_more_and_wrong_about_less() {
        assert!(compared(41.0, 38.0, false).right());
        assert!(!compared(41.0, 12.0, false).right());
        assert!(compared(41.0, 12.0, true).right());
        assert!(!compared(1.0, 12.0, true).right());
    }

    #[test]
    fn only_little_above_much_is_misranked() {
        let list = [
            compared(1.0, 12.0, false),
            compared(11.0, 5.0, false),
            compared(5.0, 4.0, false),
            compared(40.0, 30.0, false),
            compared(2.0, 5.0, false),
        ];
        assert_eq!(misranked(&list), [(0, 1)]);
    }
}
