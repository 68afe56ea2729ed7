//! Experiments: live on this machine, and simulated.
//!
//! ```text
//!  experiments      all of them by name
//!    |-- live       on the running kernel, one file each
//!    `-- simulated  on the simulated machine, beside what was published
//!  machine_costs --> calibrate --> a processor and costs for the simulator
//!  plot, statistics
//! ```
//!
//! A new experiment is one file in [`live`] or [`simulated`], and one line in its list.

pub mod calibrate;
pub mod error;
pub mod experiments;
pub mod live;
pub mod machine_costs;
pub mod plot;
pub mod simulated;
pub mod statistics;
