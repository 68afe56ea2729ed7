//! Code shared by the tests of several crates: a scripted machine, events, skipped tests, and
//! checks of every command's help. For tests only: the product does not depend on it.

pub mod builders;
pub mod events;
pub mod help;
pub mod machine;
pub mod test_skips;
