//! The reporting of free memory by a virtual machine to its hypervisor, which may take it back.
//!
//! An experiment stops it through its lease. While another manager has the lease, it would be
//! restored, and memory that a filler has backed would go back to the hypervisor.

use crate::error::BenchResult;
use hawkeye_linux::LinuxError;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The smallest order of free pages that is reported (mm/page_reporting.c).
pub const FREE_PAGE_REPORTING_ORDER: &str =
    "/sys/module/page_reporting/parameters/page_reporting_order";
/// One more than the largest order that exists.
pub const REPORT_NOTHING: &str = "11";

/// What the file contained before an experiment without lease changed it.
static BEFORE: Mutex<Option<String>> = Mutex::new(None);

/// Keeps a setting of free page reporting without a lease. Dropping it restores what was before.
pub struct FreePageReportingWithoutLease;

impl FreePageReportingWithoutLease {
    /// Sets what [`read_free_page_reporting`] returned. `None`: there is nothing to set.
    pub fn set(order: Option<String>) -> BenchResult<Self> {
        if let Some(order) = order {
            let before = read_free_page_reporting()?;
            *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = before;
            write_order(&order)?;
        }
        Ok(Self)
    }
}

impl Drop for FreePageReportingWithoutLease {
    fn drop(&mut self) {
        restore_free_page_reporting_without_lease();
    }
}

/// Restores what a [`FreePageReportingWithoutLease`] changed, if there is one: for signal handlers
/// after which nothing is dropped.
pub fn restore_free_page_reporting_without_lease() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Err(error)) = before.map(|before| write_order(&before)) {
        eprintln!("hawkeye-lab: {error}: write the former value to this file");
    }
}

/// The current setting; `None` where the kernel has none.
pub fn read_free_page_reporting() -> BenchResult<Option<String>> {
    let path = Path::new(FREE_PAGE_REPORTING_ORDER);
    if !path.exists() {
        return Ok(None);
    }
    let order = fs::read_to_string(path).map_err(LinuxError::wrap_io_error("reading", path))?;
    Ok(Some(order.trim().to_owned()))
}

fn write_order(order: &str) -> BenchResult<()> {
    let path = Path::new(FREE_PAGE_REPORTING_ORDER);
    Ok(fs::write(path, order).map_err(LinuxError::wrap_io_error("writing", path))?)
}
