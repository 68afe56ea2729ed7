//! Experiments on the running kernel. Every figure is measured beside what it is compared with, in
//! the same run; nothing in here decides whether a figure is good enough.
//!
//! [`EXPERIMENTS`] lists them. Each gets a [`Host`], which sets the machine up and puts it back, and a
//! [`Scale`]. `systems.rs` are the ways to have huge pages that are compared, `programs/` what runs, `report.rs`
//! what is printed.

pub mod bgsave;
pub mod bloat;
mod cgroup;
pub mod collapse;
pub mod container;
pub mod estimate;
pub mod fault_ahead;
pub mod figure_1;
pub mod figure_10;
pub mod figure_8;
mod guest;
pub mod guest_memory;
pub(crate) mod host;
pub mod hot_first;
pub mod latency;
mod managed;
pub mod many_processes;
pub mod no_gain;
pub mod one_tib;
mod polling;
mod pressure;
mod primitives;
mod probe;
pub mod programs;
pub mod real_programs;
pub mod recovery;
mod redis_server;
pub mod report;
pub mod run_rate;
pub mod sampling;
pub(crate) mod scale;
pub mod shared_memory;
pub mod small_pages;
pub mod stalls;
pub mod steady;
pub mod systems;
pub mod table_5;
pub mod table_7;
pub mod table_8;
pub mod table_9;
pub mod zero_scan;

pub use crate::error::BenchError;
pub use cgroup::MemoryCgroup;
pub use host::Host;
pub use managed::{Managed, is_known, manage, manage_all};
pub use report::{Managing, Report, Row};
pub use scale::Scale;

/// An experiment: its name, what it shows, and how to run it.
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// What it shows, in a line.
    pub shows: &'static str,
    /// Runs it.
    pub run: fn(&mut Host, Scale) -> Result<Report, BenchError>,
}

/// All of them, shortest first.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "sampling",
        shows: "cost of reading coverage, per region and per huge page",
        run: sampling::run,
    },
    Experiment {
        name: "zero-scan",
        shows: "cost of looking for zero pages in huge pages in use, bloated and empty",
        run: zero_scan::run,
    },
    Experiment {
        name: "collapse",
        shows: "how fast regions are promoted when nothing limits it",
        run: collapse::run,
    },
    Experiment {
        name: "bloat",
        shows: "memory before and after recovery, against what is in use",
        run: bloat::run,
    },
    Experiment {
        name: "guest-memory",
        shows: "memory that a virtual machine has freed, given back to its host by recovery alone",
        run: guest_memory::run,
    },
    Experiment {
        name: "container",
        shows: "a container bloated to its limit: killed or recovered, by how fast it grows",
        run: container::run,
    },
    Experiment {
        name: "bgsave",
        shows: "Redis saving by a forked child in a container that is nearly full: killed or not, and its peak memory",
        run: bgsave::run,
    },
    Experiment {
        name: "shared-memory",
        shows: "memory of forked workers and pages merged by KSM, by policy",
        run: shared_memory::run,
    },
    Experiment {
        name: "small-pages",
        shows: "speed and memory by pages of 4 KiB, 64 KiB and 2 MiB for blocks of 128 KiB, measured and predicted",
        run: small_pages::run,
    },
    Experiment {
        name: "hot-first",
        shows: "speed by policy under the same small budget of promotions",
        run: hot_first::run,
    },
    Experiment {
        name: "steady",
        shows: "what managing costs when there is nothing to do",
        run: steady::run,
    },
    Experiment {
        name: "many-processes",
        shows: "what looking after a machine costs while processes come and go",
        run: many_processes::run,
    },
    Experiment {
        name: "fault-ahead",
        shows: "how fast new memory is touched when it is zeroed in advance, and what is filled in vain",
        run: fault_ahead::run,
    },
    Experiment {
        name: "stalls",
        shows: "how long page faults of a managed program take: by policy, page size and unmanaged memory beside it",
        run: stalls::run,
    },
    Experiment {
        name: "table-8",
        shows: "Redis, a hash map, a JVM and QEMU with memory zeroed in advance, beside THP=always",
        run: table_8::run,
    },
    Experiment {
        name: "figure-10",
        shows: "how much zeroing in advance slows a neighbour down, by its rate",
        run: figure_10::run,
    },
    Experiment {
        name: "table-7",
        shows: "Redis under base pages, always and managed, with 60 % of its keys deleted, then memory short",
        run: table_7::run,
    },
    Experiment {
        name: "figure-1",
        shows: "Redis in a container, filled, 80 % deleted, filled again: killed or not, and what of its memory is data",
        run: figure_1::run,
    },
    Experiment {
        name: "one-tib",
        shows: "how long a process with 1 TiB mapped is held up while it is sampled",
        run: one_tib::run,
    },
    Experiment {
        name: "figure-8",
        shows: "a sensitive program started before and after a large idle Redis, by policy",
        run: figure_8::run,
    },
    Experiment {
        name: "table-9",
        shows: "random beside sequential reads with promotions for one of them, by policy",
        run: table_9::run,
    },
    Experiment {
        name: "table-5",
        shows: "how evenly three equal programs are served while promotion goes on, by policy",
        run: table_5::run,
    },
    Experiment {
        name: "programs",
        shows: "what huge pages gain Redis, memcached, PostgreSQL, a JVM, sparsehash, cg, mg, a graph and DuckDB",
        run: real_programs::run,
    },
    Experiment {
        name: "latency",
        shows: "how long Redis and memcached take to answer while they grow, by system",
        run: latency::run,
    },
    Experiment {
        name: "no-gain",
        shows: "what managing costs programs that huge pages gain nothing, in speed and memory",
        run: no_gain::run,
    },
    Experiment {
        name: "recovery",
        shows: "programs started in fragmented memory: time until they are fast, and time saved by a promotion, by system",
        run: recovery::run,
    },
    Experiment {
        name: "run-rate-sim",
        shows: "estimated overhead against the simulated processor's counters, without any cap",
        run: crate::simulated::run_rate::run,
    },
    Experiment {
        name: "run-rate",
        shows: "estimated overhead of nine programs beside what huge pages gain them",
        run: run_rate::run,
    },
];
