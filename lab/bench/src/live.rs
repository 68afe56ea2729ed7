//! Experiments on the running kernel. Each figure is measured in the same run as the figure that it
//! is compared with. Nothing in here decides whether a figure is good enough.
//!
//! ```text
//!  EXPERIMENTS --> run(BenchHost, Scale, LiveReport): one experiment, one file
//!      |-- bench_host           takes the machine over, and restores its settings
//!      |-- programs             starts programs, and times them by their CPU time
//!      |-- huge_page_systems    prepares the kernel for a system, and promotes as it does
//!      |     `-- manager_runs   the manager inside this process
//!      |-- guard_arm            kernel settings, with or without the profile guard
//!      |     `-- running_daemon the daemon beside this process
//!      |-- shared_memory_arm    kernel settings for shared memory, with or without HawkEye
//!      |-- attached_manager     `hawkeye attach` beside this process
//!      |-- free_memory          backed, or what a hypervisor may have taken back
//!      v
//!    LiveReport (live_report): rows, notes, panels --> experiments, result files
//! ```
//!
//! Read [`EXPERIMENTS`] first, then a short experiment: `zero_scan_cost.rs` uses a workload and no
//! system, `redis_bloat.rs` compares systems. `prelude.rs` has what nearly all experiments use,
//! [`Scale`] the lengths of a short and a long run.

mod attach_speedup;
mod attached_manager;
pub(crate) mod bench_host;
mod bloat_recovery;
mod container_at_limit;
pub mod estimate_verification;
mod fairness;
mod first_touch_programs;
mod fragmented_memory;
mod free_memory;
mod gain_of_real_programs;
mod growing_server_latency;
mod guard_arm;
mod guard_limits;
mod headline;
mod hostile_neighbour;
mod huge_page_recovery;
mod huge_page_reserve;
mod huge_page_systems;
mod idle_container;
mod idle_node;
mod idle_polling;
mod kept_rounds;
mod lasting_settings;
pub(crate) mod live_report;
mod manager_runs;
mod many_processes;
mod memory_cgroup;
mod memory_forecast;
mod memory_hogs;
mod mixed_sensitivity;
mod mthp_of_64_kib;
mod overhead_estimates;
mod page_fault_stalls;
mod prefault;
mod prelude;
mod proc_files;
mod program_text;
pub(crate) mod programs;
mod programs_without_gain;
mod promotion_throughput;
mod recovery_order;
mod redis_bloat;
mod redis_refill;
mod redis_server;
mod running_daemon;
mod sampling_cost;
mod sampling_of_one_tib;
mod scale;
mod shared_buffers;
mod shared_memory_arm;
mod shared_memory_use;
mod shared_neighbour;
mod shared_readers;
mod shared_stalls;
mod start_order;
mod zero_scan_cost;
mod zeroing_neighbour;

pub use bench_host::{BenchHost, SessionOptions};
use live_report::PrefixedRowWriter;
pub use live_report::{LiveReport, ManagerCpuUse};
pub use manager_runs::{ManagementRecord, manage_processes_until};
pub use memory_cgroup::MemoryCgroup;
pub use scale::Scale;

use crate::error::BenchResult;
use crate::experiment_name::ExperimentName;

/// An experiment: its name, what it shows, and how to run it.
pub struct LiveExperiment {
    /// Name on the command line.
    pub name: ExperimentName,
    /// What it shows, in one line.
    pub shows: &'static str,
    run: fn(&mut BenchHost, Scale, &mut LiveReport) -> BenchResult<()>,
}

impl LiveExperiment {
    /// Runs it, from the same settings whichever experiment ran before.
    pub fn run(&self, host: &mut BenchHost, scale: Scale) -> BenchResult<LiveReport> {
        host.renew_lease()?;
        // The experiment before may have restored it.
        host.stop_free_page_reporting()?;
        let mut report = LiveReport::new(self.name);
        (self.run)(host, scale, &mut report)?;
        Ok(report)
    }
}

macro_rules! experiments {
    ($($name:literal $(= $alias:literal)?: $run:path, $shows:literal;)*) => {
        &[$(LiveExperiment {
            name: ExperimentName::from_name_and_alias($name, concat!($($alias)?)),
            shows: $shows,
            run: $run,
        }),*]
    };
}

/// All live experiments, shortest first. The number of a paper's table or figure, or an earlier
/// name, is an alias.
pub const EXPERIMENTS: &[LiveExperiment] = experiments! {
    "collapse": promotion_throughput::run, "promotion rate when nothing limits it";
    "bloat": bloat_recovery::run, "resident memory before and after recovery, beside the memory in use";
    "container": container_at_limit::run, "a container that bloats itself to its limit: killed or recovered, by its growth rate";
    "small-pages": mthp_of_64_kib::run, "speed and memory with pages of 4 KiB, 64 KiB and 2 MiB for blocks of 128 KiB: measured and predicted";
    "many-processes": many_processes::run, "cost of managing a whole machine while processes start and end";
    "hostile-neighbour": hostile_neighbour::run, "a container that bloats without end beside two others, under the kernel alone and with guard";
    "guard-growth": container_at_limit::run_guard_growth, "a running program that grows to its limit in half a second: killed or not, with guard and without";
    "prefault" = "fault-ahead": prefault::run, "time to touch new memory that is prefaulted, and memory prefaulted in vain";
    "reserve": huge_page_reserve::run, "duration of promotions with and without the reserve of huge pages: memory backed, long free and fragmented";
    "sampling": sampling_cost::run, "cost of reading coverage, per region and per huge page";
    "zero-scan": zero_scan_cost::run, "cost of searching huge pages for zero-filled base pages: in use, bloated and nearly empty";
    "stalls": page_fault_stalls::run, "duration of a managed program's page faults, by policy and with unmanaged memory beside it";
    "shared-stalls": shared_stalls::run, "longest reads of two processes while their shared or private memory is promoted";
    "first-touch-programs" = "table-8": first_touch_programs::run, "Redis, a hash map, a JVM and QEMU with prefault, beside base pages and THP always";
    "zeroing-neighbour" = "figure-10": zeroing_neighbour::run, "how much prefault slows a program on another core, by its rate";
    "redis-bloat" = "table-7": redis_bloat::run, "Redis with 60 % of its keys deleted, then with short memory: base pages, THP always and managed";
    "redis-refill" = "figure-1": redis_refill::run, "Redis in a container, filled, 80 % deleted, filled again: killed or not, and how much of its memory is data";
    "guard-order": recovery_order::run, "speed and fairness at equal memory when huge pages are split in the paper's order, in EMD's and in ours";
    "idle-node": idle_node::run, "CPU time and memory of a daemon with guard that manages 300 idle containers";
    "idle-container": idle_container::run, "memory of an idle MariaDB and of idle synthetic threads in a container, both with mimalloc: THP never, always, PR_SET_THP_DISABLE and guard";
    "one-tib": sampling_of_one_tib::run, "longest delay of a process with 1 TiB mapped while it is sampled";
    "start-order" = "figure-8": start_order::run, "a sensitive program started before and after a large idle Redis, by policy";
    "mixed-sensitivity" = "table-9": mixed_sensitivity::run, "random reads beside sequential reads, with promotions for one of them, by policy";
    "fairness" = "table-5": fairness::run, "how evenly three equal programs gain from promotions, by policy";
    "attach-speedup": attach_speedup::run, "time from hawkeye attach to 90 % of the gain from huge pages, for random reads: memory backed and long free";
    "prefault-pairs": prefault::run_pairs, "prefault against THP always for touches in order, in pairs: memory backed and long free";
    "forecast": memory_forecast::run, "memory under THP always and under guard of ten programs, beside the forecast while they ran under THP never";
    "programs": gain_of_real_programs::run, "gain from huge pages of Redis, memcached, PostgreSQL, a JVM, sparsehash, cg, mg, a graph and DuckDB";
    "headline-first-minute": headline::run_first_minute, "speed of eleven real programs in their first minute by THP never, THP always and hawkeye run";
    "headline": headline::run, "speed, memory and latency of real programs by THP never, THP always, hawkeye run and the daemon";
    "headline-long-free": headline::run_in_long_free_memory, "the same in memory that has been free for long, which a hypervisor may have taken back";
    "latency": growing_server_latency::run, "latency of Redis and memcached while they grow, by system";
    "no-gain": programs_without_gain::run, "cost of management for programs that gain nothing from huge pages, in speed and memory";
    "program-text": program_text::run, "hot program text on tmpfs: speed with base pages, a huge copy made at start, and HawkEye; and what a trial decides";
    "shared-readers": shared_readers::run, "two processes that read one file of shared memory: speed with base pages, huge from the start and HawkEye";
    "shared-neighbour": shared_neighbour::run, "Redis beside PostgreSQL while HawkEye promotes the shared buffers of that: its speed beside turns in which HawkEye is stopped";
    "shared-buffers": shared_buffers::run, "PostgreSQL with its data in shared buffers: base pages, hugetlb, shmem_enabled=always, and HawkEye while it runs";
    "recovery": huge_page_recovery::run, "programs started in fragmented memory: time until the memory in use is huge, and for how long by promotion, by system";
    "guard-limits": guard_limits::run, "five services that bloat in cgroups at 1.1 times their peak: killed or not, memory and speed, with guard and without";
    "walk-rate" = "run-rate": overhead_estimates::run, "estimated overhead of nine programs beside their measured gain from huge pages";
};
