//! Advice about another process's memory: promotion, splits, populating, paging out.
//!
//! [`process_madvise`] is the system call. It takes the target's lock, so a helper process makes it
//! ([`target_call`]) and the loop waits for the answer up to a deadline. [`sched_fifo`] keeps the
//! CPU while the lock is held. `reserve` gives the kernel a huge page right before such a call.
//! Read [`target_call`] first.

pub mod process_madvise;
pub(crate) mod reserve;
pub mod sched_fifo;
pub mod target_call;
