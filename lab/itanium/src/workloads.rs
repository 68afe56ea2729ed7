//! The thesis' programs, as what they map and touch. None knows the system it runs on: a mapping is known by its number, wherever the kernel
//! puts it, and there are no page sizes but those of the program's own code.

mod contention;
mod linear;
mod mcf;
mod sparse;
mod tlbcover;
mod transpose;
mod vortex;

pub use contention::Contention;
pub use linear::Linear;
pub use mcf::Mcf;
pub use sparse::Sparse;
pub use tlbcover::Tlbcover;
pub use transpose::Transpose;
pub use vortex::Vortex;

use super::ItaniumError;
use super::kernel::Backing;
use serde::Serialize;

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Maps memory.
    Map {
        /// Number of the process; it begins with its first mapping.
        process: u32,
        /// What the mapping is called from now on.
        mapping: u32,
        /// Its length.
        bytes: u64,
        /// Where; if nowhere, where the kernel likes.
        at: Option<u64>,
        /// What is behind it.
        backing: Backing,
    },
    /// Unmaps all of a mapping.
    Unmap {
        /// Whose.
        process: u32,
        /// Which.
        mapping: u32,
    },
    /// Has all of a mapping in memory, as by `mlock`.
    Lock {
        /// Whose.
        process: u32,
        /// Which.
        mapping: u32,
    },
    /// Refers to memory.
    Touch(Touch),
    /// From here on it is measured.
    Measure,
}

/// A reference to memory, or several in a row to the same page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Whose.
    pub process: u32,
    /// Which mapping.
    pub mapping: u32,
    /// Byte in it.
    pub offset: u64,
    /// A store.
    pub write: bool,
    /// How many, 1 or more.
    pub references: u32,
    /// Cycles of the program's own work for all of them.
    pub useful_cycles: u32,
}

/// Where events go.
pub type Sink<'a> = &'a mut dyn FnMut(Event) -> Result<(), ItaniumError>;

/// A program with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Workload {
    /// Single pages far apart.
    Sparse(Sparse),
    /// One walk over much memory.
    Linear(Linear),
    /// Many processes with a little memory each.
    Contention(Contention),
    /// References all over a table.
    Tlbcover(Tlbcover),
    /// One matrix by rows, the other by columns.
    Transpose(Transpose),
    /// Many small blocks that come and go.
    Vortex(Vortex),
    /// A few large arrays.
    Mcf(Mcf),
}

impl Workload {
    /// Does it. The same seed gives the same events.
    ///
    /// # Errors
    /// What the sink says.
    pub fn play(&self, seed: u64, sink: Sink<'_>) -> Result<(), ItaniumError> {
        match self {
            Self::Sparse(workload) => workload.play(sink),
            Self::Linear(workload) => workload.play(sink),
            Self::Contention(workload) => workload.play(sink),
            Self::Tlbcover(workload) => workload.play(seed, sink),
            Self::Transpose(workload) => workload.play(sink),
            Self::Vortex(workload) => workload.play(seed, sink),
            Self::Mcf(workload) => workload.play(seed, sink),
        }
    }
}

/// Maps memory of its own where the kernel likes, and fills it.
fn allocate(process: u32, mapping: u32, bytes: u64, sink: Sink<'_>) -> Result<(), ItaniumError> {
    sink(Event::Map {
        process,
        mapping,
        bytes,
        at: None,
        backing: Backing::Anonymous,
    })?;
    fill(process, mapping, bytes, sink)
}

/// Touches all of a mapping, as programs do that fill what they allocated. Every 4 KiB, the smallest page there is.
fn fill(process: u32, mapping: u32, bytes: u64, sink: Sink<'_>) -> Result<(), ItaniumError> {
    for offset in (0..bytes).step_by(4096) {
        sink(Event::Touch(Touch {
            process,
            mapping,
            offset,
            write: true,
            references: 1,
            useful_cycles: 0,
        }))?;
    }
    Ok(())
}
