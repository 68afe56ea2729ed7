//! What `hawkeye demo` shows: two small programs ([`program`]), and what managing each does to it
//! ([`machine`]).

mod machine;
pub mod program;

pub use machine::{DemoMachine, HOT_MIB, HOT_PERCENT, MIB};
