//! Experiments on the simulated machine.

pub mod itanium;
pub mod paper;
pub mod prezeroing;
pub(crate) mod small_pages;
pub mod this_machine;
