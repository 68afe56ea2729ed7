//! Idle processors that poll instead of halting, for as long as this lives.

use crate::error::BenchError;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;

/// Who writes 0 there and keeps it open has idle processors take no state that takes time to leave
/// (`Documentation/admin-guide/pm/cpuidle.rst`).
const LATENCY_LIMIT: &str = "/dev/cpu_dma_latency";

/// A virtual processor that has halted runs again when its host finds the time: milliseconds, which have nothing to do with the
/// guest's memory and are most of a short answer's tail.
pub struct Polling {
    _open: OwnedFd,
}

impl Polling {
    /// `None` where the kernel has no say in what idle processors do.
    ///
    /// # Errors
    /// It may not say so.
    pub fn begin() -> Result<Option<Self>, BenchError> {
        let failed =
            |source| BenchError::Impossible(format!("{LATENCY_LIMIT} can't be used: {source}"));
        let mut file = match OpenOptions::new().write(true).open(LATENCY_LIMIT) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        file.write_all(&0_i32.to_ne_bytes()).map_err(failed)?;
        Ok(Some(Self { _open: file.into() }))
    }
}
