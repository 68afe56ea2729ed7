//! The estimate of overhead beside the truth: the gain of nine programs from huge pages. Alias:
//! `run-rate`.

use super::prelude::*;
use super::programs::NINE;
use hawkeye_linux::sample::sampler::{self, SamplerBackend};
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
pub struct EstimateAndGain {
    /// The share of its time that huge pages save.
    pub gain_percent: f64,
    /// The estimate, made under base pages.
    pub estimate: Overhead,
}

impl EstimateAndGain {
    /// Whether the estimate is in the right class. An "at least" estimate is right for every higher
    /// class too.
    pub fn right(&self) -> bool {
        let [truth, estimated] = [self.gain_percent, self.estimate.percent].map(class_of);
        truth == estimated || self.estimate.at_least && estimated < truth
    }
}

/// The share of its CPU time that a program saves, in per cent, when it does the same work at
/// another speed. Negative if it is slower.
pub fn gain_percent(base_per_cpu_s: f64, huge_per_cpu_s: f64) -> f64 {
    (1.0 - base_per_cpu_s / huge_per_cpu_s) * 100.0
}

/// Runs nine programs of 1 or 3 GiB, each under base pages and all huge, in turn.
pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.sizes([256, 1, 200, 500], [3072, 7, 1000, 10_000]);
    let mut compared = Vec::new();
    for kind in NINE {
        // One program that can't run here does not affect the others.
        match BaseAndHugeRounds::measure(host, kind, sizes) {
            Ok(mut pair) => {
                let estimate = estimate_running(host, pair.base.as_mut(), sizes.at_most);
                compared.extend(describe(kind, &pair, estimate, report));
            }
            Err(error) => report.note(format!("{} could not be measured: {error}", kind.name())),
        }
    }
    if !compared.is_empty() {
        let right = compared.iter().filter(|one| one.right()).count() as f64;
        let goal = format!("of {}; goal: all 9", compared.len());
        report.add_row("correct classes", right, "programs", goal);
    }
    report.note(format!(
        "Each program has {} MiB (the JVM: a power of two). Two instances run in turn, one all huge; median of {} turns of {} s, by operations per second of CPU time. Redis has values of 4 KiB, memcached of 1 KiB; 16 connections with 16 requests each.",
        sizes.mib,
        sizes.turns,
        sizes.turn.as_secs_f64(),
    ));
    Ok(())
}

fn estimate_running(
    host: &BenchHost,
    program: &mut dyn MeasuredProgram,
    within: Duration,
) -> BenchResult<Overhead> {
    program.go()?;
    let estimate = estimate(host, program.pid(), within);
    program.stop()?;
    estimate
}

/// From outside: the median of all windows that fit into `within`, at least one.
fn estimate(host: &BenchHost, pid: u32, within: Duration) -> BenchResult<Overhead> {
    let SamplerBackend::AccessBits(mut bits) = host.new_kernel_backend()?.sampler else {
        bail!("estimating overhead needs access bits, which cannot be read here");
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
                .ok_or_else(|| impossible!("process {pid} hardly ran while it was sampled"))?,
        );
    }
    windows.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    Ok(windows[windows.len() / 2])
}

fn describe(
    kind: ProgramKind,
    pair: &BaseAndHugeRounds,
    estimate: BenchResult<Overhead>,
    report: &mut LiveReport,
) -> Option<EstimateAndGain> {
    if let Some(doubt) = comparison_doubt(pair.huge_percent) {
        report.note(format!("{}: {doubt}.", kind.name()));
    }
    let of =
        |n: usize, part: fn(&ProgramSpeed) -> f64| median_of(&pair.rounds, |round| part(&round[n]));
    let [base, huge] = [0, 1].map(|n| of(n, |speed| speed.per_cpu_s));
    let gain_percent = gain_percent(base, huge);
    let compared = estimate.map(|estimate| EstimateAndGain {
        gain_percent,
        estimate,
    });
    let estimate = match &compared {
        Ok(one) => {
            let class = CLASSES[class_of(one.estimate.percent)];
            let verdict = if one.right() { "correct" } else { "WRONG" };
            format!("estimate {}: class {class}, {verdict}", one.estimate)
        }
        Err(error) => format!("no estimate: {error}"),
    };
    report.add_row(
        format!("{}: true gain", kind.name()),
        gain_percent,
        "%",
        format!(
            "{}; {estimate}; {:.2} / {:.2} M/s; {:.1} / {:.1} % of memory huge",
            CLASSES[class_of(gain_percent)],
            of(0, |speed| speed.per_s) / 1e6,
            of(1, |speed| speed.per_s) / 1e6,
            pair.huge_percent[0],
            pair.huge_percent[1],
        ),
    );
    compared.ok()
}

/// Per cent of huge memory: below it a program is not all huge, above 100 minus it not all base.
const MOSTLY_PERCENT: f64 = 95.0;

/// Why a comparison of two instances with these shares of huge memory is doubtful.
fn comparison_doubt([base, huge]: [f64; 2]) -> Option<String> {
    if base > 100.0 - MOSTLY_PERCENT {
        return Some(format!(
            "{base:.1} % of its base pages became huge during the measurement: something else promotes on this machine, and the program gains more than this"
        ));
    }
    let too_few = || {
        format!(
            "only {huge:.1} % of its memory could be made huge: the program gains more than this"
        )
    };
    (huge < MOSTLY_PERCENT).then(too_few)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::OverheadSource;

    fn compared(gain_percent: f64, estimated_percent: f64, at_least: bool) -> EstimateAndGain {
        let exact = Overhead::exact(estimated_percent, OverheadSource::RunRate);
        EstimateAndGain {
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
    fn instances_with_the_wrong_page_size_are_reported() {
        assert_eq!(comparison_doubt([1.0, 99.0]), None);
        let doubt = |base, huge| comparison_doubt([base, huge]).unwrap_or_default();
        assert!(doubt(82.8, 100.0).contains("something else"));
        assert!(doubt(0.0, 60.0).contains("only 60.0 %"));
    }

    #[test]
    fn at_least_is_right_about_more_and_wrong_about_less() {
        assert!(compared(41.0, 38.0, false).right());
        assert!(!compared(41.0, 12.0, false).right());
        assert!(compared(41.0, 12.0, true).right());
        assert!(!compared(1.0, 12.0, true).right());
    }
}
