//! Kernel settings that stay changed while another manager has the machine.

use crate::error::BenchResult;
use hawkeye_linux::machine_lease::manager_lock::state_dir;
use hawkeye_linux::machine_lease::own_files::create_trusted_folder;
use hawkeye_linux::machine_lease::thp_settings::{KernelSettingsGuard, restore_leftover_settings};
use std::path::{Path, PathBuf};

/// The smallest order of free pages that a virtual machine reports to its hypervisor, which may
/// take them back (mm/page_reporting.c).
const ORDER_FILE: &str = "/sys/module/page_reporting/parameters/page_reporting_order";
/// One more than the largest order that exists.
const REPORT_NOTHING: &str = "11";

/// Changes settings. Dropping it restores the former ones.
///
/// Its guard is not the lease's, which restores its settings when another manager gets the machine.
/// Memory that a filler has backed would then go back to the hypervisor.
#[derive(Debug)]
pub struct LastingSettings {
    guard: KernelSettingsGuard,
}

impl LastingSettings {
    /// Restores what a killed experiment left changed, and starts without changes. The caller holds
    /// the machine's lease.
    ///
    /// # Errors
    /// The folder of the former settings cannot be created or is writable by other users.
    pub fn restore_leftovers_and_start() -> BenchResult<Self> {
        let folder = record_folder();
        create_trusted_folder(&folder, 0o755)?;
        Ok(Self { guard: KernelSettingsGuard::restore_leftovers_and_start(&folder)? })
    }

    /// Stops the reporting of free pages. Otherwise free memory goes back to the hypervisor after
    /// two seconds, and an experiment measures how it is obtained again. Does nothing where the
    /// kernel has no such setting.
    ///
    /// # Errors
    /// Those of [`Self::set`].
    pub fn stop_free_page_reporting(&mut self) -> BenchResult<()> {
        match Path::new(ORDER_FILE) {
            file if file.exists() => self.set(file, REPORT_NOTHING),
            _ => Ok(()),
        }
    }

    /// Restores the reporting of free pages.
    ///
    /// # Errors
    /// Those of [`Self::restore`].
    pub fn restore_free_page_reporting(&mut self) -> BenchResult<()> {
        self.restore(Path::new(ORDER_FILE))
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// The setting cannot be written, or another program has changed it since.
    pub fn set(&mut self, file: &Path, value: &str) -> BenchResult<()> {
        Ok(self.guard.set(file, value)?)
    }

    /// Restores the former value of a setting, if it was changed.
    ///
    /// # Errors
    /// The setting cannot be written.
    pub fn restore(&mut self, file: &Path) -> BenchResult<()> {
        Ok(self.guard.put_back(file)?)
    }
}

/// Restores what a [`LastingSettings`] changed, for signal handlers after which nothing is dropped.
///
/// # Errors
/// The record of the former settings cannot be written.
pub fn restore_lasting_settings_from_record() -> BenchResult<()> {
    restore_leftover_settings(&record_folder())?;
    Ok(())
}

/// The folder of the record of the former settings. A folder of its own, because each guard writes
/// its whole record.
fn record_folder() -> PathBuf {
    state_dir().join("bench")
}
