//! Access sampling through DAMON, for kernels where the BPF sampler cannot run.
//!
//! DAMON ("data access monitoring", `mm/damon/` in the kernel) checks one random base page of each
//! monitored region per *sampling interval*: it clears the page's access bit and looks, one
//! interval later, whether the bit is set again. Here it monitors each 2 MiB region of a process on
//! its own; the counts come back through sysfs (the kernel's
//! `Documentation/admin-guide/mm/damon/usage.rst`). Runs of neighbouring pages cannot be seen, and
//! neither can which pages are present. TLBs are not flushed, as with any use of access bits.
//!
//! It needs `CONFIG_DAMON_VADDR`, `CONFIG_DAMON_SYSFS` and Linux 6.2 (results in sysfs), and that
//! nobody else uses DAMON: a session takes the whole interface, starts only where no kdamond is
//! configured, and puts `nr_kdamonds` back to 0 at its end. Between that check and the first write
//! another program could configure one, whose configuration would be lost: the kernel has no lock to
//! take.
//!
//! It costs two page-table walks per region and sampling interval in the kernel thread, and in the
//! manager two file writes per region before the window and three file reads after it.

mod error;
mod estimate;
mod kdamond;
mod pager;
mod session;
mod sysfs;
#[cfg(test)]
mod tests;
mod turns;
mod window;

pub use error::DamonError;
pub use session::DamonSession;
pub use turns::{DamonSampler, Estimates};
pub use window::{MAX_REGIONS, Window};

use error::Result;
use hawkeye_policy::RegionAddr;
use kdamond::Kdamond;
use std::path::PathBuf;
use sysfs::Dir;

/// The kernel's DAMON.
#[derive(Clone, Debug)]
pub struct Damon {
    admin: PathBuf,
}

impl Default for Damon {
    fn default() -> Self {
        Self {
            admin: "/sys/kernel/mm/damon/admin".into(),
        }
    }
}

impl Damon {
    /// Starts to monitor `regions` of process `pid` (ascending, at least one, at most
    /// [`MAX_REGIONS`]) for one window.
    pub fn start(&self, pid: u32, regions: &[RegionAddr], window: Window) -> Result<DamonSession> {
        DamonSession::start(Kdamond::claim(&self.kdamonds()?)?, pid, regions, window)
    }

    /// Stops what a killed manager left behind, and says whether there was anything. A session
    /// whose manager is alive, and everybody else's kdamonds, stay.
    pub fn stop_leftover(&self) -> Result<bool> {
        match Kdamond::abandoned(&self.kdamonds()?)? {
            Some(kdamond) => kdamond.release().map(|()| true),
            None => Ok(false),
        }
    }

    fn kdamonds(&self) -> Result<Dir> {
        let path = self.admin.join("kdamonds");
        if path.is_dir() {
            Ok(Dir(path))
        } else {
            Err(DamonError::Absent(path))
        }
    }
}
