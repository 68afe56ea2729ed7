//! The table of ratios, of the rounds of all sessions.

use super::ProgramRound;
use super::headline_arm::{HeadlineArm, HeadlineArmFigures, LaterFigures};
use crate::live::prelude::*;
use crate::live::programs::HEADLINE_PROGRAMS;
use crate::plot::distinct_in_order;
use crate::run_origin::RunOrigin;
use crate::statistics::{geometric_mean, sorted};

/// A figure that is compared, and the arm to compare it with.
struct ComparedFigure {
    name: &'static str,
    beside: HeadlineArm,
    value: fn(&HeadlineArmFigures) -> Option<f64>,
    /// The share of what was measured that the figure is of, in per cent, where it varies.
    counted_percent: fn(&HeadlineArmFigures) -> Option<f64>,
}

const FIGURES: [ComparedFigure; 6] = [
    ComparedFigure {
        name: "first minute",
        beside: HeadlineArm::Always,
        value: |figures| Some(figures.first_minute_per_s),
        counted_percent: |_| None,
    },
    ComparedFigure {
        name: "last minute",
        beside: HeadlineArm::Always,
        value: |figures| Some(figures.later?.last_minute_per_s),
        counted_percent: |_| None,
    },
    ComparedFigure {
        name: "resident memory",
        beside: HeadlineArm::Never,
        value: |figures| Some(figures.later?.rss_bytes),
        counted_percent: |_| None,
    },
    ComparedFigure {
        name: "resident memory under pressure after deletion",
        beside: HeadlineArm::Never,
        value: |figures| figures.later?.rss_bytes_after_deletion,
        counted_percent: |_| None,
    },
    ComparedFigure {
        name: "p99.9",
        beside: HeadlineArm::Never,
        value: |figures| figures.later?.p999_us,
        counted_percent: |figures| figures.later?.counted_percent,
    },
    ComparedFigure {
        name: "p99.9 of all answers",
        beside: HeadlineArm::Never,
        value: |figures| figures.later?.p999_of_all_us,
        counted_percent: |_| None,
    },
];

/// One row for each program, figure and arm with a manager: the ratio to the arm that is compared
/// with, and that arm's own ratio where it says more. Rows of the short form follow, marked as
/// quick. `latest` is the origin that the reader of a row assumes.
pub(super) fn add_ratio_rows(rounds: &[ProgramRound], latest: &RunOrigin, report: &mut LiveReport) {
    for (quick, mark) in [(false, ""), (true, ", quick")] {
        let of_form: Vec<_> = rounds.iter().filter(|round| round.quick == quick).collect();
        let programs = group_by_program(&of_form);
        for figure in &FIGURES {
            for arm in HeadlineArm::ALL.into_iter().filter(|arm| *arm != figure.beside) {
                add_rows_of_figure(&programs, figure, arm, mark, latest, report);
            }
        }
        for arm in [HeadlineArm::Run, HeadlineArm::Daemon] {
            add_manager_cpu_row(&of_form, arm, mark, latest, report);
        }
    }
}

/// The rounds of each program, in the order of [`HEADLINE_PROGRAMS`].
fn group_by_program<'a>(rounds: &[&'a ProgramRound]) -> Vec<(&'static str, Vec<&'a ProgramRound>)> {
    let of_program = |kind: &ProgramKind| {
        let rounds = rounds.iter().copied().filter(|round| round.program == kind.name());
        (kind.name(), rounds.collect::<Vec<_>>())
    };
    HEADLINE_PROGRAMS.iter().map(of_program).collect()
}

fn add_rows_of_figure(
    programs: &[(&str, Vec<&ProgramRound>)],
    figure: &ComparedFigure,
    arm: HeadlineArm,
    mark: &str,
    latest: &RunOrigin,
    report: &mut LiveReport,
) {
    let name = format!("{}, {}", figure.name, arm.name());
    let beside = figure.beside.name();
    let mut medians = Vec::new();
    let mut counted = Vec::new();
    for (program, rounds) in programs {
        let ratios = sorted_ratios(rounds, arm, figure);
        let (Some(least), Some(most)) = (ratios.first(), ratios.last()) else {
            continue;
        };
        medians.push(median(&ratios));
        counted.extend_from_slice(rounds);
        report.add_row(
            format!("{name}: {program}{mark}"),
            median(&ratios),
            "times",
            format!(
                "{least:.2}-{most:.2} in {} round{}, of {beside}{}{}",
                ratios.len(),
                if ratios.len() == 1 { "" } else { "s" },
                describe_counted_share(rounds, arm, figure),
                describe_other_origin(rounds, latest)
            ),
        );
    }
    if medians.len() > 1 {
        report.add_row(
            format!("{name}: geometric mean{mark}"),
            geometric_mean(&medians),
            "times",
            format!(
                "of {beside}, {} programs{}",
                medians.len(),
                describe_other_origin(&counted, latest)
            ),
        );
    }
}

/// Which share of the answers counts under an arm and under the one beside it, after a semicolon;
/// empty where that was not kept.
fn describe_counted_share(
    rounds: &[&ProgramRound],
    arm: HeadlineArm,
    figure: &ComparedFigure,
) -> String {
    let median_percent = |arm: HeadlineArm| {
        let percent = |round: &&ProgramRound| (figure.counted_percent)(round.arms.get(&arm)?);
        let percents: Vec<_> = rounds.iter().filter_map(percent).collect();
        (!percents.is_empty()).then(|| median(&percents))
    };
    match (median_percent(arm), median_percent(figure.beside)) {
        (Some(own), Some(beside)) => {
            format!("; {own:.1} % of the answers count, beside {beside:.1} %")
        }
        _ => String::new(),
    }
}

/// What of the rounds' origin differs from `latest`, after a semicolon: dates, commit, host.
fn describe_other_origin(rounds: &[&ProgramRound], latest: &RunOrigin) -> String {
    let differing = |part: fn(&RunOrigin) -> String| {
        let parts = distinct_in_order(rounds.iter().map(|round| part(&round.origin)));
        (parts != [part(latest)]).then(|| parts.join(" and "))
    };
    let date = differing(|origin| origin.date.clone());
    let commit = differing(|origin| format!("commit {}", origin.commit_name()));
    let host = differing(|origin| format!("{}, Linux {}", origin.machine, origin.kernel));
    let parts = [date, commit, host].into_iter().flatten();
    parts.map(|part| format!("; {part}")).collect()
}

/// The manager's CPU time over all programs, beside what it may use.
fn add_manager_cpu_row(
    rounds: &[&ProgramRound],
    arm: HeadlineArm,
    mark: &str,
    latest: &RunOrigin,
    report: &mut LiveReport,
) {
    let (used, saved): (Vec<_>, Vec<_>) = rounds
        .iter()
        .filter_map(|round| {
            let managed = round.arms.get(&arm)?;
            let saved = saved_cores(&round.arms.get(&HeadlineArm::Never)?.later?, &managed.later?);
            saved.is_finite().then_some((managed.manager_cores?, saved))
        })
        .unzip();
    let used = sorted(used);
    let (Some(least), Some(most)) = (used.first(), used.last()) else {
        return;
    };
    let mean = |cores: &[f64]| cores.iter().sum::<f64>() / cores.len() as f64;
    let allowed = ALLOWED_CORES + ALLOWED_SHARE_OF_SAVINGS * mean(&saved).max(0.0);
    report.add_row(
        format!("manager's CPU time, {}{mark}", arm.name()),
        mean(&used) * 100.0,
        "% of a core",
        format!(
            "{:.1}-{:.1}; allowed {:.1}, as it saved {:.1}{}",
            least * 100.0,
            most * 100.0,
            allowed * 100.0,
            mean(&saved) * 100.0,
            describe_other_origin(rounds, latest)
        ),
    );
}

/// What a manager may use without saving anything, in cores, and which share of its savings.
const ALLOWED_CORES: f64 = 0.02;
const ALLOWED_SHARE_OF_SAVINGS: f64 = 0.25;

/// CPU time that a program's operations of the last minute took less than under base pages, in
/// cores; negative where they took more.
fn saved_cores(never: &LaterFigures, managed: &LaterFigures) -> f64 {
    let under_base_pages = never.program_cores / never.last_minute_per_s;
    managed.last_minute_per_s * under_base_pages - managed.program_cores
}

/// The ratios of all rounds, smallest first.
fn sorted_ratios(rounds: &[&ProgramRound], arm: HeadlineArm, figure: &ComparedFigure) -> Vec<f64> {
    let ratio = |round: &&ProgramRound| {
        let value = |arm: HeadlineArm| (figure.value)(round.arms.get(&arm)?);
        Some(value(arm)? / value(figure.beside)?)
    };
    let ratios = rounds.iter().filter_map(ratio);
    sorted(ratios.filter(|ratio| ratio.is_finite()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::live_report::ReportRow;

    const FIRST_DAY: &str = "2026-11-27";
    const SECOND_DAY: &str = "2026-11-28";

    fn origin(date: &str) -> RunOrigin {
        RunOrigin {
            machine: "host".to_owned(),
            kernel: "6.18".to_owned(),
            commit: Some("bf449092".to_owned()),
            date: date.to_owned(),
        }
    }

    /// Rates under the arms in their order; resident memory grows with them.
    fn round(kind: ProgramKind, date: &str, rates: &[f64]) -> ProgramRound {
        let figures = |rate: &f64| HeadlineArmFigures {
            first_minute_per_s: *rate,
            later: Some(LaterFigures {
                last_minute_per_s: *rate,
                program_cores: 0.5,
                rss_bytes: 10.0 * rate,
                rss_bytes_after_deletion: None,
                p999_us: None,
                p999_of_all_us: None,
                counted_percent: None,
            }),
            manager_cores: Some(0.05),
        };
        ProgramRound {
            program: kind.name().to_owned(),
            quick: false,
            origin: origin(date),
            arms: HeadlineArm::ALL.into_iter().zip(rates.iter().map(figures)).collect(),
        }
    }

    fn report_of(rounds: &[ProgramRound]) -> LiveReport {
        let mut report = LiveReport::new("headline");
        add_ratio_rows(rounds, &origin(SECOND_DAY), &mut report);
        report
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // never, always, run, daemon; the machine is twice as fast in the second round.
        let rounds = [ProgramKind::Redis, ProgramKind::Sparsehash].map(|kind| {
            let slow = round(kind, SECOND_DAY, &[1.0, 2.0, 2.0, 1.5]);
            [slow, round(kind, SECOND_DAY, &[2.0, 4.0, 4.4, 3.0])]
        });
        let report = report_of(&rounds.concat());
        let run = report.row("first minute, hawkeye run: Redis");
        assert!((run.value - 1.05).abs() < 1e-9, "{run:?}");
        assert_eq!(run.beside, "1.00-1.10 in 2 rounds, of THP always");
        let mean = report.row("last minute, daemon: geometric mean");
        assert!((mean.value - 0.75).abs() < 1e-9, "{mean:?}");
        assert_eq!(mean.beside, "of THP always, 2 programs");
        let memory = report.row("resident memory, THP always: Redis");
        assert!((memory.value - 2.0).abs() < 1e-9, "{memory:?}");
        assert!(report.rows.iter().all(|row| !row.what.starts_with("p99.9")));
        // 1.5 times the operations of base pages in the same CPU time: half of that is saved.
        let cpu = report.row("manager's CPU time, daemon");
        assert!((cpu.value - 5.0).abs() < 1e-9, "{cpu:?}");
        assert_eq!(cpu.beside, "5.0-5.0; allowed 8.2, as it saved 25.0");
    }

    #[test]
    fn rows_of_other_sessions_name_what_differs() {
        let both_days = [FIRST_DAY, SECOND_DAY]
            .map(|date| round(ProgramKind::Redis, date, &[1.0, 2.0, 2.0, 1.5]));
        let mut elsewhere = round(ProgramKind::Mg, SECOND_DAY, &[1.0, 2.0, 2.0, 1.5]);
        elsewhere.origin.commit = None;
        elsewhere.origin.kernel = "7.2".to_owned();
        let report = report_of(&[&[elsewhere][..], &both_days].concat());
        let beside = |program| {
            let name = format!("first minute, hawkeye run: {program}");
            report.row(&name).beside.split_once("always").map(|(_, after)| after.to_owned())
        };
        assert_eq!(beside("Redis").as_deref(), Some("; 2026-11-27 and 2026-11-28"));
        assert_eq!(beside("mg").as_deref(), Some("; commit unknown; host, Linux 7.2"));
        // In the order of the experiment, not in that of the sessions.
        assert!(report.rows[0].what.ends_with("Redis"), "{:?}", report.rows[0]);
    }

    #[test]
    fn quick_rows_are_marked_and_count_for_themselves() {
        let full = round(ProgramKind::Redis, SECOND_DAY, &[1.0, 2.0, 2.0, 1.5]);
        let quick = ProgramRound {
            quick: true,
            ..round(ProgramKind::Redis, SECOND_DAY, &[1.0, 2.0, 1.0, 1.5])
        };
        let report = report_of(&[quick, full]);
        let value = |mark| report.row(&format!("first minute, hawkeye run: Redis{mark}")).value;
        assert_eq!([value(""), value(", quick")], [1.0, 0.5]);
        let marked = |row: &&ReportRow| row.what.ends_with(", quick");
        assert_eq!(report.rows.iter().filter(marked).count() * 2, report.rows.len());
    }

    #[test]
    fn a_first_minute_alone_has_rows_of_its_arms() {
        let mut first = round(ProgramKind::Redis, SECOND_DAY, &[1.0, 2.0, 2.1]);
        first.arms.values_mut().for_each(|figures| figures.later = None);
        let names = report_of(&[first]).rows.into_iter().map(|row| row.what);
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["first minute, THP never: Redis", "first minute, hawkeye run: Redis"]
        );
    }

    #[test]
    fn the_tail_of_all_answers_stands_beside_that_of_those_that_count() {
        let with_tails = |older: bool| {
            let mut round = round(ProgramKind::Redis, SECOND_DAY, &[1.0, 2.0, 2.0, 1.5]);
            for (arm, figures) in &mut round.arms {
                let managed = *arm == HeadlineArm::Daemon;
                let later = figures.later.as_mut().expect("the whole was measured");
                later.p999_us = Some(100.0);
                later.p999_of_all_us = (!older).then_some(if managed { 400.0 } else { 200.0 });
                later.counted_percent = (!older).then_some(if managed { 90.0 } else { 98.0 });
            }
            round
        };
        let report = report_of(&[with_tails(false)]);
        let counted = report.row("p99.9, daemon: Redis");
        assert_eq!(counted.value, 1.0);
        let said = "of THP never; 90.0 % of the answers count, beside 98.0 %";
        assert!(counted.beside.ends_with(said), "{counted:?}");
        assert_eq!(report.row("p99.9 of all answers, daemon: Redis").value, 2.0);

        // A round of a build that did not keep them.
        let mut older = serde_json::to_value(with_tails(true)).expect("JSON");
        for arm in HeadlineArm::ALL {
            let arm = serde_json::to_value(arm).expect("JSON");
            let later = &mut older["arms"][arm.as_str().expect("a name")]["later"];
            let later = later.as_object_mut().expect("an object");
            later.retain(|name, _| !["p999_of_all_us", "counted_percent"].contains(&name.as_str()));
        }
        let older: ProgramRound = serde_json::from_value(older).expect("a round");
        let report = report_of(&[older]);
        assert!(report.row("p99.9, daemon: Redis").beside.ends_with("of THP never"));
        assert!(report.rows.iter().all(|row| !row.what.starts_with("p99.9 of all")));
    }
}
