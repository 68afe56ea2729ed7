//! The files of one cgroup, kept open: opening them costs more than reading them.

use super::{CgroupVersion, none_if_gone};
use hawkeye_policy::MemoryUse;
use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// A cgroup's limits as they were when it was opened, and its files to read use from.
#[derive(Debug)]
pub(super) struct CgroupFiles {
    /// How long the limits are assumed.
    pub(super) until: Duration,
    /// How long only use and limits are read while use is quiet ([`CgroupUse::is_quiet`]).
    pub(super) quiet_until: Duration,
    /// Whether root has delegated it to another user.
    pub(super) is_delegated: bool,
    /// Each limit in bytes, with the file of what counts against it. Empty: no limit.
    limits: Vec<(u64, File)>,
    limit_files: LimitFiles,
    /// `memory.stat` and `memory.pressure`, where there is a limit.
    stat: Option<File>,
    pressure: Option<File>,
    /// Use as first read. While use is quiet, it still counts.
    first_use: OnceCell<FirstUse>,
    /// Pressure while use is quiet, once that is 0 or `None`. More is not kept, because it ends
    /// while use stays the same.
    quiet_pressure: OnceCell<Option<f64>>,
}

/// What a cgroup uses, and how much of that reclaim can drop.
#[derive(Debug)]
struct FirstUse {
    /// Against each limit.
    current_bytes: Vec<u64>,
    droppable_bytes: u64,
}

/// What was read of a cgroup with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CgroupUse {
    /// Against the limit that is nearest.
    pub(super) usage: MemoryUse,
    /// Whether it uses exactly what it used when the files were opened, and less than half of each
    /// limit. Reclaim for a limit would also keep the use constant, but near the limit.
    pub(super) is_quiet: bool,
}

impl CgroupFiles {
    /// Reads the limits of the cgroup at `folder`. It is an error if that is gone.
    ///
    /// Swap does not count as room: swapped-out memory slows its program down, which recovery is to
    /// prevent. Version 1 can limit memory and swap together, and kills at that limit as well.
    pub(super) fn open(version: CgroupVersion, folder: &Path, until: Duration) -> io::Result<Self> {
        let is_delegated = is_delegated(folder)?;
        let open = |file: &str| none_if_gone(File::open(folder.join(file)));
        let mut limits = Vec::new();
        let mut limit_files = LimitFiles::open(version, folder)?;
        for (limit, usage) in limit_files.read_limits()? {
            limits.extend(open(usage)?.map(|file| (limit, file)));
        }
        // Without it, all page cache counts as used.
        let is_limited = !limits.is_empty();
        if !is_limited {
            // These are opened again: one that is gone would look as if it still had no limit.
            limit_files.files = [None, None];
        }
        let open_if_limited = |file| is_limited.then(|| open(file).ok().flatten()).flatten();
        let stat = open_if_limited("memory.stat");
        let pressure = match version {
            CgroupVersion::V2 => open_if_limited("memory.pressure"),
            CgroupVersion::V1 => None,
        };
        Ok(Self {
            until,
            quiet_until: until,
            is_delegated,
            limits,
            limit_files,
            stat,
            pressure,
            first_use: OnceCell::new(),
            quiet_pressure: OnceCell::new(),
        })
    }

    pub(super) fn has_same_limits(&self, other: &Self) -> bool {
        let limits =
            |files: &Self| files.limits.iter().map(|(limit, _)| *limit).collect::<Vec<_>>();
        limits(self) == limits(other)
    }

    /// Whether the limits are still these.
    pub(super) fn has_limits_still(&self) -> io::Result<bool> {
        let current = self.limit_files.read_limits()?;
        let known = self.limits.iter().map(|(limit, _)| *limit);
        Ok(current.iter().map(|(limit, _)| *limit).eq(known))
    }

    pub(super) fn has_limit(&self) -> bool {
        !self.limits.is_empty()
    }

    /// File descriptors that it holds.
    pub(super) fn descriptors(&self) -> usize {
        let limits = self.limits.len() + self.limit_files.files.iter().flatten().count();
        limits + usize::from(self.stat.is_some()) + usize::from(self.pressure.is_some())
    }

    /// Use against the limits; `None` if there is no limit, or the cgroup is gone.
    pub(super) fn read_use(&self) -> io::Result<Option<CgroupUse>> {
        let mut current_bytes = Vec::with_capacity(self.limits.len());
        for (_, usage) in &self.limits {
            let Some(current) = none_if_gone(read_number(usage))? else { return Ok(None) };
            let no_number = || io::Error::other("the use of a cgroup is no number");
            current_bytes.push(current.ok_or_else(no_number)?);
        }
        let limits = self.limits.iter().map(|(limit, _)| *limit);
        let is_low =
            current_bytes.iter().zip(limits.clone()).all(|(used, limit)| *used < limit / 2);
        let first = self.first_use.get();
        let first = first.filter(|first| is_low && first.current_bytes == current_bytes);
        let is_quiet = first.is_some();
        // The kernel adds `memory.stat` up, which costs ten times as much as reading the use.
        let droppable_bytes =
            first.map_or_else(|| self.read_droppable_bytes(), |first| first.droppable_bytes);
        let uses = current_bytes.iter().zip(limits).map(|(current, limit)| MemoryUse {
            used_bytes: current.saturating_sub(droppable_bytes),
            total_bytes: limit,
        });
        let fullest = uses.max_by(|a, b| a.used_percent().total_cmp(&b.used_percent()));
        // No effect after the first time.
        let _ = self.first_use.set(FirstUse { current_bytes, droppable_bytes });
        Ok(fullest.map(|usage| CgroupUse { usage, is_quiet }))
    }

    fn read_droppable_bytes(&self) -> u64 {
        let stat = self.stat.as_ref().and_then(|stat| read_from_start(stat).ok());
        let stat = stat.unwrap_or_default();
        let inactive = match self.limit_files.version {
            CgroupVersion::V2 => "inactive_file ",
            CgroupVersion::V1 => "total_inactive_file ",
        };
        let number = |line: &str| line.strip_prefix(inactive)?.trim().parse::<u64>().ok();
        stat.lines().find_map(number).unwrap_or(0)
    }

    /// PSI "some avg10", in per cent; `None` if there is none (version 1). It is not read again
    /// once it is 0 while use is quiet.
    pub(super) fn pressure_percent(&self, is_quiet: bool) -> Option<f64> {
        if let Some(kept) = self.quiet_pressure.get().filter(|_| is_quiet) {
            return *kept;
        }
        let percent = self.read_pressure_percent();
        if is_quiet && percent.is_none_or(|percent| percent <= 0.0) {
            // No effect after the first time.
            let _ = self.quiet_pressure.set(percent);
        }
        percent
    }

    fn read_pressure_percent(&self) -> Option<f64> {
        let text = read_from_start(self.pressure.as_ref()?).ok()?;
        let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
        some.split_whitespace().find_map(|field| field.strip_prefix("avg10=")?.parse().ok())
    }
}

/// The files of a cgroup's limits, as far as there are such.
#[derive(Debug)]
struct LimitFiles {
    version: CgroupVersion,
    files: [Option<File>; 2],
}

impl LimitFiles {
    fn open(version: CgroupVersion, folder: &Path) -> io::Result<Self> {
        let names = match version {
            CgroupVersion::V2 => ["memory.max", "memory.high"],
            CgroupVersion::V1 => ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"],
        };
        let open = |name: &str| none_if_gone(File::open(folder.join(name)));
        Ok(Self { version, files: [open(names[0])?, open(names[1])?] })
    }

    /// The limits, each with the name of the file of what counts against it.
    fn read_limits(&self) -> io::Result<Vec<(u64, &'static str)>> {
        let number = |file: &Option<File>| -> io::Result<Option<u64>> {
            let Some(file) = file else { return Ok(None) };
            Ok(none_if_gone(read_number(file))?.flatten())
        };
        let [first, second] = [number(&self.files[0])?, number(&self.files[1])?];
        Ok(match self.version {
            // memory.high throttles before memory.max kills: the lower of the two counts.
            CgroupVersion::V2 => {
                let limit = [first, second].into_iter().flatten().min();
                limit.map(|limit| (limit, "memory.current")).into_iter().collect()
            }
            // "No limit" is written as the largest multiple of the page size.
            CgroupVersion::V1 => {
                let usage = ["memory.usage_in_bytes", "memory.memsw.usage_in_bytes"];
                let limits = [first, second].into_iter().zip(usage);
                let limits = limits.filter_map(|(limit, usage)| Some((limit?, usage)));
                limits.filter(|(limit, _)| *limit < 1 << 62).collect()
            }
        })
    }
}

/// Whether the cgroup at `folder` belongs to another user than root. An error if that is gone.
pub(super) fn is_delegated(folder: &Path) -> io::Result<bool> {
    Ok(fs::metadata(folder)?.uid() != 0)
}

/// Reads a file of the kernel that holds one number; `None` if it holds none (`max`). It fails with
/// ENODEV where the cgroup is gone.
fn read_number(file: &File) -> io::Result<Option<u64>> {
    let mut bytes = [0; 32];
    let length = file.read_at(&mut bytes, 0)?;
    let text = std::str::from_utf8(&bytes[..length]).map_err(io::Error::other)?;
    Ok(text.trim().parse().ok())
}

/// Reads a text file of the kernel again. It fails with ENODEV where the cgroup is gone.
fn read_from_start(mut file: &File) -> io::Result<String> {
    const MOST_BYTES: u64 = 64 << 10;
    let mut text = String::with_capacity(4096);
    file.rewind()?;
    file.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
