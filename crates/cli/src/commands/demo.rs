//! `hawkeye demo`: the main job on programs of our own, in under a minute.

use crate::demo::{DemoMachine, Recovery, Sizes, Speed, System};
use crate::words;
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the main job on two programs of our own, in under a minute.
///
/// Huge pages for hot memory, and bloat taken back.
///
/// Where the kernel does not allow it, it says why and exits with status 3: `hawkeye-lab demo` shows the same in the simulator.
#[derive(Args)]
#[command(after_help = "Example: hawkeye demo --json demo.json")]
pub struct Demo {
    /// Write the figures as JSON to a file too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Exit code where nothing can be managed.
const CANNOT_MANAGE: u8 = 3;

/// Figures of a demo.
#[derive(Debug, Serialize)]
struct Figures {
    machine: &'static str,
    systems: Vec<SystemFigures>,
    bloat: BloatFigures,
}

#[derive(Debug, Serialize)]
struct SystemFigures {
    system: String,
    promoted: u64,
    promoted_hot: u64,
    million_reads_per_s: f64,
}

#[derive(Debug, Serialize)]
struct BloatFigures {
    before_bytes: u64,
    after_bytes: u64,
    used_bytes: u64,
    wrong_bytes: u64,
}

/// Small enough for a minute, large enough to miss the TLB.
const SIZES: Sizes = Sizes {
    mib: 1536,
    hot_mib: 384,
    hot_percent: 99,
};
const BLOATED_MIB: u64 = 512;
const USED_PAGES: u64 = 100;

impl Demo {
    /// Runs both halves.
    pub fn execute(self) -> Result<ExitCode> {
        let machine = match DemoMachine::take_over()? {
            Ok(machine) => machine,
            Err(why) => {
                eprintln!("{why} `hawkeye doctor` shows more.");
                return Ok(ExitCode::from(CANNOT_MANAGE));
            }
        };
        let figures = live(&machine)?;
        if let Some(path) = &self.json {
            let file = crate::summary::create_readable(path)
                .with_context(|| format!("creating {}", path.display()))?;
            serde_json::to_writer_pretty(file, &figures)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn live(machine: &DemoMachine) -> Result<Figures> {
    let Sizes {
        mib,
        hot_mib,
        hot_percent,
    } = SIZES;
    let budget = hot_mib / 2;
    println!("1. Hot memory at high addresses");
    println!(
        "A program maps {mib} MiB; {hot_percent} % of its random reads go to the top {hot_mib} MiB. Each way to\nspend {budget} promotions, against the same program all under huge pages, measured in turn:\n"
    );
    machine.warm_up(2 * mib)?;
    let mut systems = Vec::new();
    let mut base = None;
    for system in [System::Base, System::Linux, System::HawkeyeG] {
        let speed = machine.speed(system, SIZES, budget)?;
        let base = base.get_or_insert(speed);
        print_speed(system.name(), &speed, base);
        systems.push(SystemFigures {
            system: system.name().to_owned(),
            promoted: speed.promoted,
            promoted_hot: speed.promoted_hot,
            million_reads_per_s: steadied(&speed, base),
        });
    }
    if let Some(base) = base {
        println!(
            "  {:12} {:6.1} M reads/s  {:.2} times  all {} regions huge",
            "all huge",
            base.million_reads_per_s_all_huge,
            1.0 / base.relative,
            mib / 2
        );
    }
    println!("\n2. Bloat");
    println!(
        "A program maps {BLOATED_MIB} MiB of huge pages and uses {USED_PAGES} of every 512 base pages; memory runs short.\n"
    );
    let seen = machine.recover(BLOATED_MIB, USED_PAGES)?;
    print_bloat(&seen);
    Ok(Figures {
        machine: "this kernel",
        systems,
        bloat: BloatFigures {
            before_bytes: seen.before_bytes,
            after_bytes: seen.after_bytes,
            used_bytes: seen.used_bytes,
            wrong_bytes: seen.wrong_bytes,
        },
    })
}

fn print_speed(name: &str, speed: &Speed, base: &Speed) {
    let times = speed.relative / base.relative;
    let rate = steadied(speed, base);
    print!("  {name:12} {rate:6.1} M reads/s  {times:.2} times");
    if speed.promoted > 0 {
        print!(
            "  {} promotions, {} of them hot",
            speed.promoted, speed.promoted_hot
        );
    }
    println!();
}

/// Million reads a second, put by what the all-huge program did in the same minute: so a drift of the
/// machine's speed falls out.
fn steadied(speed: &Speed, base: &Speed) -> f64 {
    speed.relative * base.million_reads_per_s_all_huge
}

fn print_bloat(seen: &Recovery) {
    println!(
        "  before       {} resident",
        words::bytes(seen.before_bytes)
    );
    println!(
        "  recovered    {} from {} huge pages, in {:.2} s of CPU",
        words::bytes(seen.recovered_bytes),
        seen.split,
        seen.cpu_s
    );
    println!(
        "  after        {} resident, {} in use; {} bytes of its contents changed",
        words::bytes(seen.after_bytes),
        words::bytes(seen.used_bytes),
        seen.wrong_bytes
    );
}
