//! The estimate of overhead beside the truth: the gain of nine programs from huge pages. Alias:
//! `run-rate`.

use super::prelude::*;
use super::programs::NINE_ESTIMATED_PROGRAMS;
use crate::statistics::median_standard_error;
use hawkeye_linux::sample::process_meter::ProcessMeter;
use hawkeye_linux::sample::sampler::SamplerBackend;
use hawkeye_policy::TranslationOverhead;

/// Coarse classes of the share of time that huge pages save.
pub(super) const OVERHEAD_CLASSES: [&str; 3] = ["under 3 %", "3-15 %", "over 15 %"];

/// The class of a share of time in per cent.
pub fn overhead_class_index(percent: f64) -> usize {
    match percent {
        little if little < 3.0 => 0,
        some if some <= 15.0 => 1,
        _ => 2,
    }
}

/// A measured gain, in per cent of the program's CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredGain {
    /// The share of its time that huge pages save.
    pub percent: f64,
    /// Its standard error, in percentage points.
    pub error_percent: f64,
}

/// A program's true gain and its estimates.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimateAndGain {
    /// What huge pages save.
    pub gain: MeasuredGain,
    /// The estimates of one or more windows, made under base pages. By their figure, ascending.
    pub windows: Vec<TranslationOverhead>,
}

impl EstimateAndGain {
    pub fn median_estimate(&self) -> TranslationOverhead {
        self.windows[self.windows.len() / 2]
    }

    /// Whether the estimate is in the right class. An "at least" estimate is right for every higher
    /// class too.
    pub fn has_right_class(&self) -> bool {
        let estimate = self.median_estimate();
        let [truth, estimated] = [self.gain.percent, estimate.percent].map(overhead_class_index);
        truth == estimated || estimate.at_least && estimated < truth
    }

    /// How many of the intervals contain the true gain, which is itself known to within an interval
    /// that holds in nine of ten cases.
    pub fn count_intervals_that_hold(&self) -> usize {
        /// Half of such an interval, in standard errors.
        const NINETY_PERCENT: f64 = 1.645;
        let either_side = NINETY_PERCENT * self.gain.error_percent;
        // No overhead is below 0, though a measured gain may be.
        let least = (self.gain.percent - either_side).max(0.0);
        let most = (self.gain.percent + either_side).max(0.0);
        let holds = |one: &&TranslationOverhead| {
            one.low_percent <= most && (one.at_least || least <= one.high_percent)
        };
        self.windows.iter().filter(holds).count()
    }

    fn interval_widths(&self) -> impl Iterator<Item = f64> {
        self.windows.iter().map(|one| one.high_percent - one.low_percent)
    }
}

/// The share of its CPU time that a program saves, in per cent, when it does the same work at
/// another speed. Negative if it is slower.
pub fn cpu_saved_percent_from_speeds(base_per_cpu_s: f64, huge_per_cpu_s: f64) -> f64 {
    (1.0 - base_per_cpu_s / huge_per_cpu_s) * 100.0
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([256, 4, 200, 2000], [3072, 7, 1000, 30_000]);
    let windows = scale.short_or_long(2, 10);
    let mut compared = Vec::new();
    for kind in NINE_ESTIMATED_PROGRAMS {
        // One program that can't run here does not affect the others.
        match BaseAndHugeRounds::start_and_measure_in_turn(host, kind, sizes) {
            Ok(mut pair) => {
                let estimate = estimate_overhead_while_working(
                    host,
                    pair.base.as_mut(),
                    windows,
                    sizes.at_most,
                );
                compared.extend(add_rows_to_report(kind, &pair, estimate, report));
            }
            Err(error) => {
                report.add_note(format!("{} could not be measured: {error}", kind.name()))
            }
        }
    }
    if !compared.is_empty() {
        let right = compared.iter().filter(|one| one.has_right_class()).count() as f64;
        let goal = format!("of {}; goal: all 9", compared.len());
        report.add_row("correct classes", right, "programs", goal);
        let windows: usize = compared.iter().map(|one| one.windows.len()).sum();
        let held: usize = compared.iter().map(EstimateAndGain::count_intervals_that_hold).sum();
        let goal = format!("of {windows}; goal: nine of ten, or {}", (windows * 9).div_ceil(10));
        report.add_row("intervals that hold", held as f64, "windows", goal);
        let widths: Vec<f64> = compared.iter().flat_map(EstimateAndGain::interval_widths).collect();
        let goal = "goal: at most 12";
        report.add_row("median width of intervals", median(&widths), "points", goal);
    }
    report.add_note(format!(
        "Each program has {} MiB (the JVM: a power of two). Two instances run in turn, one all huge; median of {} turns of {} s, by operations per second of CPU time. The estimate is the median of up to {windows} windows. An interval holds if it meets the 90 % interval of the measured gain; \"at least\" has no upper end. Redis has values of 4 KiB, memcached of 1 KiB; 16 connections with 16 requests each.",
        sizes.mib,
        sizes.turns,
        sizes.turn.as_secs_f64(),
    ));
    Ok(())
}

pub(super) fn estimate_overhead_while_working(
    host: &BenchHost,
    program: &mut dyn MeasuredProgram,
    windows: usize,
    within: Duration,
) -> BenchResult<Vec<TranslationOverhead>> {
    program.start_work()?;
    let estimates = estimate_overhead_of_windows(host, program.pid(), windows, within);
    program.pause_work()?;
    estimates
}

/// From outside: the estimates of `count` windows, or of as many as fit into `within`, at least
/// one. By their figure, ascending.
fn estimate_overhead_of_windows(
    host: &BenchHost,
    pid: u32,
    count: usize,
    within: Duration,
) -> BenchResult<Vec<TranslationOverhead>> {
    let SamplerBackend::AccessBits(mut bits) = host.new_kernel_backend()?.sampler else {
        bail!("estimating overhead needs access bits, which cannot be read here");
    };
    // Only the estimate is wanted, and counters would slow the program meanwhile.
    bits.counters = None;
    let mut meter = ProcessMeter::open(bits, pid)?;
    let until = Instant::now() + within;
    let mut windows = Vec::new();
    while windows.is_empty() || windows.len() < count && Instant::now() < until {
        let estimate = meter.measure_window_overhead()?.estimate;
        windows.push(
            estimate
                .overhead
                .ok_or_else(|| impossible!("process {pid} hardly ran while it was sampled"))?,
        );
    }
    windows.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    Ok(windows)
}

fn gain_from_rounds(rounds: &[[ProgramSpeed; 2]]) -> MeasuredGain {
    let of = |n: usize| median_of_mapped(rounds, |round| round[n].per_cpu_s);
    let gains = rounds
        .iter()
        .map(|[base, huge]| cpu_saved_percent_from_speeds(base.per_cpu_s, huge.per_cpu_s));
    MeasuredGain {
        percent: cpu_saved_percent_from_speeds(of(0), of(1)),
        error_percent: median_standard_error(&gains.collect::<Vec<_>>()),
    }
}

fn add_rows_to_report(
    kind: ProgramKind,
    pair: &BaseAndHugeRounds,
    estimates: BenchResult<Vec<TranslationOverhead>>,
    report: &mut LiveReport,
) -> Option<EstimateAndGain> {
    if let Some(doubt) = comparison_caveat(pair.huge_percent) {
        report.add_note(format!("{}: {doubt}.", kind.name()));
    }
    let per_s = |n: usize| median_of_mapped(&pair.rounds, |round| round[n].per_s) / 1e6;
    let gain = gain_from_rounds(&pair.rounds);
    let compared = estimates.map(|windows| EstimateAndGain { gain, windows });
    let estimate = match &compared {
        Ok(one) => {
            let estimate = one.median_estimate();
            let class = OVERHEAD_CLASSES[overhead_class_index(estimate.percent)];
            let verdict = if one.has_right_class() { "correct" } else { "WRONG" };
            let (held, windows) = (one.count_intervals_that_hold(), one.windows.len());
            let width = median(&one.interval_widths().collect::<Vec<_>>());
            format!(
                "estimate {estimate}: class {class}, {verdict}; {held} of {windows} intervals hold, {width:.1} points wide"
            )
        }
        Err(error) => format!("no estimate: {error}"),
    };
    report.add_row(
        format!("{}: true gain", kind.name()),
        gain.percent,
        "%",
        format!(
            "+- {:.1}, {}; {estimate}; {:.2} / {:.2} M/s; {:.1} / {:.1} % of memory huge",
            gain.error_percent,
            OVERHEAD_CLASSES[overhead_class_index(gain.percent)],
            per_s(0),
            per_s(1),
            pair.huge_percent[0],
            pair.huge_percent[1],
        ),
    );
    compared.ok()
}

/// Per cent of huge memory: below it a program is not all huge, above 100 minus it not all base.
const MOSTLY_PERCENT: f64 = 95.0;

/// Why a comparison of two instances with these shares of huge memory is doubtful.
fn comparison_caveat([base, huge]: [f64; 2]) -> Option<String> {
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
    use hawkeye_policy::TranslationOverheadSource;

    fn compared(gain_percent: f64, estimated_percent: f64, at_least: bool) -> EstimateAndGain {
        let exact = TranslationOverhead::new_without_error(
            estimated_percent,
            TranslationOverheadSource::WalkRate,
        );
        EstimateAndGain {
            gain: MeasuredGain { percent: gain_percent, error_percent: 0.0 },
            windows: vec![TranslationOverhead { at_least, ..exact }],
        }
    }

    #[test]
    fn an_interval_holds_if_it_meets_that_of_the_gain() {
        let window = |low_percent, high_percent, at_least| TranslationOverhead {
            low_percent,
            high_percent,
            at_least,
            ..TranslationOverhead::new_without_error(
                low_percent,
                TranslationOverheadSource::WalkRate,
            )
        };
        let held = |percent, error_percent, windows: &[TranslationOverhead]| {
            let gain = MeasuredGain { percent, error_percent };
            let windows = windows.to_vec();
            EstimateAndGain { gain, windows }.count_intervals_that_hold()
        };
        let windows = [window(8.0, 12.0, false), window(11.0, 15.0, false), window(3.0, 5.0, true)];
        assert_eq!(held(10.0, 0.0, &windows), 2);
        // The gain lies between 8.4 and 11.6 %.
        assert_eq!(held(10.0, 1.0, &windows), 3);
        assert_eq!(held(2.0, 0.0, &windows), 0);
        // A loss is no overhead.
        assert_eq!(held(-4.0, 0.0, &[window(0.0, 0.5, false)]), 1);
    }

    #[test]
    fn the_gain_has_the_error_of_its_rounds() {
        let speed = |per_cpu_s| ProgramSpeed { per_cpu_s, ..ProgramSpeed::default() };
        let rounds = |base: &[f64]| -> Vec<_> {
            base.iter().map(|base| [speed(*base), speed(100.0)]).collect()
        };
        let same = gain_from_rounds(&rounds(&[80.0; 7]));
        assert!((same.percent - 20.0).abs() < 1e-9 && same.error_percent == 0.0);
        let different = gain_from_rounds(&rounds(&[70.0, 75.0, 80.0, 80.0, 85.0, 85.0, 90.0]));
        assert!((different.percent - 20.0).abs() < 1e-9);
        assert!((1.0..10.0).contains(&different.error_percent), "{different:?}");
    }

    #[test]
    fn gain_is_the_share_of_time_saved() {
        assert_eq!(cpu_saved_percent_from_speeds(20.0, 40.0), 50.0);
        assert_eq!(cpu_saved_percent_from_speeds(40.0, 40.0), 0.0);
        assert!(cpu_saved_percent_from_speeds(41.0, 40.0) < 0.0);
    }

    #[test]
    fn classes_meet_at_their_limits() {
        let classes = [-1.0, 2.99, 3.0, 15.0, 15.1].map(overhead_class_index);
        assert_eq!(classes, [0, 0, 1, 1, 2]);
    }

    #[test]
    fn instances_with_the_wrong_page_size_are_reported() {
        assert_eq!(comparison_caveat([1.0, 99.0]), None);
        let doubt = |base, huge| comparison_caveat([base, huge]).unwrap_or_default();
        assert!(doubt(82.8, 100.0).contains("something else"));
        assert!(doubt(0.0, 60.0).contains("only 60.0 %"));
    }

    #[test]
    fn at_least_is_right_about_more_and_wrong_about_less() {
        assert!(compared(41.0, 38.0, false).has_right_class());
        assert!(!compared(41.0, 12.0, false).has_right_class());
        assert!(compared(41.0, 12.0, true).has_right_class());
        assert!(!compared(1.0, 12.0, true).has_right_class());
    }
}
