//! A window under way.

use super::error::{DamonError, DamonResult};
use super::estimate::estimate;
use super::kdamond::Kdamond;
use super::window::DamonWindow;
use hawkeye_policy::RegionAddr;
use std::thread;
use std::time::Instant;

/// A window under way. Dropping it stops the monitoring and leaves DAMON as it was found.
#[derive(Debug)]
pub struct DamonSession {
    kdamond: Kdamond,
    pid: u32,
    regions: Vec<RegionAddr>,
    window: DamonWindow,
    started: Instant,
}

impl DamonSession {
    pub(super) fn start(
        kdamond: Kdamond,
        pid: u32,
        regions: &[RegionAddr],
        window: DamonWindow,
    ) -> DamonResult<Self> {
        kdamond.check_features()?;
        kdamond.configure(pid, regions, window)?;
        kdamond.start(pid)?;
        Ok(Self {
            kdamond,
            pid,
            regions: regions.to_vec(),
            window,
            started: Instant::now(),
        })
    }

    /// Start of the window.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Waits for the end of the window, then stops monitoring. Returns the estimated number of base
    /// pages (0 to 512) of every region that were touched within one sampling interval, by
    /// ascending address. A region that DAMON did not report is left out.
    ///
    /// A call before the window's end waits for that end. The wait takes up to a sampling interval
    /// and 100 ms more (the kernel's own polling interval), plus the time to read the files. A call
    /// after the end waits for the end of a second window. Signals do not shorten the last part of
    /// the wait.
    pub fn finish(self) -> DamonResult<Vec<(RegionAddr, u16)>> {
        // The kernel accepts a request at the start of a sampling interval. The results belong to a
        // window only if that interval is still part of it.
        let lead = 2 * self.window.sampling;
        let due = self.started + self.window.length().saturating_sub(lead);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let hits = self.kdamond.results_at_end(self.pid);
        self.kdamond.release()?;
        let hits = hits?;
        if hits.is_empty() {
            return Err(DamonError::TooSlow {
                window: self.window.length(),
                regions: self.regions.len(),
            });
        }
        Ok(estimate(&self.regions, &hits))
    }
}
