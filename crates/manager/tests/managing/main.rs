//! The manager's loop on a scripted machine.

mod budgets;
mod errors;
mod growth;
mod guard;
mod kept_limits;
mod memory;
mod order;
mod overhead;
mod repeat;
mod reserve;
mod rules;
mod sampling_times;
mod shared;
