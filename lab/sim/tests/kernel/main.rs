//! The simulated kernel: faults under every system, and what gives memory back.

mod agreement;
mod common;
mod compaction;
mod faults;
mod forks;
mod freebsd;
mod pressure;
mod promotion;
mod sizes;
mod threads;
