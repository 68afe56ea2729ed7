//! What tests of several crates use: tests that can't run here, and what every command's help has. For tests only: nothing of
//! the product depends on it.

pub mod help;
pub mod test_skips;
