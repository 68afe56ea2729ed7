//! Experiments, and the programs they run on.

pub mod workload;
