//! The manager's loop on a scripted machine.

mod budgets;
mod ingens;
mod kept_limits;
mod looks;
mod memory;
mod order;
mod overhead;
mod repeat;
mod rules;
mod shared;
mod trouble;
