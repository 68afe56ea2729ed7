//! One file for each command of `hawkeye-lab`.
//!
//! - On the simulated machine: `sim` (read it first), `itanium`, `demo`.
//! - On this machine: `bench` runs experiments, `calibrate` measures costs for the simulator,
//!   `verify` compares estimated overhead with hardware counters.
//! - On both: `predict` measures the gain from huge pages and predicts it.
//!
//! Each file has a type with the command's options and help, and its `execute`.

pub mod bench;
pub mod calibrate;
pub mod demo;
pub mod itanium;
pub mod predict;
pub mod sim;
pub mod verify;
