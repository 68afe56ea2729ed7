//! Shared memory that several processes map. There is no published figure; the live experiment of
//! the same name measures the same.

use super::PaperMeasure::{self, HugePercent, Promotions, SharedFileGib, SpeedPercent};
use super::{ExperimentName, PaperTable, PaperValue, PublishedValue};
use hawkeye_sim::kernel::KernelCosts;
use hawkeye_sim::mmu::SAPPHIRE_RAPIDS;
use hawkeye_sim::simulate::SimulationSetup;

const WORKLOAD: &str = "shared-readers";
/// Base pages, HawkEye, and huge pages from the first touch, with which the others are compared.
const ARMS: [&str; 3] = ["linux-4k", "hawkeye", HUGE_FROM_THE_START];
const HUGE_FROM_THE_START: &str = "linux-shmem";
/// The phase in which speed is measured: after the fill and the time for promotions.
const MEASURED: usize = 2;

pub(super) const SHARED_READERS: PaperTable = PaperTable {
    name: ExperimentName::from_name_and_alias("shared-readers", ""),
    shows: "two processes that read one file of shared memory of 4 GiB: speed over that with huge pages from the start, promotions and memory",
    setup: || SimulationSetup {
        memory_bytes: 24 << 30,
        cores: 2,
        processor: SAPPHIRE_RAPIDS,
        costs: KernelCosts::development_vm(),
        ..SimulationSetup::default()
    },
    figures: || {
        let row = |program, system, measure: PaperMeasure| PaperValue {
            workload: WORKLOAD,
            program,
            system,
            measure,
            paper: PublishedValue::Unknown,
        };
        let speed = SpeedPercent(HUGE_FROM_THE_START, MEASURED);
        let mut figures = Vec::new();
        for system in &ARMS[..2] {
            figures.extend(["reader-1", "reader-2"].map(|reader| row(reader, *system, speed)));
        }
        for measure in [HugePercent(MEASURED), SharedFileGib] {
            figures.extend(ARMS.map(|system| row("reader", system, measure)));
        }
        figures.push(row("reader", "hawkeye", Promotions));
        figures
    },
    notes: &[
        "A prediction of the live experiment of the same name, on its number of cores and size of memory. Nothing is fitted to what that measures. The file has 2048 regions, and the goal is one promotion of each. Memory is that of the file, which counts once.",
        "Chosen: a Sapphire Rapids processor without virtualization, which is not what the live experiment runs on; the kernel's costs of the machine of docs/research/measured.md; reads that wait for 30 % of a walk. With these, huge pages make reads of 8 GiB of private memory 1.68 times as fast, where 1.64 to 1.74 were measured. The manager has a core of its own.",
    ],
    ..PaperTable::PLAIN
};
