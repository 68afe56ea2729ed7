//! `hawkeye attach` to a program of random reads: how soon it has nearly all of the gain that huge
//! pages from the start give.

use super::attached_manager::AttachedManager;
use super::free_memory::{FreeMemory, FreeMemoryTouchTimes};
use super::manager_runs::ManagedMemoryKind;
use super::prelude::*;
use super::programs::start_reader_workload;
use super::shared_memory_arm::{ALL_PERCENT, add_row_with_range, measure_each_round};
use hawkeye_linux::machine_lease::thp_settings::enabled_file;

/// The part of the gain that is waited for.
const NEARLY_ALL_PERCENT: f64 = 90.0;
/// Of a smaller gain, the last tenth is less than the speed varies. Such a round has no time.
const LEAST_GAIN: f64 = 1.1;
/// Length of a sample of the speed.
const SAMPLE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy)]
struct AttachSizes {
    mib: u64,
    rounds: usize,
    /// For which the speeds before, and with huge pages from the start, are measured.
    reference: Duration,
    /// For which the manager is attached in backed memory, and in long-free memory.
    attached: [Duration; 2],
}

impl AttachSizes {
    fn of_scale(scale: Scale) -> Self {
        let seconds = Duration::from_secs;
        scale.short_or_long(
            Self { mib: 2048, rounds: 1, reference: seconds(2), attached: [12, 15].map(seconds) },
            Self { mib: 8192, rounds: 5, reference: seconds(5), attached: [30, 90].map(seconds) },
        )
    }

    fn bytes(self) -> u64 {
        self.mib << 20
    }
}

/// The speed over some time after `hawkeye attach` was started.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SpeedSample {
    /// When it ended, from the start of `hawkeye attach`.
    end_s: f64,
    reads_per_s: f64,
}

/// A program before and under `hawkeye attach`, and one that was huge from the start.
#[derive(Clone, Debug, Default)]
struct AttachRound {
    base_reads_per_s: f64,
    huge_reads_per_s: f64,
    attached: Vec<SpeedSample>,
    promoted: u64,
}

impl AttachRound {
    fn gain(&self) -> f64 {
        self.huge_reads_per_s / self.base_reads_per_s
    }

    /// Infinite if it did not come so far while the manager was attached.
    fn seconds_to_nearly_all(&self) -> f64 {
        let (base, huge) = (self.base_reads_per_s, self.huge_reads_per_s);
        let target = base + (huge - base) * NEARLY_ALL_PERCENT / 100.0;
        seconds_until_speed(&self.attached, target).unwrap_or(f64::INFINITY)
    }

    /// In per cent of the speed with huge pages from the start.
    fn final_percent(&self) -> f64 {
        let last = self.attached.iter().rev().take(4).map(|sample| sample.reads_per_s);
        median(&last.collect::<Vec<_>>()) * 100.0 / self.huge_reads_per_s
    }
}

/// The end of the first sample with this speed, in seconds. One of the two samples after it must
/// have it, too: a single one may be chance.
fn seconds_until_speed(samples: &[SpeedSample], reads_per_s: f64) -> Option<f64> {
    let reached = |sample: &SpeedSample| sample.reads_per_s >= reads_per_s;
    let mut threes = samples.windows(3);
    let found = threes.find(|three| reached(&three[0]) && three[1..].iter().any(reached));
    found.map(|three| three[0].end_s)
}

/// A program reads 8 GiB at random on base pages when HawkEye is attached to it.
pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = AttachSizes::of_scale(scale);
    // The program, and new huge pages for all of it.
    require_available_memory(2 * sizes.bytes())?;
    let touch_times = FreeMemoryTouchTimes::measure_and_report(host, report)?;
    let mut huge_first = false;
    let rounds = measure_each_round(report, sizes.rounds, || {
        huge_first = !huge_first;
        let [backed_for, long_free_for] = sizes.attached;
        let mut measure =
            |memory, attached_for| measure_round(host, memory, sizes, attached_for, huge_first);
        Ok([
            measure(FreeMemory::Backed, backed_for)?,
            measure(FreeMemory::LongFree, long_free_for)?,
        ])
    })?;
    let goals = ["at most 10 s", "at most 45 s, with a spare core"];
    for (place, (memory, goal)) in FreeMemory::ALL.into_iter().zip(goals).enumerate() {
        let rounds: Vec<&AttachRound> = rounds.iter().map(|round| &round[place]).collect();
        let goal = touch_times.goal_or_not_decided(memory, goal);
        add_rows_to_report(memory.name(), &goal, &rounds, sizes.bytes() / HUGE_PAGE_BYTES, report);
    }
    report.add_note(format!(
        "A program reads random words of {} MiB on base pages, on one of {} cores. After {} s `hawkeye attach` with default settings is started, and goes on for {} s in backed memory and {} s in long-free memory. Speeds are reads per second of wall-clock time, by samples of {} ms. A speed is reached at the end of the first sample that has it, if one of the next two has it, too. In each round another such program has huge pages from the start, in memory of the same state, before or after it in turn.",
        sizes.mib,
        std::thread::available_parallelism().map_or(0, usize::from),
        sizes.reference.as_secs(),
        sizes.attached[0].as_secs(),
        sizes.attached[1].as_secs(),
        SAMPLE.as_millis(),
    ));
    for memory in FreeMemory::ALL {
        report.add_note(format!("With {}: {}", memory.name(), memory.describe()));
    }
    Ok(())
}

fn measure_round(
    host: &mut BenchHost,
    memory: FreeMemory,
    sizes: AttachSizes,
    attached_for: Duration,
    huge_first: bool,
) -> BenchResult<AttachRound> {
    if huge_first {
        let huge_reads_per_s = measure_huge_from_start(host, memory, sizes)?;
        let attached = measure_attached(host, memory, sizes, attached_for)?;
        return Ok(AttachRound { huge_reads_per_s, ..attached });
    }
    let attached = measure_attached(host, memory, sizes, attached_for)?;
    let huge_reads_per_s = measure_huge_from_start(host, memory, sizes)?;
    Ok(AttachRound { huge_reads_per_s, ..attached })
}

fn start_reader(
    host: &BenchHost,
    sizes: AttachSizes,
    pages: &str,
) -> BenchResult<Box<dyn MeasuredProgram>> {
    let words = format!("random --mib {} --pages {pages}", sizes.mib);
    start_reader_workload(host.workload_program_path(), &words)
}

fn measure_huge_from_start(
    host: &mut BenchHost,
    memory: FreeMemory,
    sizes: AttachSizes,
) -> BenchResult<f64> {
    memory.prepare(host, 2 * sizes.bytes())?;
    let mut reader = start_reader(host, sizes, "huge")?;
    let percent = huge_memory_percent(reader.pid())?;
    if percent < ALL_PERCENT {
        bail!("only {percent:.0} % of a program that asks for huge pages is huge");
    }
    reader.start_work()?;
    reader.measure_operations_per_s(sizes.reference, &mut || {})
}

/// All but the speed with huge pages from the start.
fn measure_attached(
    host: &mut BenchHost,
    memory: FreeMemory,
    sizes: AttachSizes,
    attached_for: Duration,
) -> BenchResult<AttachRound> {
    memory.prepare(host, 2 * sizes.bytes())?;
    // With `always`, khugepaged would promote, too.
    let settings = [(enabled_file(), "madvise".to_owned())];
    host.release_lease_under_settings(&settings, |host| {
        let mut reader = start_reader(host, sizes, "base")?;
        reader.start_work()?;
        let base_reads_per_s = reader.measure_operations_per_s(sizes.reference, &mut || {})?;
        let begun = Instant::now();
        let manager = AttachedManager::start(&[reader.pid()], ManagedMemoryKind::Private)?;
        let attached = sample_speed(reader.as_mut(), begun, attached_for)?;
        let promoted = manager.end()?.promoted;
        Ok(AttachRound { base_reads_per_s, attached, promoted, ..AttachRound::default() })
    })
}

fn sample_speed(
    reader: &mut dyn MeasuredProgram,
    begun: Instant,
    length: Duration,
) -> BenchResult<Vec<SpeedSample>> {
    let mut samples = Vec::new();
    while begun.elapsed() < length {
        let mut end = begun;
        let reads_per_s = reader.measure_operations_per_s(SAMPLE, &mut || end = Instant::now())?;
        samples.push(SpeedSample { end_s: (end - begun).as_secs_f64(), reads_per_s });
    }
    Ok(samples)
}

fn add_rows_to_report(
    memory: &str,
    goal: &str,
    rounds: &[&AttachRound],
    regions: u64,
    report: &mut LiveReport,
) {
    let gained = rounds.iter().copied().filter(|round| round.gain() >= LEAST_GAIN);
    let gained: Vec<&AttachRound> = gained.collect();
    let of_gain = match gained.is_empty() {
        false => "speed with huge pages from the start over that before attach".to_owned(),
        true => format!(
            "under {LEAST_GAIN}: the time to {NEARLY_ALL_PERCENT} % of it cannot be decided here"
        ),
    };
    let gains = rounds.iter().map(|round| round.gain()).collect();
    let what = format!("{memory}: gain from huge pages");
    add_row_with_range(report, what, gains, "times", &of_gain);
    // There is no row without figures.
    let times = gained.iter().map(|round| round.seconds_to_nearly_all()).collect();
    let what = format!("{memory}: time to {NEARLY_ALL_PERCENT} % of the gain");
    let of_time = format!(
        "from the start of hawkeye attach; {} of {} rounds had a gain of at least {LEAST_GAIN}; {goal}",
        gained.len(),
        rounds.len(),
    );
    add_row_with_range(report, what, times, "s", &of_time);
    let mut add = |what: &str, part: fn(&AttachRound) -> f64, unit, beside: &str| {
        let figures = rounds.iter().map(|round| part(round)).collect();
        add_row_with_range(report, format!("{memory}: {what}"), figures, unit, beside);
    };
    let of_speed = "of that with huge pages from the start, by the last 4 samples";
    add("speed at the end", AttachRound::final_percent, "%", of_speed);
    let of_regions = format!("of {regions} regions");
    add("promotions", |round| round.promoted as f64, "", &of_regions);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample each half second.
    fn samples(speeds: &[f64]) -> Vec<SpeedSample> {
        let numbered = (1..).zip(speeds);
        let sample = |(n, reads_per_s): (i32, &f64)| SpeedSample {
            end_s: f64::from(n) / 2.0,
            reads_per_s: *reads_per_s,
        };
        numbered.map(sample).collect()
    }

    #[test]
    fn a_speed_is_reached_when_a_sample_and_one_of_the_next_two_have_it() {
        let until = |speeds: &[f64]| seconds_until_speed(&samples(speeds), 19.0);
        assert_eq!(until(&[10.0, 12.0, 19.0, 18.0, 19.5, 20.0]), Some(1.5));
        // A single fast sample is chance.
        assert_eq!(until(&[10.0, 20.0, 11.0, 12.0, 19.0, 19.0, 19.0]), Some(2.5));
        assert_eq!(until(&[10.0, 12.0, 18.9, 18.9, 18.9]), None);
        // Nothing follows the last sample.
        assert_eq!(until(&[10.0, 11.0, 12.0, 20.0]), None);
        assert_eq!(until(&[]), None);
    }

    fn rows_of(rounds: &[AttachRound]) -> LiveReport {
        let mut report = LiveReport::new("attach-speedup");
        let rounds: Vec<&AttachRound> = rounds.iter().collect();
        add_rows_to_report("memory backed", "goal at most 10 s", &rounds, 8, &mut report);
        report
    }

    #[test]
    fn the_time_is_that_to_nine_tenths_of_the_gain_of_the_same_round() {
        let round = |base, huge, speeds: &[f64]| AttachRound {
            base_reads_per_s: base,
            huge_reads_per_s: huge,
            attached: samples(speeds),
            promoted: 8,
        };
        let report = rows_of(&[
            round(100.0, 200.0, &[100.0, 189.0, 190.0, 200.0, 200.0]),
            round(100.0, 150.0, &[140.0, 145.0, 146.0, 150.0, 150.0]),
            round(100.0, 200.0, &[100.0, 120.0, 130.0, 150.0, 150.0]),
        ]);
        assert_eq!(report.row("memory backed: gain from huge pages").value, 2.0);
        let time = report.row("memory backed: time to 90 % of the gain");
        assert_eq!(time.value, 1.5);
        assert!(time.beside.starts_with("1.00-inf in 3 rounds"), "{}", time.beside);
        assert_eq!(report.row("memory backed: promotions").value, 8.0);
    }

    #[test]
    fn the_time_is_only_of_rounds_with_a_gain() {
        let round = |huge: f64| AttachRound {
            base_reads_per_s: 100.0,
            huge_reads_per_s: huge,
            attached: samples(&[huge; 8]),
            promoted: 8,
        };
        // Noise: it was slower with huge pages, and reaches that at once.
        let without_gain = AttachRound { huge_reads_per_s: 99.0, ..round(100.0) };
        let late = AttachRound { attached: samples(&[100.0, 200.0, 200.0, 200.0]), ..round(200.0) };
        let report = rows_of(&[without_gain.clone(), late, without_gain]);
        let time = report.row("memory backed: time to 90 % of the gain");
        assert_eq!(time.value, 1.0);
        assert!(time.beside.contains("1 of 3 rounds had a gain"), "{}", time.beside);
        assert!(time.beside.starts_with("1.00-1.00 in 1 round;"), "{}", time.beside);
    }

    #[test]
    fn a_small_gain_decides_nothing() {
        let round = AttachRound {
            base_reads_per_s: 100.0,
            huge_reads_per_s: 109.0,
            attached: samples(&[109.0; 8]),
            promoted: 8,
        };
        let report = rows_of(&[round]);
        let gain = report.row("memory backed: gain from huge pages");
        assert!(gain.beside.ends_with("cannot be decided here"), "{}", gain.beside);
        assert!(report.rows.iter().all(|row| !row.what.contains("time to")), "{report}");
    }
}
