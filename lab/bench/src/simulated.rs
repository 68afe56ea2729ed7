//! Experiments on the simulated machine.

pub(crate) mod block_layout;
pub mod itanium;
pub mod paper;
pub mod predicted_speed_ups;
pub mod prezeroing_model_vs_kernel;
