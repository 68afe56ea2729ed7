//! The one kdamond (kernel thread of DAMON) that a session configures, through sysfs.

use super::error::{DamonError, DamonResult, OPERATIONS};
use super::estimate::RangeHits;
use super::sysfs::SysfsDir;
use super::window::{DamonWindow, SAMPLES, monitored_ranges};
use hawkeye_policy::RegionAddr;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Where a session leaves its mark, below `kdamonds`: an interval that `fvaddr` does not use.
pub(super) const MARKED_FILE: &str = "0/contexts/0/monitoring_attrs/intervals/update_us";
/// Upper half of the mark, "HAWK"; the lower half is the manager's pid.
pub(super) const OWNER_MARK: u64 = 0x4841_574b << 32;

/// The one kdamond that a session or probe configures. Dropping it stops and removes it.
#[derive(Debug)]
pub(super) struct Kdamond {
    kdamonds: SysfsDir,
    released: bool,
}

impl Kdamond {
    /// Creates a kdamond and sets the manager's mark on it, if there is none at all.
    pub(super) fn claim(kdamonds: &SysfsDir) -> DamonResult<Self> {
        let found = count(kdamonds)?;
        if found != 0 {
            return Err(DamonError::InUse {
                path: kdamonds.path("nr_kdamonds"),
                count: found,
            });
        }
        kdamonds.write("nr_kdamonds", 1)?;
        let kdamond = Self {
            kdamonds: kdamonds.clone(),
            released: false,
        };
        kdamond.dir().write("contexts/nr_contexts", 1)?;
        let mark = OWNER_MARK | u64::from(std::process::id());
        kdamond.kdamonds.write(MARKED_FILE, mark)?;
        Ok(kdamond)
    }

    fn dir(&self) -> SysfsDir {
        self.kdamonds.sub("0")
    }

    fn context(&self) -> SysfsDir {
        self.dir().sub("contexts/0")
    }

    fn results(&self) -> SysfsDir {
        self.context().sub("schemes/0/tried_regions")
    }

    /// Whether the kdamond monitors: it stops by itself when its target exits.
    fn is_running(&self) -> DamonResult<bool> {
        Ok(self.dir().read("state")? != "off")
    }

    /// Whether the kernel's DAMON can do what a session needs.
    pub(super) fn check_features(&self) -> DamonResult<()> {
        let offered = self.context().read("avail_operations")?;
        if !offered.split_whitespace().any(|name| name == OPERATIONS) {
            let path = self.context().path("avail_operations");
            return Err(DamonError::NoVirtualAddresses { path, offered });
        }
        self.context().write("schemes/nr_schemes", 1)?;
        let results = self.results().0;
        if results.is_dir() {
            Ok(())
        } else {
            Err(DamonError::NoResults(results))
        }
    }

    pub(super) fn configure(
        &self,
        pid: u32,
        regions: &[RegionAddr],
        window: DamonWindow,
    ) -> DamonResult<()> {
        let pieces = monitored_ranges(regions);
        self.context().write("operations", OPERATIONS)?;
        self.set_attributes(pieces.len(), window)?;
        self.set_target(pid, &pieces)?;
        self.set_scheme()
    }

    fn set_attributes(&self, pieces: usize, window: DamonWindow) -> DamonResult<()> {
        let intervals = self.context().sub("monitoring_attrs/intervals");
        let sample_us = window.sampling.as_micros();
        intervals.write("sample_us", sample_us)?;
        intervals.write("aggr_us", sample_us * u128::from(SAMPLES))?;
        let limits = self.context().sub("monitoring_attrs/nr_regions");
        limits.write("min", pieces)?;
        limits.write("max", pieces)
    }

    fn set_target(&self, pid: u32, pieces: &[Range<u64>]) -> DamonResult<()> {
        let targets = self.context().sub("targets");
        targets.write("nr_targets", 1)?;
        targets.write("0/pid_target", pid)?;
        let regions = targets.sub("0/regions");
        regions.write("nr_regions", pieces.len())?;
        for (index, piece) in pieces.iter().enumerate() {
            let region = regions.sub(&index.to_string());
            region.write("start", piece.start)?;
            region.write("end", piece.end)?;
        }
        Ok(())
    }

    /// Configures one scheme that only lists every region: without one, sysfs shows no counts.
    fn set_scheme(&self) -> DamonResult<()> {
        let scheme = self.context().sub("schemes/0");
        scheme.write("action", "stat")?;
        let pattern = scheme.sub("access_pattern");
        for (what, max) in [
            ("sz", u64::MAX),
            ("nr_accesses", u32::MAX.into()),
            ("age", u32::MAX.into()),
        ] {
            pattern.write(&format!("{what}/min"), 0)?;
            pattern.write(&format!("{what}/max"), max)?;
        }
        Ok(())
    }

    pub(super) fn start(&self, pid: u32) -> DamonResult<()> {
        let on = self.dir().write("state", "on");
        on.map_err(|error| match error {
            DamonError::Io { path, source, .. } => match source.kind() {
                io::ErrorKind::ResourceBusy => DamonError::Exclusive(path),
                // The kernel accepted the configuration before, so it is the pid that is invalid.
                io::ErrorKind::InvalidInput if !is_alive(pid) => DamonError::Stopped(pid),
                _ => DamonError::Io {
                    action: "write",
                    path,
                    source,
                },
            },
            other => other,
        })
    }

    /// Requests the regions of the window that ends next, waits for its end, and reads them.
    pub(super) fn results_at_end(&self, pid: u32) -> DamonResult<Vec<RangeHits>> {
        let requested = self.dir().write("state", "update_schemes_tried_regions");
        if !self.is_running()? {
            return Err(DamonError::Stopped(pid));
        }
        requested?;
        self.tried_regions()
    }

    fn tried_regions(&self) -> DamonResult<Vec<RangeHits>> {
        let dir = self.results();
        let failed = |source| DamonError::Io {
            action: "list",
            path: dir.0.clone(),
            source,
        };
        let mut hits = Vec::new();
        for entry in fs::read_dir(&dir.0).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                let result = SysfsDir(entry.path());
                hits.push(RangeHits {
                    range: result.number("start")?..result.number("end")?,
                    count: result.number("nr_accesses")?,
                });
            }
        }
        Ok(hits)
    }

    /// Takes over the kdamond of a dead manager, if there is one.
    pub(super) fn take_abandoned(kdamonds: &SysfsDir) -> DamonResult<Option<Self>> {
        let abandoned = count(kdamonds)? == 1 && owner(kdamonds).is_some_and(|pid| !is_alive(pid));
        Ok(abandoned.then(|| Self {
            kdamonds: kdamonds.clone(),
            released: false,
        }))
    }

    /// Stops and removes the kdamond.
    pub(super) fn release(mut self) -> DamonResult<()> {
        self.undo()
    }

    fn undo(&mut self) -> DamonResult<()> {
        self.released = true;
        if self.is_running()? {
            // It may stop by itself, with its target, before this write arrives.
            let stopped = self.dir().write("state", "off");
            if self.is_running()? {
                stopped?;
            }
        }
        self.kdamonds.write("nr_kdamonds", 0)
    }
}

impl Drop for Kdamond {
    fn drop(&mut self) {
        if !self.released {
            // No caller could handle the error; `stop_leftover` finds the kdamond by its mark.
            let _ = self.undo();
        }
    }
}

/// Number of configured kdamonds.
fn count(kdamonds: &SysfsDir) -> DamonResult<u32> {
    kdamonds.number("nr_kdamonds")
}

pub(super) fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Pid of the manager that configured the first kdamond, if a session did.
fn owner(kdamonds: &SysfsDir) -> Option<u32> {
    let update_us: u64 = kdamonds.number(MARKED_FILE).ok()?;
    (update_us >> 32 == OWNER_MARK >> 32)
        .then_some(u32::try_from(update_us & u64::from(u32::MAX)).unwrap_or_default())
}
