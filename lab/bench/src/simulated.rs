//! Experiments on the simulated machine.

pub mod itanium;
pub mod paper;
pub mod predicted_speed_ups;
pub mod prezeroing;
pub(crate) mod small_pages;
