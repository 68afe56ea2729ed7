//! How long a process with a huge address space is held up while it is sampled.

use super::host::{Host, need_bytes};
use super::report::Report;
use super::{Scale, is_known, manage};
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_linux::LinuxError;
use hawkeye_manager::Settings;
use hawkeye_workload::{Event, Request, Workload};
use std::time::{Duration, Instant};

/// The longest calls of the process in some time, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Longest {
    map_ms: f64,
    unmap_ms: f64,
    fault_ms: f64,
}

impl Longest {
    fn of_all_ms(self) -> f64 {
        self.map_ms.max(self.unmap_ms).max(self.fault_ms)
    }

    /// The longest of each kind.
    fn with(self, other: Self) -> Self {
        Self {
            map_ms: self.map_ms.max(other.map_ms),
            unmap_ms: self.unmap_ms.max(other.unmap_ms),
            fault_ms: self.fault_ms.max(other.fault_ms),
        }
    }
}

struct Sizes {
    populated_gib: u64,
    mib: u64,
    turns: usize,
    /// Of a turn with and of one without sampling.
    turn: Duration,
}

/// Page tables of each GiB of mapped base pages.
const TABLE_BYTES_PER_GIB: u64 = 2 << 20;
/// Clears access bits of every page, and of anonymous ones only (proc_pid_clear_refs(5)).
const CLEARS: [(&str, &str); 2] = [("1", "all pages"), ("2", "anonymous pages")];
/// The first that there is samples.
const POLICIES: [&str; 2] = ["hawkeye", "hawkeye-g"];
/// Shorter than by default, so that a turn holds several windows.
const PERIOD: Duration = Duration::from_secs(5);

/// 1 TiB of a small file, mapped, beside 4 GiB of the process's own memory.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            populated_gib: 32,
            mib: 256,
            turns: 1,
            turn: Duration::from_secs(3),
        },
        Scale::Full => Sizes {
            populated_gib: 1024,
            mib: 4096,
            turns: 3,
            turn: Duration::from_secs(30),
        },
    };
    // A file of 256 MiB is what is mapped.
    let tables = sizes.populated_gib * TABLE_BYTES_PER_GIB;
    need_bytes((sizes.mib << 20) + tables + (256 << 20))?;
    let words = format!(
        "one-tib --mapped-gib 1024 --populated-gib {} --mib {}",
        sizes.populated_gib, sizes.mib
    );
    let mut workload = host.start(&words)?;
    let pid = workload.wait_ready()?.pid;
    let policy = POLICIES.into_iter().find(|policy| is_known(policy));
    let policy = policy.ok_or_else(|| BenchError::Impossible("no policy samples".into()))?;
    let settings = Settings {
        max_promotions: Some(0),
        period: PERIOD,
        ..Settings::default()
    };
    let mut report = Report::new("one-tib");
    let (mut left_alone, mut sampled) = (Vec::new(), Vec::new());
    let (mut windows, mut longest_call, mut cores) = (0, Duration::ZERO, Vec::new());
    for _ in 0..sizes.turns {
        left_alone.push(longest_while(&mut workload, || {
            std::thread::sleep(sizes.turn);
            Ok(())
        })?);
        sampled.push(longest_while(&mut workload, || {
            let done = manage(host.means()?, pid, policy, settings, sizes.turn, |_| false)?;
            windows += done.journal.totals().samples;
            longest_call = longest_call.max(done.longest_call);
            cores.push(done.cpu.as_secs_f64() * 100.0 / done.wall.as_secs_f64());
            Ok(())
        })?);
    }
    describe("left alone", &left_alone, "", &mut report);
    describe("sampled", &sampled, "goal: at most 10", &mut report);
    for (written, what) in CLEARS {
        let mut took = Duration::ZERO;
        let longest = longest_while(&mut workload, || {
            took = clear_refs(pid, written)?;
            Ok(())
        })?;
        report.row(
            format!("one clear_refs of {what}"),
            longest.of_all_ms(),
            "ms",
            format!("for comparison; it took {:.1} ms", took.as_secs_f64() * 1e3),
        );
    }
    report.row("manager", median(&cores), "% core", "budget: 2");
    report.row("windows", windows as f64, "", policy);
    report.row(
        "the manager's longest call",
        longest_call.as_secs_f64() * 1e3,
        "ms",
        "",
    );
    report.note(format!(
        "1 TiB mapped, {} GiB of it with page tables; {} MiB of its own memory in base pages, read at random. {} turns of {} s each, sampled every {} s, nothing promoted. mmap and munmap of 64 KiB and first writes to a page of its own memory, each every 0.2 ms.",
        sizes.populated_gib,
        sizes.mib,
        sizes.turns,
        sizes.turn.as_secs(),
        PERIOD.as_secs(),
    ));
    Ok(report)
}

/// The longest of all turns, and what each turn's was.
fn describe(name: &str, turns: &[Longest], goal: &str, report: &mut Report) {
    let all = turns
        .iter()
        .copied()
        .fold(Longest::default(), Longest::with);
    let each: Vec<String> = turns
        .iter()
        .map(|turn| format!("{:.2}", turn.of_all_ms()))
        .collect();
    for (what, ms) in [
        ("mmap", all.map_ms),
        ("munmap", all.unmap_ms),
        ("page fault", all.fault_ms),
    ] {
        report.row(format!("{name}: longest {what}"), ms, "ms", goal);
    }
    report.note(format!(
        "{name}: the longest of all in each turn: {} ms.",
        each.join(", ")
    ));
}

/// The longest calls of the process while `work` goes on in this one.
fn longest_while(
    workload: &mut Workload,
    work: impl FnOnce() -> Result<(), BenchError>,
) -> Result<Longest, BenchError> {
    longest(workload)?;
    work()?;
    longest(workload)
}

/// The longest calls since this was last asked.
fn longest(workload: &mut Workload) -> Result<Longest, BenchError> {
    match workload.request(Request::Longest, Duration::from_secs(30))? {
        Event::Longest {
            map_us,
            unmap_us,
            fault_us,
            ..
        } => Ok(Longest {
            map_ms: map_us / 1e3,
            unmap_ms: unmap_us / 1e3,
            fault_ms: fault_us / 1e3,
        }),
        _ => Err(BenchError::Impossible(
            "the program did not say how long its calls took".into(),
        )),
    }
}

fn clear_refs(pid: u32, what: &str) -> Result<Duration, BenchError> {
    let path = format!("/proc/{pid}/clear_refs");
    let begun = Instant::now();
    std::fs::write(&path, what).map_err(LinuxError::file("writing", &path))?;
    Ok(begun.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_all_turns_counts() {
        let turn = |map_ms, unmap_ms, fault_ms| Longest {
            map_ms,
            unmap_ms,
            fault_ms,
        };
        let mut report = Report::new("one-tib");
        let turns = [turn(1.0, 5.0, 0.5), turn(2.0, 0.1, 0.25)];
        describe("sampled", &turns, "", &mut report);
        let values: Vec<f64> = report.rows.iter().map(|row| row.value).collect();
        assert_eq!(values, [2.0, 5.0, 0.5]);
        assert!(report.notes[0].contains("5.00, 2.00 ms"));
    }
}
