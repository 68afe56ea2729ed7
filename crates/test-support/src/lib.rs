//! What tests of several crates use: a machine by script, tests that can't run here, and what every
//! command's help has. For tests only: nothing of the product depends on it.

pub mod help;
pub mod machine;
pub mod managing;
pub mod test_skips;
