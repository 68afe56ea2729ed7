//! What `hawkeye demo` shows: two small programs ([`demo_program`]), and what managing each does
//! to it ([`demo_machine`]).

mod demo_machine;
pub mod demo_program;
mod reader_size;

pub use demo_machine::DemoMachine;
pub use reader_size::ReaderSize;
