//! The reporting of free memory by a virtual machine to its hypervisor, which may take it back.

use crate::error::BenchResult;
use hawkeye_linux::machine_lease::manager_lock::state_dir;
use hawkeye_linux::machine_lease::own_files::create_trusted_folder;
use hawkeye_linux::machine_lease::thp_settings::{KernelSettingsGuard, restore_leftover_settings};
use std::path::{Path, PathBuf};

/// The smallest order of free pages that is reported (mm/page_reporting.c).
const ORDER_FILE: &str = "/sys/module/page_reporting/parameters/page_reporting_order";
/// One more than the largest order that exists.
const REPORT_NOTHING: &str = "11";

/// Stops the reporting of free pages. Dropping it restores the former setting.
///
/// Its guard is not the lease's, which restores its settings when another manager gets the machine.
/// Memory that a filler has backed would then go back to the hypervisor.
#[derive(Debug)]
pub struct FreePageReporting {
    /// `None` where the kernel has no such setting.
    guard: Option<KernelSettingsGuard>,
}

impl FreePageReporting {
    /// Restores what a killed experiment left changed, and starts without changes. The caller holds
    /// the machine's lease.
    ///
    /// # Errors
    /// The folder of the former setting cannot be created or is writable by other users.
    pub fn restore_leftovers_and_start() -> BenchResult<Self> {
        if !Path::new(ORDER_FILE).exists() {
            return Ok(Self { guard: None });
        }
        let folder = record_folder();
        create_trusted_folder(&folder, 0o755)?;
        Ok(Self { guard: Some(KernelSettingsGuard::restore_leftovers_and_start(&folder)?) })
    }

    /// Stops the reporting. Otherwise free memory goes back to the hypervisor after two seconds,
    /// and an experiment measures how it is obtained again.
    ///
    /// # Errors
    /// The setting cannot be written, or another program has changed it since.
    pub fn stop(&mut self) -> BenchResult<()> {
        match &mut self.guard {
            Some(guard) => Ok(guard.set(Path::new(ORDER_FILE), REPORT_NOTHING)?),
            None => Ok(()),
        }
    }

    /// Restores the former setting.
    ///
    /// # Errors
    /// The setting cannot be written.
    pub fn restore(&mut self) -> BenchResult<()> {
        match &mut self.guard {
            Some(guard) => Ok(guard.put_back(Path::new(ORDER_FILE))?),
            None => Ok(()),
        }
    }
}

/// Restores what a [`FreePageReporting`] changed, for signal handlers after which nothing is
/// dropped.
///
/// # Errors
/// The record of the former setting cannot be written.
pub fn restore_free_page_reporting_from_record() -> BenchResult<()> {
    restore_leftover_settings(&record_folder())?;
    Ok(())
}

/// The folder of the record of the former setting. A folder of its own, because each guard writes
/// its whole record.
fn record_folder() -> PathBuf {
    state_dir().join("bench")
}
