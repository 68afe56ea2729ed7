//! A program that gains from huge pages beside one that does not, with promotions for one of them.
//! Alias: `table-9`, after the HawkEye paper's Table 9.

use super::manager_runs::ManagementRecord;
use super::manager_runs::PERIOD;
use super::prelude::*;
use super::programs::program_speed::measure_relative_speeds;

const RANDOM: ProgramKind = reader_kind("random", "random");
const SEQUENTIAL: ProgramKind = reader_kind("sequential", "sequential");
/// Policies to compare, the best expected first.
const POLICIES: [&str; 5] = ["hawkeye", "hawkeye-pmu", "hawkeye-g", "ingens", "linux"];

fn wasted_promotions_percent(promoted: [u64; 2]) -> f64 {
    promoted[1] as f64 * 100.0 / promoted.iter().sum::<u64>().max(1) as f64
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([256, 1, 200, 1000], [4096, 9, 1000, 120_000]);
    require_available_memory(4 * (sizes.mib << 20))?;
    let mut huge = start_random_and_sequential(host, sizes.mib)?;
    for program in &huge {
        let percent = promote_whole_process(program.pid())?;
        report.add_note(format!("{percent:.1} % of an all-huge program's memory is huge."));
    }
    for policy in [None].into_iter().chain(POLICIES.map(Some)) {
        let name = policy.unwrap_or("base pages");
        let (relative, managed, pids) = measure_pair_under_policy(host, policy, &mut huge, sizes)?;
        let [random, sequential] = relative.map(|share| share * 100.0);
        let managed = managed.as_ref();
        let promoted =
            pids.map(|pid| managed.map_or(0, |managed| managed.count_promoted_regions(pid)));
        let mut rows = report.prefixed_row_writer(name);
        let mut beside = "of its all-huge speed".to_owned();
        if let Some(managed) = managed {
            beside += &format!(
                " (goal for hawkeye: at least 97); {} promotions in {:.1} s, longest call {:.0} ms",
                promoted[0],
                managed.wall.as_secs_f64(),
                managed.longest_call.as_secs_f64() * 1e3,
            );
        }
        rows.add_row("random", random, "%", beside);
        let beside = format!("{} promotions", promoted[1]);
        rows.add_row("sequential", sequential, "%", beside);
        if policy.is_some() {
            let wasted = wasted_promotions_percent(promoted);
            let beside = "of the promotions (goal for hawkeye: under 5)";
            rows.add_row("wasted", wasted, "%", beside);
        }
    }
    report.add_note(format!(
        "Two programs of {} MiB run at the same time. At most {} promotions and {} s; median of {} turns of {} s, in turn with an all-huge pair, by reads per second of CPU time. Sampled every {} s.",
        sizes.mib,
        sizes.mib / 2,
        sizes.at_most.as_secs(),
        sizes.turns,
        sizes.turn.as_secs_f64(),
        PERIOD.as_secs(),
    ));
    Ok(())
}

fn start_random_and_sequential(
    host: &BenchHost,
    mib: u64,
) -> BenchResult<[Box<dyn MeasuredProgram>; 2]> {
    Ok([RANDOM.start(host, mib)?, SEQUENTIAL.start(host, mib)?])
}

/// Speeds of both as shares of their all-huge speeds, what the manager did, and the processes.
fn measure_pair_under_policy(
    host: &BenchHost,
    policy: Option<&str>,
    huge: &mut [Box<dyn MeasuredProgram>; 2],
    sizes: TurnSettings,
) -> BenchResult<([f64; 2], Option<ManagementRecord>, [u32; 2])> {
    let mut managed = start_random_and_sequential(host, sizes.mib)?;
    let pids = [managed[0].pid(), managed[1].pid()];
    let spent = match policy {
        Some(policy) => Some(promote_one_programs_worth(host, policy, &mut managed, sizes)?),
        None => None,
    };
    let relative = measure_relative_speeds(&mut managed, huge, sizes)?;
    Ok((relative, spent, pids))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotions_of_the_second_are_wasted() {
        assert_eq!(wasted_promotions_percent([3, 1]), 25.0);
        assert_eq!(wasted_promotions_percent([0, 0]), 0.0);
    }
}
