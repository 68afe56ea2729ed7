//! The simulated kernel: faults under every system, and the ways in which memory is given back.

mod agreement;
mod common;
mod faults;
mod pressure;
mod promotion;
mod sizes;
