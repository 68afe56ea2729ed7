//! Redis beside PostgreSQL while HawkEye promotes PostgreSQL's shared buffers: what promotions cost
//! a neighbour that is not managed.

use super::attached_manager::AttachedManager;
use super::prelude::*;
use super::programs::program_speed::measure_working_program;
use super::programs::{LookUpDatabase, ProgramKind};
use super::shared_memory_arm::{
    SharedMemoryArm, add_row_with_range, least_huge_percent, measure_each_round,
};
use crate::statistics::{median_of_mapped, median_standard_error};

/// Nine tenths of a normal distribution lie within 1.645 standard errors of its centre.
const ERRORS_OF_90_PERCENT: f64 = 1.645;

#[derive(Clone, Debug, Default)]
struct NeighbourRound {
    /// Redis in each turn beside the manager, as a share of the turns before and after it, in which
    /// the manager is stopped.
    beside: Vec<RelativeSpeed>,
    promoted: u64,
    /// Share of the mapped shared memory that is huge at the end, in the backend with least of it.
    huge_percent: f64,
    manager_cpu_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct RelativeSpeed {
    per_s: f64,
    per_cpu_s: f64,
}

impl RelativeSpeed {
    fn beside_neighbours(it: ProgramSpeed, before: ProgramSpeed, after: ProgramSpeed) -> Self {
        Self {
            per_s: 2.0 * it.per_s / (before.per_s + after.per_s),
            per_cpu_s: 2.0 * it.per_cpu_s / (before.per_cpu_s + after.per_cpu_s),
        }
    }
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let (buffers_mib, redis_mib) = scale.short_or_long((512, 128), (4096, 1024));
    let turns = scale.short_or_long(5, 40);
    let turn = Duration::from_secs(scale.short_or_long(1, 2));
    let rounds = scale.short_or_long(1, 3);
    // The buffers, the files of the database in the page cache, and new huge pages.
    let bytes = (3 * buffers_mib + 2 * redis_mib) << 20;
    require_available_memory(bytes)?;
    let mut database = LookUpDatabase::create(buffers_mib)?;
    let measured = measure_each_round(report, rounds, || {
        host.touch_memory_once(bytes)?;
        SharedMemoryArm::HawkEye.run_under_arm(host, |host| {
            let redis = ProgramKind::Redis.start(host, redis_mib)?;
            let done = measure_beside(redis, &mut database, turns, turn);
            database.stop_server().and(done)
        })
    })?;
    add_rows_to_report(&measured, report);
    report.add_note(format!(
        "PostgreSQL has {buffers_mib} MiB of shared buffers in base pages, nine tenths of them full, and three clients of pgbench -M prepared, with the transactions of -S. Redis has {redis_mib} MiB of values and a client without pauses; HawkEye does not manage it. All servers share one core, all clients the other. hawkeye attach --shared-memory gets all processes of PostgreSQL right before the first turn. It then runs in {turns} turns of {} s, and is stopped (SIGSTOP) in as many before and after them. Meanwhile it promotes. A figure is a turn beside the mean of the turns before and after it.",
        turn.as_secs(),
    ));
    report.add_note(
        "So what promotions do to Redis at the time counts: CPU time, caches, interrupts to other cores. That PostgreSQL is faster afterwards does not.",
    );
    Ok(())
}

fn measure_beside(
    mut redis: Box<dyn MeasuredProgram>,
    database: &mut LookUpDatabase,
    turns: usize,
    turn: Duration,
) -> BenchResult<NeighbourRound> {
    let clients = database.start_clients(false)?;
    clients.start_work()?;
    redis.start_work()?;
    let mut measure_turn = || measure_working_program(redis.as_mut(), turn);
    // Warms it up.
    measure_turn()?;
    let manager = AttachedManager::start(&clients.server_processes())?;
    let mut beside = Vec::new();
    let mut before = manager.while_stopped(&mut measure_turn)?;
    for _ in 0..turns {
        let running = measure_turn()?;
        let after = manager.while_stopped(&mut measure_turn)?;
        beside.push(RelativeSpeed::beside_neighbours(running, before, after));
        before = after;
    }
    let manager_cpu_s = manager.cpu_time().as_secs_f64();
    let huge_percent = least_huge_percent(clients.backends())?;
    Ok(NeighbourRound { beside, promoted: manager.end()?.promoted, huge_percent, manager_cpu_s })
}

fn add_rows_to_report(rounds: &[NeighbourRound], report: &mut LiveReport) {
    let all: Vec<RelativeSpeed> = rounds.iter().flat_map(|it| it.beside.clone()).collect();
    let mut add_speed = |what: &str, part: fn(&RelativeSpeed) -> f64| {
        let percent = median_of_mapped(&all, part);
        let error = median_standard_error(&all.iter().map(part).collect::<Vec<_>>());
        let margin = ERRORS_OF_90_PERCENT * error;
        let of_rounds =
            rounds.iter().map(|it| format!("{:.2}", median_of_mapped(&it.beside, part)));
        let of_rounds: Vec<_> = of_rounds.collect();
        let beside = format!(
            "of those while HawkEye is stopped; {:.2}-{:.2} with a confidence of 90 %, {} turns, by round {}; goal at least 99",
            percent - margin,
            percent + margin,
            all.len(),
            of_rounds.join(", "),
        );
        report.add_row(what, percent, "%", beside);
    };
    add_speed("answers of Redis", |it| it.per_s * 100.0);
    add_speed("answers of Redis per CPU time", |it| it.per_cpu_s * 100.0);
    let mut add = |what: &str, part: fn(&NeighbourRound) -> f64, unit, beside: &str| {
        add_row_with_range(report, what.into(), rounds.iter().map(part).collect(), unit, beside);
    };
    add("promotions", |it| it.promoted as f64, "", "in the turns between the stops");
    let backend = "of the mapped shared memory at the end, in the backend with the smallest share";
    add("share that is huge", |it| it.huge_percent, "%", backend);
    add("CPU time of the manager", |it| it.manager_cpu_s, "s", "with its helpers");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_compared_with_the_turns_around_it() {
        let speed = |per_s: f64| ProgramSpeed { per_s, per_cpu_s: 2.0 * per_s };
        let half = RelativeSpeed::beside_neighbours(speed(60.0), speed(100.0), speed(140.0));
        assert_eq!(half, RelativeSpeed { per_s: 0.5, per_cpu_s: 0.5 });
        let round = |per_s: [f64; 3]| NeighbourRound {
            beside: per_s.map(|per_s| RelativeSpeed { per_s, per_cpu_s: 1.0 }).to_vec(),
            promoted: 7,
            huge_percent: 98.0,
            manager_cpu_s: 1.5,
        };
        let mut report = LiveReport::new("shared-neighbour");
        add_rows_to_report(&[round([0.97, 0.98, 0.99]), round([0.99, 1.0, 1.01])], &mut report);
        let row = |what| report.row(what);
        assert_eq!(row("answers of Redis").value, 99.0);
        let beside = &row("answers of Redis").beside;
        assert!(beside.contains("6 turns, by round 98.00, 100.00; goal"), "{beside}");
        let beside = &row("answers of Redis per CPU time").beside;
        assert!(beside.contains("; 100.00-100.00 with"), "{beside}");
        assert_eq!(row("promotions").value, 7.0);
    }
}
