//! What `hawkeye demo` shows: two small programs ([`program`]), and what managing each does to it
//! ([`machine`]).

mod machine;
pub mod program;
mod size;

pub use machine::DemoMachine;
pub use size::ReaderSize;
