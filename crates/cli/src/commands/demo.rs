//! `hawkeye demo`: promotion and recovery on two programs of our own, in one to two minutes.

use crate::demo::{DemoMachine, ReaderOutcome, ReaderProgramFigures, ReaderSize};
use crate::json_file::JsonFile;
use crate::output::{self, print_to_stderr};
use crate::text_format::{format_bytes, sparkline_of_shares, wrap_printable};
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Demonstrate promotion and recovery in one to two minutes.
///
/// Runs two small programs: hot memory of the first becomes huge, and bloat of the second is
/// recovered.
///
/// Meanwhile, for every program, transparent_hugepage/enabled is `madvise` and khugepaged sleeps.
/// Both are put back at the end.
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

const EXIT_CANNOT_MANAGE: u8 = 3;

/// Each system's name in the output, and the policy that makes the reader's memory huge.
const SYSTEMS: [(&str, Option<&str>); 3] =
    [("base pages", None), ("linux order", Some("linux")), ("hawkeye-g", Some("hawkeye-g"))];
const BLOATED_MIB: u64 = 512;
const USED_PAGES: u64 = 100;

impl DemoOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let json = self.json.as_deref().map(JsonFile::open).transpose()?;
        let machine = match DemoMachine::take_over()? {
            Ok(machine) => machine,
            Err(why) => {
                print_to_stderr(&format!("{why} Run `hawkeye doctor` for details.\n"));
                return Ok(ExitCode::from(EXIT_CANNOT_MANAGE));
            }
        };
        let figures = json!({
            "machine": "this kernel",
            "systems": show_hot_memory_promotion(&machine)?,
            "bloat": show_bloat_recovery(&machine)?,
        });
        if let Some(json) = json {
            json.write(&figures)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints a text at once, so that the user sees progress.
macro_rules! say {
    ($($format:tt)*) => { output::print_to_stdout(&format!($($format)*))? };
}

fn show_hot_memory_promotion(machine: &DemoMachine) -> Result<Vec<Value>> {
    say!(
        "1. Hot memory at high addresses\nMeasuring with how much memory huge pages matter here.\n"
    );
    let (mut size, speed_up) = machine.choose_reader_size()?;
    let mut base = measure_under_base_pages(machine, size)?;
    // The trials were short, and all of their memory was hot.
    while speed_up >= ReaderSize::LEAST_SPEED_UP && 1.0 / base.relative < ReaderSize::LEAST_SPEED_UP
    {
        let Some(larger) = machine.next_larger_reader_size(size)? else { break };
        size = larger;
        base = measure_under_base_pages(machine, size)?;
    }
    let hot_percent = ReaderSize::HOT_PERCENT;
    let (mib, hot_mib, budget) = (size.total_mib(), size.hot_mib, size.hot_regions());
    say!(
        "A program maps {mib} MiB; {hot_percent} % of its dependent random reads go to the top\n{hot_mib} MiB. Each system may spend {budget} promotions. The same program, all under\nhuge pages, is measured in turn:\n\n"
    );
    let times_all_huge = 1.0 / base.relative;
    let (mut systems, mut drawings, mut shortfall) = (Vec::new(), Vec::new(), None);
    for (name, policy) in SYSTEMS {
        let speed = match policy {
            None => base.clone(),
            Some(policy) => machine.measure_reader_speed(Some(policy), size)?,
        };
        // Relative to what the all-huge program did in the same minute, which cancels drift of the
        // machine.
        let rate = speed.relative * base.million_reads_per_s_all_huge;
        let times = speed.relative / base.relative;
        let (promoted, hot) = (speed.promoted, speed.promoted_hot);
        say!("  {name:12} {rate:6.1} M reads/s  {times:.2} times base pages");
        if promoted > 0 {
            say!("  {promoted} promotions, {hot} of them hot");
        }
        say!("\n");
        let outcome = ReaderOutcome {
            times,
            times_all_huge,
            promoted,
            promoted_hot: hot,
            allowed: budget,
            held_back: &speed.held_back,
        };
        shortfall = policy.and_then(|_| outcome.shortfall_text());
        let (before, after) = (&speed.huge_before, &speed.huge_after);
        if drawings.is_empty() {
            drawings.push(("before", bars_of_shares(&before.shares)));
        }
        if policy.is_some() {
            drawings.push((name, bars_of_shares(&after.shares)));
        }
        systems.push(json!({
            "system": name,
            "promotions_allowed": budget,
            "promoted": promoted,
            "promoted_hot": hot,
            "huge_regions_before": before.huge_regions,
            "huge_regions_after": after.huge_regions,
            "million_reads_per_s": rate,
            "shortfall": shortfall,
        }));
    }
    let (rate, name, regions) = (base.million_reads_per_s_all_huge, "all huge", mib / 2);
    say!(
        "  {name:12} {rate:6.1} M reads/s  {times_all_huge:.2} times base pages  all {regions} regions huge\n"
    );
    // That of the last system.
    if let Some(shortfall) = shortfall {
        say!("\n{}\n", wrap_printable(&shortfall, 80, 0));
    }
    say!(
        "\nIts address space before, and after each system, from low to high, as the\nkernel's page tables say; full bars are huge pages:\n\n"
    );
    for (name, drawing) in drawings {
        say!("  {name:12} |{drawing}|\n");
    }
    say!("  {:12}  {:>48}\n", "", "hot");
    Ok(systems)
}

fn measure_under_base_pages(
    machine: &DemoMachine,
    size: ReaderSize,
) -> Result<ReaderProgramFigures> {
    machine.touch_memory_once(2 * size.total_mib())?;
    machine.measure_reader_speed(None, size)
}

/// Shares of 0 only are drawn as spaces.
fn bars_of_shares(shares: &[f64]) -> String {
    sparkline_of_shares(shares, shares.len())
}

fn show_bloat_recovery(machine: &DemoMachine) -> Result<Value> {
    say!(
        "\n2. Bloat\nA program maps {BLOATED_MIB} MiB of huge pages and uses {USED_PAGES} of every 512 base pages; memory runs short.\n\n"
    );
    let seen = machine.measure_bloat_recovery(BLOATED_MIB, USED_PAGES)?;
    let [before, recovered] = [seen.before_bytes, seen.recovered_bytes].map(format_bytes);
    let [after, used] = [seen.after_bytes, seen.used_bytes].map(format_bytes);
    let (split, cpu_s, wrong) = (seen.split, seen.cpu_s, seen.wrong_bytes);
    say!("  before       {before} resident\n");
    say!("  recovered    {recovered} from {split} huge pages, in {cpu_s:.2} s of CPU\n");
    say!("  after        {after} resident, {used} in use; {wrong} bytes of its contents changed\n");
    Ok(json!({
        "before_bytes": seen.before_bytes,
        "after_bytes": seen.after_bytes,
        "used_bytes": seen.used_bytes,
        "wrong_bytes": wrong,
    }))
}
