//! The simulated kernel: faults under every system, and the ways in which memory is given back.

mod agreement;
mod common;
mod compaction;
mod faults;
mod freebsd;
mod pressure;
mod promotion;
mod shared;
mod sizes;
mod threads;
