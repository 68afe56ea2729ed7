//! A container that bloats without end, beside two others: which pays for it?

mod endless_grower;

use super::guard_arm::{GuardArm, khugepaged_pace_note};
use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::programs::program_speed::measure_together;
use super::programs::start_reader_in_cgroup;
use super::running_daemon::RunningDaemon;
use crate::statistics::MedianAndRange;
use endless_grower::EndlessGrower;

/// The others: random reads in memory of which a part is bloat, too.
const OTHERS: usize = 2;
const OTHERS_MIB: u64 = 512;
const OTHERS_WORDS: &str =
    "sparse --mib 512 --hot-mib 256 --hot-percent 95 --used 128 --pages default";
/// Half of it is used, so that nothing has to be recovered in these.
const OTHERS_LIMIT_MIB: u64 = 1024;

const ARMS: [GuardArm; 2] = [GuardArm::ALWAYS, GuardArm::GUARD];

/// What the neighbour did to the others, and to itself, under an arm.
#[derive(Debug, Default)]
struct NeighbourEffect {
    /// Speed that each of the others lost while the neighbour grew, in per cent, in each turn.
    lost_percent: [Vec<f64>; OTHERS],
    /// How often the kernel killed the neighbour at its limit.
    killed: u64,
    /// The same for the others.
    others_killed: u64,
    /// Memory that guard took back in the others.
    recovered_in_others_bytes: u64,
    /// The same in total.
    recovered_bytes: u64,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let turn = Duration::from_secs(scale.short_or_long(1, 5));
    let (rounds, turns) = scale.short_or_long((1, 3), (3, 10));
    require_available_memory((EndlessGrower::LIMIT_MIB + OTHERS as u64 * OTHERS_MIB) << 20)?;
    let mut effects = ARMS.map(|_| NeighbourEffect::default());
    for _ in 0..rounds {
        for (arm, effect) in ARMS.iter().zip(&mut effects) {
            arm.run_under_arm(host, |host, daemon| {
                measure_neighbour_effect(host, daemon, turns, turn, effect)
            })?;
        }
    }
    for (arm, effect) in ARMS.iter().zip(&effects) {
        let mut rows = report.prefixed_row_writer(arm.name);
        let goal = |goal: &'static str| if arm.config.is_some() { goal } else { "" };
        for (number, lost) in effect.lost_percent.iter().enumerate() {
            if lost.is_empty() {
                // It was killed, or another one, before the first turn was over.
                continue;
            }
            let what = format!("speed lost by container {}", number + 1);
            let lost = MedianAndRange::from_figures(lost.clone());
            let beside = format!(
                "{:.1} to {:.1} in {} turns; compared with the turns right before and after it{}",
                lost.low,
                lost.high,
                lost.turns,
                goal("; goal: under 2")
            );
            rows.add_row(&what, lost.median, "%", beside);
        }
        let beside = format!(
            "in {rounds} runs; {} of the others{}",
            effect.others_killed,
            goal("; goal: 0 of the others")
        );
        rows.add_row("neighbour killed", effect.killed as f64, "times", beside);
        if arm.config.is_some() {
            let beside = format!("of {:.0} MiB; goal: 0", bytes_to_mib(effect.recovered_bytes));
            let in_others = bytes_to_mib(effect.recovered_in_others_bytes);
            rows.add_row("taken from the others", in_others, "MiB", beside);
        }
    }
    report.add_note(format!(
        "The neighbour has a limit of {} MiB. It touches {} MB of huge pages per second, 16 base pages of each, up to {} MiB, gives all back, and begins again. Without guard it starts again whenever it is killed. The others read {OTHERS_MIB} MiB at random in cgroups of {OTHERS_LIMIT_MIB} MiB; of half of it, three quarters are zeros. Their speed is reads per second of their own CPU time, so that what is lost by sharing cores does not count. In the turns of {} s before and after, the neighbour is stopped.",
        EndlessGrower::LIMIT_MIB,
        EndlessGrower::MB_PER_S,
        EndlessGrower::GROWS_TO_MIB,
        turn.as_secs(),
    ));
    report.add_note("Where the kernel kills one of the others, the turns of that run end.");
    report.add_note(khugepaged_pace_note());
    Ok(())
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
    if let Some(daemon) = daemon {
        others.iter().try_for_each(|other| daemon.wait_until_managed(other.pid()))?;
    }
    effect.killed += EndlessGrower::run_beside(host, daemon, |neighbour| {
        for _ in 0..turns {
            let measured = measure_turn_beside(neighbour, &mut others, turn);
            let Some([before, beside, after]) = unless_killed(measured, || count_kills(&groups))?
            else {
                // The one that was killed has no speed any more. It is counted below.
                return Ok(());
            };
            for (n, lost) in effect.lost_percent.iter_mut().enumerate() {
                let alone = (before[n].per_cpu_s + after[n].per_cpu_s) / 2.0;
                lost.push((1.0 - beside[n].per_cpu_s / alone) * 100.0);
            }
        }
        Ok(())
    })?;
    if let Some(daemon) = daemon {
        let status = daemon.fetch_status()?;
        effect.recovered_bytes += status.totals.recovered_bytes;
        let of_others = |pid| others.iter().any(|other| other.pid() == pid);
        let recovered = status.processes.iter().filter(|process| of_others(process.pid));
        effect.recovered_in_others_bytes += recovered.map(|it| it.recovered_bytes).sum::<u64>();
    }
    effect.others_killed += count_kills(&groups)?;
    Ok(())
}

/// Speeds of the others before the neighbour grows, meanwhile, and afterwards.
fn measure_turn_beside(
    neighbour: &EndlessGrower,
    others: &mut [Box<dyn MeasuredProgram>],
    turn: Duration,
) -> BenchResult<[Vec<ProgramSpeed>; 3]> {
    let before = measure_together(others, turn)?;
    neighbour.set_growing(true);
    let beside = measure_together(others, turn);
    neighbour.set_growing(false);
    Ok([before, beside?, measure_together(others, turn)?])
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
    use super::*;

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
