//! Access sampling through DAMON, for kernels where the BPF sampler cannot run.
//!
//! DAMON ("data access monitoring", `mm/damon/` in the kernel) checks one random base page of each
//! monitored region per *sampling interval*. It clears the page's access bit and checks one
//! interval later whether the bit is set again. Here it monitors each 2 MiB region of a process
//! separately. The counts come back through sysfs (the kernel's
//! `Documentation/admin-guide/mm/damon/usage.rst`).
//!
//! DAMON shows neither runs of neighbouring pages nor which pages are present. TLBs are not
//! flushed, as with any use of access bits.
//!
//! It needs `CONFIG_DAMON_VADDR`, `CONFIG_DAMON_SYSFS` and Linux 6.2 (results in sysfs). No other
//! program may use DAMON: a session takes the whole interface. It starts only if no kdamond is
//! configured, and sets `nr_kdamonds` back to 0 at its end. If another program configures a kdamond
//! between that check and the first write, its configuration is lost: the kernel has no lock to
//! take.
//!
//! It costs two page-table walks per region and sampling interval in the kernel thread. In the
//! manager it costs two file writes per region before the window and three file reads after it.
//!
//! ```text
//!  sampler --> damon_sessions --> damon_session: regions, window --> kdamond --> sysfs_dir
//!                                     coverage <-- counts of accesses <--|
//! ```
//!
//! Read `damon_session` first, one window of one process, then `damon_sessions` and `kdamond`.

mod damon_session;
mod damon_sessions;
mod error;
mod kdamond;
mod sysfs_dir;
#[cfg(test)]
mod tests;

pub(super) use damon_sessions::DamonSessions;
pub use error::DamonError;

use damon_session::DamonSession;
use error::DamonResult;
use hawkeye_policy::RegionAddr;
use kdamond::Kdamond;
use std::path::PathBuf;
use std::time::Duration;
use sysfs_dir::SysfsDir;

/// Most 2 MiB regions in one session (8 GiB): the kernel keeps one sysfs directory for each, and
/// one more for each result.
const MAX_REGIONS: usize = 4096;

/// The kernel's DAMON.
#[derive(Clone, Debug)]
pub struct Damon {
    admin: PathBuf,
}

impl Default for Damon {
    fn default() -> Self {
        Self { admin: "/sys/kernel/mm/damon/admin".into() }
    }
}

impl Damon {
    /// Starts to monitor `regions` of process `pid` (ascending, at least one, at most
    /// [`MAX_REGIONS`]) for one window of this length, but at least 20 ms.
    pub fn start_session(
        &self,
        pid: u32,
        regions: &[RegionAddr],
        length: Duration,
    ) -> DamonResult<DamonSession> {
        DamonSession::start(Kdamond::claim_and_mark(&self.kdamonds_dir()?)?, pid, regions, length)
    }

    /// Stops the session that a killed manager left behind; returns whether there was one. Sessions
    /// of another live manager and kdamonds of other programs stay. This process has no session.
    pub fn stop_leftover_session(&self) -> DamonResult<bool> {
        match Kdamond::take_over_abandoned(&self.kdamonds_dir()?)? {
            Some(mut kdamond) => kdamond.stop_and_remove().map(|()| true),
            None => Ok(false),
        }
    }

    fn kdamonds_dir(&self) -> DamonResult<SysfsDir> {
        let path = self.admin.join("kdamonds");
        if path.is_dir() { Ok(SysfsDir(path)) } else { Err(DamonError::Absent(path)) }
    }
}
