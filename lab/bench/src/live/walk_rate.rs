//! The estimate of overhead beside the truth: the gain of nine programs from huge pages.

use super::prelude::*;
use super::programs::NINE;
use hawkeye_linux::sample::sampler::{self, Seeing};
use hawkeye_policy::Overhead;

/// Coarse classes of the share of time that huge pages save.
const CLASSES: [&str; 3] = ["under 3 %", "3-15 %", "over 15 %"];

/// The class of a share of time in per cent.
pub fn class_of(percent: f64) -> usize {
    match percent {
        little if little < 3.0 => 0,
        some if some <= 15.0 => 1,
        _ => 2,
    }
}

/// A program's true gain and its estimate, in per cent of its CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The share of its time that huge pages save.
    pub gain_percent: f64,
    /// The estimate, made under base pages.
    pub estimate: Overhead,
}

impl Compared {
    /// Whether the estimate is in the right class. An "at least" estimate is right for every higher
    /// class too.
    pub fn right(&self) -> bool {
        let [truth, told] = [self.gain_percent, self.estimate.percent].map(class_of);
        truth == told || self.estimate.at_least && told < truth
    }
}

/// Pairs of programs, by index, in the wrong order: the first gains under 3 %, the second over 10
/// %, and the first has the higher estimate.
pub fn misranked(compared: &[Compared]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (at, low) in compared.iter().enumerate() {
        for (above, high) in compared.iter().enumerate() {
            let known = low.gain_percent < 3.0 && high.gain_percent > 10.0;
            if known && low.estimate.percent > high.estimate.percent {
                pairs.push((at, above));
            }
        }
    }
    pairs
}

/// The share of its CPU time that a program saves, in per cent, when it does the same work at
/// another speed. Negative if it is slower.
pub fn gain_percent(base_per_cpu_s: f64, huge_per_cpu_s: f64) -> f64 {
    (1.0 - base_per_cpu_s / huge_per_cpu_s) * 100.0
}

struct Seen {
    base: Speed,
    huge: Speed,
    /// Share of each instance's memory under huge pages, in per cent.
    base_huge_percent: f64,
    huge_huge_percent: f64,
    estimate: Result<Overhead>,
}

impl Seen {
    fn gain_percent(&self) -> f64 {
        gain_percent(self.base.per_cpu_s, self.huge.per_cpu_s)
    }
}

/// Runs nine programs of 1 or 3 GiB, each under base pages and all huge, in turn.
pub fn run(host: &mut Host, scale: Scale, report: &mut Report) -> Result<()> {
    let sizes = scale.sizes([256, 1, 200, 500], [3072, 7, 1000, 10_000]);
    let mut compared = Vec::new();
    let mut names = Vec::new();
    for kind in NINE {
        // One program that can't run here does not affect the others.
        let seen = match measure(host, kind, sizes) {
            Ok(seen) => seen,
            Err(error) => {
                report.note(format!("{} could not be measured: {error}", kind.name()));
                continue;
            }
        };
        describe(kind, &seen, report);
        if let Ok(estimate) = seen.estimate {
            names.push(kind.name());
            compared.push(Compared {
                gain_percent: seen.gain_percent(),
                estimate,
            });
        }
    }
    conclude(&compared, &names, report);
    report.note(format!(
        "{} MiB each (a power of two for the JVM); two instances in turn, one all huge; median of {} turns of {} s, by operations per second of CPU time. Redis: values of 4 KiB; memcached: 1 KiB; 16 connections with 16 requests each.",
        sizes.mib,
        sizes.turns,
        sizes.turn.as_secs_f64(),
    ));
    Ok(())
}

fn measure(host: &Host, kind: Kind, sizes: Sizes) -> Result<Seen> {
    need_bytes(2 * kind.resident_bytes(sizes.mib))?;
    let mut base = kind.start(host, sizes.mib)?;
    let mut huge = kind.start(host, sizes.mib)?;
    let huge_huge_percent = promote_all(huge.pid())?;
    let (mut base_speeds, mut huge_speeds) = (Vec::new(), Vec::new());
    // The first turn of each program only warms up caches and, in a JVM, the compiler.
    for _ in 0..=sizes.turns {
        base_speeds.push(turn(base.as_mut(), sizes.turn)?);
        huge_speeds.push(turn(huge.as_mut(), sizes.turn)?);
    }
    Ok(Seen {
        base: typical(&base_speeds[1..]),
        huge: typical(&huge_speeds[1..]),
        base_huge_percent: huge_percent(base.pid())?,
        huge_huge_percent,
        estimate: estimate_running(host, base.as_mut(), sizes.at_most),
    })
}

fn estimate_running(host: &Host, program: &mut dyn Program, within: Duration) -> Result<Overhead> {
    program.go()?;
    let estimate = estimate(host, program.pid(), within);
    program.stop()?;
    estimate
}

/// Estimates the address-translation cost of a running process from outside: the median of all
/// windows that fit into `within`, at least one.
fn estimate(host: &Host, pid: u32, within: Duration) -> Result<Overhead> {
    let Seeing::AccessBits(mut bits) = host.means()?.sampler else {
        bail!("overhead is told from access bits, which can't be seen here");
    };
    let until = Instant::now() + within;
    let mut windows = Vec::new();
    let mut seed = 1;
    while windows.is_empty() || Instant::now() < until {
        let estimate = sampler::estimate(&mut bits, pid, seed)?;
        seed += 1;
        windows.push(
            estimate
                .overhead
                .ok_or_else(|| impossible!("process {pid} hardly ran while it was looked at"))?,
        );
    }
    windows.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    Ok(windows[windows.len() / 2])
}

fn typical(speeds: &[Speed]) -> Speed {
    Speed {
        per_s: median_of(speeds, |speed| speed.per_s),
        per_cpu_s: median_of(speeds, |speed| speed.per_cpu_s),
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
            let told = CLASSES[class_of(estimate.percent)];
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
            CLASSES[class_of(gain_percent)],
            seen.base.per_s / 1e6,
            seen.huge.per_s / 1e6,
            seen.base_huge_percent,
            seen.huge_huge_percent,
        ),
    );
}

/// Below this share of huge memory in per cent, a program does not count as all huge. Above the
/// remaining share, it does not count as a base-page program.
const MOSTLY_PERCENT: f64 = 95.0;

/// The reason to doubt a comparison of two instances with these shares of huge memory, if there is
/// one.
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
        let classes = [-1.0, 2.99, 3.0, 15.0, 15.1].map(class_of);
        assert_eq!(classes, [0, 0, 1, 1, 2]);
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
