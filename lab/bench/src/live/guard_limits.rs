//! Services that bloat, each in a cgroup that is a tenth larger than its peak without huge pages:
//! killed or not, memory and speed, under the kernel alone and with guard.

mod churn_load;
mod churn_service;
mod mariadb_churn;

use super::ManagerCpuUse;
use super::guard_arm::{GuardArm, khugepaged_pace_note};
use super::kept_rounds::{KeptRound, KeptRounds};
use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::running_daemon::RunningDaemon;
use crate::run_origin::RunOrigin;
use crate::statistics::MedianAndRange;
use churn_load::{ChurnLoad, DELETED_PERCENT};
use churn_service::{ChurnService, PreparedService};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The quick form runs the first ones.
const QUICK_SERVICES: usize = 2;

/// The limit of a service, as a share of its peak without huge pages.
const LIMIT_PERCENT: u64 = 110;

/// An arm, and whether its services have a limit.
type LimitArm = (GuardArm, bool);

const NEVER: usize = 0;
const ALWAYS_WITHOUT_LIMIT: usize = 4;
const ARMS: [LimitArm; 5] = [
    (GuardArm::NEVER, true),
    (GuardArm::ALWAYS, true),
    (GuardArm::SHRINKER, true),
    (GuardArm::GUARD, true),
    (GuardArm { name: "THP always without a limit", ..GuardArm::ALWAYS }, false),
];
/// A daemon that finds new services at once, for runs of seconds.
const QUICK_GUARD: GuardArm = GuardArm {
    config: Some("profile = \"guard\"\n[selection]\nlook_every = \"1 s\"\n"),
    ..GuardArm::GUARD
};

/// One run of a service.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct ServiceRun {
    /// Operations per second; `None` if the kernel killed the service at its limit.
    per_s: Option<f64>,
    limit_bytes: Option<u64>,
    /// The most memory of its cgroup.
    peak_bytes: u64,
    /// Memory that guard took back.
    recovered_bytes: u64,
}

/// A service's run under each arm, by the names of [`ARMS`].
type ArmRuns = BTreeMap<String, ServiceRun>;

/// A service, ready to be started many times.
struct MeasuredService {
    service: ChurnService,
    prepared: PreparedService,
    limit_bytes: u64,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let load = ChurnLoad {
        mib: scale.short_or_long(192, 512),
        deletions: scale.short_or_long(1, 2),
        settle: scale.short_or_long(Duration::from_secs(2), Duration::from_secs(8)),
        pause: scale.short_or_long(Duration::from_secs(1), Duration::from_secs(5)),
    };
    let quick = scale == Scale::Quick;
    let rounds = host.rounds().unwrap_or(scale.short_or_long(2, 20));
    let services =
        &ChurnService::ALL[..scale.short_or_long(QUICK_SERVICES, ChurnService::ALL.len())];
    let guard = scale.short_or_long(QUICK_GUARD, GuardArm::GUARD);
    require_available_memory(4 * (load.mib << 20))?;
    let origin = RunOrigin::of_this_machine();
    let mut kept: KeptRounds<ArmRuns> = KeptRounds::load(host.kept_rounds_file(report.name.name))?;
    let measured = match rounds {
        0 => Vec::new(),
        _ => measure_peaks_without_huge_pages(host, services, &load, report)?,
    };
    let kept_before = services.iter().map(|it| kept.count_rounds_of(it.name(), quick)).max();
    // Each round begins with another arm, also those of several sessions.
    for first in (kept_before.unwrap_or(0)..).take(rounds) {
        let mut runs: Vec<ArmRuns> = measured.iter().map(|_| ArmRuns::new()).collect();
        for n in 0..ARMS.len() {
            let (mut arm, limited) = ARMS[(first + n) % ARMS.len()];
            if arm.config.is_some() {
                arm = guard;
            }
            arm.run_under_arm(host, |_, daemon| {
                run_services_beside_daemon(
                    &measured,
                    &mut runs,
                    (arm, limited),
                    &load,
                    daemon,
                    report,
                );
                Ok(())
            })?;
        }
        for (service, arms) in measured.iter().zip(runs) {
            // One without all runs does not count.
            if arms.len() == ARMS.len() {
                let program = service.service.name().to_owned();
                kept.add_round(KeptRound { program, quick, origin: origin.dated_today(), arms })?;
            }
        }
        eprintln!("hawkeye-lab: {}: a round is done", report.name);
    }
    add_rows_of_services(&kept, services, quick, &origin, report)?;
    let [small_row, large_row] = mariadb_churn::ROW_BYTES;
    report.add_note(format!(
        "Each service stores {} MiB of values of about 1 KB, looks them up, deletes {DELETED_PERCENT} % of them at random, rests for {} s, stores values of about 16 KB until it is as full again, and looks them up: {} times, the sizes in turn. Its cgroup is limited to {LIMIT_PERCENT} % of the peak of a run without huge pages and without a limit. There is no swap. Medians, and the range of the runs; a session adds its runs to those of earlier sessions with the same build. Throughput counts operations per second of work, of runs that survived. MariaDB has rows of {small_row} and {large_row} bytes instead, which fill three quarters of its buffer pool, and sorts them instead of looking them up.",
        load.mib,
        load.pause.as_secs(),
        load.deletions,
    ));
    report.add_note(khugepaged_pace_note());
    report.add_note(format!(
        "Half full, each service waits for {} s, in which the daemon finds it.",
        load.settle.as_secs()
    ));
    Ok(())
}

/// Adds the rows of all services that have rounds of this machine and build.
///
/// # Errors
/// There is no such round. A result without rows would replace the one of an earlier build.
fn add_rows_of_services(
    kept: &KeptRounds<ArmRuns>,
    services: &[ChurnService],
    quick: bool,
    origin: &RunOrigin,
    report: &mut LiveReport,
) -> BenchResult<()> {
    for service in services {
        let rounds: Vec<_> = kept
            .rounds_of(service.name(), quick)
            .filter(|round| round.origin.is_same_machine_and_build(origin))
            .collect();
        if !rounds.is_empty() {
            add_rows_to_report(service.name(), &runs_by_arm(&rounds), report);
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

/// The runs of each of [`ARMS`].
fn runs_by_arm(rounds: &[&KeptRound<ArmRuns>]) -> [Vec<ServiceRun>; ARMS.len()] {
    ARMS.map(|(arm, _)| {
        rounds.iter().filter_map(|round| round.arms.get(arm.name).copied()).collect()
    })
}

/// The services that can run here, with limits by their peaks.
fn measure_peaks_without_huge_pages(
    host: &mut BenchHost,
    services: &[ChurnService],
    load: &ChurnLoad,
    report: &mut LiveReport,
) -> BenchResult<Vec<MeasuredService>> {
    GuardArm::NEVER.run_under_arm(host, |_, _| {
        let mut measured = Vec::new();
        for &service in services {
            let reference = PreparedService::prepare(service, load)
                .and_then(|prepared| Ok((run_in_cgroup(&prepared, load, None, None)?, prepared)));
            match reference {
                Ok((reference, prepared)) => measured.push(MeasuredService {
                    service,
                    prepared,
                    limit_bytes: reference.peak_bytes / 100 * LIMIT_PERCENT,
                }),
                // One service that can't run here does not affect the others.
                Err(error) => {
                    report.add_note(format!("{} could not be measured: {error}", service.name()))
                }
            }
        }
        Ok(measured)
    })
}

/// Runs each service once, and adds its run to its entry of `runs`.
fn run_services_beside_daemon(
    measured: &[MeasuredService],
    runs: &mut [ArmRuns],
    (arm, limited): LimitArm,
    load: &ChurnLoad,
    daemon: Option<&RunningDaemon>,
    report: &mut LiveReport,
) {
    let cpu_s = || daemon.map(|daemon| daemon.cpu_time().as_secs_f64());
    let (begun, cpu_before_s) = (Instant::now(), cpu_s());
    for (service, runs) in measured.iter().zip(runs) {
        let limit = limited.then_some(service.limit_bytes);
        match run_in_cgroup(&service.prepared, load, limit, daemon) {
            Ok(run) => {
                runs.insert(arm.name.to_owned(), run);
            }
            // A run that failed for another reason does not end an experiment of hours.
            Err(error) => report.add_note(format!(
                "A run of {} under {} failed and does not count: {error}",
                service.service.name(),
                arm.name
            )),
        }
    }
    if let (Some(before_s), Some(after_s)) = (cpu_before_s, cpu_s()) {
        let (cpu_s, wall_s) = (after_s - before_s, begun.elapsed().as_secs_f64());
        let worst_percent = cpu_s * 100.0 / wall_s;
        report.managing.merge(&ManagerCpuUse { cpu_s, wall_s, worst_percent });
    }
}

fn run_in_cgroup(
    service: &PreparedService,
    load: &ChurnLoad,
    limit_bytes: Option<u64>,
    daemon: Option<&RunningDaemon>,
) -> BenchResult<ServiceRun> {
    let recovered_bytes = || -> BenchResult<u64> {
        daemon.map_or(Ok(0), |daemon| Ok(daemon.fetch_status()?.totals.recovered_bytes))
    };
    let recovered_before = recovered_bytes()?;
    let group = MemoryCgroup::without_limit("hawkeye-bench-service")?;
    if let Some(bytes) = limit_bytes {
        group.set_limit(bytes)?;
    }
    let per_s = match service.run_load(load, &|command| group.wrap_command(command)) {
        Ok(per_s) => Some(per_s),
        Err(error) if group.count_oom_kills()? == 0 => return Err(error),
        Err(_) => None,
    };
    let recovered_bytes = recovered_bytes()? - recovered_before;
    Ok(ServiceRun { per_s, limit_bytes, peak_bytes: group.peak_bytes()?, recovered_bytes })
}

fn add_rows_to_report(
    service: &str,
    runs: &[Vec<ServiceRun>; ARMS.len()],
    report: &mut LiveReport,
) {
    let peaks = |runs: &[ServiceRun]| {
        MedianAndRange::from_figures(runs.iter().map(|run| run.peak_bytes as f64).collect())
    };
    let speeds = |runs: &[ServiceRun]| {
        MedianAndRange::from_figures(runs.iter().filter_map(|run| run.per_s).collect())
    };
    let never_peak = peaks(&runs[NEVER]).median;
    let always_speed = speeds(&runs[ALWAYS_WITHOUT_LIMIT]).median;
    for ((arm, limited), runs) in ARMS.iter().zip(runs) {
        let mut rows = report.prefixed_row_writer(format!("{service}, {}", arm.name));
        let limit_mib = || median_of_mapped(runs, |run| bytes_to_mib(run.limit_bytes.unwrap_or(0)));
        let limit = match limited {
            true => format!("limit {:.0} MiB", limit_mib()),
            false => "no limit".to_owned(),
        };
        let goal = |goal: &str| match arm.config {
            Some(_) => format!("; goal: {goal}"),
            None => String::new(),
        };
        let lived = runs.iter().filter(|run| run.per_s.is_some()).count();
        let recovered = median_of_mapped(runs, |run| bytes_to_mib(run.recovered_bytes));
        let recovered = match arm.config {
            Some(_) => format!("; it took {recovered:.0} MiB back"),
            None => String::new(),
        };
        let beside = format!("of {}; {limit}{recovered}{}", runs.len(), goal("all"));
        rows.add_row("survived", lived as f64, "runs", beside);
        let peak = peaks(runs);
        let beside = format!(
            "{:.2}-{:.2}, of THP never, which has {:.0} MiB{}",
            peak.low / never_peak,
            peak.high / never_peak,
            never_peak / f64::from(1 << 20),
            goal("at most 1.05")
        );
        rows.add_row("peak memory", peak.median / never_peak, "times", beside);
        if lived > 0 {
            let speed = speeds(runs);
            let beside = format!(
                "{:.2}-{:.2}, of THP always without a limit, {always_speed:.0} operations/s{}",
                speed.low / always_speed,
                speed.high / always_speed,
                goal("at least 0.97, and not below max_ptes_none=63")
            );
            rows.add_row("throughput", speed.median / always_speed, "times", beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_compared_with_never_and_with_always_without_a_limit() {
        assert_eq!((ARMS[NEVER].0.name, ARMS[NEVER].1), ("THP never", true));
        assert!(!ARMS[ALWAYS_WITHOUT_LIMIT].1);
        let runs = |per_s, mib: u64| {
            let limit_bytes = Some(110 << 20);
            let run =
                ServiceRun { per_s, limit_bytes, peak_bytes: mib << 20, recovered_bytes: 7 << 20 };
            vec![run; 2]
        };
        let survived = |per_s, mib| runs(Some(per_s), mib);
        let killed = runs(None, 110);
        let shrinker = survived(900.0, 105);
        let runs =
            [survived(800.0, 100), killed, shrinker, survived(990.0, 102), survived(1000.0, 150)];
        let mut report = LiveReport::new("guard-limits");
        add_rows_to_report("Redis", &runs, &mut report);
        let row = |what: &str| {
            let mut rows = report.rows.iter();
            rows.find(|row| row.what == what)
        };
        let value = |what: &str| row(what).map(|row| row.value);
        assert_eq!(value("Redis, THP always: survived"), Some(0.0));
        assert_eq!(value("Redis, THP always: throughput"), None);
        assert_eq!(value("Redis, THP always, guard: survived"), Some(2.0));
        assert_eq!(value("Redis, THP always, guard: peak memory"), Some(1.02));
        assert_eq!(value("Redis, THP always, guard: throughput"), Some(0.99));
        assert_eq!(value("Redis, THP always without a limit: peak memory"), Some(1.5));
        let guard = row("Redis, THP always, guard: survived").expect("a row");
        assert_eq!(guard.beside, "of 2; limit 110 MiB; it took 7 MiB back; goal: all");
    }

    #[test]
    fn without_a_round_of_this_build_there_is_an_error_and_no_result() {
        let built =
            |commit: &str| RunOrigin { commit: Some(commit.to_owned()), ..RunOrigin::default() };
        let run = ServiceRun {
            per_s: Some(9.0),
            limit_bytes: None,
            peak_bytes: 1 << 20,
            recovered_bytes: 0,
        };
        let mut kept = KeptRounds::load(None).expect("nothing to read");
        let arms = ARMS.map(|(arm, _)| (arm.name.to_owned(), run)).into();
        let program = ChurnService::Redis.name().to_owned();
        let round = KeptRound { program, quick: false, origin: built("bf449092"), arms };
        kept.add_round(round).expect("nothing to write");
        let report_of = |quick, commit| {
            let mut report = LiveReport::new("guard-limits");
            report.add_note("Go could not be measured");
            let origin = built(commit);
            add_rows_of_services(&kept, &ChurnService::ALL, quick, &origin, &mut report)
                .map(|()| report.rows.len())
        };
        assert!(report_of(false, "bf449092").is_ok_and(|rows| rows > 0));
        assert!(report_of(true, "bf449092").is_err());
        let error = report_of(false, "be581ec2").expect_err("another build").to_string();
        assert!(error.contains("build, be581ec2: measure some with --rounds"), "{error}");
        assert!(error.ends_with("; Go could not be measured"), "{error}");
    }
}
