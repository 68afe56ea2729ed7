//! The machine and the workloads, as options.

use super::trace::Tracing;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use hawkeye_policy::Rate;
use hawkeye_sim::kernel::{MergeSpec, SwapSpec};
use hawkeye_sim::machine_file::MachineFile;
use hawkeye_sim::mmu::translation::Levels;
use hawkeye_sim::mmu::{HASWELL, PROCESSORS, Processor};
use hawkeye_sim::simulate::Setup;
use hawkeye_sim::systems::{self, SYSTEMS, System};
use hawkeye_sim::workloads::{self, Size, Workload};
use std::path::{Path, PathBuf};

/// The machine, the same for every system. The default is the HawkEye paper's, one socket of it.
#[derive(Args)]
pub struct Machine {
    /// Its memory.
    #[arg(long, value_name = "SIZE", default_value = "96GiB", value_parser = |text: &str| text.parse::<Size>())]
    memory: Size,

    /// Its processor (`hawkeye-lab sim list`).
    ///
    /// haswell, or the one in the file of costs, unless said.
    #[arg(long, value_name = "NAME")]
    processor: Option<String>,

    /// Levels of page tables, 4 or 5.
    #[arg(long, value_name = "N", default_value = "4", hide_short_help = true, value_parser = |text: &str| text.parse::<Levels>())]
    page_table_levels: Levels,

    /// The processor doesn't walk for the next page of a stream beforehand.
    #[arg(long, hide_short_help = true)]
    no_prefetch: bool,

    /// Costs, from `hawkeye-lab calibrate`.
    ///
    /// What the kernel's work costs, and the processor; the paper's without it.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,

    /// Cores that programs share.
    #[arg(long, value_name = "N", default_value_t = 24)]
    cores: u32,

    /// Chooses what is left to chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Fragmentation at first, 0-1.
    ///
    /// Of free memory, as an FMFI.
    #[arg(long, value_name = "FMFI", default_value_t = 0.0)]
    fragment: f64,

    /// Promotions per second [default: each its own].
    #[arg(long, value_name = "REGIONS_PER_S")]
    rate: Option<f64>,

    /// Run it in a virtual machine with this much memory.
    ///
    /// A workload can have virtual machines of its own, too.
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| text.parse::<Size>())]
    guest: Option<Size>,

    /// The system in virtual machines; by default the same as on the machine itself.
    #[arg(long, value_name = "S", hide_short_help = true)]
    guest_system: Option<String>,

    /// Free memory fragmentation index in virtual machines at first, 0-1.
    #[arg(
        long,
        value_name = "FMFI",
        default_value_t = 0.0,
        hide_short_help = true
    )]
    guest_fragment: f64,

    /// Size of swap, on an SSD [default: none].
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| text.parse::<Size>())]
    swap: Option<Size>,

    /// Pages of virtual machines scanned for zeros per second, to be merged; none by default.
    #[arg(long, value_name = "PAGES_PER_S", hide_short_help = true)]
    merge: Option<u64>,

    /// Fill memory ahead of programs.
    ///
    /// Where the system can (`hawkeye`), in place of zeroing free memory.
    #[arg(long)]
    fault_ahead: bool,
}

impl Machine {
    /// The machine that the options describe.
    pub fn setup(&self) -> Result<Setup> {
        let mut setup = Setup {
            memory_bytes: self.memory.0,
            processor: HASWELL,
            page_table_levels: self.page_table_levels,
            next_page_prefetch: !self.no_prefetch,
            cores: self.cores,
            seed: self.seed,
            fragmented: self.fragment,
            rate: self.rate.map(Rate::per_second).transpose()?,
            guest_system: self
                .guest_system
                .as_deref()
                .map(systems::by_name)
                .transpose()?,
            guest_fragmented: self.guest_fragment,
            swap: self.swap.map(|size| SwapSpec::ssd(size.0)),
            merging: self.merge.map(|pages_per_s| MergeSpec { pages_per_s }),
            fault_ahead: self.fault_ahead,
            ..Setup::default()
        };
        if let Some(path) = &self.costs {
            let name = path.display().to_string();
            let file = MachineFile::parse(&name, &read(path)?)?;
            (setup.costs, setup.processor) = (file.costs, file.processor);
        }
        if let Some(name) = &self.processor {
            setup.processor = processor(name)?;
        }
        Ok(setup)
    }

    /// The workload, in a virtual machine if one was requested.
    pub fn place(&self, workload: Workload) -> Workload {
        match self.guest {
            Some(memory) => workload.in_guest(memory, self.cores),
            None => workload,
        }
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))
}

fn processor(name: &str) -> Result<Processor> {
    let found = PROCESSORS.iter().find(|p| p.name == name);
    let known = || PROCESSORS.map(|p| p.name).join(", ");
    found
        .copied()
        .ok_or_else(|| anyhow!("there is no processor {name:?}; there are {}", known()))
}

/// The text of a workload, by name or as a file.
pub fn workload_text(name: &str) -> Result<String> {
    if Path::new(name).extension().is_some_and(|e| e == "toml") {
        return read(Path::new(name));
    }
    workloads::by_name(name)?;
    let mut known = workloads::BUILT_IN.iter();
    let found = known.find(|(known, _)| *known == name);
    Ok(found.map_or_else(String::new, |(_, text)| (*text).to_owned()))
}

/// A workload, by name, as a file, or from a trace.
pub fn workload(name: &str, tracing: &Tracing) -> Result<Workload> {
    let path = Path::new(name);
    let is_toml = path.extension().is_some_and(|e| e == "toml");
    if !is_toml && workloads::by_name(name).is_err() && path.is_file() {
        return tracing.workload(path);
    }
    Ok(Workload::parse(name, &workload_text(name)?)?)
}

/// Systems by name; all of them if none is named.
pub fn systems(names: &[String]) -> Result<Vec<System>> {
    if names.is_empty() {
        return Ok(SYSTEMS.to_vec());
    }
    let named = names.iter().map(|name| systems::by_name(name));
    Ok(named.collect::<Result<_, _>>()?)
}

/// Number of cores.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
