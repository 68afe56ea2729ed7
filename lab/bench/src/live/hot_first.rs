//! Speed by policy, all with the same small budget of promotions.

use super::host::{Host, need_bytes};
use super::primitives::collapse_all;
use super::report::Report;
use super::{Scale, manage};
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_manager::{Event, Settings};
use hawkeye_policy::{CpuBudget, Rate};
use hawkeye_workload::{Request, Workload};
use std::time::Duration;

/// How the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Each address is known before the last read is back: the processor overlaps them.
    Independent,
    /// Each address comes out of the last read: a pointer chase.
    Dependent,
}

impl Reads {
    fn workload(self) -> &'static str {
        match self {
            Self::Independent => "hot-spot",
            Self::Dependent => "chase",
        }
    }
}

/// How large the comparison is.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// How the program reads.
    pub reads: Reads,
    /// Memory of the program, in MiB.
    pub mib: u64,
    /// Its hot part, at the highest addresses, in MiB.
    pub hot_mib: u64,
    /// Share of the reads that go there.
    pub hot_percent: u32,
    /// Turns of measuring, one program after the other.
    pub turns: usize,
    /// Length of one measurement.
    pub turn: Duration,
}

/// How the program's memory is made huge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Not at all.
    Base,
    /// By khugepaged's order, as fast as the budget lets it.
    Linux,
    /// By access coverage.
    HawkeyeG,
    /// The hot part, by somebody who knows where it is.
    Oracle,
}

impl System {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base pages",
            Self::Linux => "linux order",
            Self::HawkeyeG => "hawkeye-g",
            Self::Oracle => "the hot part (perfect choice)",
        }
    }
}

/// What one system made of it.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Million reads a second.
    pub million_reads_per_s: f64,
    /// The same of a program all under huge pages, measured in turn.
    pub million_reads_per_s_all_huge: f64,
    /// Regions promoted.
    pub promoted: u64,
    /// Of these, in the hot part.
    pub promoted_hot: u64,
}

impl Speed {
    /// Speed in shares of the all-huge program's.
    pub fn relative(&self) -> f64 {
        self.million_reads_per_s / self.million_reads_per_s_all_huge
    }
}

/// Measures one system, in turn with a program that is all under huge pages.
pub fn speed(host: &Host, system: System, sizes: Sizes) -> Result<Speed, BenchError> {
    let Sizes {
        reads,
        mib,
        hot_mib,
        hot_percent,
        turns,
        turn,
    } = sizes;
    need_bytes(2 * (mib << 20))?;
    let name = reads.workload();
    let words = format!("{name} --mib {mib} --hot-mib {hot_mib} --hot-percent {hot_percent}");
    let mut huge = host.start(&format!("{words} --pages huge"))?;
    huge.wait_ready()?;
    huge.command(Request::Stop)?;
    let mut program = host.start(&format!("{words} --pages base"))?;
    let ready = program.wait_ready()?;
    let budget = hot_mib / 2;
    let hot = ready.hot_start..ready.start + ready.bytes;
    let mut promoted = Vec::new();
    match system {
        System::Base => {}
        System::Oracle => {
            collapse_all(&ProcessHandle::open(ready.pid)?, hot.clone())?;
            promoted = hot.clone().step_by(2 << 20).collect();
        }
        System::Linux | System::HawkeyeG => {
            let settings = Settings {
                max_promotions: Some(budget),
                // khugepaged's pace would take minutes for the same regions.
                rate: (system == System::Linux).then_some(Rate::per_second(1e6)?),
                cpu: CpuBudget::new(100.0)?,
                window: WINDOW,
                ..Settings::default()
            };
            let policy = if system == System::Linux {
                "linux"
            } else {
                "hawkeye-g"
            };
            let managed = manage(
                host.means()?,
                ready.pid,
                policy,
                settings,
                Duration::from_secs(60),
                |journal| journal.totals().promoted >= budget,
            )?;
            promoted = managed
                .journal
                .entries()
                .filter_map(|entry| match &entry.event {
                    Event::Promoted { region, .. } => Some(region.start()),
                    _ => None,
                })
                .collect();
        }
    }
    let mut rates = Vec::new();
    let mut huge_rates = Vec::new();
    program.command(Request::Stop)?;
    for _ in 0..turns {
        rates.push(turn_of(&mut program, turn)?);
        huge_rates.push(turn_of(&mut huge, turn)?);
    }
    Ok(Speed {
        million_reads_per_s: median(&rates) / 1e6,
        million_reads_per_s_all_huge: median(&huge_rates) / 1e6,
        promoted: promoted.len() as u64,
        promoted_hot: promoted
            .iter()
            .filter(|address| hot.contains(address))
            .count() as u64,
    })
}

/// Short enough that the cold part is not all touched within it.
const WINDOW: Duration = Duration::from_millis(100);

fn turn_of(workload: &mut Workload, turn: Duration) -> Result<f64, BenchError> {
    workload.command(Request::Go)?;
    let rate = workload.measure(turn)?;
    workload.command(Request::Stop)?;
    Ok(rate)
}

/// 4 GiB, 90 % of the reads in the top 512 MiB, 256 promotions.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let mut report = Report::new("hot-first");
    let kinds = [
        (Reads::Independent, "independent reads"),
        (Reads::Dependent, "dependent reads"),
    ];
    let of_them = match scale {
        Scale::Quick => 1,
        Scale::Full => kinds.len(),
    };
    for (reads, kind) in kinds.into_iter().take(of_them) {
        let sizes = match scale {
            Scale::Quick => Sizes {
                reads,
                mib: 512,
                hot_mib: 64,
                hot_percent: 90,
                turns: 1,
                turn: Duration::from_millis(200),
            },
            Scale::Full => Sizes {
                reads,
                mib: 4096,
                hot_mib: 512,
                hot_percent: 90,
                turns: 9,
                turn: Duration::from_secs(1),
            },
        };
        compare(host, kind, sizes, &mut report)?;
    }
    report.note(format!(
        "Window {} ms. The perfect choice is the most that any policy can reach with this budget.",
        WINDOW.as_millis()
    ));
    Ok(report)
}

fn compare(host: &Host, kind: &str, sizes: Sizes, report: &mut Report) -> Result<(), BenchError> {
    let base = speed(host, System::Base, sizes)?;
    let slowness = |speed: &Speed| 1.0 / speed.relative();
    // Of the time that all-huge memory saves, and of the throughput that it adds.
    let time_saved =
        |speed: &Speed| (slowness(&base) - slowness(speed)) / (slowness(&base) - 1.0) * 100.0;
    let gained =
        |speed: &Speed| (speed.relative() - base.relative()) / (1.0 - base.relative()) * 100.0;
    let rate = base.million_reads_per_s;
    report.row(format!("{kind}: base pages"), rate, "M/s", "");
    let rate = base.million_reads_per_s_all_huge;
    let faster = rate / base.million_reads_per_s;
    report.row(
        format!("{kind}: all huge"),
        rate,
        "M/s",
        format!("{faster:.2} times"),
    );
    for system in [System::Linux, System::HawkeyeG, System::Oracle] {
        let speed = speed(host, system, sizes)?;
        report.row(
            format!("{kind}: {}", system.name()),
            speed.relative() * base.million_reads_per_s_all_huge,
            "M/s",
            format!(
                "{:.0} % of the added throughput, {:.0} % of the saved time; {} of {} promotions hot",
                gained(&speed),
                time_saved(&speed),
                speed.promoted_hot,
                speed.promoted,
            ),
        );
    }
    Ok(())
}
