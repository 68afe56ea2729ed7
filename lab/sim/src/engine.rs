//! A whole simulated machine: programs of a [workload](crate::workloads), the [kernel](crate::kernel) that gives them
//! memory, and the [processor](crate::mmu::translation) that translates their addresses, managed by the very
//! [`Manager`](hawkeye_manager::Manager) and policies that manage live processes.
//!
//! Data goes one way: workload -> engine -> kernel and translation -> figures.
//!
//! # Time
//!
//! - Programs make some 10^8 accesses a second. Of these a *sample* is made through a [`Translator`], interleaved as
//!   the workload says, with what it finds in the TLBs, the walk caches and the caches left as it was after the sample before.
//!   Cycles per access in the sample are cycles per access until the next one, which is made when the mappings have
//!   changed, a second of simulated time later at the earliest. A phase starts with a longer one that doesn't count.
//! - First touches and frees go through the kernel region by region, all of them; each costs what the kernel says.
//! - Who pays: a fault, a cold page and a free hold up the program; a collapse holds it up for as long as it can't
//!   fault; the manager's calls take its own time, on a core of its own, while programs run on; kswapd and the zeroing thread
//!   have theirs. With more threads than cores each gets its share, by weight (`sharing.rs`).
//! - The threads of a program do the same, each on a core of its own: what is said of its accesses holds for each of them.
//! - Access bits over a window are not those of the sample, which would see the fewer pages the smaller it is: each
//!   page's bit is set with the probability that one of *all* accesses of the window went to it, worked out from the very
//!   distribution that the sample is drawn from (`accesses.rs`).
//! - Overhead in a window is the counters' of the sample, by the time each figure held.
//! - A trace is no distribution: all of its accesses are made, in their order (`playing.rs`).
//!
//! - Pages in swap are waited for by whoever accesses them (`swapping.rs`). The zeroing thread takes lines of the last-level
//!   cache and time of memory's channels from programs beside it (`neighbour.rs`).
//! - Virtual machines are machines of the same kind, and processes of their host (`guests/`).
//!
//! Left out: locks among threads of a program; that a page in the TLB doesn't set its access bit again; what programs take from
//! each other's caches and memory bandwidth.
//!
//! Deterministic: the same spec, workload and seed give the same figures, whatever else runs.
//!
//! [`Translator`]: crate::mmu::translation::Translator

mod accesses;
mod clock;
mod course;
mod coverage;
mod error;
mod figures;
mod filler;
mod filling;
mod guests;
mod layout;
mod machine;
mod managed;
mod measuring;
mod neighbour;
mod playing;
mod program;
mod running;
mod seeing;
mod sharing;
mod sizes;
mod swapping;

pub use error::EngineError;
pub use figures::{
    EngineFigures, GuestFigures, Moment, Outcome, PhaseFigures, ProgramFigures, SizeFigures,
};
pub use guests::{Seat, Seats};
pub use machine::{Engine, EngineSpec, GuestSpec};
