//! Commands, one file each. A file holds the command's options (`clap`) and `execute`, which runs
//! it.
//!
//! ```text
//!  run, attach, record, daemon ----> managing: one managed session, from taking the machine over to the summary
//!                                      |-- filling    memory filled ahead of the program (`--fault-ahead`)
//!                                      |-- choosing   page sizes at first touches (`--small-pages`)
//!                                      `-- zeroing    how fast the kernel zeroes free memory (the daemon alone)
//!  status, top, why, pausing ------> asking: one request to a daemon, and its reply as text or JSON
//!  advise, doctor, report, restore, demo: on their own
//! ```

pub mod advise;
pub mod asking;
pub mod attach;
mod choosing;
pub mod daemon;
pub mod demo;
pub mod doctor;
mod filling;
mod managing;
pub mod pausing;
pub mod record;
pub mod report;
pub mod restore;
pub mod run;
pub mod status;
pub mod top;
pub mod why;
mod zeroing;
