//! The manager's loop on the simulated machine.

mod common;

mod budgets;
mod bugs;
mod memory;
mod order;
mod repeat;
mod trouble;
