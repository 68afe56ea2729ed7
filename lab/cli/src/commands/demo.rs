//! `hawkeye-lab demo`: what `hawkeye demo` shows, on a simulated machine.

use anyhow::{Context, Result};
use clap::Args;
use hawkeye_sim::demo as simulated;
use serde::Serialize;
use std::fs::File;
use std::path::PathBuf;

/// Show the main job in the simulator.
///
/// Huge pages for hot memory, and bloat taken back: for machines where `hawkeye demo` can't.
#[derive(Args)]
#[command(after_help = "Example: hawkeye-lab demo --json demo.json")]
pub struct Demo {
    /// Write the figures as JSON to a file too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

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
}

impl Demo {
    /// Runs both halves.
    pub fn execute(self) -> Result<()> {
        let figures = figures()?;
        if let Some(path) = &self.json {
            let file = File::create(path);
            let file = file.with_context(|| format!("creating {}", path.display()))?;
            serde_json::to_writer_pretty(file, &figures)?;
        }
        Ok(())
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Any seed: the same one shows the same.
const SEED: u64 = 1;

fn figures() -> Result<Figures> {
    let hot = simulated::hot_first(SEED)?;
    println!("1. Hot memory at high addresses (simulated)");
    println!(
        "A program reads 4 GiB at random, 90 % of it in the top 512 MiB; {} promotions each:\n",
        hot.max_promotions
    );
    let mut systems = Vec::new();
    for result in &hot.policies {
        println!(
            "  {:12} {:6.2} M reads/s  {:.2} times  {} promotions, {} of them hot",
            result.policy,
            result.accesses_per_s / 1e6,
            result.accesses_per_s / hot.base_accesses_per_s,
            result.promoted,
            result.promoted_hot,
        );
        systems.push(SystemFigures {
            system: result.policy.to_owned(),
            promoted: result.promoted,
            promoted_hot: result.promoted_hot,
            million_reads_per_s: result.accesses_per_s / 1e6,
        });
    }
    println!(
        "  {:12} {:6.2} M reads/s  {:.2} times",
        "all huge",
        hot.huge_accesses_per_s / 1e6,
        hot.huge_accesses_per_s / hot.base_accesses_per_s
    );
    let bloated = simulated::bloated(SEED)?;
    println!("\n2. Bloat (simulated)\n");
    println!("  before       {} resident", mib(bloated.rss_before_bytes));
    println!(
        "  after        {} resident, {} in use",
        mib(bloated.rss_after_bytes),
        mib(bloated.used_bytes)
    );
    Ok(Figures {
        machine: "simulator",
        systems,
        bloat: BloatFigures {
            before_bytes: bloated.rss_before_bytes,
            after_bytes: bloated.rss_after_bytes,
            used_bytes: bloated.used_bytes,
        },
    })
}
