//! Commands, one file each. A file holds the command's options (`clap`) and `execute`, which runs
//! it.
//!
//! ```text
//!  run, attach, record, daemon --> session: one managed session, from machine lease to summary
//!                                    |-- prefault_session   `--fault-ahead`
//!                                    |-- size_switches      `--small-pages`
//!                                    `-- zeroing_controller  zeroing free memory (daemon alone)
//!  status, top, why, pause_resume --> client: one request to a daemon, its reply as text or JSON
//!  advise, doctor, report, restore, demo: on their own
//! ```

pub mod advise;
pub mod attach;
pub mod client;
pub mod daemon;
pub mod demo;
pub mod doctor;
pub mod pause_resume;
pub mod prefault_session;
pub mod record;
pub mod report;
pub mod restore;
pub mod run;
mod session;
mod size_switches;
pub mod status;
pub mod top;
pub mod why;
mod zeroing_controller;
