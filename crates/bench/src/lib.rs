//! Experiments, and the programs they run on.

pub mod live;
pub mod simulated;
pub mod workload;
