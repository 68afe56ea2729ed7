//! Experiments, and the programs they run on.

pub mod calibrate;
pub mod experiments;
pub mod live;
pub mod plot;
pub mod simulated;
pub mod workload;
