//! Errors that stop a simulated machine.

use crate::kernel::KernelError;
use crate::mmu::MmuError;
use crate::mmu::translation::MappingError;
use thiserror::Error;

/// A machine that can't be built or can't go on.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EngineError {
    /// The kernel failed.
    #[error("the simulated kernel: {0}")]
    Kernel(#[from] KernelError),
    /// The processor's view of memory is inconsistent.
    #[error("the simulated page tables: {0}")]
    Mapping(#[from] MappingError),
    /// The processor model failed.
    #[error("the simulated processor: {0}")]
    Processor(#[from] MmuError),
    /// A value out of range.
    #[error("{what} must be {allowed}, not {value}")]
    Value {
        /// The name of the value.
        what: &'static str,
        /// The allowed range.
        allowed: &'static str,
        /// The value found.
        value: String,
    },
    /// A trace can't be read any further.
    #[error("program {program}: {message}")]
    Trace {
        /// The program that plays it.
        program: String,
        /// The fault and its position in the trace.
        message: String,
    },
    /// A stream accesses memory that was never filled.
    #[error("program {program} accesses area {area} before it fills any of it")]
    NothingThere {
        /// The program.
        program: String,
        /// The area.
        area: String,
    },
}

pub(super) type Result<T, E = ProgramError> = std::result::Result<T, E>;

/// The engine deals with memory running out; every other error is a bug.
#[derive(Debug)]
pub(super) enum ProgramError {
    OutOfMemory,
    Error(EngineError),
}

impl From<KernelError> for ProgramError {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::OutOfMemory(_) => Self::OutOfMemory,
            other => Self::Error(other.into()),
        }
    }
}

impl From<EngineError> for ProgramError {
    fn from(error: EngineError) -> Self {
        Self::Error(error)
    }
}
