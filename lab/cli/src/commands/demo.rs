//! `hawkeye-lab demo`: what `hawkeye demo` shows, on a simulated machine.

use anyhow::{Context, Result};
use clap::Args;
use hawkeye_manager::{Event, LoopWakeReason, Machine, Manager, Settings};
use hawkeye_policy::policies;
use hawkeye_policy::{RegionAddr, Watermarks};
use hawkeye_sim::engine::{Engine, EngineFigures};
use hawkeye_sim::simulate::SimulationSetup;
use hawkeye_sim::systems::{self, SimulatedSystem};
use hawkeye_sim::workloads::WorkloadSpec;
use serde::Serialize;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

/// Show promotion and recovery in the simulator.
///
/// Hot memory gets huge pages, and bloat is recovered. It is for machines where `hawkeye demo`
/// cannot run.
#[derive(Args)]
#[command(after_help = "Example: hawkeye-lab demo --json demo.json")]
pub struct DemoCommand {
    /// Also write the figures to FILE, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Serialize)]
struct DemoFigures {
    machine: &'static str,
    systems: Vec<SystemFigures>,
    bloat: BloatFigures,
}

#[derive(Debug, PartialEq, Serialize)]
struct SystemFigures {
    system: String,
    promoted: u64,
    promoted_hot: u64,
    million_reads_per_s: f64,
}

#[derive(Debug, PartialEq, Serialize)]
struct BloatFigures {
    before_bytes: u64,
    after_bytes: u64,
    used_bytes: u64,
}

impl DemoCommand {
    /// Runs both halves.
    pub fn execute(self) -> Result<()> {
        let systems = measure_policies_on_hot_workload()?;
        // The first policy does nothing.
        let base = systems.first().map_or(f64::NAN, |none| none.million_reads_per_s);
        print_line!("1. Hot memory at high addresses (simulated)");
        print_line!(
            "A program reads 4 GiB at random, 90 % of it in the top 512 MiB; at most {HOT_REGIONS} promotions each:\n"
        );
        for figures in &systems {
            let SystemFigures { system, promoted, promoted_hot, million_reads_per_s } = figures;
            let times = million_reads_per_s / base;
            let promotions = match promoted {
                0 => String::new(),
                _ => format!("  {promoted} promotions, {promoted_hot} of them hot"),
            };
            print_line!(
                "  {system:12} {million_reads_per_s:6.2} M reads/s  {times:.2} times{promotions}"
            );
        }
        let bloat = simulate_bloat_recovery()?;
        print_line!("\n2. Bloat (simulated)\n");
        print_line!("  before       {} resident", format_as_mib(bloat.before_bytes));
        print_line!(
            "  after        {} resident, {} in use",
            format_as_mib(bloat.after_bytes),
            format_as_mib(bloat.used_bytes)
        );
        if let Some(path) = &self.json {
            let file = File::create(path);
            let file = file.with_context(|| format!("creating {}", path.display()))?;
            let figures = DemoFigures { machine: "simulator", systems, bloat };
            serde_json::to_writer_pretty(file, &figures)?;
        }
        Ok(())
    }
}

fn format_as_mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Number of hot regions, at the highest addresses; each system may promote that many.
const HOT_REGIONS: usize = 256;
const POLICIES: [&str; 3] = ["none", "linux", "hawkeye-g"];

/// The same program under each policy, with base pages at faults and with huge pages.
fn measure_policies_on_hot_workload() -> Result<Vec<SystemFigures>> {
    let workload = WorkloadSpec::parse("hot", include_str!("demo/hot.toml"))?;
    let setup = SimulationSetup { memory_bytes: 16 << 30, ..SimulationSetup::default() };
    let settings = Settings {
        max_promotions: Some(HOT_REGIONS as u64),
        // In a longer window the program reads all of its pages.
        window: Duration::from_millis(100),
        ..Settings::default()
    };
    let base_pages = systems::by_name("linux-4k")?;
    let mut all = Vec::new();
    for policy in POLICIES {
        let run = DemoRun::run_policy(&base_pages, &workload, &setup, policy, settings)?;
        all.push(SystemFigures {
            system: policy.to_owned(),
            promoted: run.promoted.len() as u64,
            promoted_hot: run.count_promoted_in_last_regions(HOT_REGIONS),
            million_reads_per_s: run.million_reads_per_s(),
        });
    }
    let huge_pages = systems::by_name("linux")?;
    let run = DemoRun::run_policy(&huge_pages, &workload, &setup, "none", settings)?;
    all.push(SystemFigures {
        system: "all huge".to_owned(),
        promoted: 0,
        promoted_hot: 0,
        million_reads_per_s: run.million_reads_per_s(),
    });
    Ok(all)
}

/// Huge pages at faults, most of which is never written, on a machine that is nearly full.
fn simulate_bloat_recovery() -> Result<BloatFigures> {
    let workload = WorkloadSpec::parse("bloated", include_str!("demo/bloated.toml"))?;
    let setup = SimulationSetup {
        memory_bytes: 9 << 27,
        zeroed_before: false,
        ..SimulationSetup::default()
    };
    let settings = Settings {
        // The low watermark is below the program's need, so everything recoverable is recovered.
        watermarks: Watermarks::new(85.0, 10.0)?,
        ..Settings::default()
    };
    let system = systems::by_name("hawkeye-g")?;
    let run = DemoRun::run_policy(&system, &workload, &setup, "hawkeye-g", settings)?;
    let program = run.first_program_figures()?;
    let last = program.course.last();
    Ok(BloatFigures {
        before_bytes: program.rss_peak_bytes,
        after_bytes: last.map_or(0, |moment| moment.rss_bytes),
        used_bytes: program.useful_end_bytes,
    })
}

struct DemoRun {
    figures: EngineFigures,
    promoted: Vec<RegionAddr>,
    /// Regions that were sampled or promoted, in order of address.
    regions: Vec<RegionAddr>,
}

impl DemoRun {
    fn run_policy(
        system: &SimulatedSystem,
        workload: &WorkloadSpec,
        setup: &SimulationSetup,
        policy: &str,
        settings: Settings,
    ) -> Result<Self> {
        let policy = policies::make_policy_by_name(policy, &settings.policy_settings())?;
        let engine = Engine::new(setup, system, workload)?;
        let mut manager = Manager::new(engine, policy, settings)?;
        let mut regions = Vec::new();
        while manager.machine().now() < LONGEST
            && manager.run_due_work_and_wait() == LoopWakeReason::Deadline
        {
            for (_, sample) in manager.last_samples().samples_after(Duration::ZERO) {
                if sample.regions.len() > regions.len() {
                    regions = sample.regions.iter().map(|r| r.region).collect();
                }
            }
        }
        let (engine, journal) = manager.into_machine_and_journal();
        if let Some(broken) = engine.stopping_error() {
            return Err(broken.clone().into());
        }
        let promoted = journal.entries().filter_map(|entry| match entry.event {
            Event::Promoted { region, .. } => Some(region),
            _ => None,
        });
        Ok(Self { figures: engine.figures(), promoted: promoted.collect(), regions })
    }

    fn first_program_figures(&self) -> Result<&hawkeye_sim::engine::ProgramFigures> {
        let program = self.figures.programs.first();
        program.context("the simulation has no program")
    }

    fn count_promoted_in_last_regions(&self, count: usize) -> u64 {
        let Some(first) = self.regions.iter().rev().nth(count - 1) else {
            return 0;
        };
        self.promoted.iter().filter(|it| *it >= first).count() as u64
    }

    /// Reads per second in the last phase, after all allowed promotions.
    fn million_reads_per_s(&self) -> f64 {
        let program = self.figures.programs.first();
        let last = program.and_then(|program| program.phases.last());
        last.map_or(f64::NAN, |phase| phase.accesses / (phase.end_s - phase.start_s) / 1e6)
    }
}

/// Simulated time after which a run ends unfinished.
const LONGEST: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hawkeye_promotes_the_hot_part_and_linux_the_first() -> Result<()> {
        let systems = measure_policies_on_hot_workload()?;
        let [none, linux, hawkeye, all_huge] = &systems[..] else {
            panic!("{systems:?}");
        };
        assert_eq!(none.promoted, 0);
        assert!(linux.promoted > 0 && linux.promoted_hot == 0, "{linux:?}");
        assert_eq!((hawkeye.promoted, hawkeye.promoted_hot), (256, 256));
        let speed = |figures: &SystemFigures| figures.million_reads_per_s;
        let gain = |figures: &SystemFigures| {
            (speed(figures) - speed(none)) / (speed(all_huge) - speed(none))
        };
        assert!(gain(hawkeye) > 0.5, "{systems:?}");
        assert!(gain(linux) < 0.1, "{systems:?}");
        assert_eq!(measure_policies_on_hot_workload()?, systems, "the same again");
        Ok(())
    }

    #[test]
    fn a_bloated_program_is_left_with_what_it_uses() -> Result<()> {
        let bloat = simulate_bloat_recovery()?;
        assert_eq!(bloat.before_bytes, 1 << 30);
        assert_eq!(bloat.used_bytes, 512 * 100 * 4096);
        assert_eq!(bloat.after_bytes, bloat.used_bytes);
        Ok(())
    }
}
