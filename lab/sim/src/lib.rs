//! A simulated [`Machine`](hawkeye_manager::Machine): programs that access memory at random, under
//! base or huge pages, managed by the very loop and policies that manage live processes.
//!
//! Deterministic: the same machine, processes, seed and calls give the same result (with the same
//! build: the exponential function is the platform's). No clock is read and nothing is waited for.
//!
//! # The model
//!
//! - A program's accesses go to the parts of its address space by weight, and within a part to any
//!   page in use, all equally likely, independent of each other. One takes
//!   [`Costs::base_access_ns`] or [`Costs::huge_access_ns`]; caches and TLBs are not part of it, so
//!   what huge pages bring doesn't depend on how much memory is in use, but on what share of the
//!   accesses the program's specification lets miss. Counters of it are exact. The [`engine`] has all of
//!   that.
//! - Programs run while the manager's calls are under way, each on a core of its own, and pay for
//!   the first touch of a page after its access bit was cleared, and for page faults.
//! - A huge frame can be had whenever 2 MiB are free: memory is never fragmented, whatever it is made
//!   to say of itself. Nothing is swapped.
//!   A program for which there is no memory left is killed.
#![forbid(unsafe_code)]

mod bits;
mod change;
mod clock;
mod costs;
pub mod demo;
pub mod engine;
mod error;
mod invariants;
pub mod kernel;
mod machine;
pub mod machine_file;
mod managed;
mod marks;
pub mod memory;
pub mod mmu;
pub mod parallel;
mod process;
mod region;
pub mod rng;
mod running;
pub mod simulate;
mod spec;
pub mod sweep;
pub mod systems;
pub mod trace;
mod tuning;
pub mod workloads;

pub use bits::PageBits;
pub use change::Change;
pub use costs::Costs;
pub use error::{BrokenInvariant, SimError};
pub use machine::{SharedPages, SimMachine};
pub use process::{End, Ended, SimProcess};
pub use spec::{Backing, Ends, MachineSpec, Part, ProcessSpec};
pub use tuning::Tuning;
