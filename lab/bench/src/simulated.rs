//! Experiments on the simulated machine.
//!
//! ```text
//!  hawkeye-sim --+--> paper                       the papers' tables, beside published values
//!                |--> predicted_speed_ups         beside speed-ups measured on this machine
//!                |--> prezeroing_model_vs_kernel  beside a recording of a patched kernel
//!                `--> block_layout                beside live::mthp_of_64_kib
//!  hawkeye-itanium -> itanium                     a thesis' tables, beside measured values
//! ```
//!
//! Read [`paper`] first. The commands are `hawkeye-lab sim paper`, `predict`, `sim prezeroing` and
//! `itanium`.

pub(crate) mod block_layout;
pub mod itanium;
pub mod paper;
pub mod predicted_speed_ups;
pub mod prezeroing_model_vs_kernel;
