//! Virtual machines.
//!
//! A guest is two things: to its host a process whose memory is the guest's physical memory; to its programs a machine,
//! with a kernel and a manager of its own. Between the two:
//!
//! - Frames that the guest's kernel hands out or zeroes are touched at the host (`settling.rs`): the host faults them in,
//!   or back in from swap, and the program that the guest's kernel worked for waits for that as well.
//! - The guest's programs walk nested tables; by what the host maps the memory behind a region is made known to their
//!   cores (`backing.rs`).
//! - Accesses of the guest's programs are accesses to the process at the host: its coverage, its overhead, and what
//!   reclaim takes for old (`coverage.rs`).
//! - Each machine has its own manager; they take turns (`seat.rs`).
//!
//! Left out: what is shared by page-table memory of guests, devices, ballooning, time of the hypervisor's own beside
//! exits for faults.

mod backing;
mod coverage;
mod guest;
mod seat;
mod settling;

pub(super) use guest::Guest;
pub(super) use seat::Turn;
pub use seat::{Seat, Seats};
