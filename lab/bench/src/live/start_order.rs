//! A TLB-sensitive program started before and after a large Redis with little to do: the order
//! should not matter. Alias: `figure-8`, after the HawkEye paper's Figure 8.

use super::prelude::*;

const SENSITIVE: ProgramKind = reader_kind("random", "random");
const POLICIES: [&str; 3] = ["hawkeye", "hawkeye-g", "linux"];

/// A program reads 2 GiB at random beside a Redis of 4 GiB; there are as many promotions as the
/// reader has regions.
pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([256, 1, 200, 1000], [2048, 9, 1000, 120_000]);
    let redis_mib = scale.short_or_long(256, 4096);
    require_available_memory(
        2 * (sizes.mib << 20) + ProgramKind::Redis.expected_resident_bytes(redis_mib),
    )?;
    let mut huge = SENSITIVE.start(host, sizes.mib)?;
    promote_whole_process(huge.pid())?;
    for policy in [None].into_iter().chain(POLICIES.map(Some)) {
        let name = policy.unwrap_or("base pages");
        let mut rows = report.prefixed_row_writer(name);
        let mut speeds = [0.0; 2];
        for (order, speed) in ["before", "after"].into_iter().zip(&mut speeds) {
            let redis_first = order == "after";
            let promoted;
            (*speed, promoted) = measure_start_order_under_policy(
                host,
                policy,
                redis_first,
                &mut huge,
                sizes,
                redis_mib,
            )?;
            let [own, of_redis] = promoted;
            rows.add_row(
                &format!("started {order} Redis"),
                *speed,
                "%",
                format!("of its all-huge speed; promotions: {own} its own, {of_redis} of Redis"),
            );
        }
        let difference = speed_difference_percent(speeds[0], speeds[1]);
        let goal = "goal for hawkeye: at most 2";
        rows.add_row("difference between the orders", difference, "%", goal);
    }
    report.add_note(format!(
        "The program reads {} MiB at random. Redis has {} MiB in values of 4 KiB and little load. At most {} promotions and {} s; median of {} turns of {} s, in turn with an all-huge reader, by reads per second of CPU time.",
        sizes.mib,
        redis_mib,
        sizes.mib / 2,
        sizes.at_most.as_secs(),
        sizes.turns,
        sizes.turn.as_secs_f64(),
    ));
    Ok(())
}

/// The difference of two speeds, in per cent of the higher one.
fn speed_difference_percent(one: f64, other: f64) -> f64 {
    (one - other).abs() * 100.0 / one.max(other)
}

/// Speed of the sensitive program in per cent of its all-huge speed, and promotions in it and in
/// Redis.
fn measure_start_order_under_policy(
    host: &BenchHost,
    policy: Option<&str>,
    redis_first: bool,
    huge: &mut Box<dyn MeasuredProgram>,
    sizes: TurnSettings,
    redis_mib: u64,
) -> BenchResult<(f64, [u64; 2])> {
    let sensitive = || SENSITIVE.start(host, sizes.mib);
    let redis = || start_lightly_loaded_redis(host, redis_mib);
    let (mut sensitive, mut redis) = if redis_first {
        let started = redis()?;
        (sensitive()?, started)
    } else {
        (sensitive()?, redis()?)
    };
    let mut promoted = [0, 0];
    if let Some(policy) = policy {
        let mut arrived = [&mut sensitive, &mut redis];
        if redis_first {
            arrived.reverse();
        }
        let done = promote_one_programs_worth(host, policy, arrived, sizes)?;
        promoted = [sensitive.pid(), redis.pid()].map(|pid| done.count_promoted_regions(pid));
    }
    redis.start_work()?;
    let both = [&mut sensitive, huge];
    let rounds = measure_rounds(both, sizes.turn, |n| n < sizes.turns)?;
    let relative = |[ours, theirs]: &[ProgramSpeed; 2]| ours.per_cpu_s * 100.0 / theirs.per_cpu_s;
    Ok((median_of_mapped(&rounds, relative), promoted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_does_not_depend_on_the_order() {
        assert_eq!(speed_difference_percent(100.0, 98.0), 2.0);
        assert_eq!(speed_difference_percent(98.0, 100.0), 2.0);
        assert_eq!(speed_difference_percent(55.0, 55.0), 0.0);
    }
}
