//! Speed by policy, each with the same small budget of promotions.

use super::prelude::*;
use super::programs::huge::collapse_all;
use hawkeye_manager::Event;

#[derive(Clone, Copy)]
struct Sizes {
    reads: &'static str,
    mib: u64,
    /// Size of its hot part, at the highest addresses.
    hot_mib: u64,
    turns: usize,
    turn: Duration,
}

/// Share of the reads that go to the hot part.
const HOT_PERCENT: u32 = 90;
/// Short enough that a program does not touch all of its cold part within it.
const WINDOW: Duration = Duration::from_millis(100);

/// How the program's memory becomes huge.
#[derive(Clone, Copy)]
enum System {
    Base,
    Policy(&'static str),
    /// The hot part is promoted, by a caller that knows its address.
    Oracle,
}

struct Speed {
    reads_per_s: f64,
    /// Speed of the same program all under huge pages, measured in turn.
    all_huge_per_s: f64,
    promoted: usize,
    promoted_hot: usize,
}

impl Speed {
    /// Speed as a share of the all-huge program's speed.
    fn relative(&self) -> f64 {
        self.reads_per_s / self.all_huge_per_s
    }
}

/// Measures one system, in turn with a program that is all under huge pages.
fn speed(host: &Host, system: System, sizes: Sizes) -> Result<Speed> {
    let (reads, mib, hot_mib) = (sizes.reads, sizes.mib, sizes.hot_mib);
    need_bytes(2 * (mib << 20))?;
    let words = format!("{reads} --mib {mib} --hot-mib {hot_mib} --hot-percent {HOT_PERCENT}");
    let mut huge = host.start(&format!("{words} --pages huge"))?;
    huge.wait_ready()?;
    huge.command(Request::Stop)?;
    let mut program = host.start(&format!("{words} --pages base"))?;
    let ready = program.wait_ready()?;
    let hot = ready.hot_start..ready.start + ready.bytes;
    let promoted: Vec<u64> = match system {
        System::Base => Vec::new(),
        System::Oracle => {
            collapse_all(&ProcessHandle::open(ready.pid)?, hot.clone())?;
            hot.clone().step_by(HUGE_PAGE_BYTES as usize).collect()
        }
        System::Policy(policy) => {
            let budget = hot_mib / 2;
            let settings = Settings {
                window: WINDOW,
                ..spending(policy, budget)?
            };
            let at_most = Duration::from_secs(60);
            let means = host.means()?;
            let managed = manage(means, ready.pid, policy, settings, at_most, |journal| {
                journal.totals().promoted >= budget
            })?;
            let regions = managed
                .journal
                .entries()
                .filter_map(|entry| match &entry.event {
                    Event::Promoted { region, .. } => Some(region.start()),
                    _ => None,
                });
            regions.collect()
        }
    };
    let (mut rates, mut huge_rates) = (Vec::new(), Vec::new());
    program.command(Request::Stop)?;
    for _ in 0..sizes.turns {
        rates.push(turn_of(&mut program, sizes.turn)?);
        huge_rates.push(turn_of(&mut huge, sizes.turn)?);
    }
    Ok(Speed {
        reads_per_s: median(&rates),
        all_huge_per_s: median(&huge_rates),
        promoted: promoted.len(),
        promoted_hot: promoted.iter().filter(|at| hot.contains(at)).count(),
    })
}

fn turn_of(workload: &mut Workload, turn: Duration) -> Result<f64> {
    workload.command(Request::Go)?;
    let rate = workload.measure(turn)?;
    workload.command(Request::Stop)?;
    Ok(rate)
}

/// Runs programs of 4 GiB with 90 % of the reads in the top 512 MiB, and 256 promotions.
pub fn run(host: &mut Host, scale: Scale, report: &mut Report) -> Result<()> {
    // The processor overlaps reads if it knows each address before the previous read returns.
    let kinds = [
        ("hot-spot", "independent reads"),
        ("chase", "dependent reads"),
    ];
    for (reads, kind) in kinds.into_iter().take(scale.pick(1, 2)) {
        let sizes = Sizes {
            reads,
            mib: scale.pick(512, 4096),
            hot_mib: scale.pick(64, 512),
            turns: scale.pick(1, 9),
            turn: scale.pick(Duration::from_millis(200), Duration::from_secs(1)),
        };
        compare(host, kind, sizes, report)?;
    }
    report.note(format!(
        "Window: {} ms. The perfect choice is the best result that any policy can reach with this budget.",
        WINDOW.as_millis()
    ));
    Ok(())
}

fn compare(host: &Host, kind: &str, sizes: Sizes, report: &mut Report) -> Result<()> {
    let base = speed(host, System::Base, sizes)?;
    let slowness = |speed: &Speed| 1.0 / speed.relative();
    // Of the time that all-huge memory saves, and of the throughput that it adds.
    let time_saved =
        |speed: &Speed| (slowness(&base) - slowness(speed)) / (slowness(&base) - 1.0) * 100.0;
    let gained =
        |speed: &Speed| (speed.relative() - base.relative()) / (1.0 - base.relative()) * 100.0;
    let mut rows = report.of(kind);
    rows.row("base pages", base.reads_per_s / 1e6, "M/s", "");
    let faster = format!("{:.2} times", base.all_huge_per_s / base.reads_per_s);
    rows.row("all huge", base.all_huge_per_s / 1e6, "M/s", faster);
    for (name, system) in [
        ("linux order", System::Policy("linux")),
        ("hawkeye-g", System::Policy("hawkeye-g")),
        ("the hot part (perfect choice)", System::Oracle),
    ] {
        let speed = speed(host, system, sizes)?;
        rows.row(
            name,
            speed.relative() * base.all_huge_per_s / 1e6,
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
