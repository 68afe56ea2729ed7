//! The promise as one table: programs that others wrote, under base pages, THP always, `hawkeye
//! run`, and the daemon. Rounds of earlier sessions are in it, too.

mod headline_arm;
mod ratio_table;

use super::free_memory::FreeMemory;
use super::kept_rounds::{KeptRound, KeptRounds};
use super::memory_hogs::MemoryHogs;
use super::prelude::*;
use super::programs::{HEADLINE_PROGRAMS, program_launcher};
use super::running_daemon::manager_family_cpu_time;
use crate::run_origin::RunOrigin;
use hawkeye_workload::RequestSchedule;
use headline_arm::{ENABLED_UNDER_MANAGER, HeadlineArm, HeadlineArmFigures, LaterFigures};
use ratio_table::add_ratio_rows;
use std::collections::BTreeMap;

/// A program's figures under each arm.
type ArmFigures = BTreeMap<HeadlineArm, HeadlineArmFigures>;
type ProgramRound = KeptRound<ArmFigures>;

/// The quick form runs the first three.
const QUICK_PROGRAMS: usize = 3;

/// Pace of the requests that are timed after the last minute.
const LATENCY_QUESTIONS_PER_S: u32 = 500;
const LATENCY_WRITES_PERCENT: u8 = 10;

/// Share of a server's keys that are deleted at the end.
const DELETED_PERCENT: u8 = 80;
/// Then programs fill the machine to above the watermark from which memory is recovered, by default
/// 85 %.
const PRESSURE_PERCENT: f64 = 88.0;

/// What is measured of a program under an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MeasuredPart {
    Whole,
    /// Speed in the first minute, without the daemon. A full round of all programs takes less than
    /// an hour.
    FirstMinute,
}

impl MeasuredPart {
    fn arms(self) -> &'static [HeadlineArm] {
        match self {
            Self::Whole => &HeadlineArm::ALL,
            Self::FirstMinute => &[HeadlineArm::Never, HeadlineArm::Always, HeadlineArm::Run],
        }
    }
}

/// Length and size of the runs.
#[derive(Clone, Copy, Debug)]
struct HeadlineSizes {
    mib: u64,
    /// What counts as a minute.
    minute: Duration,
    /// From the start of a program to the start of its last minute.
    last_minute_at: Duration,
    rounds: usize,
    /// Time for which memory is short after a deletion; `None` in the short form, as filling the
    /// machine takes half a minute.
    pressure: Option<Duration>,
}

impl HeadlineSizes {
    /// The first three programs take less than eight minutes. A JVM takes five seconds to fill its
    /// memory when other programs use the cores, too, and may take at most three quarters of a
    /// minute.
    const QUICK: Self = Self {
        mib: 1024,
        minute: Duration::from_secs(7),
        last_minute_at: Duration::from_secs(7),
        rounds: 2,
        pressure: None,
    };
    const FULL: Self = Self {
        mib: 4096,
        minute: Duration::from_secs(60),
        last_minute_at: Duration::from_secs(240),
        rounds: 3,
        pressure: Some(Duration::from_secs(30)),
    };

    fn of_form(quick: bool) -> Self {
        if quick { Self::QUICK } else { Self::FULL }
    }
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    measure_programs(host, scale, MeasuredPart::Whole, FreeMemory::Backed, report)
}

pub fn run_first_minute(
    host: &mut BenchHost,
    scale: Scale,
    report: &mut LiveReport,
) -> BenchResult<()> {
    measure_programs(host, scale, MeasuredPart::FirstMinute, FreeMemory::Backed, report)
}

pub fn run_in_long_free_memory(
    host: &mut BenchHost,
    scale: Scale,
    report: &mut LiveReport,
) -> BenchResult<()> {
    measure_programs(host, scale, MeasuredPart::Whole, FreeMemory::LongFree, report)
}

fn measure_programs(
    host: &mut BenchHost,
    scale: Scale,
    part: MeasuredPart,
    memory: FreeMemory,
    report: &mut LiveReport,
) -> BenchResult<()> {
    let quick = scale == Scale::Quick;
    let sizes = HeadlineSizes::of_form(quick);
    let usual = &HEADLINE_PROGRAMS[..scale.short_or_long(QUICK_PROGRAMS, HEADLINE_PROGRAMS.len())];
    let programs = host.selected_programs(&HEADLINE_PROGRAMS, usual)?;
    let origin = RunOrigin::of_this_machine();
    let mut kept: KeptRounds<ArmFigures> =
        KeptRounds::load(host.kept_rounds_file(report.name.name))?;
    // A session that is stopped has rounds of all programs, rather than all rounds of some.
    for _ in 0..host.rounds().unwrap_or(sizes.rounds) {
        for kind in programs.iter().copied() {
            // Each round begins with another arm, also those of several sessions.
            let first_arm = kept.count_rounds_of(kind.name(), quick);
            match measure_round(host, kind, sizes, part, memory, first_arm) {
                Ok(arms) => {
                    let (program, origin) = (kind.name().to_owned(), origin.dated_today());
                    kept.add_round(ProgramRound { program, quick, origin, arms })?;
                    eprintln!("hawkeye-lab: {}: a round of {} is done", report.name, kind.name());
                }
                // One program that can't run here does not affect the others, nor its next round.
                Err(error) => {
                    report.add_note(format!("A round of {} failed: {error}", kind.name()))
                }
            }
        }
    }
    add_ratio_rows(kept.rounds(), &origin, report);
    add_notes(kept.rounds(), part, memory, report);
    Ok(())
}

fn measure_round(
    host: &mut BenchHost,
    kind: ProgramKind,
    sizes: HeadlineSizes,
    part: MeasuredPart,
    memory: FreeMemory,
    first_arm: usize,
) -> BenchResult<ArmFigures> {
    let resident_bytes = kind.expected_resident_bytes(sizes.mib);
    require_available_memory(resident_bytes * 2)?;
    let arms = part.arms();
    let in_turn = arms.iter().cycle().skip(first_arm % arms.len()).take(arms.len());
    in_turn
        .map(|arm| {
            memory.prepare(host, resident_bytes)?;
            let figures = arm.run_under_arm(host, |host, launcher| {
                program_launcher::run_with_launcher(launcher, || {
                    start_and_measure_under_arm(host, kind, sizes, part)
                })
            })?;
            Ok((*arm, figures))
        })
        .collect()
}

fn start_and_measure_under_arm(
    host: &BenchHost,
    kind: ProgramKind,
    sizes: HeadlineSizes,
    part: MeasuredPart,
) -> BenchResult<HeadlineArmFigures> {
    let mut program = kind.start(host, sizes.mib)?;
    let figures = measure_started_program(host, program.as_mut(), kind, sizes, part);
    let ended = match headline_arm::find_launching_manager(program.pid()) {
        Some(manager) => {
            program.prepare_to_end().and_then(|()| headline_arm::terminate_hawkeye_run(manager))
        }
        None => Ok(()),
    };
    let figures = figures?;
    ended.map(|()| figures)
}

fn measure_started_program(
    host: &BenchHost,
    program: &mut dyn MeasuredProgram,
    kind: ProgramKind,
    sizes: HeadlineSizes,
    part: MeasuredPart,
) -> BenchResult<HeadlineArmFigures> {
    let begun = program_launcher::latest_program_start().unwrap_or_else(Instant::now);
    program.start_work()?;
    let filled = begun.elapsed();
    let left = sizes.minute.saturating_sub(filled);
    if left < sizes.minute / 4 {
        bail!(
            "{} took {:.0} s to fill its memory, most of its first minute",
            kind.name(),
            filled.as_secs_f64()
        );
    }
    let first = program.measure_operations_per_s(left, &mut || {})? * left.as_secs_f64();
    let later = match part {
        MeasuredPart::Whole => Some(measure_after_first_minute(host, program, begun, sizes)?),
        MeasuredPart::FirstMinute => None,
    };
    let manager = headline_arm::find_launching_manager(program.pid());
    Ok(HeadlineArmFigures {
        first_minute_per_s: first / sizes.minute.as_secs_f64(),
        later,
        manager_cores: manager.map(|manager| {
            manager_family_cpu_time(manager).as_secs_f64() / begun.elapsed().as_secs_f64()
        }),
    })
}

fn measure_after_first_minute(
    host: &BenchHost,
    program: &mut dyn MeasuredProgram,
    begun: Instant,
    sizes: HeadlineSizes,
) -> BenchResult<LaterFigures> {
    std::thread::sleep(sizes.last_minute_at.saturating_sub(begun.elapsed()));
    let (last_begun, cpu_before) = (Instant::now(), headline_arm::program_cpu_time(program.pid()));
    let last = program.measure_operations_per_s(sizes.minute, &mut || {})?;
    let last_cpu = headline_arm::program_cpu_time(program.pid()).saturating_sub(cpu_before);
    let program_cores = last_cpu.as_secs_f64() / last_begun.elapsed().as_secs_f64();
    program.pause_work()?;
    let latencies = program.measure_answer_latencies(RequestSchedule {
        length: latency_phase_length(sizes),
        questions_per_s: LATENCY_QUESTIONS_PER_S,
        writes_percent: LATENCY_WRITES_PERCENT,
    })?;
    let pid = program_launcher::managed_program_pid(program.pid());
    let rss = rss_bytes(pid)?;
    let rss_bytes_after_deletion = match sizes.pressure {
        Some(length) if program.delete_keys(DELETED_PERCENT)? => {
            Some(fill_memory_and_measure_rss(host, pid, length)? as f64)
        }
        _ => None,
    };
    Ok(LaterFigures {
        last_minute_per_s: last,
        program_cores,
        rss_bytes: rss as f64,
        rss_bytes_after_deletion,
        p999_us: latencies.map(|answers| answers.counted().p999_us),
        p999_of_all_us: latencies.map(|answers| answers.p999_us),
        counted_percent: latencies.map(|answers| answers.counted().percent),
    })
}

/// What a reader of the table must know.
fn add_notes(
    rounds: &[ProgramRound],
    part: MeasuredPart,
    memory: FreeMemory,
    report: &mut LiveReport,
) {
    report.add_note(format!(
        "Each program starts anew under each arm, in each round; arms alternate within a round. The first minute counts from the start of the program, with the time that it takes to fill its memory. For hawkeye run that includes the start of the manager; the daemon runs before. {}",
        memory.describe(),
    ));
    let is_whole = part == MeasuredPart::Whole;
    for (quick, rows) in [(false, "Rows that are not marked as quick"), (true, "Quick rows")] {
        if rounds.iter().any(|round| round.quick == quick) {
            let sizes = HeadlineSizes::of_form(quick);
            let mut note = format!(
                "{rows}: {} MiB each, and a minute is {} s",
                sizes.mib,
                sizes.minute.as_secs()
            );
            if is_whole {
                note += &format!(
                    ". The last one begins after {} s. A p99.9 is of about {:.0} answers in each round",
                    sizes.last_minute_at.as_secs(),
                    latency_phase_length(sizes).as_secs_f64() * f64::from(LATENCY_QUESTIONS_PER_S),
                );
            }
            report.add_note(note + ".");
        }
    }
    report.add_note(
        "A row is of the date, commit and machine of this run, except where it names others.",
    );
    let has = |kind: ProgramKind| rounds.iter().any(|round| round.program == kind.name());
    if has(ProgramKind::Postgres) || has(ProgramKind::MariaDb) || has(ProgramKind::RocksDb) {
        report.add_note("PostgreSQL, MariaDB and RocksDB start with files that were written right before, and read them in their first minute.");
    }
    report.add_note(format!("Under hawkeye run and the daemon, transparent_hugepage/enabled is {ENABLED_UNDER_MANAGER} when they start. The machine's other settings are its own."));
    report.add_note("Redis runs with disable-thp no. In each arm a server and its client have cores of their own.");
    if !is_whole {
        return;
    }
    if let Some(length) = HeadlineSizes::FULL.pressure {
        report.add_note(format!("Under pressure after deletion: {DELETED_PERCENT} % of a server's keys are deleted at random, and other programs fill the machine to {PRESSURE_PERCENT:.0} % for {} s. Only Redis and memcached have such keys; other programs and quick rounds have no such row.", length.as_secs()));
    }
    report.add_note("Only servers have a p99.9. Of Redis and memcached, only the answers count during which neither server nor client waited for a core: on two cores, whatever else runs dominates the tail of the rest. That leaves out answers which waited because a manager ran, so the p99.9 of all answers stands beside it, with the share that counts. pgbench and sysbench do not report that, so all look-ups in PostgreSQL and MariaDB count. Those in PostgreSQL come over a new connection. The process of that connection maps the shared buffers as it reads them, so the p99.9 contains first touches.");
    report.add_note("Saved CPU time: what the operations of the last minute would have cost at base pages' CPU time per operation, less what they cost. A manager may use 2 % of a core and a quarter of that.");
}

/// Time for which single requests are timed.
fn latency_phase_length(sizes: HeadlineSizes) -> Duration {
    sizes.minute / 2
}

/// Resident memory of a process after memory was short for `length`, which is still the case then.
/// Redis' allocator gives free memory back within ten seconds.
fn fill_memory_and_measure_rss(host: &BenchHost, pid: u32, length: Duration) -> BenchResult<u64> {
    let _hogs = MemoryHogs::fill_until_percent(host.workload_program_path(), PRESSURE_PERCENT)?;
    std::thread::sleep(length);
    Ok(rss_bytes(pid)?)
}
