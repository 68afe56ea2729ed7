//! The simulated machine from end to end: workloads on systems.

mod common;
mod compare;
mod guests;
mod managing;
mod phases;
mod playing;
mod prefault;
mod pressure;
mod recording;
mod sampling;
mod shared_memory;
mod sharing;
mod sizes;
mod sweep;
mod toml;
mod translation;
mod workload_toml;
