//! `hawkeye demo`: promotion and recovery on two programs of our own, in under a minute.

use crate::demo::{DemoMachine, HOT_MIB, HOT_PERCENT, MIB};
use crate::output;
use crate::text_format::bytes;
use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Demonstrate promotion and recovery in under a minute.
///
/// Runs two small programs: hot memory of the first becomes huge, and bloat of the second is
/// recovered.
///
/// Where the kernel does not allow that, it prints the reason and exits with status 3.
/// `hawkeye-lab demo` shows the same in the simulator.
#[derive(Args)]
#[command(after_help = "Example: hawkeye demo --json demo.json")]
pub struct DemoOptions {
    /// Also write the figures to FILE, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Exit code where this machine does not allow managing.
const CANNOT_MANAGE: u8 = 3;

/// Each system's name in the output, and the policy that makes the reader's memory huge.
const SYSTEMS: [(&str, Option<&str>); 3] = [
    ("base pages", None),
    ("linux order", Some("linux")),
    ("hawkeye-g", Some("hawkeye-g")),
];
const BLOATED_MIB: u64 = 512;
const USED_PAGES: u64 = 100;

impl DemoOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let machine = match DemoMachine::take_over()? {
            Ok(machine) => machine,
            Err(why) => {
                eprintln!("{why} Run `hawkeye doctor` for details.");
                return Ok(ExitCode::from(CANNOT_MANAGE));
            }
        };
        let figures = json!({
            "machine": "this kernel",
            "systems": hot_memory(&machine)?,
            "bloat": bloat(&machine)?,
        });
        if let Some(path) = &self.json {
            let file = crate::summary::create_readable(path)
                .with_context(|| format!("can't create {}", path.display()))?;
            serde_json::to_writer_pretty(file, &figures)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn hot_memory(machine: &DemoMachine) -> Result<Vec<Value>> {
    let budget = HOT_MIB / 2;
    output::print("1. Hot memory at high addresses\n")?;
    output::print(&format!(
        "A program maps {MIB} MiB; {HOT_PERCENT} % of its random reads go to the top {HOT_MIB} MiB. Each system may\nspend {budget} promotions. The same program, all under huge pages, is measured in turn:\n\n"
    ))?;
    machine.warm_up(2 * MIB)?;
    let mut systems = Vec::new();
    let mut base = None;
    for (name, policy) in SYSTEMS {
        let speed = machine.measure_reader_speed(policy, budget)?;
        let base = base.get_or_insert(speed);
        // Relative to what the all-huge program did in the same minute, which cancels drift of the
        // machine.
        let rate = speed.relative * base.million_reads_per_s_all_huge;
        let times = speed.relative / base.relative;
        let (promoted, hot) = (speed.promoted, speed.promoted_hot);
        let mut line = format!("  {name:12} {rate:6.1} M reads/s  {times:.2} times base pages");
        if promoted > 0 {
            line += &format!("  {promoted} promotions, {hot} of them hot");
        }
        output::print(&(line + "\n"))?;
        systems.push(json!({
            "system": name,
            "promoted": promoted,
            "promoted_hot": hot,
            "million_reads_per_s": rate,
        }));
    }
    if let Some(base) = base {
        output::print(&format!(
            "  {:12} {:6.1} M reads/s  {:.2} times base pages  all {} regions huge\n",
            "all huge",
            base.million_reads_per_s_all_huge,
            1.0 / base.relative,
            MIB / 2
        ))?;
    }
    Ok(systems)
}

fn bloat(machine: &DemoMachine) -> Result<Value> {
    output::print("\n2. Bloat\n")?;
    output::print(&format!(
        "A program maps {BLOATED_MIB} MiB of huge pages and uses {USED_PAGES} of every 512 base pages; memory runs short.\n\n"
    ))?;
    let seen = machine.measure_bloat_recovery(BLOATED_MIB, USED_PAGES)?;
    let [before, recovered, after, used] = [
        seen.before_bytes,
        seen.recovered_bytes,
        seen.after_bytes,
        seen.used_bytes,
    ]
    .map(bytes);
    let (split, cpu_s, wrong) = (seen.split, seen.cpu_s, seen.wrong_bytes);
    output::print(&format!("  before       {before} resident\n"))?;
    output::print(&format!(
        "  recovered    {recovered} from {split} huge pages, in {cpu_s:.2} s of CPU\n"
    ))?;
    output::print(&format!(
        "  after        {after} resident, {used} in use; {wrong} bytes of its contents changed\n"
    ))?;
    Ok(json!({
        "before_bytes": seen.before_bytes,
        "after_bytes": seen.after_bytes,
        "used_bytes": seen.used_bytes,
        "wrong_bytes": wrong,
    }))
}
