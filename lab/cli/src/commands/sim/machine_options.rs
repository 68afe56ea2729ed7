//! The machine and the workloads, as options.

use super::trace_options::TraceOptions;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use hawkeye_policy::RatePerSecond;
use hawkeye_sim::kernel::{SamePageMergingSpec, SwapSpec};
use hawkeye_sim::machine_file::MachineFile;
use hawkeye_sim::mmu::translation::PageTableLevels;
use hawkeye_sim::mmu::{HASWELL, PROCESSORS, ProcessorSpec};
use hawkeye_sim::simulate::SimulationSetup;
use hawkeye_sim::systems::{self, SYSTEMS, SimulatedSystem};
use hawkeye_sim::workloads::{self, ByteSize, WorkloadSpec};
use std::path::{Path, PathBuf};

/// The machine, the same for every system. The default is the HawkEye paper's, one socket of it.
#[derive(Args)]
pub struct MachineOptions {
    /// Memory of the machine.
    #[arg(long, value_name = "SIZE", default_value = "96GiB", value_parser = |text: &str| text.parse::<ByteSize>())]
    memory: ByteSize,

    /// Processor, one of `hawkeye-lab sim list`.
    ///
    /// The default is haswell, or the processor in the file of --costs.
    #[arg(long, value_name = "NAME")]
    processor: Option<String>,

    /// Levels of page tables, 4 or 5.
    #[arg(long, value_name = "N", default_value = "4", hide_short_help = true, value_parser = |text: &str| text.parse::<PageTableLevels>())]
    page_table_levels: PageTableLevels,

    /// Do not prefetch the translation of a stream's next page.
    #[arg(long, hide_short_help = true)]
    no_prefetch: bool,

    /// Costs, a file of `hawkeye-lab calibrate`.
    ///
    /// It has the costs of the kernel's work, and the processor. The default is the paper's.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,

    /// Cores that programs share.
    #[arg(long, value_name = "N", default_value_t = 24)]
    cores: u32,

    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Fragmentation at the start, 0-1.
    ///
    /// It is the FMFI of free memory.
    #[arg(long, value_name = "FMFI", default_value_t = 0.0)]
    fragment: f64,

    /// Promotions per second [default: each system's].
    #[arg(long, value_name = "REGIONS_PER_S")]
    rate: Option<f64>,

    /// Run workloads in a virtual machine of SIZE.
    ///
    /// A workload can also define virtual machines.
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| text.parse::<ByteSize>())]
    guest: Option<ByteSize>,

    /// System in virtual machines [default: that of the host].
    #[arg(long, value_name = "S", hide_short_help = true)]
    guest_system: Option<String>,

    /// FMFI of virtual machines at the start, 0-1.
    #[arg(long, value_name = "FMFI", default_value_t = 0.0, hide_short_help = true)]
    guest_fragment: f64,

    /// Size of swap, on an SSD [default: none].
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| text.parse::<ByteSize>())]
    swap: Option<ByteSize>,

    /// Zero pages of virtual machines to merge per second [default: none].
    #[arg(long, value_name = "PAGES_PER_S", hide_short_help = true)]
    merge: Option<u64>,

    /// Prefault memory.
    ///
    /// Systems that can prefault (`hawkeye`) do so instead of zeroing free memory.
    #[arg(long = "fault-ahead")]
    prefault: bool,
}

impl MachineOptions {
    /// The machine that the options describe.
    pub fn simulation_setup(&self) -> Result<SimulationSetup> {
        let mut setup = SimulationSetup {
            memory_bytes: self.memory.0,
            processor: HASWELL,
            page_table_levels: self.page_table_levels,
            next_page_prefetch: !self.no_prefetch,
            cores: self.cores,
            seed: self.seed,
            fragmented: self.fragment,
            rate: self.rate.map(RatePerSecond::new).transpose()?,
            guest_system: self.guest_system.as_deref().map(systems::by_name).transpose()?,
            guest_fragmented: self.guest_fragment,
            swap: self.swap.map(|size| SwapSpec::ssd(size.0)),
            merging: self.merge.map(|pages_per_s| SamePageMergingSpec { pages_per_s }),
            prefault: self.prefault,
            ..SimulationSetup::default()
        };
        if let Some(path) = &self.costs {
            let name = path.display().to_string();
            let file = MachineFile::parse(&name, &read_text_file(path)?)?;
            (setup.costs, setup.processor) = (file.costs, file.processor);
        }
        if let Some(name) = &self.processor {
            setup.processor = processor_by_name(name)?;
        }
        Ok(setup)
    }

    /// The workload, in a virtual machine with all cores if one was requested.
    pub fn workload_in_requested_guest(
        &self,
        workload: WorkloadSpec,
        setup: &SimulationSetup,
    ) -> WorkloadSpec {
        match self.guest {
            Some(memory) => workload.in_guest(memory, setup.cores),
            None => workload,
        }
    }
}

fn read_text_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn processor_by_name(name: &str) -> Result<ProcessorSpec> {
    let found = PROCESSORS.iter().find(|p| p.name == name);
    let known = || PROCESSORS.map(|p| p.name).join(", ");
    found.copied().ok_or_else(|| anyhow!("no processor {name:?}; known processors: {}", known()))
}

/// The text of a workload, by name or as a file.
pub fn read_workload_text(name: &str) -> Result<String> {
    if Path::new(name).extension().is_some_and(|e| e == "toml") {
        return read_text_file(Path::new(name));
    }
    workloads::by_name(name)?;
    let mut known = workloads::BUILT_IN.iter();
    let found = known.find(|(known, _)| *known == name);
    Ok(found.map_or_else(String::new, |(_, text)| (*text).to_owned()))
}

/// A workload, by name, as a file, or from a trace.
pub fn workload_from_argument(name: &str, tracing: &TraceOptions) -> Result<WorkloadSpec> {
    let path = Path::new(name);
    let is_toml = path.extension().is_some_and(|e| e == "toml");
    if !is_toml && workloads::by_name(name).is_err() && path.is_file() {
        return tracing.workload_of_trace_file(path);
    }
    Ok(WorkloadSpec::parse(name, &read_workload_text(name)?)?)
}

/// Systems by name; all of them if none is named.
pub fn systems_by_names_or_all(names: &[String]) -> Result<Vec<SimulatedSystem>> {
    if names.is_empty() {
        return Ok(SYSTEMS.to_vec());
    }
    let named = names.iter().map(|name| systems::by_name(name));
    Ok(named.collect::<Result<_, _>>()?)
}

/// Number of cores.
pub fn count_available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
