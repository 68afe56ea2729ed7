//! Experiments: live on this machine, and simulated.

pub mod calibrate;
pub mod experiments;
pub mod live;
pub mod machine_costs;
pub mod plot;
pub mod simulated;
pub mod statistics;
