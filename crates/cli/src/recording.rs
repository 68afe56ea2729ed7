//! Recordings of a running manager: the estimate of bloat (`bloat.rs`) and the thread that writes
//! (`writing.rs`).

mod bloat;
mod writing;

pub use writing::{Place, Recording};
