//! Redis beside PostgreSQL while HawkEye promotes PostgreSQL's shared buffers: what promotions cost
//! a neighbour that is not managed.

use super::attached_manager::AttachedManager;
use super::manager_runs::ManagedMemoryKind;
use super::prelude::*;
use super::programs::program_speed::measure_working_program;
use super::programs::{LookUpDatabase, ProgramKind};
use super::shared_memory_arm::{
    SharedMemoryArm, add_row_with_range, least_huge_percent, measure_each_round,
};
use super::shared_memory_use::machine_huge_shared_bytes;
use crate::statistics::median_standard_error;

/// Nine tenths of a normal distribution lie within 1.645 standard errors of its centre.
const ERRORS_OF_90_PERCENT: f64 = 1.645;

#[derive(Clone, Debug, Default)]
struct NeighbourRound {
    /// Redis in each turn in which the manager promoted, as a share of the turns before and after
    /// it, in which the manager is stopped.
    beside: Vec<RelativeSpeed>,
    /// Turns in which the manager could work and promoted nothing.
    idle_turns: usize,
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

/// A turn in which the manager is stopped.
#[derive(Clone, Copy, Debug)]
struct StoppedTurn {
    speed: ProgramSpeed,
    /// Shared memory that is huge at its end, on the whole machine.
    huge_bytes: u64,
}

impl NeighbourRound {
    /// Adds a turn between two in which the manager is stopped. It counts if the manager promoted.
    fn add_turn(&mut self, it: ProgramSpeed, before: StoppedTurn, after: StoppedTurn) {
        match after.huge_bytes > before.huge_bytes {
            true => {
                self.beside.push(RelativeSpeed::beside_neighbours(it, before.speed, after.speed));
            }
            false => self.idle_turns += 1,
        }
    }
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
        "PostgreSQL has {buffers_mib} MiB of shared buffers in base pages, nine tenths of them full, and three clients of pgbench -M prepared, with the transactions of -S. Redis has {redis_mib} MiB of values and a client without pauses; HawkEye does not manage it. All servers share one core, all clients the other. hawkeye attach --shared-memory gets all processes of PostgreSQL right before the first turn. It then runs in {turns} turns of {} s, and is stopped (SIGSTOP) in as many before and after them. A figure is a turn beside the mean of the turns before and after it. Only turns count in which the machine's shared memory in huge pages (ShmemHugePages) has grown.",
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
    // Warms it up.
    measure_working_program(redis.as_mut(), turn)?;
    let servers = clients.server_processes();
    let manager = AttachedManager::start(&servers, ManagedMemoryKind::Shared)?;
    let mut round = NeighbourRound::default();
    let mut before = measure_stopped_turn(&manager, redis.as_mut(), turn)?;
    for _ in 0..turns {
        let running = measure_working_program(redis.as_mut(), turn)?;
        let after = measure_stopped_turn(&manager, redis.as_mut(), turn)?;
        round.add_turn(running, before, after);
        before = after;
    }
    round.manager_cpu_s = manager.cpu_time().as_secs_f64();
    round.huge_percent = least_huge_percent(clients.backends())?;
    round.promoted = manager.end()?.promoted;
    Ok(round)
}

fn measure_stopped_turn(
    manager: &AttachedManager,
    redis: &mut dyn MeasuredProgram,
    turn: Duration,
) -> BenchResult<StoppedTurn> {
    manager.while_stopped(|| {
        let speed = measure_working_program(redis, turn)?;
        Ok(StoppedTurn { speed, huge_bytes: machine_huge_shared_bytes()? })
    })
}

fn add_rows_to_report(rounds: &[NeighbourRound], report: &mut LiveReport) {
    let all: Vec<RelativeSpeed> = rounds.iter().flat_map(|it| it.beside.clone()).collect();
    let idle_turns: usize = rounds.iter().map(|it| it.idle_turns).sum();
    let counted = format!("in which HawkEye promoted; in {idle_turns} others it did not");
    report.add_row("turns that count", all.len() as f64, "turns", counted);
    let mut add_speed = |what: &str, part: fn(&RelativeSpeed) -> f64| {
        let percent = median_of_mapped(&all, part);
        let error = median_standard_error(&all.iter().map(part).collect::<Vec<_>>());
        let margin = ERRORS_OF_90_PERCENT * error;
        let of_rounds = rounds.iter().map(|it| match it.beside[..] {
            [] => "none".to_owned(),
            _ => format!("{:.2}", median_of_mapped(&it.beside, part)),
        });
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
    // Without a turn that counts there is nothing to say about Redis.
    if !all.is_empty() {
        add_speed("answers of Redis", |it| it.per_s * 100.0);
        add_speed("answers of Redis per CPU time", |it| it.per_cpu_s * 100.0);
    }
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
            idle_turns: 2,
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
        let turns = row("turns that count");
        assert_eq!((turns.value, turns.beside.contains("in 4 others")), (6.0, true), "{turns:?}");
    }

    #[test]
    fn turns_without_a_promotion_do_not_count() {
        let speed = ProgramSpeed { per_s: 1.0, per_cpu_s: 1.0 };
        let stopped = |huge_mib: u64| StoppedTurn { speed, huge_bytes: huge_mib << 20 };
        let mut round = NeighbourRound::default();
        for (before, after) in [(0, 0), (0, 2), (2, 6), (6, 6), (6, 4)] {
            round.add_turn(speed, stopped(before), stopped(after));
        }
        assert_eq!((round.beside.len(), round.idle_turns), (2, 3));

        let idle = NeighbourRound { beside: Vec::new(), ..round };
        let mut report = LiveReport::new("shared-neighbour");
        add_rows_to_report(&[idle], &mut report);
        assert_eq!(report.row("turns that count").value, 0.0);
        assert!(report.rows.iter().all(|row| !row.what.starts_with("answers")), "{report}");
    }
}
