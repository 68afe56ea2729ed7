//! How fast programs work, alone and side by side.

use super::Program;
use super::cpu_time::CpuClock;
use crate::error::BenchError;
use std::time::{Duration, Instant};

/// How fast a program works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Operations per second of wall-clock time.
    pub per_s: f64,
    /// Operations per second of the program's own CPU time, or of its one thread that does them: the same whoever it shares the
    /// processor with, and however slowly a client asks.
    pub per_cpu_s: f64,
}

/// Sets a program going, measures it for `length`, and has it pause.
pub fn turn(program: &mut dyn Program, length: Duration) -> Result<Speed, BenchError> {
    program.go()?;
    let speed = measure(program, length);
    program.stop()?;
    speed
}

/// Turns of several programs, one after the other for so long, at least one of each: how fast each was in its turns, by CPU time.
pub fn in_turn<const N: usize>(
    programs: &mut [Box<dyn Program>; N],
    length: Duration,
    all: Duration,
) -> Result<Vec<[f64; N]>, BenchError> {
    let begun = Instant::now();
    let mut rounds = Vec::new();
    while rounds.is_empty() || begun.elapsed() < all {
        let mut speeds = [0.0; N];
        for (speed, program) in speeds.iter_mut().zip(programs.iter_mut()) {
            *speed = turn(program.as_mut(), length)?.per_cpu_s;
        }
        rounds.push(speeds);
    }
    Ok(rounds)
}

/// Sets programs going that work at the same time, measures each, and has them pause.
pub fn turn_together(
    programs: &mut [Box<dyn Program>],
    length: Duration,
) -> Result<Vec<Speed>, BenchError> {
    go(programs)?;
    let speeds = std::thread::scope(|scope| {
        let measuring: Vec<_> = programs
            .iter_mut()
            .map(|program| scope.spawn(move || measure(program.as_mut(), length)))
            .collect();
        measuring
            .into_iter()
            .map(|one| {
                one.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    stop(programs)?;
    speeds
}

/// Has all of them work from now on.
pub fn go(programs: &mut [Box<dyn Program>]) -> Result<(), BenchError> {
    programs.iter_mut().try_for_each(|program| program.go())
}

/// Has all of them pause.
pub fn stop(programs: &mut [Box<dyn Program>]) -> Result<(), BenchError> {
    programs.iter_mut().try_for_each(|program| program.stop())
}

/// Measures a program that works for `length`.
pub fn measure(program: &mut dyn Program, length: Duration) -> Result<Speed, BenchError> {
    let clock = CpuClock::of(program)?;
    let mut marks = Vec::new();
    let per_s = program.rate(length, &mut || marks.push((Instant::now(), clock.read())))?;
    let Ok([(begun, before), (ended, after)]) = <[_; 2]>::try_from(marks) else {
        let message = "what was measured has no begin and end".to_owned();
        return Err(BenchError::Impossible(message));
    };
    let cpu = after?.since(&before?);
    if cpu.is_zero() {
        return Err(BenchError::Impossible(format!(
            "process {} did not run while it was measured",
            program.pid()
        )));
    }
    Ok(Speed {
        per_s,
        per_cpu_s: per_s * (ended - begun).as_secs_f64() / cpu.as_secs_f64(),
    })
}
