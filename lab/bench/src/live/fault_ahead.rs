//! Fault-ahead beside base pages and THP=always: how fast new memory is touched, and what is filled in vain.

use super::Scale;
use super::host::{Host, need_bytes};
use super::report::Report;
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_linux::prefault::FaultAhead;
use hawkeye_workload::{Event, Request};
use std::time::Duration;

/// Who provides huge pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Base,
    Always,
    /// Filled ahead by collapse; faults get base pages.
    Collapse,
    /// Filled ahead by remote reads, while faults get huge pages too.
    Ahead,
}

impl Way {
    const ALL: [Self; 4] = [Self::Base, Self::Always, Self::Collapse, Self::Ahead];

    fn name(self) -> &'static str {
        match self {
            Self::Base => "base pages",
            Self::Always => "THP always",
            Self::Collapse => "filled ahead, by collapse",
            Self::Ahead => "filled ahead, huge faults",
        }
    }

    fn enabled(self) -> &'static str {
        match self {
            Self::Base | Self::Collapse => "madvise",
            Self::Always | Self::Ahead => "always",
        }
    }

    fn fills(self) -> bool {
        self.without().is_some()
    }

    /// The same without anything filled.
    fn without(self) -> Option<Self> {
        match self {
            Self::Base | Self::Always => None,
            Self::Collapse => Some(Self::Base),
            Self::Ahead => Some(Self::Always),
        }
    }
}

/// Programs: what they are called, and the workload's options.
const PROGRAMS: [(&str, &str); 7] = [
    ("in order", ""),
    (
        "in order, 200 us of work a region",
        "--work-us 200 --latencies --rounds 2",
    ),
    (
        "in order, 1 ms of work a region",
        "--work-us 1000 --latencies --rounds 2",
    ),
    ("descending", "--order descending"),
    ("4 threads", "--threads 4"),
    ("at random", "--order random"),
    ("1 page of each region", "--pages-per-region 1"),
];

/// What one run showed.
struct Seen {
    elapsed_s: f64,
    mean_ns: f64,
    p99_ns: f64,
    /// The same once the memory is there.
    mean_again_ns: f64,
    p99_again_ns: f64,
    filled: u64,
    fill_cpu_s: f64,
}

/// One run in each way, in the order of [`Way::ALL`].
struct Turn([Seen; 4]);

impl Turn {
    fn of(&self, way: Way) -> &Seen {
        &self.0[way as usize]
    }
}

fn turn(host: &mut Host, mib: u64, options: &str) -> Result<Turn, BenchError> {
    let [base, always, collapse, ahead] = Way::ALL;
    Ok(Turn([
        one(host, mib, options, base)?,
        one(host, mib, options, always)?,
        one(host, mib, options, collapse)?,
        one(host, mib, options, ahead)?,
    ]))
}

/// Each program by each way, in turn.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let (mib, turns) = match scale {
        Scale::Quick => (512, 1),
        Scale::Full => (8192, 5),
    };
    need_bytes(mib << 20)?;
    host.warm_up_for(scale)?;
    host.set_thp("use_zero_page", "0")?;
    host.set_thp("defrag", "defer+madvise")?;
    let mut report = Report::new("fault-ahead");
    for (program, options) in PROGRAMS {
        // Each turn has all ways, one after the other, and is compared with itself.
        let turns = (0..turns)
            .map(|_| turn(host, mib, options))
            .collect::<Result<Vec<_>, _>>()?;
        for way in Way::ALL {
            let of =
                |part: &dyn Fn(&Turn) -> f64| median(&turns.iter().map(part).collect::<Vec<_>>());
            let seen = |part: fn(&Seen) -> f64| of(&|turn| part(turn.of(way)));
            let mut beside = String::new();
            if let Some(without) = way.without() {
                let slower = |turn: &Turn| turn.of(way).elapsed_s / turn.of(without).elapsed_s;
                let faster = |turn: &Turn| turn.of(Way::Always).elapsed_s / turn.of(way).elapsed_s;
                beside = format!(
                    "{:.2} times as fast as THP always, {:+.1} % time beside {}; {:.0} of {} regions filled in {:.2} s of CPU; ",
                    of(&faster),
                    (of(&slower) - 1.0) * 100.0,
                    without.name(),
                    seen(|seen| seen.filled as f64),
                    mib / 2,
                    seen(|seen| seen.fill_cpu_s),
                );
            }
            if options.contains("latencies") {
                beside += &format!(
                    "a touch {:.0} ns, p99 {:.0}; of memory that is there {:.0} and {:.0}",
                    seen(|seen| seen.mean_ns),
                    seen(|seen| seen.p99_ns),
                    seen(|seen| seen.mean_again_ns),
                    seen(|seen| seen.p99_again_ns),
                );
            }
            report.row(
                format!("{program}: {}", way.name()),
                seen(|seen| seen.elapsed_s),
                "s",
                beside.trim_end_matches("; "),
            );
        }
    }
    report.note(format!(
        "{mib} MiB, one byte of each base page; median of {turns}. The filler takes a second core."
    ));
    Ok(report)
}

fn one(host: &mut Host, mib: u64, options: &str, way: Way) -> Result<Seen, BenchError> {
    host.set_enabled(way.enabled())?;
    let mut program = host.start(&format!("touch --mib {mib} {options}"))?;
    program.wait_ready()?;
    let fault_ahead = if way.fills() {
        let fault_ahead = FaultAhead::start(None, None)?;
        fault_ahead.follow(program.pid(), 0)?;
        for process in fault_ahead.followed() {
            fault_ahead.set_room(process, mib);
        }
        Some(fault_ahead)
    } else {
        None
    };
    program.command(Request::Go)?;
    let limit = Duration::from_secs(120);
    let mut touched = Vec::new();
    loop {
        match program.next_event(limit)? {
            Event::Touched {
                elapsed_s,
                mean_ns,
                p99_ns,
                ..
            } => touched.push((elapsed_s, mean_ns, p99_ns)),
            Event::Verified { bad_bytes: 0, .. } => break,
            other => {
                return Err(BenchError::Impossible(format!(
                    "the workload says {other:?}"
                )));
            }
        }
    }
    let filled = fault_ahead.map(|f| f.statistics()).unwrap_or_default();
    let first = touched.first().copied().unwrap_or_default();
    let again = touched.last().copied().unwrap_or_default();
    Ok(Seen {
        elapsed_s: first.0,
        mean_ns: first.1,
        p99_ns: first.2,
        mean_again_ns: again.1,
        p99_again_ns: again.2,
        filled: filled.filled,
        fill_cpu_s: filled.cpu.as_secs_f64(),
    })
}
