//! How fast programs work, alone and side by side.

use super::cpu_clock::ProgramCpuClock;
use super::whole_process_promotion::{huge_memory_percent, promote_whole_process};
use super::{MeasuredProgram, ProgramKind};
use crate::error::{BenchResult, bail};
use crate::live::bench_host::{BenchHost, require_available_memory};
use crate::live::huge_page_systems::join_or_resume_panic;
use crate::live::scale::TurnSettings;
use crate::statistics::median;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgramSpeed {
    /// Operations per second of wall-clock time.
    pub per_s: f64,
    /// Operations per second of CPU time of the program, or of its one thread that does the work.
    /// Independent of what shares the processor, and of how slowly a client asks.
    pub per_cpu_s: f64,
}

/// Starts a program's work, measures it for `length`, and pauses it.
pub fn measure_turn(
    program: &mut dyn MeasuredProgram,
    length: Duration,
) -> BenchResult<ProgramSpeed> {
    program.start_work()?;
    let speed = measure_working_program(program, length);
    program.pause_work()?;
    speed
}

/// Runs programs in turn, one round after the other, while `goes_on` returns true; it gets the
/// number of rounds so far. Returns the speeds of each round.
pub fn measure_rounds<const N: usize>(
    mut programs: [&mut Box<dyn MeasuredProgram>; N],
    length: Duration,
    goes_on: impl Fn(usize) -> bool,
) -> BenchResult<Vec<[ProgramSpeed; N]>> {
    let mut rounds = Vec::new();
    while goes_on(rounds.len()) {
        let mut speeds = [ProgramSpeed::default(); N];
        for (speed, program) in speeds.iter_mut().zip(&mut programs) {
            *speed = measure_turn(program.as_mut(), length)?;
        }
        rounds.push(speeds);
    }
    Ok(rounds)
}

/// A program under base pages, and its speed beside that of an instance that is all huge.
pub struct BaseAndHugeRounds {
    pub base: Box<dyn MeasuredProgram>,
    /// The speeds of both in each round.
    pub rounds: Vec<[ProgramSpeed; 2]>,
    /// Share of each one's memory under huge pages, in per cent.
    pub huge_percent: [f64; 2],
}

impl BaseAndHugeRounds {
    /// Starts both and measures them in turn. The first round does not count: it warms up caches
    /// and compilers, and allocates memory that comes and goes.
    pub fn start_and_measure_in_turn(
        host: &BenchHost,
        kind: ProgramKind,
        sizes: TurnSettings,
    ) -> BenchResult<Self> {
        require_available_memory(2 * kind.expected_resident_bytes(sizes.mib))?;
        let mut base = kind.start(host, sizes.mib)?;
        let mut huge = kind.start(host, sizes.mib)?;
        measure_rounds([&mut base, &mut huge], sizes.turn, |n| n < 1)?;
        let promoted_percent = promote_whole_process(huge.pid())?;
        let both = [&mut base, &mut huge];
        let rounds = measure_rounds(both, sizes.turn, |n| n < sizes.turns)?;
        let huge_now = huge_memory_percent(huge.pid())?.min(promoted_percent);
        let huge_percent = [huge_memory_percent(base.pid())?, huge_now];
        Ok(Self { base, rounds, huge_percent })
    }
}

/// Starts the work of several programs at the same time, measures each, and pauses them.
pub fn measure_together(
    programs: &mut [Box<dyn MeasuredProgram>],
    length: Duration,
) -> BenchResult<Vec<ProgramSpeed>> {
    start_all_work(programs)?;
    let speeds = std::thread::scope(|scope| {
        let measuring: Vec<_> = programs
            .iter_mut()
            .map(|program| scope.spawn(move || measure_working_program(program.as_mut(), length)))
            .collect();
        measuring.into_iter().map(join_or_resume_panic).collect()
    });
    pause_all_work(programs)?;
    speeds
}

/// Speeds of programs that work at the same time, as shares of those of programs like them, in
/// turn: by CPU time, medians.
pub fn measure_relative_speeds<const N: usize>(
    programs: &mut [Box<dyn MeasuredProgram>],
    others: &mut [Box<dyn MeasuredProgram>],
    sizes: TurnSettings,
) -> BenchResult<[f64; N]> {
    let mut relative = [const { Vec::new() }; N];
    for _ in 0..sizes.turns {
        let ours = measure_together(programs, sizes.turn)?;
        let theirs = measure_together(others, sizes.turn)?;
        for ((shares, ours), theirs) in relative.iter_mut().zip(ours).zip(theirs) {
            shares.push(ours.per_cpu_s / theirs.per_cpu_s);
        }
    }
    Ok(relative.map(|shares| median(&shares)))
}

pub fn start_all_work(programs: &mut [Box<dyn MeasuredProgram>]) -> BenchResult<()> {
    programs.iter_mut().try_for_each(|program| program.start_work())
}

pub fn pause_all_work(programs: &mut [Box<dyn MeasuredProgram>]) -> BenchResult<()> {
    programs.iter_mut().try_for_each(|program| program.pause_work())
}

/// Measures a working program for `length`.
pub fn measure_working_program(
    program: &mut dyn MeasuredProgram,
    length: Duration,
) -> BenchResult<ProgramSpeed> {
    let clock = ProgramCpuClock::for_program(program)?;
    let mut marks = Vec::new();
    let per_s = program
        .measure_operations_per_s(length, &mut || marks.push((Instant::now(), clock.read())))?;
    let Ok([(begun, before), (ended, after)]) = <[_; 2]>::try_from(marks) else {
        bail!("measuring process {} gave no start and end", program.pid());
    };
    let cpu = after?.work_cpu_time_since(&before?);
    if cpu.is_zero() {
        bail!("process {} did not run while it was measured", program.pid());
    }
    Ok(ProgramSpeed { per_s, per_cpu_s: per_s * (ended - begun).as_secs_f64() / cpu.as_secs_f64() })
}
