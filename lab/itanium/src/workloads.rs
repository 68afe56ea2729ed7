//! The thesis' programs, as mappings and touches. They do not depend on the system: a mapping has a
//! number, wherever the kernel puts it. The only page sizes are those in the program's own code.

mod microbenchmarks;
mod spec_programs;

pub use microbenchmarks::{
    LinearWorkload, SparseWorkload, TlbContentionWorkload, TlbcoverWorkload, TransposeWorkload,
};
pub use spec_programs::{McfWorkload, VortexWorkload};

use super::Result;
use super::kernel::MappingBacking;

/// A program's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEvent {
    /// Maps memory.
    Map {
        /// Number of the process; it begins with its first mapping.
        process: u32,
        /// Number of the mapping from now on.
        mapping: u32,
        /// Length in bytes.
        bytes: u64,
        /// Its first byte; if `None`, the kernel chooses.
        at: Option<u64>,
        /// Its backing.
        backing: MappingBacking,
    },
    /// Unmaps all of a mapping.
    Unmap {
        /// The process.
        process: u32,
        /// The mapping.
        mapping: u32,
    },
    /// Brings all of a mapping into memory, as `mlock` does.
    Lock {
        /// The process.
        process: u32,
        /// The mapping.
        mapping: u32,
    },
    /// Refers to memory.
    Touch(MemoryTouch),
    /// Starts the measurement.
    Measure,
}

/// A reference to memory, or several in a row to the same page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryTouch {
    /// The process.
    pub process: u32,
    /// The mapping.
    pub mapping: u32,
    /// Offset in the mapping, in bytes.
    pub offset: u64,
    /// Whether it is a store.
    pub write: bool,
    /// Number of references, 1 or more.
    pub references: u32,
    /// Cycles of the program's own work for all of them.
    pub useful_cycles: u32,
}

impl MemoryTouch {
    /// One store to the beginning of the first mapping of the first process, without other work.
    const STORE: Self =
        Self { process: 0, mapping: 0, offset: 0, write: true, references: 1, useful_cycles: 0 };
}

/// Receives events.
pub type ProgramEventSink<'a> = &'a mut dyn FnMut(ProgramEvent) -> Result;

/// A program with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThesisWorkload {
    /// Single pages far apart.
    Sparse(SparseWorkload),
    /// One walk over much memory.
    Linear(LinearWorkload),
    /// Many processes with a little memory each.
    Contention(TlbContentionWorkload),
    /// References all over a table.
    Tlbcover(TlbcoverWorkload),
    /// One matrix by rows, the other by columns.
    Transpose(TransposeWorkload),
    /// Many small blocks that come and go.
    Vortex(VortexWorkload),
    /// A few large arrays.
    Mcf(McfWorkload),
}

impl ThesisWorkload {
    /// Plays the program's events. The same seed gives the same events.
    pub fn emit_events(&self, seed: u64, sink: ProgramEventSink<'_>) -> Result {
        match self {
            Self::Sparse(workload) => workload.emit_events(sink),
            Self::Linear(workload) => workload.emit_events(sink),
            Self::Contention(workload) => workload.emit_events(sink),
            Self::Tlbcover(workload) => workload.emit_events(seed, sink),
            Self::Transpose(workload) => workload.emit_events(sink),
            Self::Vortex(workload) => workload.emit_events(seed, sink),
            Self::Mcf(workload) => workload.emit_events(seed, sink),
        }
    }
}

/// Maps anonymous memory where the kernel chooses, and fills it.
fn emit_map_and_fill(process: u32, mapping: u32, bytes: u64, sink: ProgramEventSink<'_>) -> Result {
    emit_map(process, mapping, bytes, None, sink)?;
    emit_fill_touches(process, mapping, bytes, sink)
}

fn emit_map(
    process: u32,
    mapping: u32,
    bytes: u64,
    at: Option<u64>,
    sink: ProgramEventSink<'_>,
) -> Result {
    sink(ProgramEvent::Map { process, mapping, bytes, at, backing: MappingBacking::Anonymous })
}

/// The step is 4 KiB, the smallest page size.
fn emit_fill_touches(process: u32, mapping: u32, bytes: u64, sink: ProgramEventSink<'_>) -> Result {
    for offset in (0..bytes).step_by(4096) {
        sink(ProgramEvent::Touch(MemoryTouch { process, mapping, offset, ..MemoryTouch::STORE }))?;
    }
    Ok(())
}
