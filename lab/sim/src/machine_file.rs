//! A machine's costs and processor in a file, as `hawkeye-lab calibrate` writes it.

use crate::kernel::KernelCosts;
use crate::mmu::{MmuError, Processor};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What such a file holds beside comments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// What the kernel's work costs.
    pub costs: KernelCosts,
    /// The processor.
    pub processor: Processor,
}

/// What a processor from a file is called.
pub const FROM_FILE: &str = "measured";

/// A file that holds no machine.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum MachineFileError {
    /// No TOML, or not with these keys.
    #[error("{name}: {message}")]
    Parse {
        /// The file.
        name: String,
        /// With line and column.
        message: String,
    },
    /// A processor that can't be.
    #[error("{name}: {source}")]
    Processor {
        /// The file.
        name: String,
        /// Why not.
        source: MmuError,
    },
}

impl MachineFile {
    /// Reads one; `name` is what errors call it.
    ///
    /// # Errors
    /// Text that is none, with line and column; a processor that can't be simulated.
    pub fn parse(name: &str, text: &str) -> Result<Self, MachineFileError> {
        let parsed: Result<Self, _> = toml::from_str(text);
        let mut parsed = parsed.map_err(|error| MachineFileError::Parse {
            name: name.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        parsed.processor.name = FROM_FILE;
        parsed.processor.source = "hawkeye-lab calibrate";
        let checked = parsed.processor.check();
        checked.map_err(|source| MachineFileError::Processor {
            name: name.to_owned(),
            source,
        })?;
        Ok(parsed)
    }

    /// As TOML.
    ///
    /// # Errors
    /// None for finite figures.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string_pretty(self)
    }
}
