//! Experiments, and the programs they run on.

pub mod calibrate;
mod core_set;
pub mod experiments;
pub mod live;
pub mod plot;
pub mod simulated;
#[doc(hidden)]
pub mod test_skips;
pub mod workload;
