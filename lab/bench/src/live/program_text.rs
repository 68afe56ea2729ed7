//! Hot program text on tmpfs: its speed with base pages, with a copy in anonymous huge pages that
//! the program makes at start, and after `hawkeye text --keep`. Then trials of `hawkeye text`.

use super::prelude::*;
use super::proc_files::{find_bytes_by_name, read_process_file};
use super::programs::debian_packages::find_hawkeye_program;
use super::programs::program_speed::measure_working_program;
use super::programs::{MeasuredProgram, signal_when_parent_thread_ends, start_reader_workload};
use super::shared_memory_arm::{add_row_with_range, settings_beside_manager};
use nix::sys::signal::Signal;
use serde::Deserialize;
use std::collections::BTreeMap;
use tempfile::TempDir;

/// A tmpfs that every Linux system has.
const TMPFS: &str = "/dev/shm";
/// Hot text that the first level of TLBs maps with base pages, too.
const SMALL_HOT_KIB: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TextArm {
    BasePages,
    /// The program copies its text to anonymous memory with huge pages, at the same addresses.
    HugeCopy,
    HawkEye,
}

const ARMS: [TextArm; 3] = [TextArm::BasePages, TextArm::HugeCopy, TextArm::HawkEye];

impl TextArm {
    fn name(self) -> &'static str {
        match self {
            Self::BasePages => "base pages",
            Self::HugeCopy => "huge copy at start",
            Self::HawkEye => "HawkEye",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct TextFigures {
    speed: ProgramSpeed,
    /// Share of the text in huge pages, at the end.
    huge_percent: f64,
}

/// What was measured under each arm, one after the other.
type ArmRound = BTreeMap<TextArm, TextFigures>;

/// What a trial reports.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct TrialReport {
    outcome: String,
    trial: Option<TrialFigures>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct TrialFigures {
    pairs: u32,
    median_percent: f64,
    lowest_percent: f64,
    highest_percent: f64,
    faster_pairs: u32,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([64, 2, 2000, 7000], [64, 9, 10_000, 60_000]);
    let bytes = sizes.mib << 20;
    require_available_memory(4 * bytes)?;
    let settings = settings_beside_manager();
    let rounds = measure_arms_in_rounds(sizes.turns, |arm| {
        host.touch_memory_once(2 * bytes)?;
        let figures =
            host.release_lease_under_settings(&settings, |host| measure_arm(host, arm, sizes))?;
        eprintln!("hawkeye-lab: {}: {} is done", report.name, arm.name());
        Ok(figures)
    })?;
    add_speed_rows(&rounds, report);
    for hot_kib in [sizes.mib << 10, SMALL_HOT_KIB] {
        host.touch_memory_once(2 * bytes)?;
        let (trial, huge_percent) = host.release_lease_under_settings(&settings, |host| {
            measure_trial(host, sizes.mib, hot_kib, sizes.at_most)
        })?;
        add_trial_rows(hot_kib, &trial, huge_percent, report);
    }
    report.add_note(format!(
        "A program of one thread calls functions of 64 bytes in {} MiB of code at random, each call after the one before. The code is in a file on {TMPFS}, written anew for each arm after a filler has touched as much memory and has exited. Speeds are calls per second of CPU time over {} s. Huge copy at start: anonymous memory with MADV_HUGEPAGE at the same addresses, filled before it is executable. HawkEye: hawkeye text --keep while the program works, before it is measured. A trial of hawkeye text takes {} s, with the program's own number of calls as its rate, which it writes to a file many times in a window. Of the text in a trial, all is called, or only the first {SMALL_HOT_KIB} KiB. Its base pages are those of split huge pages, in neighbouring frames; the base pages of the arm are those that the file was written to.",
        sizes.mib,
        sizes.turn.as_secs(),
        sizes.at_most.as_secs(),
    ));
    Ok(())
}

/// Measures all arms in each round. Each round begins with another arm.
fn measure_arms_in_rounds(
    rounds: usize,
    mut measure: impl FnMut(TextArm) -> BenchResult<TextFigures>,
) -> BenchResult<Vec<ArmRound>> {
    let in_turn = |round: usize| ARMS.into_iter().cycle().skip(round % ARMS.len()).take(ARMS.len());
    let mut measure_round = |round| in_turn(round).map(|arm| Ok((arm, measure(arm)?))).collect();
    (0..rounds).map(&mut measure_round).collect()
}

fn create_folder() -> BenchResult<TempDir> {
    let folder = tempfile::Builder::new().prefix("hawkeye-bench-").tempdir_in(TMPFS);
    folder.map_err(|error| impossible!("creating a temporary folder in {TMPFS}: {error}"))
}

fn start_program(
    host: &BenchHost,
    folder: &TempDir,
    mib: u64,
    options: &str,
) -> BenchResult<Box<dyn MeasuredProgram>> {
    let file = folder.path().join("text");
    let words = format!("text --mib {mib} --path {} {options}", file.display());
    start_reader_workload(host.workload_program_path(), &words)
}

fn measure_arm(host: &BenchHost, arm: TextArm, sizes: TurnSettings) -> BenchResult<TextFigures> {
    let folder = create_folder()?;
    let options = if arm == TextArm::HugeCopy { "--copy" } else { "" };
    let mut program = start_program(host, &folder, sizes.mib, options)?;
    program.start_work()?;
    if arm == TextArm::HawkEye {
        run_hawkeye_text(&["--keep"], program.pid())?;
    }
    let speed = measure_working_program(program.as_mut(), sizes.turn)?;
    Ok(TextFigures { speed, huge_percent: huge_text_percent(program.pid(), sizes.mib)? })
}

fn measure_trial(
    host: &BenchHost,
    mib: u64,
    hot_kib: u64,
    length: Duration,
) -> BenchResult<(TrialReport, f64)> {
    let folder = create_folder()?;
    let count = folder.path().join("calls");
    let options = format!("--hot-kib {hot_kib} --count-file {}", count.display());
    let mut program = start_program(host, &folder, mib, &options)?;
    program.start_work()?;
    let (seconds, rate) = (length.as_secs().to_string(), format!("cat {}", count.display()));
    let options = ["--seconds", &seconds, "--rate-command", &rate];
    let trial = run_hawkeye_text(&options, program.pid())?;
    Ok((trial, huge_text_percent(program.pid(), mib)?))
}

fn run_hawkeye_text(options: &[&str], pid: u32) -> BenchResult<TrialReport> {
    let mut command = Command::new(find_hawkeye_program()?);
    command.args(["text", "--json"]).args(options).arg(pid.to_string());
    signal_when_parent_thread_ends(&mut command, Signal::SIGTERM);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| impossible!("starting hawkeye text: {error}"))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        impossible!("hawkeye text reported nothing: {}", said.trim())
    })
}

/// The process has hardly any other huge pages.
fn huge_text_percent(pid: u32, mib: u64) -> BenchResult<f64> {
    let rollup = read_process_file(pid, "smaps_rollup")?;
    let bytes = |name| find_bytes_by_name(&rollup, name).unwrap_or(0);
    Ok((bytes("ShmemPmdMapped") + bytes("AnonHugePages")) as f64 * 100.0 / (mib << 20) as f64)
}

fn add_speed_rows(rounds: &[ArmRound], report: &mut LiveReport) {
    for arm in [TextArm::HugeCopy, TextArm::HawkEye] {
        let relative = rounds.iter().filter_map(|round| {
            let speed = |arm: TextArm| Some(round.get(&arm)?.speed.per_cpu_s);
            Some(speed(arm)? / speed(TextArm::BasePages)?)
        });
        let what = format!("{}: speed", arm.name());
        add_row_with_range(report, what, relative.collect(), "times", "that of base pages");
    }
    for arm in ARMS {
        let percent = rounds.iter().filter_map(|round| Some(round.get(&arm)?.huge_percent));
        let what = format!("{}: share that is huge", arm.name());
        add_row_with_range(report, what, percent.collect(), "%", "of the text");
    }
}

fn add_trial_rows(hot_kib: u64, trial: &TrialReport, huge_percent: f64, report: &mut LiveReport) {
    let mut rows = report.prefixed_row_writer(format!("trial of {hot_kib} KiB"));
    let outcome = &trial.outcome;
    if let Some(figures) = trial.trial {
        let TrialFigures { pairs, median_percent, lowest_percent, highest_percent, faster_pairs } =
            figures;
        let beside = format!(
            "median of {pairs} pairs, {lowest_percent:.2} to {highest_percent:.2}, {faster_pairs} of them faster; it is {outcome}: kept from 1 % on, if by chance at most 1 of 10 trials had as many faster pairs"
        );
        rows.add_row("gain by its own rate", median_percent, "%", beside);
    }
    rows.add_row("share that is huge afterwards", huge_percent, "%", format!("it is {outcome}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_arm() {
        let mut order = Vec::new();
        let rounds = measure_arms_in_rounds(2, |arm| {
            order.push(arm);
            Ok(TextFigures::default())
        });
        let [base, copy, hawkeye] = ARMS;
        assert_eq!(order, [base, copy, hawkeye, copy, hawkeye, base]);
        assert_eq!(rounds.expect("no error").len(), 2);
    }

    #[test]
    fn each_arm_is_compared_with_base_pages_of_its_round() {
        let figures = |per_cpu_s, huge_percent| TextFigures {
            speed: ProgramSpeed { per_s: 1.0, per_cpu_s },
            huge_percent,
        };
        let round = |speed: f64| {
            ArmRound::from([
                (TextArm::BasePages, figures(10.0 * speed, 0.0)),
                (TextArm::HugeCopy, figures(15.0 * speed, 100.0)),
                (TextArm::HawkEye, figures(14.0 * speed, 99.0)),
            ])
        };
        let mut report = LiveReport::new("program-text");
        // The machine is twice as fast in the second round.
        add_speed_rows(&[round(1.0), round(2.0)], &mut report);
        let value = |what: &str| report.row(what).value;
        assert_eq!(value("huge copy at start: speed"), 1.5);
        assert_eq!(value("HawkEye: speed"), 1.4);
        assert_eq!(value("base pages: share that is huge"), 0.0);
        assert_eq!(value("HawkEye: share that is huge"), 99.0);
    }

    #[test]
    fn a_trial_has_its_figure_and_its_outcome() {
        let json = r#"{"pid":7,"outcome":"reverted","trial":{"pairs":3,"median_percent":0.5,
            "lowest_percent":-1.0,"highest_percent":0.9,"faster_pairs":2,"rates":[1.0]}}"#;
        let trial: TrialReport = serde_json::from_str(json).expect("a report");
        let mut report = LiveReport::new("program-text");
        add_trial_rows(2, &trial, 0.0, &mut report);
        assert_eq!(report.rows[0].value, 0.5);
        let beside = &report.rows[0].beside;
        assert!(beside.contains("it is reverted: kept from 1 % on, if by chance"), "{report}");
        let refused: TrialReport =
            serde_json::from_str(r#"{"outcome":"refused","trial":null}"#).expect("a report");
        add_trial_rows(64, &refused, 0.0, &mut report);
        assert_eq!(report.rows.len(), 3);
    }
}
