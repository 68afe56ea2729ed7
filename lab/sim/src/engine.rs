//! A whole simulated machine: programs of a [workload](crate::workloads), the
//! [kernel](crate::kernel) that gives them memory, and the [processor](crate::mmu::translation)
//! that translates their addresses. The same [`Manager`](hawkeye_manager::Manager) and policies
//! manage it that manage live processes.
//!
//! ```text
//!  workload --> Engine ---a step, core shares---> Program, phase by phase
//!               (machine) (clock, core_shares)    (program, program_run)
//!                                                  |              |
//!                                     fills, swaps v              v a sample of the accesses
//!                                                kernel ------> access_cost: Translator
//!                                                  | sync_mappings   | cycles, walks
//!  Manager <-- manager_view <-- coverage <---------+-----------------+--> figures
//!                                  ^
//!                                  `-- stream_sampler: access bits, as all accesses set them
//! ```
//!
//! Read `Engine::advance_to` in `clock.rs` first, then `Program::run` in `program_run.rs`, then
//! `access_cost.rs`. `manager_view.rs` implements the manager's traits; `coverage.rs` has what a
//! sample shows.
//!
//! # Time
//!
//! - Programs make some 10^8 accesses a second. Only a *sample* of these goes through a
//!   [`Translator`], interleaved as the workload says. A sample starts with the TLBs, the walk
//!   caches and the caches as the sample before left them. Its cycles per access hold until the
//!   next sample. The next sample is made when the mappings have changed, at least one second of
//!   simulated time later. A phase starts with a longer sample that doesn't count.
//! - All first touches and frees go through the kernel, region by region, at its costs.
//! - Payers: a fault, a cold page and a free hold up the program. A collapse holds it up for as
//!   long as it can't fault. The manager's calls take its own time, on a core of its own, while
//!   programs run on. kswapd and the zeroing thread have cores of their own. With more threads than
//!   cores each thread gets its share, by weight (`core_shares.rs`).
//! - All threads of a program do the same, each on a core of its own. What is said of the program's
//!   accesses holds for each of them.
//! - Access bits over a window are not those of the sample: a smaller sample would see fewer pages.
//!   Instead each page's bit is set with the probability that one of *all* accesses of the window
//!   went to it. That probability follows from the distribution that the sample is drawn from
//!   (`stream_sampler.rs`).
//! - Overhead in a window comes from the samples' counters, weighted by the time that each held.
//! - A trace is no distribution: all of its accesses are made, in their order (`trace_run.rs`).
//! - A program waits for each page in swap that it accesses (`swap_waits.rs`). The zeroing thread
//!   takes lines of the last-level cache and time of memory's channels from programs beside it
//!   (`zeroing_neighbour.rs`).
//! - Programs may map the same file of shared memory (`shared_memory.rs`).
//! - Virtual machines are machines of the same kind, and processes of their host (`guests/`).
//!
//! Not modelled: locks among threads of a program; that a page in the TLB doesn't set its access
//! bit again; what programs take from each other's caches and memory bandwidth.
//!
//! Deterministic: the same spec, workload and seed give the same figures, whatever else runs.
//!
//! [`Translator`]: crate::mmu::translation::Translator

mod access_cost;
mod access_sample;
mod area_layout;
mod clock;
mod core_shares;
mod coverage;
mod error;
mod figures;
mod fill_phases;
mod guests;
mod machine;
mod manager_view;
mod program;
mod program_history;
mod program_run;
mod shared_files_by_name;
mod shared_memory;
mod simulated_prefaulter;
mod stream_sampler;
mod swap_waits;
mod sync_mappings;
mod time_weighted_page_sizes;
mod trace_player;
mod trace_run;
mod zeroing_neighbour;

pub use error::EngineError;
pub use figures::{
    EngineFigures, GuestFigures, PageSizeFigures, PhaseFigures, ProgramFigures, ProgramMoment,
    ProgramOutcome,
};
pub use guests::{EngineSharedByManagers, MachineView};
pub use machine::Engine;
