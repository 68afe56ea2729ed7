//! Advice about another process's memory: promotion, splits, populating, paging out.
//!
//! ```text
//!  LinuxMachine::promote
//!    |-- reserve       gives the kernel a huge page right before the call
//!    `-- target_call --TargetRequest--> helper process --process_madvise--> the kernel
//!          ^                                   |   (sched_fifo: a short call keeps its CPU)
//!          `------------CallResult-------------'
//! ```
//!
//! The call takes the target's lock, so a helper process makes it, and the loop waits for the
//! result up to a deadline. Read [`target_call`] first. [`program_text`] is for one process that a
//! user names.

mod process_madvise;
pub mod program_text;
pub(crate) mod reserve;
pub mod sched_fifo;
#[cfg(test)]
pub(crate) mod stuck_target;
pub mod target_call;
