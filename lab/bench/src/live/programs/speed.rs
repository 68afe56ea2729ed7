//! How fast programs work, alone and side by side.

use super::cpu_time::CpuClock;
use crate::live::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Operations per second of wall-clock time.
    pub per_s: f64,
    /// Operations per second of CPU time of the program, or of its one thread that does the work.
    /// Independent of what shares the processor, and of how slowly a client asks.
    pub per_cpu_s: f64,
}

/// Starts a program's work, measures it for `length`, and pauses it.
pub fn turn(program: &mut dyn Program, length: Duration) -> Result<Speed> {
    program.go()?;
    let speed = measure(program, length);
    program.stop()?;
    speed
}

/// Runs programs in turn for this long in total, with at least one turn each. Returns the speeds of
/// each program's turns, by CPU time.
pub fn in_turn<const N: usize>(
    programs: &mut [Box<dyn Program>; N],
    length: Duration,
    all: Duration,
) -> Result<Vec<[f64; N]>> {
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

/// Starts the work of several programs at the same time, measures each, and pauses them.
pub fn turn_together(programs: &mut [Box<dyn Program>], length: Duration) -> Result<Vec<Speed>> {
    go(programs)?;
    let speeds = std::thread::scope(|scope| {
        let measuring: Vec<_> = programs
            .iter_mut()
            .map(|program| scope.spawn(move || measure(program.as_mut(), length)))
            .collect();
        measuring.into_iter().map(joined).collect()
    });
    stop(programs)?;
    speeds
}

/// Speeds of programs that work at the same time, as shares of those of programs like them, in
/// turn: by CPU time, medians.
pub fn relative_speeds<const N: usize>(
    programs: &mut [Box<dyn Program>],
    others: &mut [Box<dyn Program>],
    turns: usize,
    length: Duration,
) -> Result<[f64; N]> {
    let mut relative = [const { Vec::new() }; N];
    for _ in 0..turns {
        let ours = turn_together(programs, length)?;
        let theirs = turn_together(others, length)?;
        for ((shares, ours), theirs) in relative.iter_mut().zip(ours).zip(theirs) {
            shares.push(ours.per_cpu_s / theirs.per_cpu_s);
        }
    }
    Ok(relative.map(|shares| median(&shares)))
}

pub fn go(programs: &mut [Box<dyn Program>]) -> Result<()> {
    programs.iter_mut().try_for_each(|program| program.go())
}

pub fn stop(programs: &mut [Box<dyn Program>]) -> Result<()> {
    programs.iter_mut().try_for_each(|program| program.stop())
}

/// Measures a working program for `length`.
pub fn measure(program: &mut dyn Program, length: Duration) -> Result<Speed> {
    let clock = CpuClock::of(program)?;
    let mut marks = Vec::new();
    let per_s = program.rate(length, &mut || marks.push((Instant::now(), clock.read())))?;
    let Ok([(begun, before), (ended, after)]) = <[_; 2]>::try_from(marks) else {
        bail!("what was measured has no begin and end");
    };
    let cpu = after?.since(&before?);
    if cpu.is_zero() {
        bail!(
            "process {} did not run while it was measured",
            program.pid()
        );
    }
    Ok(Speed {
        per_s,
        per_cpu_s: per_s * (ended - begun).as_secs_f64() / cpu.as_secs_f64(),
    })
}
