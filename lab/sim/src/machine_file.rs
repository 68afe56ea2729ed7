//! A machine's costs and processor in a file, as `hawkeye-lab calibrate` writes it.

use crate::kernel::KernelCosts;
use crate::mmu::{MmuError, ProcessorSpec};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Content of a machine file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// Costs of the kernel's work.
    pub costs: KernelCosts,
    /// The processor.
    pub processor: ProcessorSpec,
}

/// Name of a processor that was read from a file.
pub const FROM_FILE: &str = "measured";

/// Why a machine file was rejected.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum MachineFileError {
    /// The text is not TOML, or has other keys.
    #[error("{name}: {message}")]
    Parse {
        /// The file.
        name: String,
        /// The reason, with line and column.
        message: String,
    },
    /// The processor cannot be simulated.
    #[error("{name}: {source}")]
    Processor {
        /// The file.
        name: String,
        /// The reason.
        source: MmuError,
    },
}

impl MachineFile {
    /// Parses a machine file; errors call it `name`.
    ///
    /// # Errors
    /// No machine file (with line and column), or a processor that can't be simulated.
    pub fn parse(name: &str, text: &str) -> Result<Self, MachineFileError> {
        let parsed: Result<Self, _> = toml::from_str(text);
        let mut parsed = parsed.map_err(|error| MachineFileError::Parse {
            name: name.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        parsed.processor.name = FROM_FILE;
        parsed.processor.source = "hawkeye-lab calibrate";
        let checked = parsed.processor.check();
        checked.map_err(|source| MachineFileError::Processor { name: name.to_owned(), source })?;
        Ok(parsed)
    }

    /// Serializes the machine as TOML.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string_pretty(self)
    }
}
