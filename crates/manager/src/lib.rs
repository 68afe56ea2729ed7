//! The loop between a [`Machine`] and a policy.
#![forbid(unsafe_code)]

pub mod machine;

pub use machine::{Footprint, Machine, MachineError, Promoted, Recovered, Wake, ZeroScan};
