//! Experiments on the simulated machine.

pub mod run_rate;
