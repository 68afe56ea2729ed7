//! The simulated machine from end to end: workloads on systems.

mod common;
mod compare;
mod guests;
mod managing;
mod phases;
mod playing;
mod prefault;
mod pressure;
mod sampling;
mod sharing;
mod sizes;
#[path = "../support/mod.rs"]
mod support;
mod toml;
mod translation;
