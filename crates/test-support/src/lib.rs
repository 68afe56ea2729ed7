//! Code shared by the tests of several crates: a scripted machine, constructors of events, skipped
//! tests, and checks of every command's help. For tests only: the product does not depend on it.

pub mod builders;
pub mod command_help;
pub mod event_constructors;
pub mod scripted_machine;
pub mod test_skips;
