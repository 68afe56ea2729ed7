//! Commands, one file each. A file holds the command's options (`clap`) and `execute`, which runs
//! it.
//!
//! ```text
//!  run, attach, record, daemon --> session: one managed session, from machine lease to summary
//!                                    |-- prefault_session       `--fault-ahead`
//!                                    |-- page_size_switches     `--small-pages`
//!                                    `-- prezeroing_controller  zeroing free memory (daemon alone)
//!  status, top, why, pause_resume --> client_options: one request to a daemon, its reply
//!  advise, status --> forecast: what huge pages for every program would add
//!  doctor, advise --> unmanaged_kernel: advice for kernels with other page sizes
//!  report, restore, demo, text: on their own
//! ```

pub mod advise;
pub mod attach;
pub mod client_options;
pub mod daemon;
pub mod demo;
pub mod doctor;
mod forecast;
mod page_size_switches;
pub mod pause_resume;
pub mod prefault_session;
mod prezeroing_controller;
pub mod record;
pub mod report;
pub mod restore;
pub mod run;
mod session;
pub mod status;
pub mod text;
pub mod top;
mod unguarded_rules;
mod unmanaged_kernel;
pub mod why;
