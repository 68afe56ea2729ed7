//! What the report says of the runs of each service.

use super::{
    ALWAYS_WITHOUT_LIMIT, ARMS, ArmRuns, ChurnService, GUARD, NEVER, SHRINKER, ServiceRun,
};
use crate::live::kept_rounds::KeptRounds;
use crate::live::prelude::*;
use crate::run_origin::RunOrigin;
use crate::statistics::MedianAndRange;

/// The runs of a service under each of [`ARMS`].
type RunsByArm = [Vec<ServiceRun>; ARMS.len()];

/// Adds the rows of all services that have rounds of this machine and build.
///
/// # Errors
/// There is no such round. A result without rows would replace the one of an earlier build.
pub(super) fn add_rows_of_services(
    kept: &KeptRounds<ArmRuns>,
    services: &[ChurnService],
    quick: bool,
    origin: &RunOrigin,
    report: &mut LiveReport,
) -> BenchResult<()> {
    for service in services {
        let rounds: Vec<_> = kept.rounds_of_build(service.name(), quick, origin).collect();
        let runs: RunsByArm = ARMS.map(|(arm, _)| {
            rounds.iter().filter_map(|round| round.arms.get(arm.name).cloned()).collect()
        });
        add_failure_notes(service.name(), &runs, report);
        if !rounds.is_empty() && runs.iter().any(Vec::is_empty) {
            report.add_note(format!("{} has no round with all arms yet.", service.name()));
        } else if !rounds.is_empty() {
            add_rows_to_report(service.name(), &runs, report);
        }
    }
    if report.rows.is_empty() {
        let form = if quick { " of the short form" } else { "" };
        let notes: String = report.notes.iter().map(|note| format!("; {note}")).collect();
        bail!(
            "there is no finished round{form} of this machine and of this build, {}: measure some with --rounds 1 or more{notes}",
            origin.commit_name()
        );
    }
    Ok(())
}

fn add_failure_notes(service: &str, runs: &RunsByArm, report: &mut LiveReport) {
    for ((arm, _), runs) in ARMS.iter().zip(runs) {
        for failure in runs.iter().filter_map(|run| run.failure.as_ref()) {
            let arm = arm.name;
            report.add_note(format!("A run of {service} under {arm} failed: {failure}"));
        }
    }
}

/// Peaks of the runs that did not fail. One that failed may have ended before it was full.
fn peaks(runs: &[ServiceRun]) -> MedianAndRange {
    let complete = runs.iter().filter(|run| run.failure.is_none());
    MedianAndRange::from_figures(complete.map(|run| run.peak_bytes as f64).collect())
}

fn speeds(runs: &[ServiceRun]) -> MedianAndRange {
    MedianAndRange::from_figures(runs.iter().filter_map(|run| run.per_s).collect())
}

fn add_rows_to_report(service: &str, runs: &RunsByArm, report: &mut LiveReport) {
    let never_peak = peaks(&runs[NEVER]).median;
    let always_speed = speeds(&runs[ALWAYS_WITHOUT_LIMIT]).median;
    for ((arm, limited), runs) in ARMS.iter().zip(runs) {
        let mut rows = report.prefixed_row_writer(format!("{service}, {}", arm.name));
        let goal = |goal: &str| match arm.config {
            Some(_) => format!("; goal: {goal}"),
            None => String::new(),
        };
        let beside = format!("{}{}", describe_survival(*limited, runs, arm.config), goal("all"));
        rows.add_row("survived", speeds(runs).turns as f64, "runs", beside);
        let peak = peaks(runs);
        if peak.turns > 0 && never_peak > 0.0 {
            let worst = runs.iter().map(|run| run.peak_bytes).max().unwrap_or(0) as f64;
            let beside = format!(
                "at least {:.2}, at worst {:.2}, of THP never, which has {:.0} MiB{}{}",
                peak.low / never_peak,
                worst / never_peak,
                never_peak / f64::from(1 << 20),
                describe_files(runs),
                goal("at most 1.05")
            );
            rows.add_row("peak memory", peak.median / never_peak, "times", beside);
        }
        let speed = speeds(runs);
        if speed.turns > 0 && always_speed > 0.0 {
            let beside = format!(
                "{:.2}-{:.2}, of THP always without a limit, {always_speed:.0} operations/s{}",
                speed.low / always_speed,
                speed.high / always_speed,
                goal("at least 0.97")
            );
            rows.add_row("throughput", speed.median / always_speed, "times", beside);
        }
    }
    add_row_beside_shrinker(service, runs, report);
}

fn describe_survival(limited: bool, runs: &[ServiceRun], config: Option<&str>) -> String {
    let ended = |failed: bool| {
        runs.iter().filter(|run| run.per_s.is_none() && run.failure.is_some() == failed).count()
    };
    let (killed, failed) = (ended(false), ended(true));
    let limit_mib = || median_of_mapped(runs, |run| bytes_to_mib(run.limit_bytes.unwrap_or(0)));
    let limit = match limited {
        true => format!("limit {:.0} MiB", limit_mib()),
        false => "no limit".to_owned(),
    };
    let recovered = median_of_mapped(runs, |run| bytes_to_mib(run.recovered_bytes));
    let recovered = match config {
        Some(_) => format!("; it took {recovered:.0} MiB back"),
        None => String::new(),
    };
    format!("of {}, {killed} killed, {failed} failed; {limit}{recovered}", runs.len())
}

/// Files are in the peak as well; their memory says nothing about huge pages.
fn describe_files(runs: &[ServiceRun]) -> String {
    let known: Vec<u64> = runs.iter().filter_map(|run| run.file_bytes).collect();
    match known.is_empty() {
        true => String::new(),
        false => format!(
            "; {:.0} MiB of files at the end",
            median_of_mapped(&known, |bytes| bytes_to_mib(*bytes))
        ),
    }
}

/// Adds nothing where one of both has no run that survived. The rows above say so.
fn add_row_beside_shrinker(service: &str, runs: &RunsByArm, report: &mut LiveReport) {
    let [guard, shrinker] = [GUARD, SHRINKER].map(|arm| speeds(&runs[arm]));
    if guard.turns == 0 || shrinker.turns == 0 {
        return;
    }
    let over = |per_s: f64| per_s / shrinker.median;
    let mut rows = report.prefixed_row_writer(format!("{service}, {}", ARMS[GUARD].0.name));
    let beside = format!(
        "{:.2}-{:.2} in {} runs, of {}, {:.2}-{:.2} in {} runs; goal: at least 1.00, or equal within the spread",
        over(guard.low),
        over(guard.high),
        guard.turns,
        ARMS[SHRINKER].0.name,
        over(shrinker.low),
        over(shrinker.high),
        shrinker.turns,
    );
    rows.add_row("throughput beside the shrinker", over(guard.median), "times", beside);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::kept_rounds::KeptRound;

    fn run(per_s: Option<f64>, mib: u64) -> ServiceRun {
        ServiceRun {
            per_s,
            failure: None,
            limit_bytes: Some(110 << 20),
            peak_bytes: mib << 20,
            file_bytes: None,
            recovered_bytes: 7 << 20,
        }
    }

    fn report_of(runs: &RunsByArm) -> LiveReport {
        let mut report = LiveReport::new("guard-limits");
        add_failure_notes("Redis", runs, &mut report);
        add_rows_to_report("Redis", runs, &mut report);
        report
    }

    #[test]
    fn arms_are_compared_with_never_and_with_always_without_a_limit() {
        assert_eq!((ARMS[NEVER].0.name, ARMS[NEVER].1), ("THP never", true));
        assert!(!ARMS[ALWAYS_WITHOUT_LIMIT].1);
        let survived = |per_s, mib| vec![run(Some(per_s), mib); 2];
        let killed = vec![run(None, 110); 2];
        let shrinker = survived(900.0, 105);
        let guard = survived(990.0, 102);
        let report =
            report_of(&[survived(800.0, 100), killed, shrinker, guard, survived(1000.0, 150)]);
        let value = |what: &str| report.row(what).value;
        assert_eq!(value("Redis, THP always: survived"), 0.0);
        assert!(report.rows.iter().all(|row| row.what != "Redis, THP always: throughput"));
        assert_eq!(value("Redis, THP always, guard: survived"), 2.0);
        assert_eq!(value("Redis, THP always, guard: peak memory"), 1.02);
        assert_eq!(value("Redis, THP always, guard: throughput"), 0.99);
        assert_eq!(value("Redis, THP always, guard: throughput beside the shrinker"), 1.1);
        assert_eq!(value("Redis, THP always without a limit: peak memory"), 1.5);
        let guard = report.row("Redis, THP always, guard: survived");
        let survival = "of 2, 0 killed, 0 failed; limit 110 MiB; it took 7 MiB back; goal: all";
        assert_eq!(guard.beside, survival);
    }

    #[test]
    fn a_failed_run_did_not_survive_and_the_worst_peak_stays_visible() {
        let failed = ServiceRun { failure: Some("no heap".to_owned()), ..run(None, 50) };
        let guard = vec![run(Some(9.0), 100), run(Some(9.0), 100), run(None, 130), failed];
        let others = || vec![run(Some(9.0), 100)];
        let report = report_of(&[others(), others(), others(), guard, others()]);
        let survived = report.row("Redis, THP always, guard: survived");
        assert_eq!(survived.value, 2.0);
        assert!(survived.beside.starts_with("of 4, 1 killed, 1 failed;"), "{}", survived.beside);
        let peak = report.row("Redis, THP always, guard: peak memory");
        assert_eq!(peak.value, 1.0);
        assert!(peak.beside.starts_with("at least 1.00, at worst 1.30,"), "{}", peak.beside);
        assert_eq!(report.notes, ["A run of Redis under THP always, guard failed: no heap"]);
    }

    #[test]
    fn without_a_round_of_this_build_there_is_an_error_and_no_result() {
        let built =
            |commit: &str| RunOrigin { commit: Some(commit.to_owned()), ..RunOrigin::default() };
        let mut kept = KeptRounds::load(None).expect("nothing to read");
        let arms: ArmRuns = ARMS.map(|(arm, _)| (arm.name.to_owned(), run(Some(9.0), 1))).into();
        let mut only_guard = arms.clone();
        only_guard.retain(|name, _| name == ARMS[GUARD].0.name);
        for (quick, arms) in [(false, arms), (true, only_guard)] {
            let program = ChurnService::Redis.name().to_owned();
            let round = KeptRound { program, quick, origin: built("bf449092"), arms };
            kept.add_round(round).expect("nothing to write");
        }
        let report_of = |quick, commit| {
            let mut report = LiveReport::new("guard-limits");
            report.add_note("Go could not be measured");
            let origin = built(commit);
            add_rows_of_services(&kept, &ChurnService::ALL, quick, &origin, &mut report)
                .map(|()| report.rows.len())
        };
        assert!(report_of(false, "bf449092").is_ok_and(|rows| rows > 0));
        let error = report_of(true, "bf449092").expect_err("no other arm").to_string();
        assert!(error.ends_with("; Redis has no round with all arms yet."), "{error}");
        let error = report_of(false, "be581ec2").expect_err("another build").to_string();
        assert!(error.contains("build, be581ec2: measure some with --rounds"), "{error}");
        assert!(error.ends_with("; Go could not be measured"), "{error}");
    }
}
