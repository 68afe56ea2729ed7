//! Experiments on the simulated machine.

pub mod paper;
pub mod run_rate;
