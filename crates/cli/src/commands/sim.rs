//! `hawkeye sim`: the same policies on a simulated machine.

use anyhow::{Context, Result, anyhow, bail};
use bytesize::ByteSize;
use clap::{Args, Subcommand};
use hawkeye_bench::simulated::paper;
use hawkeye_policy::Rate;
use hawkeye_sim::engine::Outcome;
use hawkeye_sim::mmu::{PROCESSORS, Processor};
use hawkeye_sim::simulate::{Job, Setup, Simulated, simulate, simulate_all};
use hawkeye_sim::systems::{self, SYSTEMS, System};
use hawkeye_sim::workloads::{self, Size, Workload};
use std::path::Path;
use std::process::ExitCode;

/// Try systems and workloads on a simulated machine: deterministic, faster than real time, no privileges needed.
#[derive(Args)]
pub struct Sim {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    Run(Run),
    Compare(Compare),
    Paper(Paper),
    /// Show systems, workloads and where their figures are from.
    List,
}

/// The machine, the same for every system. The default is the HawkEye paper's, one socket of it.
#[derive(Args)]
struct Machine {
    /// Its memory.
    #[arg(long, value_name = "SIZE", default_value = "96GiB", value_parser = |text: &str| text.parse::<Size>())]
    memory: Size,

    /// Its processor.
    #[arg(long, value_name = "NAME", default_value = "haswell")]
    processor: String,

    /// Cores that programs share.
    #[arg(long, value_name = "N", default_value_t = 24)]
    cores: u32,

    /// Chooses what is left to chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Free memory fragmentation index at first, 0-1.
    #[arg(long, value_name = "FMFI", default_value_t = 0.0)]
    fragment: f64,

    /// Promotions per second, for every system; by default each has its own pace.
    #[arg(long, value_name = "REGIONS_PER_S")]
    rate: Option<f64>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Run one workload on one system.
///
/// Example: hawkeye sim run --system hawkeye-g --workload random --fragment 1
#[derive(Args)]
struct Run {
    /// The system: `hawkeye sim list` shows them.
    #[arg(long, value_name = "S")]
    system: String,

    /// The workload, by name or as a file NAME.toml.
    #[arg(long, value_name = "W")]
    workload: String,

    #[command(flatten)]
    machine: Machine,
}

/// Run workloads on several systems, on all cores, and compare.
///
/// Example: hawkeye sim compare --systems linux-4k,linux,hawkeye --workloads random,graph500
#[derive(Args)]
struct Compare {
    /// Systems; all of them if none is named.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    systems: Vec<String>,

    /// Workloads, by name or as files.
    #[arg(long, value_name = "W,V", value_delimiter = ',', required = true)]
    workloads: Vec<String>,

    #[command(flatten)]
    machine: Machine,
}

/// The HawkEye and Ingens papers' tables and figures, simulated, beside the published ones.
#[derive(Args)]
struct Paper {
    /// Tables and figures; all of them if none is named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Sim {
    /// Does it.
    pub fn execute(self) -> Result<ExitCode> {
        match self.command {
            SimCommand::Run(run) => run.execute()?,
            SimCommand::Compare(compare) => compare.execute()?,
            SimCommand::Paper(paper) => paper.execute()?,
            SimCommand::List => list()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Machine {
    fn setup(&self) -> Result<Setup> {
        Ok(Setup {
            memory_bytes: self.memory.0,
            processor: processor(&self.processor)?,
            cores: self.cores,
            seed: self.seed,
            fragmented: self.fragment,
            rate: self.rate.map(Rate::per_second).transpose()?,
            ..Setup::default()
        })
    }
}

fn processor(name: &str) -> Result<Processor> {
    let found = PROCESSORS.iter().find(|p| p.name == name);
    let known = || PROCESSORS.map(|p| p.name).join(", ");
    found
        .copied()
        .ok_or_else(|| anyhow!("there is no processor {name:?}; there are {}", known()))
}

fn workload(name: &str) -> Result<Workload> {
    if Path::new(name).extension().is_none_or(|e| e != "toml") {
        return Ok(workloads::by_name(name)?);
    }
    let text = std::fs::read_to_string(name).with_context(|| format!("{name} can't be read"))?;
    Ok(Workload::parse(name, &text)?)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Run {
    fn execute(self) -> Result<()> {
        let system = systems::by_name(&self.system)?;
        let workload = workload(&self.workload)?;
        let done = simulate(&system, &workload, &self.machine.setup()?)?;
        if self.machine.json {
            println!("{}", serde_json::to_string_pretty(&done)?);
            return Ok(());
        }
        print(&[done]);
        Ok(())
    }
}

impl Compare {
    fn execute(self) -> Result<()> {
        let systems: Vec<System> = if self.systems.is_empty() {
            SYSTEMS.to_vec()
        } else {
            let named = self.systems.iter().map(|name| systems::by_name(name));
            named.collect::<Result<_, _>>()?
        };
        let workloads: Vec<Workload> = self
            .workloads
            .iter()
            .map(|name| workload(name))
            .collect::<Result<_>>()?;
        let setup = self.machine.setup()?;
        let mut jobs = Vec::new();
        for workload in &workloads {
            for system in &systems {
                jobs.push(Job {
                    system: *system,
                    workload,
                    setup,
                });
            }
        }
        let done = simulate_all(&jobs, threads())?;
        if self.machine.json {
            println!("{}", serde_json::to_string_pretty(&done)?);
        } else {
            print(&done);
        }
        Ok(())
    }
}

impl Paper {
    fn execute(self) -> Result<()> {
        let known = || paper::TABLES.map(|table| table.name).join(", ");
        for name in &self.names {
            if !paper::TABLES.iter().any(|table| table.name == name) {
                bail!("there is no table {name:?}; there are {}", known());
            }
        }
        let mut reports = Vec::new();
        for table in &paper::TABLES {
            if !self.names.is_empty() && !self.names.iter().any(|name| name == table.name) {
                continue;
            }
            let report = paper::simulate(table, threads()).map_err(|message| anyhow!(message))?;
            if !self.json {
                println!("{report}");
            }
            reports.push(report);
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&reports)?);
        }
        Ok(())
    }
}

fn list() -> Result<()> {
    println!("Systems:");
    for system in &SYSTEMS {
        println!("  {:12} {}", system.name, system.about);
    }
    println!("Workloads:");
    for name in workloads::names() {
        let source = workloads::by_name(name)?.source;
        println!("  {name:12} {}", source.trim());
    }
    println!("Processors:");
    for processor in &PROCESSORS {
        println!("  {}", processor.name);
    }
    Ok(())
}

/// A line for each program of each run.
fn print(done: &[Simulated]) {
    println!(
        "{:<11} {:<12} {:<12} {:>9} {:>8} {:>8} {:>10} {:>10} {:>10} {:>8} {:>7}",
        "workload",
        "system",
        "program",
        "time s",
        "speed-up",
        "overhead",
        "peak RSS",
        "peak huge",
        "faults",
        "promoted",
        "CPU s"
    );
    for run in done {
        for (index, program) in run.figures.programs.iter().enumerate() {
            let same = |r: &&Simulated| r.workload == run.workload && r.system == "linux-4k";
            let base = done.iter().find(same);
            let base = base.and_then(|base| base.figures.programs.get(index));
            let ended = program.outcome == Outcome::Done;
            let base = base.filter(|base| base.outcome == program.outcome && ended);
            let speed_up = base.map_or("-".to_owned(), |base| {
                format!("{:.2}", base.wall_s / program.wall_s)
            });
            let bytes = |bytes: u64| ByteSize::b(bytes).display().iec_short().to_string();
            println!(
                "{:<11} {:<12} {:<12} {:>9.1} {speed_up:>8} {:>6.1} % {:>10} {:>10} {:>10} {:>8} {:>7.2}{}",
                run.workload,
                run.system,
                program.name,
                program.wall_s,
                program.overhead_percent,
                bytes(program.rss_peak_bytes),
                bytes(program.huge_peak_bytes),
                program.faults,
                run.promoted,
                run.figures.manager_cpu_s,
                match program.outcome {
                    Outcome::Done => "",
                    Outcome::Killed => "  killed: out of memory",
                    Outcome::Unfinished => "  unfinished",
                },
            );
        }
    }
}
