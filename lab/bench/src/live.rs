//! Experiments on the running kernel. Each figure is measured in the same run as the figure that it
//! is compared with. Nothing in here decides whether a figure is good enough.
//!
//! [`EXPERIMENTS`] lists them. Each gets a [`Scale`] and a [`Host`], which sets the machine up and
//! restores it. `systems.rs` has the ways to get huge pages that are compared, `programs/` the
//! programs that run. `report.rs` has what is printed, `prelude.rs` what nearly all experiments
//! use.

mod bgsave;
mod bloat;
mod cgroup;
mod collapse;
mod container;
mod fault_ahead;
mod figure_1;
mod figure_10;
mod figure_8;
mod guest;
mod guest_memory;
pub(crate) mod host;
mod hot_first;
mod latency;
mod managed;
mod many_processes;
mod no_gain;
mod one_tib;
mod polling;
mod prelude;
mod pressure;
pub(crate) mod programs;
mod real_programs;
mod recovery;
mod redis_server;
pub(crate) mod report;
mod run_rate;
mod sampling;
pub(crate) mod scale;
mod shared_memory;
mod small_pages;
mod stalls;
mod steady;
mod systems;
mod table_5;
mod table_7;
mod table_8;
mod table_9;
mod zero_scan;

pub use cgroup::MemoryCgroup;
pub use host::Host;
pub use managed::{Managed, manage};
pub use report::{Managing, Report, Row, Rows};
pub use scale::Scale;

use crate::error::Result;

/// An experiment: its name, what it shows, and how to run it.
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub shows: &'static str,
    /// Runs it and fills the report.
    run: fn(&mut Host, Scale, &mut Report) -> Result<()>,
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// This machine can't do it.
    pub fn run(&self, host: &mut Host, scale: Scale) -> Result<Report> {
        let mut report = Report::new(self.name);
        (self.run)(host, scale, &mut report)?;
        Ok(report)
    }
}

macro_rules! experiments {
    ($($name:literal: $run:path, $shows:literal;)*) => {
        &[$(Experiment { name: $name, shows: $shows, run: $run }),*]
    };
}

/// All live experiments, shortest first.
pub const EXPERIMENTS: &[Experiment] = experiments! {
    "sampling": sampling::run, "cost of reading coverage, per region and per huge page";
    "zero-scan": zero_scan::run, "cost of looking for zero pages in huge pages in use, bloated and empty";
    "collapse": collapse::run, "how fast regions are promoted when nothing limits it";
    "bloat": bloat::run, "memory before and after recovery, against what is in use";
    "guest-memory": guest_memory::run, "memory that a virtual machine has freed, given back to its host by recovery alone";
    "container": container::run, "a container bloated to its limit: killed or recovered, by how fast it grows";
    "bgsave": bgsave::run, "Redis saving by a forked child in a container that is nearly full: killed or not, and its peak memory";
    "shared-memory": shared_memory::run, "memory of forked workers and pages merged by KSM, by policy";
    "small-pages": small_pages::run, "speed and memory by pages of 4 KiB, 64 KiB and 2 MiB for blocks of 128 KiB, measured and predicted";
    "hot-first": hot_first::run, "speed by policy under the same small budget of promotions";
    "steady": steady::run, "what managing costs when there is nothing to do";
    "many-processes": many_processes::run, "what looking after a machine costs while processes come and go";
    "fault-ahead": fault_ahead::run, "how fast new memory is touched when it is zeroed in advance, and what is filled in vain";
    "stalls": stalls::run, "how long page faults of a managed program take: by policy, page size and unmanaged memory beside it";
    "table-8": table_8::run, "Redis, a hash map, a JVM and QEMU with memory zeroed in advance, beside THP=always";
    "figure-10": figure_10::run, "how much zeroing in advance slows a neighbour down, by its rate";
    "table-7": table_7::run, "Redis under base pages, always and managed, with 60 % of its keys deleted, then memory short";
    "figure-1": figure_1::run, "Redis in a container, filled, 80 % deleted, filled again: killed or not, and what of its memory is data";
    "one-tib": one_tib::run, "how long a process with 1 TiB mapped is held up while it is sampled";
    "figure-8": figure_8::run, "a sensitive program started before and after a large idle Redis, by policy";
    "table-9": table_9::run, "random beside sequential reads with promotions for one of them, by policy";
    "table-5": table_5::run, "how evenly three equal programs are served while promotion goes on, by policy";
    "programs": real_programs::run, "what huge pages gain Redis, memcached, PostgreSQL, a JVM, sparsehash, cg, mg, a graph and DuckDB";
    "latency": latency::run, "how long Redis and memcached take to answer while they grow, by system";
    "no-gain": no_gain::run, "what managing costs programs that huge pages gain nothing, in speed and memory";
    "recovery": recovery::run, "programs started in fragmented memory: time until they are fast, and time saved by a promotion, by system";
    "run-rate-sim": crate::simulated::run_rate::run, "estimated overhead against the simulated processor's counters, without any cap";
    "run-rate": run_rate::run, "estimated overhead of nine programs beside what huge pages gain them";
};
