//! The one kdamond (kernel thread of DAMON) that a session configures, through sysfs.

use super::error::{DamonError, DamonResult, OPERATIONS};
use super::sysfs_dir::SysfsDir;
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Samples of each region in a window.
pub(super) const SAMPLES: u32 = 20;
/// DAMON refuses fewer pieces (`damon_set_attrs` in `mm/damon/core.c`).
const MIN_PIECES: usize = 3;

/// Where a session leaves its mark, below `kdamonds_dir`: an interval that `fvaddr` does not use.
pub(super) const MARKED_FILE: &str = "0/contexts/0/monitoring_attrs/intervals/update_us";
/// Upper half of the mark, "HAWK"; the lower half is the manager's pid.
pub(super) const OWNER_MARK: u64 = 0x4841_574b << 32;

/// Number of samples in which DAMON found one address range accessed.
#[derive(Debug)]
pub(super) struct RangeHits {
    pub(super) range: Range<u64>,
    pub(super) count: u32,
}

/// The one kdamond that a session or probe configures. Dropping it stops and removes it.
#[derive(Debug)]
pub(super) struct Kdamond {
    kdamonds: SysfsDir,
    released: bool,
}

impl Kdamond {
    /// Creates a kdamond and sets the manager's mark on it, if there is none at all.
    pub(super) fn claim_and_mark(kdamonds: &SysfsDir) -> DamonResult<Self> {
        let count = kdamonds.read_number("nr_kdamonds")?;
        if count != 0 {
            let path = kdamonds.path("nr_kdamonds");
            return Err(DamonError::InUse { path, count });
        }
        kdamonds.write_value("nr_kdamonds", 1)?;
        let kdamond = Self { kdamonds: kdamonds.clone(), released: false };
        kdamond.kdamond_dir().write_value("contexts/nr_contexts", 1)?;
        let mark = OWNER_MARK | u64::from(std::process::id());
        kdamond.kdamonds.write_value(MARKED_FILE, mark)?;
        Ok(kdamond)
    }

    fn kdamond_dir(&self) -> SysfsDir {
        self.kdamonds.subdir("0")
    }

    fn context_dir(&self) -> SysfsDir {
        self.kdamond_dir().subdir("contexts/0")
    }

    fn results_dir(&self) -> SysfsDir {
        self.context_dir().subdir("schemes/0/tried_regions")
    }

    /// Whether the kdamond monitors: it stops by itself when its target exits.
    fn is_running(&self) -> DamonResult<bool> {
        Ok(self.kdamond_dir().read_value("state")? != "off")
    }

    /// Whether the kernel's DAMON can do what a session needs.
    pub(super) fn check_features(&self) -> DamonResult<()> {
        let offered = self.context_dir().read_value("avail_operations")?;
        if !offered.split_whitespace().any(|name| name == OPERATIONS) {
            let path = self.context_dir().path("avail_operations");
            return Err(DamonError::NoVirtualAddresses { path, offered });
        }
        self.context_dir().write_value("schemes/nr_schemes", 1)?;
        let results = self.results_dir().0;
        if results.is_dir() { Ok(()) } else { Err(DamonError::NoResults(results)) }
    }

    pub(super) fn configure_monitoring(
        &self,
        pid: u32,
        regions: &[RegionAddr],
        sampling: Duration,
    ) -> DamonResult<()> {
        let pieces = monitored_ranges(regions);
        self.context_dir().write_value("operations", OPERATIONS)?;
        let attributes = self.context_dir().subdir("monitoring_attrs");
        // The kernel counts whole microseconds.
        let sample_us = sampling.as_micros();
        attributes.write_value("intervals/sample_us", sample_us)?;
        attributes.write_value("intervals/aggr_us", sample_us * u128::from(SAMPLES))?;
        attributes.write_value("nr_regions/min", pieces.len())?;
        attributes.write_value("nr_regions/max", pieces.len())?;
        let targets = self.context_dir().subdir("targets");
        targets.write_value("nr_targets", 1)?;
        targets.write_value("0/pid_target", pid)?;
        let regions = targets.subdir("0/regions");
        regions.write_value("nr_regions", pieces.len())?;
        for (index, piece) in pieces.iter().enumerate() {
            regions.write_value(&format!("{index}/start"), piece.start)?;
            regions.write_value(&format!("{index}/end"), piece.end)?;
        }
        // One scheme that only lists every region: without one, sysfs shows no counts.
        let scheme = self.context_dir().subdir("schemes/0");
        scheme.write_value("action", "stat")?;
        let most = u64::from(u32::MAX);
        for (what, max) in [("sz", u64::MAX), ("nr_accesses", most), ("age", most)] {
            scheme.write_value(&format!("access_pattern/{what}/min"), 0)?;
            scheme.write_value(&format!("access_pattern/{what}/max"), max)?;
        }
        Ok(())
    }

    pub(super) fn start_monitoring(&self, pid: u32) -> DamonResult<()> {
        let on = self.kdamond_dir().write_value("state", "on");
        on.map_err(|error| match error {
            DamonError::Io { path, error, .. } if error.kind() == ErrorKind::ResourceBusy => {
                DamonError::Exclusive(path)
            }
            // The kernel accepted the configuration before, so it is the pid that is invalid.
            DamonError::Io { error, .. }
                if error.kind() == ErrorKind::InvalidInput && !process_exists(pid) =>
            {
                DamonError::Stopped(pid)
            }
            other => other,
        })
    }

    /// Requests the regions of the window that ends next, waits for its end, and reads them.
    pub(super) fn read_results_at_window_end(&self, pid: u32) -> DamonResult<Vec<RangeHits>> {
        let dir = self.kdamond_dir();
        let requested = dir.write_value("state", "update_schemes_tried_regions");
        if !self.is_running()? {
            return Err(DamonError::Stopped(pid));
        }
        requested?;
        let dir = self.results_dir();
        let failed = |error| DamonError::Io { action: "list", path: dir.0.clone(), error };
        let mut hits = Vec::new();
        for entry in fs::read_dir(&dir.0).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                let result = SysfsDir(entry.path());
                hits.push(RangeHits {
                    range: result.read_number("start")?..result.read_number("end")?,
                    count: result.read_number("nr_accesses")?,
                });
            }
        }
        Ok(hits)
    }

    /// Takes over the kdamond of a dead manager, if there is one. The caller has no session. So a
    /// mark with its own pid is that of a dead manager, which had the same one in a container.
    pub(super) fn take_over_abandoned(kdamonds: &SysfsDir) -> DamonResult<Option<Self>> {
        let count: u32 = kdamonds.read_number("nr_kdamonds")?;
        let is_dead = |pid: u32| pid == std::process::id() || !process_exists(pid);
        let abandoned = count == 1 && read_owner_pid(kdamonds).is_some_and(is_dead);
        Ok(abandoned.then(|| Self { kdamonds: kdamonds.clone(), released: false }))
    }

    pub(super) fn stop_and_remove(&mut self) -> DamonResult<()> {
        self.released = true;
        if self.is_running()? {
            // It may stop by itself, with its target, before this write arrives.
            let stopped = self.kdamond_dir().write_value("state", "off");
            if self.is_running()? {
                stopped?;
            }
        }
        self.kdamonds.write_value("nr_kdamonds", 0)
    }
}

impl Drop for Kdamond {
    fn drop(&mut self) {
        if !self.released {
            // No caller could handle the error; `stop_leftover_session` finds the kdamond by its
            // mark.
            let _ = self.stop_and_remove();
        }
    }
}

/// The ranges that DAMON monitors: the regions, or their quarters if there are fewer than it
/// accepts.
///
/// The number of pieces equals DAMON's lower and upper limit. So DAMON does not merge two pieces:
/// no result may be larger than all memory divided by the lower limit. Nor does it split one: it
/// splits up to half of the upper limit.
fn monitored_ranges(regions: &[RegionAddr]) -> Vec<Range<u64>> {
    let parts = if regions.len() < MIN_PIECES { 4 } else { 1 };
    let size = HUGE_PAGE_BYTES / parts;
    let piece = |start: u64| start..start + size;
    let starts = regions.iter().flat_map(|r| (0..parts).map(|part| r.start() + part * size));
    starts.map(piece).collect()
}

pub(super) fn process_exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Pid of the manager that configured the first kdamond, if a session did.
fn read_owner_pid(kdamonds: &SysfsDir) -> Option<u32> {
    let update_us: u64 = kdamonds.read_number(MARKED_FILE).ok()?;
    u32::try_from(update_us ^ OWNER_MARK).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::event_constructors::region_at_index;

    #[test]
    fn few_regions_are_cut_up_so_that_damon_accepts_them() {
        let quarter = HUGE_PAGE_BYTES / 4;
        let quarters = (4..8).map(|index| index * quarter..(index + 1) * quarter);
        assert_eq!(monitored_ranges(&[region_at_index(1)]), quarters.collect::<Vec<_>>());
        assert_eq!(monitored_ranges(&[1, 3].map(region_at_index)).len(), 8);
        assert_eq!(monitored_ranges(&[1, 3, 4].map(region_at_index)).len(), 3);
    }
}
