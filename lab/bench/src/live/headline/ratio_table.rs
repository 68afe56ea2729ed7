//! Figures of a program under an arm, and the table of their ratios.

use super::headline_arm::{HeadlineArm, HeadlineArmFigures};
use crate::live::prelude::*;
use crate::statistics::{geometric_mean, sorted};

/// A figure that is compared, and the arm to compare it with.
struct ComparedFigure {
    name: &'static str,
    beside: HeadlineArm,
    value: fn(&HeadlineArmFigures) -> Option<f64>,
}

const FIGURES: [ComparedFigure; 5] = [
    ComparedFigure {
        name: "first minute",
        beside: HeadlineArm::Always,
        value: |outcome| Some(outcome.first_minute_per_s),
    },
    ComparedFigure {
        name: "last minute",
        beside: HeadlineArm::Always,
        value: |outcome| Some(outcome.last_minute_per_s),
    },
    ComparedFigure {
        name: "resident memory",
        beside: HeadlineArm::Never,
        value: |outcome| Some(outcome.rss_bytes),
    },
    ComparedFigure {
        name: "resident memory under pressure after deletion",
        beside: HeadlineArm::Never,
        value: |outcome| outcome.rss_bytes_after_deletion,
    },
    ComparedFigure { name: "p99.9", beside: HeadlineArm::Never, value: |outcome| outcome.p999_us },
];

/// One row for each program, figure and arm with a manager: the ratio to the arm that is compared
/// with, and that arm's own ratio where it says more.
pub(super) fn add_ratio_rows(
    all: &[(ProgramKind, Vec<[HeadlineArmFigures; 4]>)],
    report: &mut LiveReport,
) {
    for figure in &FIGURES {
        for arm in HeadlineArm::ALL.into_iter().filter(|arm| *arm != figure.beside) {
            let mut medians = Vec::new();
            for (kind, rounds) in all {
                let ratios = sorted_ratios(rounds, arm, figure);
                let Some(median) = (!ratios.is_empty()).then(|| median(&ratios)) else {
                    continue;
                };
                medians.push(median);
                let spread = (ratios.first(), ratios.last());
                let (Some(least), Some(most)) = spread else {
                    continue;
                };
                report.add_row(
                    format!("{}, {}: {}", figure.name, arm.name(), kind.name()),
                    median,
                    "times",
                    format!("{least:.2}-{most:.2}, of {}", figure.beside.name()),
                );
            }
            if medians.len() > 1 {
                report.add_row(
                    format!("{}, {}: geometric mean", figure.name, arm.name()),
                    geometric_mean(&medians),
                    "times",
                    format!("of {}", figure.beside.name()),
                );
            }
        }
    }
    for arm in [HeadlineArm::Run, HeadlineArm::Daemon] {
        let rounds = all.iter().flat_map(|(_, rounds)| rounds);
        add_manager_cpu_row(&rounds.collect::<Vec<_>>(), arm, report);
    }
}

/// The manager's CPU time over all programs, beside what it may use.
fn add_manager_cpu_row(
    rounds: &[&[HeadlineArmFigures; 4]],
    arm: HeadlineArm,
    report: &mut LiveReport,
) {
    let used = rounds.iter().filter_map(|round| round[arm as usize].manager_cores);
    let used = sorted(used.collect());
    let (Some(least), Some(most)) = (used.first(), used.last()) else {
        return;
    };
    let never = HeadlineArm::Never as usize;
    let saved = rounds.iter().map(|round| saved_cores(&round[never], &round[arm as usize]));
    let saved = saved.filter(|cores| cores.is_finite()).sum::<f64>() / rounds.len() as f64;
    let allowed = ALLOWED_CORES + ALLOWED_SHARE_OF_SAVINGS * saved.max(0.0);
    report.add_row(
        format!("manager's CPU time, {}", arm.name()),
        used.iter().sum::<f64>() / used.len() as f64 * 100.0,
        "% of a core",
        format!(
            "{:.1}-{:.1}; allowed {:.1}, as it saved {:.1}",
            least * 100.0,
            most * 100.0,
            allowed * 100.0,
            saved * 100.0
        ),
    );
}

/// What a manager may use without saving anything, in cores, and which share of its savings.
const ALLOWED_CORES: f64 = 0.02;
const ALLOWED_SHARE_OF_SAVINGS: f64 = 0.25;

/// CPU time that a program's operations of the last minute took less than under base pages, in
/// cores; negative where they took more.
fn saved_cores(never: &HeadlineArmFigures, managed: &HeadlineArmFigures) -> f64 {
    let under_base_pages = never.program_cores / never.last_minute_per_s;
    managed.last_minute_per_s * under_base_pages - managed.program_cores
}

/// The ratios of all rounds, smallest first.
fn sorted_ratios(
    rounds: &[[HeadlineArmFigures; 4]],
    arm: HeadlineArm,
    figure: &ComparedFigure,
) -> Vec<f64> {
    let ratio = |round: &[HeadlineArmFigures; 4]| {
        let [ours, theirs] = [arm, figure.beside].map(|arm| (figure.value)(&round[arm as usize]));
        Some(ours? / theirs?)
    };
    let ratios = rounds.iter().filter_map(ratio);
    sorted(ratios.filter(|ratio| ratio.is_finite()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let outcome = |per_s: f64, rss_bytes: f64| HeadlineArmFigures {
            first_minute_per_s: per_s,
            last_minute_per_s: per_s,
            program_cores: 0.5,
            rss_bytes,
            rss_bytes_after_deletion: None,
            p999_us: None,
            manager_cores: Some(0.05),
        };
        // never, always, run, daemon; the machine is twice as fast in the second round.
        let rounds = vec![
            [outcome(1.0, 10.0), outcome(2.0, 15.0), outcome(2.0, 10.0), outcome(1.5, 10.0)],
            [outcome(2.0, 10.0), outcome(4.0, 15.0), outcome(4.4, 11.0), outcome(3.0, 10.0)],
        ];
        let all = [(ProgramKind::Redis, rounds.clone()), (ProgramKind::Sparsehash, rounds)];
        let mut report = LiveReport::new("headline");
        add_ratio_rows(&all, &mut report);
        let row = |what: &str| {
            let mut rows = report.rows.iter();
            rows.find(|row| row.what == what).unwrap_or_else(|| panic!("{what}: {:?}", report.rows))
        };
        let run = row("first minute, hawkeye run: Redis");
        assert!((run.value - 1.05).abs() < 1e-9, "{run:?}");
        assert_eq!(run.beside, "1.00-1.10, of THP always");
        let mean = row("last minute, daemon: geometric mean");
        assert!((mean.value - 0.75).abs() < 1e-9, "{mean:?}");
        let memory = row("resident memory, THP always: Redis");
        assert!((memory.value - 1.5).abs() < 1e-9, "{memory:?}");
        assert!(report.rows.iter().all(|row| !row.what.starts_with("p99.9")));
        // 1.5 times the operations of base pages in the same CPU time: half of that is saved.
        let cpu = row("manager's CPU time, daemon");
        assert!((cpu.value - 5.0).abs() < 1e-9, "{cpu:?}");
        assert_eq!(cpu.beside, "5.0-5.0; allowed 8.2, as it saved 25.0");
    }
}
