//! A container that bloats without end, beside two others: which pays for it?

mod endless_grower;
mod flag_set_on_drop;
mod steady_neighbour;

use super::guard_arm::{GuardArm, khugepaged_pace_note};
use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::programs::program_speed::measure_together;
use super::programs::start_reader_in_cgroup;
use super::running_daemon::{DaemonStatus, RunningDaemon};
use super::{ManagerCpuUse, PrefixedRowWriter};
use crate::statistics::MedianAndRange;
use endless_grower::EndlessGrower;
use steady_neighbour::SteadyNeighbour;

/// The others: random reads in memory of which a part is bloat, too.
const OTHERS: usize = 2;
const OTHERS_MIB: u64 = 512;
const OTHERS_WORDS: &str =
    "sparse --mib 512 --hot-mib 256 --hot-percent 95 --used 128 --pages default";
/// They use this share of their limit. Recovery begins above 85 %, so nothing has to be recovered
/// in these once they have started. While they start they grow fast, and recovery begins earlier.
const OTHERS_USE_PERCENT: u64 = 80;
const OTHERS_LIMIT_MIB: u64 = OTHERS_MIB * 100 / OTHERS_USE_PERCENT;

/// Time for guard to end what it began while the others started.
const SETTLE: Duration = Duration::from_secs(10);

const ARMS: [GuardArm; 2] = [GuardArm::ALWAYS, GuardArm::GUARD];

/// Speed that each of the others lost, in per cent, in each turn beside a neighbour.
#[derive(Debug, Default)]
struct LostSpeed {
    /// By reads per second of their own CPU time.
    per_cpu: [Vec<f64>; OTHERS],
    /// By reads per second of wall-clock time.
    per_wall: [Vec<f64>; OTHERS],
}

/// What the neighbour did to the others, and to itself, under an arm.
#[derive(Debug, Default)]
struct NeighbourEffect {
    /// While the neighbour grew.
    beside_grower: LostSpeed,
    /// While the control used as much CPU time.
    beside_control: LostSpeed,
    /// CPU time of the neighbour in each turn, in per cent of a core.
    grower_cpu_percent: Vec<f64>,
    /// The same of the control.
    control_cpu_percent: Vec<f64>,
    daemon: ManagerCpuUse,
    /// How often the kernel killed the neighbour at its limit.
    killed: u64,
    /// The same for the others.
    others_killed: u64,
    /// Memory that guard took back in the others after they had started.
    recovered_in_others_bytes: u64,
    /// Memory that guard took back in the neighbour that ran at the end.
    recovered_in_neighbour_bytes: u64,
    /// Memory that guard took back in total after the others had started.
    recovered_bytes: u64,
}

impl NeighbourEffect {
    /// Adds what guard took back between these two statuses.
    fn add_recovered(
        &mut self,
        [before, after]: [&DaemonStatus; 2],
        others: &[u32],
        neighbour: u32,
    ) {
        let recovered_in = |status: &DaemonStatus, pid: u32| -> u64 {
            let process = status.processes.iter().find(|process| process.pid == pid);
            process.map_or(0, |process| process.recovered_bytes)
        };
        let since = |pid: u32| recovered_in(after, pid).saturating_sub(recovered_in(before, pid));
        let all = [after, before].map(|status| status.totals.recovered_bytes);
        self.recovered_bytes += all[0].saturating_sub(all[1]);
        self.recovered_in_others_bytes += others.iter().map(|pid| since(*pid)).sum::<u64>();
        self.recovered_in_neighbour_bytes += since(neighbour);
    }
}

impl LostSpeed {
    /// Adds a turn beside a neighbour, by the turns before and after it, in which none ran.
    fn add_turn(&mut self, beside: &[ProgramSpeed], alone: [&[ProgramSpeed]; 2]) {
        let lost = self.per_cpu.iter_mut().zip(&mut self.per_wall);
        for (n, (per_cpu, per_wall)) in lost.enumerate() {
            let lost_percent = |speed: fn(&ProgramSpeed) -> f64| {
                let [before, after] = alone.map(|turn| speed(&turn[n]));
                (1.0 - 2.0 * speed(&beside[n]) / (before + after)) * 100.0
            };
            per_cpu.push(lost_percent(|it| it.per_cpu_s));
            per_wall.push(lost_percent(|it| it.per_s));
        }
    }
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let turn = Duration::from_secs(scale.short_or_long(1, 5));
    let (rounds, turns) = scale.short_or_long((1, 3), (3, 6));
    let others_mib = OTHERS as u64 * OTHERS_MIB;
    require_available_memory((EndlessGrower::LIMIT_MIB + SteadyNeighbour::MIB + others_mib) << 20)?;
    let mut effects = ARMS.map(|_| NeighbourEffect::default());
    for round in 0..rounds {
        // Each round begins with another arm.
        for n in 0..ARMS.len() {
            let index = (round + n) % ARMS.len();
            let effect = &mut effects[index];
            ARMS[index].run_under_arm(host, |host, daemon| {
                measure_neighbour_effect(host, daemon, turns, turn, effect)
            })?;
        }
    }
    for (arm, effect) in ARMS.iter().zip(&effects) {
        report.managing.merge(&effect.daemon);
        add_rows_to_report(arm, effect, rounds, report);
    }
    report.add_note(format!(
        "The neighbour has a limit of {} MiB. It touches {} MB of huge pages per second, 16 base pages of each, up to {} MiB, gives all back, and begins again. Without guard it starts again whenever it is killed. The others read {OTHERS_MIB} MiB at random in cgroups of {OTHERS_LIMIT_MIB} MiB, of which they use {OTHERS_USE_PERCENT} %; of half of their memory, three quarters are zeros. In turns of {} s, first no neighbour runs, then the one that grows, then none, then the control, then none. The control reads {} MiB in address order, all of it in use; it gets as much CPU time as the neighbour in the same turn before it.",
        EndlessGrower::LIMIT_MIB,
        EndlessGrower::MB_PER_S,
        EndlessGrower::GROWS_TO_MIB,
        turn.as_secs(),
        SteadyNeighbour::MIB,
    ));
    report.add_note(
        "Speed is reads per second of their own CPU time: what is lost by sharing cores does not count. Wall-clock speed is reads per second: there it counts, also that the daemon takes a core. What another program of the same CPU time costs is beside it.",
    );
    report.add_note(format!(
        "What guard takes while the others start does not count: it has {} s after that before the neighbour starts.",
        SETTLE.as_secs()
    ));
    report.add_note("Where the kernel kills one of the others, the turns of that run end.");
    report.add_note(khugepaged_pace_note());
    Ok(())
}

fn add_rows_to_report(
    arm: &GuardArm,
    effect: &NeighbourEffect,
    rounds: usize,
    report: &mut LiveReport,
) {
    let mut rows = report.prefixed_row_writer(arm.name);
    let goal = |goal: &'static str| if arm.config.is_some() { goal } else { "" };
    let (grower, control) = (&effect.beside_grower, &effect.beside_control);
    for n in 0..OTHERS {
        let what = format!("speed lost by container {}", n + 1);
        add_lost_speed_row(
            &mut rows,
            &what,
            [&grower.per_cpu[n], &control.per_cpu[n]],
            goal("; goal: under 2"),
        );
        add_lost_speed_row(
            &mut rows,
            &format!("wall-clock {what}"),
            [&grower.per_wall[n], &control.per_wall[n]],
            goal("; goal: under 2 more than beside the control"),
        );
    }
    let cpu_percent = [&effect.grower_cpu_percent, &effect.control_cpu_percent];
    if cpu_percent.iter().all(|turns| !turns.is_empty()) {
        let [grower, control] = cpu_percent.map(|turns| median(turns));
        let beside = format!("the control {control:.1}; medians of the turns in which they run");
        rows.add_row("neighbour's CPU time", grower, "% of a core", beside);
    }
    let beside = format!(
        "in {rounds} runs; {} of the others{}",
        effect.others_killed,
        goal("; goal: 0 of the others")
    );
    rows.add_row("neighbour killed", effect.killed as f64, "times", beside);
    if arm.config.is_some() {
        let [all, neighbour, others] = [
            effect.recovered_bytes,
            effect.recovered_in_neighbour_bytes,
            effect.recovered_in_others_bytes,
        ]
        .map(bytes_to_mib);
        let beside = format!("of {all:.0} MiB in all programs, also in those that have ended");
        rows.add_row("taken from the neighbour", neighbour, "MiB", beside);
        rows.add_row("taken from the others", others, "MiB", format!("of {all:.0} MiB; goal: 0"));
        let ManagerCpuUse { cpu_s, wall_s, worst_percent } = effect.daemon;
        if wall_s > 0.0 {
            rows.add_row(
                "daemon's CPU time",
                cpu_s * 100.0 / wall_s,
                "% of a core",
                format!(
                    "with its helpers, over {wall_s:.0} s; {worst_percent:.1} in the worst run"
                ),
            );
        }
    }
}

/// Adds what was lost beside the neighbour and the control; nothing if one of the others was killed
/// before the first turn was over.
fn add_lost_speed_row(
    rows: &mut PrefixedRowWriter<'_>,
    what: &str,
    [grower, control]: [&[f64]; 2],
    goal: &str,
) {
    if grower.is_empty() || control.is_empty() {
        return;
    }
    let [lost, control] =
        [grower, control].map(|turns| MedianAndRange::from_figures(turns.to_vec()));
    let beside = format!(
        "{:.1} to {:.1} in {} turns; beside the control {:.1}, {:.1} to {:.1}; compared with the turns right before and after{goal}",
        lost.low, lost.high, lost.turns, control.median, control.low, control.high,
    );
    rows.add_row(what, lost.median, "%", beside);
}

fn measure_neighbour_effect(
    host: &BenchHost,
    daemon: Option<&RunningDaemon>,
    turns: usize,
    turn: Duration,
    effect: &mut NeighbourEffect,
) -> BenchResult<()> {
    let groups = (0..OTHERS)
        .map(|n| MemoryCgroup::new(&format!("hawkeye-bench-other-{n}"), OTHERS_LIMIT_MIB << 20))
        .collect::<BenchResult<Vec<_>>>()?;
    let mut others = groups
        .iter()
        .map(|group| start_reader_in_cgroup(host, group, OTHERS_WORDS))
        .collect::<BenchResult<Vec<_>>>()?;
    let control = SteadyNeighbour::start_stopped(host)?;
    let pids: Vec<u32> = others.iter().map(|other| other.pid()).collect();
    let before = match daemon {
        Some(daemon) => {
            pids.iter().try_for_each(|pid| daemon.wait_until_managed(*pid))?;
            std::thread::sleep(SETTLE);
            daemon.fetch_status()?
        }
        None => DaemonStatus::default(),
    };
    let killed = EndlessGrower::run_beside(host, daemon, |neighbour| {
        let cpu_s = || daemon.map(|daemon| daemon.cpu_time().as_secs_f64());
        let (begun, cpu_before_s) = (Instant::now(), cpu_s());
        let measured = (0..turns)
            .try_for_each(|_| measure_turn_beside(neighbour, &control, &mut others, turn, effect));
        // One that was killed has no speed any more. It is counted below.
        unless_killed(measured, || count_kills(&groups))?;
        if let (Some(before_s), Some(after_s)) = (cpu_before_s, cpu_s()) {
            let (cpu_s, wall_s) = (after_s - before_s, begun.elapsed().as_secs_f64());
            let worst_percent = cpu_s * 100.0 / wall_s;
            effect.daemon.merge(&ManagerCpuUse { cpu_s, wall_s, worst_percent });
        }
        if let Some(daemon) = daemon {
            // Before the neighbour ends.
            let after = daemon.fetch_status()?;
            effect.add_recovered([&before, &after], &pids, neighbour.pid());
        }
        Ok(())
    })?;
    effect.killed += killed;
    effect.others_killed += count_kills(&groups)?;
    Ok(())
}

/// Adds to the effect what the others lose while the neighbour grows, and while the control uses as
/// much CPU time.
fn measure_turn_beside(
    neighbour: &EndlessGrower,
    control: &SteadyNeighbour,
    others: &mut [Box<dyn MeasuredProgram>],
    turn: Duration,
    effect: &mut NeighbourEffect,
) -> BenchResult<()> {
    let before = measure_together(others, turn)?;
    let (begun, cpu_before) = (Instant::now(), neighbour.cpu_time());
    neighbour.set_growing(true);
    let beside = measure_together(others, turn);
    neighbour.set_growing(false);
    let share = share_of_a_core(neighbour.cpu_time().saturating_sub(cpu_before), begun);
    let beside = beside?;
    let between = measure_together(others, turn)?;
    effect.beside_grower.add_turn(&beside, [&before, &between]);
    effect.grower_cpu_percent.push(share * 100.0);

    let (begun, cpu_before) = (Instant::now(), control.cpu_time()?);
    let beside = control.run_beside(share, || measure_together(others, turn))?;
    let control_share = share_of_a_core(control.cpu_time()?.saturating_sub(cpu_before), begun);
    let after = measure_together(others, turn)?;
    effect.beside_control.add_turn(&beside, [&between, &after]);
    effect.control_cpu_percent.push(control_share * 100.0);
    Ok(())
}

fn share_of_a_core(cpu: Duration, begun: Instant) -> f64 {
    cpu.as_secs_f64() / begun.elapsed().as_secs_f64()
}

/// What was measured; `None` if that failed and the kernel has killed a program that was measured.
fn unless_killed<T>(
    measured: BenchResult<T>,
    count_kills: impl FnOnce() -> BenchResult<u64>,
) -> BenchResult<Option<T>> {
    match measured {
        Err(_) if count_kills()? > 0 => Ok(None),
        measured => measured.map(Some),
    }
}

fn count_kills(groups: &[MemoryCgroup]) -> BenchResult<u64> {
    groups.iter().map(MemoryCgroup::count_oom_kills).sum()
}

#[cfg(test)]
mod tests {
    use super::super::running_daemon::{DaemonProcessStatus, RecoveryTotals};
    use super::*;

    #[test]
    fn what_is_lost_is_compared_with_the_turns_around_it_and_with_the_control() {
        let speeds = |per_s: f64, per_cpu_s: f64| [ProgramSpeed { per_s, per_cpu_s }; OTHERS];
        let mut effect = NeighbourEffect {
            recovered_in_neighbour_bytes: 30 << 20,
            recovered_bytes: 40 << 20,
            daemon: ManagerCpuUse { cpu_s: 1.0, wall_s: 50.0, worst_percent: 2.0 },
            ..NeighbourEffect::default()
        };
        let (before, after) = (speeds(90.0, 200.0), speeds(110.0, 200.0));
        let alone = [&before[..], &after[..]];
        effect.beside_grower.add_turn(&speeds(75.0, 199.0), alone);
        effect.beside_control.add_turn(&speeds(80.0, 200.0), alone);
        let mut report = LiveReport::new("hostile-neighbour");
        add_rows_to_report(&GuardArm::GUARD, &effect, 1, &mut report);
        let row = |what: &str| report.row(&format!("{}: {what}", GuardArm::GUARD.name));
        let lost = row("speed lost by container 1").value;
        assert!((lost - 0.5).abs() < 1e-9, "{lost}");
        let wall = row("wall-clock speed lost by container 2");
        assert!((wall.value - 25.0).abs() < 1e-9, "{}", wall.value);
        assert!(wall.beside.contains("beside the control 20.0, 20.0 to 20.0;"), "{}", wall.beside);
        let taken = row("taken from the neighbour");
        assert_eq!(taken.value, 30.0);
        assert!(taken.beside.starts_with("of 40 MiB in all programs"), "{}", taken.beside);
        assert_eq!(row("daemon's CPU time").value, 2.0);
    }

    #[test]
    fn what_guard_took_before_the_neighbour_started_does_not_count() {
        let status = |recovered: [u64; 3]| DaemonStatus {
            totals: RecoveryTotals { split: 0, recovered_bytes: recovered.iter().sum() },
            processes: (1..).zip(recovered).map(status_of_process).collect(),
            ..DaemonStatus::default()
        };
        let mut effect = NeighbourEffect::default();
        effect.add_recovered([&status([40, 0, 0]), &status([40, 5, 100])], &[1, 2], 3);
        assert_eq!(effect.recovered_in_others_bytes, 5);
        assert_eq!(effect.recovered_in_neighbour_bytes, 100);
        assert_eq!(effect.recovered_bytes, 105);
    }

    fn status_of_process((pid, recovered_bytes): (u32, u64)) -> DaemonProcessStatus {
        DaemonProcessStatus { pid, recovered_bytes }
    }

    #[test]
    fn without_a_finished_turn_no_speed_and_no_cpu_time_is_reported() {
        let effect = NeighbourEffect { others_killed: 1, ..NeighbourEffect::default() };
        let mut report = LiveReport::new("hostile-neighbour");
        add_rows_to_report(&GuardArm::GUARD, &effect, 1, &mut report);
        assert!(!report.rows.iter().any(|row| row.what.contains("speed lost")), "{report}");
        assert!(!report.rows.iter().any(|row| row.what.contains("CPU time")), "{report}");
        let killed = report.row(&format!("{}: neighbour killed", GuardArm::GUARD.name));
        assert!(killed.beside.contains("; 1 of the others;"), "{}", killed.beside);
    }

    #[test]
    fn a_kill_ends_the_turns_and_another_failure_is_an_error() {
        let failed = || -> BenchResult<u64> { bail!("the workload has ended") };
        assert!(unless_killed(failed(), || Ok(1)).is_ok_and(|measured| measured.is_none()));
        let error = unless_killed(failed(), || Ok(0)).expect_err("no kill").to_string();
        assert_eq!(error, "the workload has ended");
        // The speeds are known, so they count. So does the kill, at the end.
        assert!(unless_killed(Ok(7), || Ok(1)).is_ok_and(|measured| measured == Some(7)));
    }
}
