//! Experiments: live on this machine, and simulated.
//!
//! ```text
//!  experiments      all of them by name
//!    |-- live       on the running kernel, one file each
//!    `-- simulated  on the simulated machine, beside what was published
//!  machine_costs --> calibrate --> a processor and costs for the simulator
//!  plot, result_tables (Parquet), statistics, clear_refs
//! ```
//!
//! A new experiment is one file in [`live`] or [`simulated`], and one line in its list.

mod arch;
pub mod calibrate;
pub mod clear_refs;
mod error;
mod experiment_name;
pub mod experiments;
pub mod live;
mod machine_costs;
pub mod plot;
pub mod result_tables;
mod run_origin;
pub mod simulated;
mod statistics;
