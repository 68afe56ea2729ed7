//! Experiments, and the programs they run on.

pub mod live;
pub mod workload;
