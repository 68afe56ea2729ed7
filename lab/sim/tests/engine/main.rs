//! The simulated machine from end to end: workloads on systems.

mod common;
mod fault_ahead;
mod guests;
mod managing;
mod phases;
mod playing;
mod sharing;
mod sizes;
#[path = "../support/mod.rs"]
mod support;
mod toml;
