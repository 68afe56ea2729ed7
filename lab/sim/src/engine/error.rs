//! What stops a simulated machine.

use crate::kernel::KernelError;
use crate::mmu::MmuError;
use crate::mmu::translation::MappingError;
use thiserror::Error;

/// A machine that can't be built, or one that can't go on.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EngineError {
    /// In the kernel.
    #[error("the simulated kernel: {0}")]
    Kernel(#[from] KernelError),
    /// In the processor's view of memory.
    #[error("the simulated page tables: {0}")]
    Mapping(#[from] MappingError),
    /// In the processor.
    #[error("the simulated processor: {0}")]
    Processor(#[from] MmuError),
    /// A value out of range.
    #[error("{what} must be {allowed}, not {value}")]
    Value {
        /// Of what.
        what: &'static str,
        /// What it can be.
        allowed: &'static str,
        /// What it is.
        value: String,
    },
    /// A trace that can't be read any more.
    #[error("program {program}: {message}")]
    Trace {
        /// Which program.
        program: String,
        /// What is wrong with it, and where.
        message: String,
    },
    /// A stream over memory that was never filled.
    #[error("program {program} accesses {area} and has filled nothing of it")]
    NothingThere {
        /// Which program.
        program: String,
        /// Which area.
        area: String,
    },
}
