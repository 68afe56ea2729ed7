//! Makes idle processors poll instead of halting while this value lives.

use crate::error::{BenchResult, impossible};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;

/// A process that writes 0 here and keeps the file open forbids idle states that take time to leave
/// (`Documentation/admin-guide/pm/cpuidle.rst`).
const LATENCY_LIMIT: &str = "/dev/cpu_dma_latency";

/// Keeps idle processors polling. A halted virtual processor runs again only when its host has
/// time. That takes milliseconds, which do not depend on the guest's memory and dominate the tail
/// of short answers.
pub struct IdlePolling {
    _open: OwnedFd,
}

impl IdlePolling {
    /// `None` if the kernel does not control what idle processors do.
    pub fn start_if_available() -> BenchResult<Option<Self>> {
        let failed = |source| impossible!("using {LATENCY_LIMIT}: {source}");
        let mut file = match OpenOptions::new().write(true).open(LATENCY_LIMIT) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        file.write_all(&0_i32.to_ne_bytes()).map_err(failed)?;
        Ok(Some(Self { _open: file.into() }))
    }
}
