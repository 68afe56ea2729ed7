//! Recordings of a running manager: the estimate of bloat (`bloat.rs`) and the thread that writes
//! (`active_recording.rs`).

mod bloat;
mod writing;

pub use writing::{Place, Recording};
