//! What `hawkeye demo` shows: two small programs, and what managing each does to it.
//!
//! ```text
//!  commands::demo --> demo_machine --starts--> demo_program reader    hot memory becomes huge
//!    (prints)           |      |   `-starts--> demo_program bloated   its bloat is recovered
//!                       |      |-- reader_size: large enough that page walks matter here
//!                       |      `-- reader_outcome: why the reader gained little, if so
//!                       `-- MachineLease, Manager: as in the daemon, for one program
//! ```
//!
//! Read [`demo_program`] first, then [`demo_machine`]. Each program is a process of its own, the
//! hidden command `demo-program`. Words on its standard input control it.

mod demo_machine;
pub mod demo_program;
mod reader_outcome;
mod reader_size;

pub use demo_machine::{DemoMachine, ReaderProgramFigures};
pub use reader_outcome::ReaderOutcome;
pub use reader_size::ReaderSize;
