//! The files of one cgroup, kept open: opening them costs more than reading them.

use super::{CgroupVersion, none_if_gone, read_number_from_file};
use hawkeye_policy::MemoryUse;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::time::Duration;

/// A cgroup's limits as they were when it was opened, and its files to read use from.
#[derive(Debug)]
pub(super) struct CgroupFiles {
    /// How long the limits are assumed.
    pub(super) until: Duration,
    /// Each limit in bytes, with the file of what counts against it. Empty: no limit.
    limits: Vec<(u64, File)>,
    /// `memory.stat` and `memory.pressure`, where there is a limit.
    stat: Option<File>,
    pressure: Option<File>,
    version: CgroupVersion,
}

impl CgroupFiles {
    /// Reads the limits of the cgroup at `folder`.
    ///
    /// Swap does not count as room: swapped-out memory slows its program down, which recovery is to
    /// prevent. Version 1 can limit memory and swap together, and kills at that limit as well.
    ///
    /// # Errors
    /// It can't be read whether there is a limit. A cgroup that is gone has none.
    pub(super) fn open(version: CgroupVersion, folder: &Path, until: Duration) -> io::Result<Self> {
        let number = |file: &str| read_number_from_file(folder, file);
        let open = |file: &str| none_if_gone(File::open(folder.join(file)));
        // Each limit with the file of what counts against it.
        let mut found = Vec::new();
        match version {
            CgroupVersion::V2 => {
                // memory.high throttles before memory.max kills: the lower of the two counts.
                let limits = [number("memory.max")?, number("memory.high")?];
                let limit = limits.into_iter().flatten().min();
                found.extend(limit.map(|limit| (limit, "memory.current")));
            }
            CgroupVersion::V1 => {
                for (limit, usage) in [
                    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
                    ("memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"),
                ] {
                    // "No limit" is written as the largest multiple of the page size.
                    let limit = number(limit)?.filter(|limit| *limit < 1 << 62);
                    found.extend(limit.map(|limit| (limit, usage)));
                }
            }
        }
        let mut limits = Vec::new();
        for (limit, usage) in found {
            limits.extend(open(usage)?.map(|file| (limit, file)));
        }
        // Without it, all page cache counts as used.
        let is_limited = !limits.is_empty();
        let open_if_limited = |file| is_limited.then(|| open(file).ok().flatten()).flatten();
        let stat = open_if_limited("memory.stat");
        let pressure = match version {
            CgroupVersion::V2 => open_if_limited("memory.pressure"),
            CgroupVersion::V1 => None,
        };
        Ok(Self { until, limits, stat, pressure, version })
    }

    pub(super) fn has_same_limits(&self, other: &Self) -> bool {
        let limits =
            |files: &Self| files.limits.iter().map(|(limit, _)| *limit).collect::<Vec<_>>();
        limits(self) == limits(other)
    }

    pub(super) fn has_limit(&self) -> bool {
        !self.limits.is_empty()
    }

    /// File descriptors that it holds.
    pub(super) fn descriptors(&self) -> usize {
        self.limits.len() + usize::from(self.stat.is_some()) + usize::from(self.pressure.is_some())
    }

    /// Use against the limit that is nearest; `None` if there is no limit, or the cgroup is gone.
    ///
    /// # Errors
    /// A limit is there, and what counts against it can't be read.
    pub(super) fn memory_use(&self) -> io::Result<Option<MemoryUse>> {
        if !self.has_limit() {
            return Ok(None);
        }
        let stat = self.stat.as_ref().and_then(|stat| read_from_start(stat).ok());
        let stat = stat.unwrap_or_default();
        let inactive = match self.version {
            CgroupVersion::V2 => "inactive_file ",
            CgroupVersion::V1 => "total_inactive_file ",
        };
        let droppable = stat
            .lines()
            .find_map(|line| line.strip_prefix(inactive)?.trim().parse::<u64>().ok())
            .unwrap_or(0);
        let mut fullest: Option<MemoryUse> = None;
        for (limit, usage) in &self.limits {
            let Some(text) = none_if_gone(read_from_start(usage))? else { return Ok(None) };
            let current: u64 = text.trim().parse().map_err(io::Error::other)?;
            let used_bytes = current.saturating_sub(droppable);
            let usage = MemoryUse { used_bytes, total_bytes: *limit };
            if fullest.is_none_or(|fullest| usage.used_percent() >= fullest.used_percent()) {
                fullest = Some(usage);
            }
        }
        Ok(fullest)
    }

    /// PSI "some avg10", in per cent; `None` if there is none (version 1).
    pub(super) fn pressure_percent(&self) -> Option<f64> {
        let text = read_from_start(self.pressure.as_ref()?).ok()?;
        let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
        some.split_whitespace().find_map(|field| field.strip_prefix("avg10=")?.parse().ok())
    }
}

/// Reads a file of the kernel again. It fails with ENODEV where the cgroup is gone.
fn read_from_start(mut file: &File) -> io::Result<String> {
    const MOST_BYTES: u64 = 64 << 10;
    let mut text = String::with_capacity(4096);
    file.rewind()?;
    file.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
