//! The simulated machine: programs, TLBs and page walks, memory, and a kernel's memory manager. The
//! loop and policies that manage it are those that manage live processes.
//!
//! Deterministic: the same machine, workload, seed and calls give the same result. The simulation
//! reads no clock and waits for nothing.
//!
//! ```text
//! workloads, trace      what programs do, as data (TOML, or a trace of accesses)
//!        |
//!        v
//!     engine  ------->  hawkeye-manager: samples, promotes, recovers
//!      |    \
//!      v     v
//!     mmu   kernel      what accesses cost / what a fault, reclaim or promotion does
//!             |
//!             v
//!           memory      frames, free lists, fragmentation
//! ```
//!
//! Read [`simulate`] first: one run of a [workload](workloads) on a [system](systems). Then
//! [`engine`], which keeps time and puts the rest together.
#![forbid(unsafe_code)]

pub mod engine;
pub mod kernel;
pub mod machine_file;
pub mod memory;
pub mod mmu;
mod page_bits;
pub mod parallel;
pub mod rng;
pub mod simulate;
mod simulation_setup;
pub mod sweep_parameters;
mod system_overrides;
pub mod systems;
pub mod trace;
pub mod workloads;

pub use page_bits::PageBits;
pub use system_overrides::SystemOverrides;
