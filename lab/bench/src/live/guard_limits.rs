//! Services that bloat, each in a cgroup that is a tenth larger than its peak without huge pages:
//! killed or not, memory and speed, under the kernel alone and with guard.

mod churn_load;
mod churn_service;
mod mariadb_churn;
mod result_rows;

use super::ManagerCpuUse;
use super::guard_arm::{GuardArm, khugepaged_pace_note};
use super::kept_rounds::{KeptRound, KeptRounds};
use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::running_daemon::RunningDaemon;
use crate::run_origin::RunOrigin;
use churn_load::{ChurnLoad, DELETED_PERCENT};
use churn_service::{ChurnService, PreparedService};
use result_rows::add_rows_of_services;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The quick form runs the first ones.
const QUICK_SERVICES: usize = 2;

/// The limit of a service, as a share of its peak without huge pages.
const LIMIT_PERCENT: u64 = 110;

/// An arm, and whether its services have a limit.
type LimitArm = (GuardArm, bool);

const NEVER: usize = 0;
const SHRINKER: usize = 2;
const GUARD: usize = 3;
const ALWAYS_WITHOUT_LIMIT: usize = 4;
const ARMS: [LimitArm; 5] = [
    (GuardArm::NEVER, true),
    (GuardArm::ALWAYS, true),
    (GuardArm::SHRINKER, true),
    (GuardArm::GUARD, true),
    (GuardArm { name: "THP always without a limit", ..GuardArm::ALWAYS }, false),
];
/// The first of this many rounds runs all arms, the others guard alone. The goal of 20 runs is
/// guard's; the other arms are there to compare it with.
const ROUNDS_PER_COMPARISON: usize = 4;

/// A daemon that finds new services at once, for runs of seconds.
const QUICK_GUARD: GuardArm = GuardArm {
    config: Some("profile = \"guard\"\n[selection]\nlook_every = \"1 s\"\n"),
    ..GuardArm::GUARD
};

/// One run of a service. Runs that were kept by earlier builds lack what has a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ServiceRun {
    /// Operations per second; `None` if the kernel killed the service at its limit, or it failed.
    per_s: Option<f64>,
    /// Why it failed, where the kernel killed nothing.
    #[serde(default)]
    failure: Option<String>,
    limit_bytes: Option<u64>,
    /// The most memory of its cgroup.
    peak_bytes: u64,
    /// Memory of files in its cgroup at the end.
    #[serde(default)]
    file_bytes: Option<u64>,
    /// Memory that guard took back.
    recovered_bytes: u64,
}

/// A service's run under each arm of a round, by the names of [`ARMS`].
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
    let kept_before =
        services.iter().map(|it| kept.rounds_of_build(it.name(), quick, &origin).count()).max();
    for round in (kept_before.unwrap_or(0)..).take(rounds) {
        let arms = arms_of_round(round);
        let mut runs: Vec<ArmRuns> = measured.iter().map(|_| ArmRuns::new()).collect();
        for &(mut arm, limited) in &arms {
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
        for (service, runs) in measured.iter().zip(runs) {
            // One without all runs does not count.
            if runs.len() == arms.len() {
                let program = service.service.name().to_owned();
                let origin = origin.dated_today();
                kept.add_round(KeptRound { program, quick, origin, arms: runs })?;
            }
        }
        eprintln!("hawkeye-lab: {}: a round is done", report.name);
    }
    add_rows_of_services(&kept, services, quick, &origin, report)?;
    let [small_row, large_row] = mariadb_churn::ROW_BYTES;
    report.add_note(format!(
        "Each service stores {} MiB of values of about 1 KB, looks them up, deletes {DELETED_PERCENT} % of them at random, rests for {} s, stores values of about 16 KB until it is as full again, and looks them up: {} times, the sizes in turn. Its cgroup is limited to {LIMIT_PERCENT} % of the peak of a run without huge pages and without a limit. There is no swap. Medians, and the range of the runs; a session adds its runs to those of earlier sessions with the same build. A run is killed if the kernel killed any process of its cgroup; one that failed otherwise did not survive either, and its peak counts only where it is the worst. Throughput counts operations per second of work, of runs that survived. MariaDB has rows of {small_row} and {large_row} bytes instead, which fill three quarters of its buffer pool, and sorts them instead of looking them up.",
        load.mib,
        load.pause.as_secs(),
        load.deletions,
    ));
    report.add_note(format!(
        "Guard runs in each round. The other arms run in the first of each {ROUNDS_PER_COMPARISON} rounds, right before and after it: the goal of 20 runs is guard's, and all arms in each round would take about 4 hours. Ratios are of medians over the runs that each arm has. Files are what its cgroup still holds when the service has ended; MariaDB's are deleted by then."
    ));
    report.add_note(khugepaged_pace_note());
    report.add_note(format!(
        "Half full, each service waits for {} s, in which the daemon finds it.",
        load.settle.as_secs()
    ));
    Ok(())
}

/// The arms of the round with this number, in their order. Each round with all of them begins with
/// another one, also in later sessions.
fn arms_of_round(round: usize) -> Vec<LimitArm> {
    if round % ROUNDS_PER_COMPARISON > 0 {
        return vec![ARMS[GUARD]];
    }
    let mut arms = ARMS;
    arms.rotate_left(round / ROUNDS_PER_COMPARISON % ARMS.len());
    arms.to_vec()
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
                .and_then(|prepared| Ok((measure_peak(&prepared, load)?, prepared)));
            match reference {
                Ok((peak_bytes, prepared)) => measured.push(MeasuredService {
                    service,
                    prepared,
                    limit_bytes: peak_bytes / 100 * LIMIT_PERCENT,
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

/// The peak of a run without a limit.
fn measure_peak(service: &PreparedService, load: &ChurnLoad) -> BenchResult<u64> {
    match run_in_cgroup(service, load, None, None)? {
        ServiceRun { per_s: Some(_), peak_bytes, .. } => Ok(peak_bytes),
        ServiceRun { failure: Some(failure), .. } => bail!("{failure}"),
        ServiceRun { .. } => bail!("the kernel killed it without a limit of its own"),
    }
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
            // One run that can't be measured does not end an experiment of hours.
            Err(error) => report.add_note(format!(
                "A run of {} under {} could not be measured, and its round does not count: {error}",
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
    let recovered_before = recovered_bytes();
    let group = MemoryCgroup::without_limit("hawkeye-bench-service")?;
    if let Some(bytes) = limit_bytes {
        group.set_limit(bytes)?;
    }
    let done = service.run_load(load, &|command| group.wrap_command(command));
    let (done, recovered_bytes) = judge_recovery(done, [recovered_before, recovered_bytes()]);
    let (per_s, failure) = judge_run(done, group.count_oom_kills()?);
    Ok(ServiceRun {
        per_s,
        failure,
        limit_bytes,
        peak_bytes: group.peak_bytes()?,
        file_bytes: Some(group.file_bytes()?),
        recovered_bytes,
    })
}

/// The outcome of a run, and what guard took back between these two totals. A daemon that does not
/// answer is a failure of its arm, also where it ended beside an earlier service.
fn judge_recovery(
    done: BenchResult<f64>,
    [before, after]: [BenchResult<u64>; 2],
) -> (BenchResult<f64>, u64) {
    let recovered = before.and_then(|before| Ok(after?.saturating_sub(before)));
    let recovered_bytes = recovered.as_ref().map_or(0, |bytes| *bytes);
    (done.and_then(|per_s| recovered.map(|_| per_s)), recovered_bytes)
}

/// The operations per second of a run that survived, or why it failed; neither if the kernel killed
/// one of its processes. A service can lose one and go on.
fn judge_run(done: BenchResult<f64>, oom_kills: u64) -> (Option<f64>, Option<String>) {
    match done {
        _ if oom_kills > 0 => (None, None),
        Ok(per_s) => (Some(per_s), None),
        Err(error) => (None, Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_a_kill_also_where_the_service_went_on() {
        let failed = || -> BenchResult<f64> { bail!("java.lang.OutOfMemoryError") };
        assert_eq!(judge_run(Ok(9.0), 0), (Some(9.0), None));
        assert_eq!(judge_run(Ok(9.0), 1), (None, None));
        assert_eq!(judge_run(failed(), 1), (None, None));
        let failure = Some("java.lang.OutOfMemoryError".to_owned());
        assert_eq!(judge_run(failed(), 0), (None, failure));
    }

    #[test]
    fn a_run_fails_where_the_daemon_has_ended_before_or_during_it() {
        let ended = || -> BenchResult<u64> { bail!("the daemon's status is unreadable") };
        let failure_of = |totals: [BenchResult<u64>; 2]| {
            let (done, recovered_bytes) = judge_recovery(Ok(9.0), totals);
            (judge_run(done, 0).1, recovered_bytes)
        };
        assert_eq!(failure_of([Ok(3), Ok(7)]), (None, 4));
        for totals in [[ended(), ended()], [Ok(3), ended()]] {
            let (failure, recovered_bytes) = failure_of(totals);
            assert_eq!(failure.as_deref(), Some("the daemon's status is unreadable"));
            assert_eq!(recovered_bytes, 0);
        }
    }

    #[test]
    fn twenty_rounds_run_guard_twenty_times_and_the_others_beside_it() {
        let rounds: Vec<_> = (0..20).map(arms_of_round).collect();
        let has = |round: &Vec<LimitArm>, index: usize| {
            round.iter().any(|(arm, _)| arm.name == ARMS[index].0.name)
        };
        assert!(rounds.iter().all(|round| has(round, GUARD)));
        for other in [NEVER, SHRINKER, ALWAYS_WITHOUT_LIMIT] {
            let count = rounds.iter().filter(|round| has(round, other)).count();
            assert_eq!(count, 5, "{}", ARMS[other].0.name);
        }
        let compared = rounds.iter().filter(|round| round.len() > 1);
        let mut first: Vec<_> = compared.map(|round| round[0].0.name).collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), ARMS.len());
    }

    #[test]
    fn runs_of_earlier_builds_are_read() {
        let kept = r#"{"per_s":null,"limit_bytes":9,"peak_bytes":8,"recovered_bytes":0}"#;
        let run: ServiceRun = serde_json::from_str(kept).expect("a run");
        assert_eq!((run.per_s, run.failure, run.file_bytes), (None, None, None));
    }
}
