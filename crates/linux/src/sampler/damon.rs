//! Access sampling through DAMON, for kernels where the BPF sampler cannot run.
//!
//! DAMON ("data access monitoring", `mm/damon/` in the kernel) checks one random base page of each
//! monitored region per *sampling interval*: it clears the page's access bit and looks, one
//! interval later, whether the bit is set again. This file has it monitor each 2 MiB region of a
//! process on its own and reads the counts back through sysfs, `/sys/kernel/mm/damon/admin`, as
//! described in the kernel's `Documentation/admin-guide/mm/damon/usage.rst`.
//!
//! # What the figures estimate
//!
//! A region with `h` hits in `n` samples is reported as `512 * h / n` base pages. Because the page
//! is drawn evenly from the region, this is an unbiased estimate of the base pages touched within
//! one *sampling interval*, averaged over the window (not of those touched within the whole
//! window). Its standard error is `512 * sqrt(p * (1 - p) / n)` base pages, where `p` is the share
//! of the region that is touched: with 20 samples at most 57 pages. A region under a huge page has
//! one access bit and is reported as 512 times the share of intervals with any access. Runs of
//! neighbouring pages cannot be seen, and neither can which pages are present. Like every user of
//! access bits, DAMON does not flush TLBs: a page whose translation stays in the TLB looks
//! untouched.
//!
//! # What it needs
//!
//! - `CONFIG_DAMON_VADDR` and `CONFIG_DAMON_SYSFS`, and the operations set `fvaddr` (5.19 and
//!   later). `vaddr` would not do: it widens the given regions to the whole process every update
//!   interval.
//! - the command `update_schemes_tried_regions` (6.2 and later). Up to 6.6 the kernel ends a window
//!   by the clock and not by the number of samples, so that estimates are a little low under load.
//! - that nobody else uses DAMON. A session takes the whole interface, starts only where no kdamond
//!   is configured, and puts `nr_kdamonds` back to 0 at its end. Between that check and the first
//!   write another program could configure one, whose configuration would be lost: the kernel has
//!   no lock to take. DAMON-based reclaim and LRU sorting exclude a session, and a session them.
//!
//! # What it costs
//!
//! In the kernel thread two page-table walks per region and sampling interval, each under the
//! target's mmap_lock for reading; in the manager two file writes per region before the window and
//! three file reads after it.

use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Most 2 MiB regions in one session (8 GiB): the kernel keeps one sysfs directory for each, and
/// again one for each result. [`Pager`] goes through larger processes in successive sessions.
pub const MAX_REGIONS: usize = 4096;

/// Where the kernel has the interface.
const ADMIN: &str = "/sys/kernel/mm/damon/admin";
/// DAMON's operations on fixed ranges of a process's addresses.
const OPERATIONS: &str = "fvaddr";
/// DAMON refuses fewer regions (`damon_set_attrs` in `mm/damon/core.c`).
const MIN_PIECES: usize = 3;
/// How long to wait for a file that another reader or writer keeps busy (the kernel has one lock
/// for the whole interface and does not queue for it).
const BUSY_PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two tries of a busy file.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// Where a session leaves its mark, below `kdamonds`: an interval that `fvaddr` does not use.
const MARKED_FILE: &str = "0/contexts/0/monitoring_attrs/intervals/update_us";
/// Upper half of the mark, "HAWK"; the lower half is the manager's pid.
const OWNER_MARK: u64 = 0x4841_574b << 32;

/// Why DAMON cannot be used, or what went wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum DamonError {
    /// The kernel has no DAMON, or no sysfs interface to it.
    #[error("{} is not there: this kernel has no DAMON (CONFIG_DAMON_SYSFS)", .0.display())]
    Absent(PathBuf),
    /// DAMON is there, but not for virtual addresses.
    #[error(
        "this kernel's DAMON cannot monitor virtual addresses (CONFIG_DAMON_VADDR): {} offers \
         {offered:?}, not {OPERATIONS}",
        path.display()
    )]
    NoVirtualAddresses {
        /// The file that lists what it can.
        path: PathBuf,
        /// What it lists.
        offered: String,
    },
    /// DAMON cannot list what it finds.
    #[error(
        "{} is not there: this kernel's DAMON cannot list its results (it is older than 6.2)",
        .0.display()
    )]
    NoResults(PathBuf),
    /// Somebody uses DAMON, and is left alone.
    #[error("DAMON is in use: {} is {count}", path.display())]
    InUse {
        /// The file with the number of configured kdamonds.
        path: PathBuf,
        /// Its value.
        count: u32,
    },
    /// Somebody uses DAMON exclusively from inside the kernel.
    #[error(
        "DAMON is in use by the kernel itself (damon_reclaim or damon_lru_sort): {} stays busy",
        .0.display()
    )]
    Exclusive(PathBuf),
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file holds something else than a number.
    #[error("{} holds {content:?}, not a number", path.display())]
    NotANumber {
        /// Which file.
        path: PathBuf,
        /// What it holds.
        content: String,
    },
    /// The ranges are not 2 MiB aligned, not ascending, or empty.
    #[error(
        "cannot monitor {:#x}-{:#x}: a range must be 2 MiB aligned, not empty, and begin where the last \
         one ends or later",
        .0.start,
        .0.end
    )]
    BadRange(Range<u64>),
    /// There is nothing to monitor.
    #[error("no ranges to monitor")]
    NoRanges,
    /// More regions than one session takes.
    #[error("{0} regions are more than one session takes ({MAX_REGIONS})")]
    TooManyRegions(usize),
    /// The sampling interval is below one microsecond.
    #[error("a sampling interval of {0:?} is below DAMON's resolution of 1 us")]
    IntervalTooShort(Duration),
    /// Monitoring stopped by itself, as it does when the process exits.
    #[error("DAMON stopped monitoring process {0}: it has exited, or somebody stopped it")]
    Stopped(u32),
    /// The window did not end in twice its time.
    #[error(
        "DAMON did not end a window of {window:?} over {regions} regions in time: the sampling \
         interval is too short for so many"
    )]
    TooSlow {
        /// Length asked for.
        window: Duration,
        /// Regions asked for.
        regions: usize,
    },
}

type Result<T> = std::result::Result<T, DamonError>;

/// How long to sample and how finely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Time between clearing a page's access bit and reading it: the time that an estimate is
    /// about. The kernel counts whole microseconds.
    pub sampling: Duration,
    /// Samples of each region.
    pub samples: NonZeroU32,
}

impl Window {
    /// Length of the window.
    pub fn length(self) -> Duration {
        self.sampling.saturating_mul(self.samples.get())
    }
}

impl Default for Window {
    /// 20 samples, 50 ms apart: one second.
    fn default() -> Self {
        Self {
            sampling: Duration::from_millis(50),
            samples: NonZeroU32::MIN.saturating_add(19),
        }
    }
}

/// The kernel's DAMON.
#[derive(Clone, Debug)]
pub struct Damon {
    admin: PathBuf,
}

impl Default for Damon {
    fn default() -> Self {
        Self::at(ADMIN)
    }
}

impl Damon {
    /// DAMON with its `admin` directory elsewhere, for tests.
    pub fn at(admin: impl Into<PathBuf>) -> Self {
        Self {
            admin: admin.into(),
        }
    }

    /// Whether a session could start now. Configures a kdamond for a moment, because the kernel
    /// lists its operations nowhere else; monitors nothing.
    pub fn probe(&self) -> Result<()> {
        let kdamond = Kdamond::claim(&self.kdamonds()?)?;
        kdamond.check_abilities()?;
        kdamond.release()
    }

    /// Starts to monitor the 2 MiB regions of `ranges` (byte addresses, 2 MiB aligned, ascending)
    /// in process `pid` for one window.
    pub fn start(&self, pid: u32, ranges: &[Range<u64>], window: Window) -> Result<DamonSession> {
        let regions = split_into_regions(ranges)?;
        if window.sampling < Duration::from_micros(1) {
            return Err(DamonError::IntervalTooShort(window.sampling));
        }
        let kdamond = Kdamond::claim(&self.kdamonds()?)?;
        kdamond.check_abilities()?;
        kdamond.configure(pid, &regions, window)?;
        kdamond.turn_on(pid)?;
        Ok(DamonSession {
            kdamond,
            pid,
            regions,
            window,
            started: Instant::now(),
        })
    }

    /// Stops what a killed manager left behind, and says whether there was anything. A session
    /// whose manager is alive, and everybody else's kdamonds, stay.
    pub fn stop_leftover(&self) -> Result<bool> {
        let kdamonds = self.kdamonds()?;
        let abandoned =
            count(&kdamonds)? == 1 && owner(&kdamonds).is_some_and(|pid| !is_alive(pid));
        if abandoned {
            Kdamond {
                kdamonds,
                released: false,
            }
            .release()?;
        }
        Ok(abandoned)
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

/// A window under way. Dropping it stops the monitoring and leaves DAMON as it was found.
#[derive(Debug)]
pub struct DamonSession {
    kdamond: Kdamond,
    pid: u32,
    regions: Vec<RegionAddr>,
    window: Window,
    started: Instant,
}

impl DamonSession {
    /// When to call [`finish`](Self::finish) to have it wait least: shortly before the window ends.
    pub fn due(&self) -> Instant {
        // The kernel takes up a request at the start of a sampling interval, and the results belong
        // to a window only if that interval is still part of it.
        self.started
            + self
                .window
                .length()
                .saturating_sub(2 * self.window.sampling)
    }

    /// Pid of the kernel thread that samples, so that its processor time can be put on the
    /// manager's account.
    pub fn kdamond_pid(&self) -> Result<u32> {
        self.kdamond.dir().number("pid")
    }

    /// Waits for the end of the window, stops monitoring and returns the estimated number of base
    /// pages (0-512) of every region that were touched within one sampling interval (see the
    /// [module](self)'s head), by ascending address. A region that DAMON did not report is not in
    /// it.
    ///
    /// Called before the window ends, it waits for that, for up to a sampling interval and 100 ms
    /// more (the kernel's own pace of looking) and for the files to be read; called after, it waits
    /// for the end of a second window. Signals do not cut the last part of the wait short.
    pub fn finish(self) -> Result<Vec<(RegionAddr, u16)>> {
        thread::sleep(self.due().saturating_duration_since(Instant::now()));
        let hits = self.collect();
        self.kdamond.release()?;
        Ok(estimate(&self.regions, &hits?, self.window.samples))
    }

    fn collect(&self) -> Result<Vec<Hits>> {
        let requested = self
            .kdamond
            .dir()
            .write("state", "update_schemes_tried_regions");
        if !self.kdamond.is_running()? {
            return Err(DamonError::Stopped(self.pid));
        }
        requested?;
        let hits = self.kdamond.tried_regions()?;
        if hits.is_empty() {
            return Err(DamonError::TooSlow {
                window: self.window.length(),
                regions: self.regions.len(),
            });
        }
        Ok(hits)
    }
}

/// Goes through the regions of a process in pages of at most [`MAX_REGIONS`], one page per session.
/// Remembers an address, not a number, so that the ranges may change from one session to the next.
#[derive(Clone, Debug, Default)]
pub struct Pager {
    next: u64,
}

impl Pager {
    /// The next at most `limit` regions of `ranges` (2 MiB aligned, ascending), as ranges: from
    /// where the last page ended to the end of the process, then from its beginning again.
    pub fn next_page(&mut self, ranges: &[Range<u64>], limit: usize) -> Vec<Range<u64>> {
        let page = page_from(self.next, ranges, limit);
        let page = if page.is_empty() {
            page_from(0, ranges, limit)
        } else {
            page
        };
        self.next = page.last().map_or(0, |range| range.end);
        page
    }
}

/// The first at most `limit` regions of `ranges` at or above `start`.
fn page_from(start: u64, ranges: &[Range<u64>], limit: usize) -> Vec<Range<u64>> {
    let mut left = limit as u64 * HUGE_PAGE_BYTES;
    let mut page = Vec::new();
    for range in ranges.iter().filter(|range| range.end > start) {
        let first = range.start.max(start);
        let end = range.end.min(first.saturating_add(left));
        if end <= first {
            break;
        }
        left -= end - first;
        page.push(first..end);
    }
    page
}

/// Every 2 MiB region of `ranges`, if a session can take them.
fn split_into_regions(ranges: &[Range<u64>]) -> Result<Vec<RegionAddr>> {
    let mut last_end = 0;
    let mut bytes = 0;
    for range in ranges {
        let aligned = range.start % HUGE_PAGE_BYTES == 0 && range.end % HUGE_PAGE_BYTES == 0;
        if !aligned || range.start >= range.end || range.start < last_end {
            return Err(DamonError::BadRange(range.clone()));
        }
        last_end = range.end;
        bytes += range.end - range.start;
    }
    let regions = usize::try_from(bytes / HUGE_PAGE_BYTES).unwrap_or(usize::MAX);
    match regions {
        0 => Err(DamonError::NoRanges),
        1..=MAX_REGIONS => Ok(ranges.iter().flat_map(regions_of).collect()),
        _ => Err(DamonError::TooManyRegions(regions)),
    }
}

fn regions_of(range: &Range<u64>) -> impl Iterator<Item = RegionAddr> {
    let count = (range.end - range.start) / HUGE_PAGE_BYTES;
    let start = range.start;
    (0..count).map(move |index| RegionAddr::containing(start + index * HUGE_PAGE_BYTES))
}

/// What DAMON is given to monitor: the regions, or, if there are fewer than it accepts, their
/// quarters.
///
/// With as many pieces as its lower and upper limit say, DAMON neither merges two of them (no
/// result may be larger than all memory divided by the lower limit) nor splits one (it does up to
/// half of the upper limit).
fn pieces(regions: &[RegionAddr]) -> Vec<Range<u64>> {
    let parts = if regions.len() < MIN_PIECES { 4 } else { 1 };
    let size = HUGE_PAGE_BYTES / parts;
    let piece = |region: &RegionAddr, part: u64| {
        let start = region.start() + part * size;
        start..start + size
    };
    regions
        .iter()
        .flat_map(|region| (0..parts).map(move |part| piece(region, part)))
        .collect()
}

/// How many of its samples DAMON found accessed, over one address range.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hits {
    range: Range<u64>,
    count: u32,
}

/// Estimated base pages touched in one sampling interval, for every one of `regions` that DAMON
/// reported (unknown is not untouched). A region that it reported in parts gets their mean by size.
fn estimate(regions: &[RegionAddr], hits: &[Hits], samples: NonZeroU32) -> Vec<(RegionAddr, u16)> {
    let mut shares: BTreeMap<RegionAddr, Share> = regions
        .iter()
        .map(|&region| (region, Share::default()))
        .collect();
    for hit in hits {
        let first = RegionAddr::containing(hit.range.start);
        let hit_regions = shares
            .range_mut(first..)
            .take_while(|(region, _)| region.start() < hit.range.end);
        for (region, share) in hit_regions {
            let end = hit.range.end.min(region.end());
            let bytes = end.saturating_sub(hit.range.start.max(region.start()));
            share.bytes += bytes;
            // Never above the number of samples, but for rounding in the kernel.
            share.touched += bytes * u64::from(hit.count.min(samples.get()));
        }
    }
    let reported = shares.into_iter().filter(|(_, share)| share.bytes > 0);
    reported
        .map(|(region, share)| (region, share.pages(samples)))
        .collect()
}

/// What DAMON reported about one region.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Bytes it said something about.
    bytes: u64,
    /// The same bytes, each times the samples that found it accessed.
    touched: u64,
}

impl Share {
    /// As a number of base pages (0-512), rounded.
    fn pages(self, samples: NonZeroU32) -> u16 {
        let share = self.touched as f64 / (self.bytes as f64 * f64::from(samples.get()));
        (share * f64::from(PAGES_PER_REGION)).round() as u16
    }
}

/// The one kdamond that a session or probe configures. Stopped and removed when dropped.
#[derive(Debug)]
struct Kdamond {
    /// The directory `kdamonds`.
    kdamonds: Dir,
    released: bool,
}

impl Kdamond {
    /// Creates it and puts the manager's mark on it, if there is none at all.
    fn claim(kdamonds: &Dir) -> Result<Self> {
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

    fn dir(&self) -> Dir {
        self.kdamonds.sub("0")
    }

    fn context(&self) -> Dir {
        self.dir().sub("contexts/0")
    }

    fn results(&self) -> Dir {
        self.context().sub("schemes/0/tried_regions")
    }

    /// Whether it monitors: it stops by itself when its target exits.
    fn is_running(&self) -> Result<bool> {
        Ok(self.dir().read("state")? != "off")
    }

    /// Whether the kernel's DAMON can do what a session needs.
    fn check_abilities(&self) -> Result<()> {
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

    fn configure(&self, pid: u32, regions: &[RegionAddr], window: Window) -> Result<()> {
        let pieces = pieces(regions);
        self.context().write("operations", OPERATIONS)?;
        self.set_attributes(pieces.len(), window)?;
        self.set_target(pid, &pieces)?;
        self.set_scheme()
    }

    fn set_attributes(&self, pieces: usize, window: Window) -> Result<()> {
        let intervals = self.context().sub("monitoring_attrs/intervals");
        let sample_us = window.sampling.as_micros();
        intervals.write("sample_us", sample_us)?;
        intervals.write("aggr_us", sample_us * u128::from(window.samples.get()))?;
        let limits = self.context().sub("monitoring_attrs/nr_regions");
        limits.write("min", pieces)?;
        limits.write("max", pieces)
    }

    fn set_target(&self, pid: u32, pieces: &[Range<u64>]) -> Result<()> {
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

    /// Has the one scheme apply to every region and do nothing but list it: the only way to the
    /// counts in sysfs.
    fn set_scheme(&self) -> Result<()> {
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

    fn turn_on(&self, pid: u32) -> Result<()> {
        self.dir()
            .write("state", "on")
            .map_err(|error| match error {
                DamonError::Io { path, source, .. }
                    if source.kind() == io::ErrorKind::ResourceBusy =>
                {
                    DamonError::Exclusive(path)
                }
                // All that was configured was accepted before, so that the pid is what is invalid.
                DamonError::Io { source, .. } if !is_alive(pid) && is_invalid(&source) => {
                    DamonError::Stopped(pid)
                }
                other => other,
            })
    }

    fn tried_regions(&self) -> Result<Vec<Hits>> {
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
                hits.push(read_hits(&Dir(entry.path()))?);
            }
        }
        Ok(hits)
    }

    /// Stops and removes it.
    fn release(mut self) -> Result<()> {
        self.undo()
    }

    fn undo(&mut self) -> Result<()> {
        self.released = true;
        if self.is_running()? {
            // It may end by itself before this arrives, with its target.
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
            // Nobody is left to tell; `stop_leftover` finds it by its mark.
            let _ = self.undo();
        }
    }
}

/// One result directory.
fn read_hits(dir: &Dir) -> Result<Hits> {
    let range = dir.number("start")?..dir.number("end")?;
    Ok(Hits {
        range,
        count: dir.number("nr_accesses")?,
    })
}

/// Number of configured kdamonds.
fn count(kdamonds: &Dir) -> Result<u32> {
    kdamonds.number("nr_kdamonds")
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn is_invalid(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

/// Pid of the manager that configured the first kdamond, if a session did.
fn owner(kdamonds: &Dir) -> Option<u32> {
    let update_us: u64 = kdamonds.number(MARKED_FILE).ok()?;
    (update_us >> 32 == OWNER_MARK >> 32).then_some(update_us as u32)
}

/// A directory of small files with one value each.
#[derive(Clone, Debug)]
struct Dir(PathBuf);

impl Dir {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn sub(&self, name: &str) -> Self {
        Self(self.path(name))
    }

    /// The value of a file, without white space around it.
    fn read(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        match while_busy(|| fs::read_to_string(&path)) {
            Ok(content) => Ok(content.trim().to_owned()),
            Err(source) => Err(DamonError::Io {
                action: "read",
                path,
                source,
            }),
        }
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        let content = self.read(name)?;
        content.parse().map_err(|_| DamonError::NotANumber {
            path: self.path(name),
            content,
        })
    }

    fn write(&self, name: &str, value: impl Display) -> Result<()> {
        let path = self.path(name);
        let value = value.to_string();
        while_busy(|| {
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(&path)?
                .write_all(value.as_bytes())
        })
        .map_err(|source| DamonError::Io {
            action: "write",
            path,
            source,
        })
    }
}

/// Repeats what fails with EBUSY, for a while.
fn while_busy<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + BUSY_PATIENCE;
    loop {
        match attempt() {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline =>
            {
                thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
// Most tests need a list of one range, and not what the lint takes it for.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const R: u64 = HUGE_PAGE_BYTES;

    /// A directory that looks like the kernel's after `nr_kdamonds`, `nr_contexts` and so on were
    /// written: unlike sysfs, it is all there from the start.
    struct Fake(PathBuf);

    impl Fake {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!(
                "hawkeye-damon-{}-{}",
                std::process::id(),
                NEXT.fetch_add(1, Ordering::Relaxed)
            );
            let fake = Self(std::env::temp_dir().join(name));
            let context = "kdamonds/0/contexts/0";
            fake.set("kdamonds/nr_kdamonds", "0\n");
            fake.set("kdamonds/0/state", "off\n");
            fake.set("kdamonds/0/pid", "77\n");
            fake.set("kdamonds/0/contexts/nr_contexts", "0\n");
            fake.set(
                &format!("{context}/avail_operations"),
                "vaddr\nfvaddr\npaddr\n",
            );
            for name in [
                "operations",
                "monitoring_attrs/intervals/sample_us",
                "monitoring_attrs/intervals/aggr_us",
                "monitoring_attrs/intervals/update_us",
                "monitoring_attrs/nr_regions/min",
                "monitoring_attrs/nr_regions/max",
                "targets/nr_targets",
                "targets/0/pid_target",
                "targets/0/regions/nr_regions",
                "schemes/nr_schemes",
                "schemes/0/action",
                "schemes/0/tried_regions/total_bytes",
            ] {
                fake.set(&format!("{context}/{name}"), "0\n");
            }
            for name in ["sz", "nr_accesses", "age"] {
                fake.set(
                    &format!("{context}/schemes/0/access_pattern/{name}/min"),
                    "9\n",
                );
                fake.set(
                    &format!("{context}/schemes/0/access_pattern/{name}/max"),
                    "0\n",
                );
            }
            for index in 0..4 {
                fake.set(&format!("{context}/targets/0/regions/{index}/start"), "0\n");
                fake.set(&format!("{context}/targets/0/regions/{index}/end"), "0\n");
            }
            fake
        }

        fn damon(&self) -> Damon {
            Damon::at(&self.0)
        }

        fn set(&self, name: &str, value: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().expect("a name")).expect("temporary directory");
            fs::write(path, value).expect("temporary file");
        }

        fn get(&self, name: &str) -> String {
            fs::read_to_string(self.0.join(name))
                .expect(name)
                .trim()
                .to_owned()
        }

        fn context(&self, name: &str) -> String {
            self.get(&format!("kdamonds/0/contexts/0/{name}"))
        }

        fn add_result(&self, index: usize, range: Range<u64>, nr_accesses: u32) {
            let dir = format!("kdamonds/0/contexts/0/schemes/0/tried_regions/{index}");
            self.set(&format!("{dir}/start"), &range.start.to_string());
            self.set(&format!("{dir}/end"), &range.end.to_string());
            self.set(&format!("{dir}/nr_accesses"), &nr_accesses.to_string());
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn window() -> Window {
        Window {
            sampling: Duration::from_micros(100),
            samples: samples(20),
        }
    }

    fn samples(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).expect("not 0")
    }

    fn region(index: u64) -> RegionAddr {
        RegionAddr::containing(index * R)
    }

    #[test]
    fn probe_leaves_nothing_behind() {
        let fake = Fake::new();
        fake.damon().probe().expect("usable");
        assert_eq!(fake.get("kdamonds/nr_kdamonds"), "0");
        assert_eq!(fake.get("kdamonds/0/state"), "off");
    }

    #[test]
    fn probe_tells_what_is_missing() {
        let nowhere = Damon::at("/nonexistent");
        assert!(matches!(nowhere.probe(), Err(DamonError::Absent(_))));

        let fake = Fake::new();
        fake.set("kdamonds/0/contexts/0/avail_operations", "paddr\n");
        let error = fake.damon().probe().expect_err("physical addresses only");
        assert!(
            error.to_string().contains("offers \"paddr\", not fvaddr"),
            "{error}"
        );
        assert_eq!(fake.get("kdamonds/nr_kdamonds"), "0");

        let fake = Fake::new();
        let results = fake.0.join("kdamonds/0/contexts/0/schemes/0/tried_regions");
        fs::remove_dir_all(results).expect("temporary directory");
        assert!(matches!(
            fake.damon().probe(),
            Err(DamonError::NoResults(_))
        ));

        let fake = Fake::new();
        fake.set("kdamonds/nr_kdamonds", "none\n");
        let error = fake.damon().probe().expect_err("not a number");
        assert!(
            error.to_string().contains("nr_kdamonds holds \"none\""),
            "{error}"
        );
    }

    #[test]
    fn somebody_elses_kdamonds_stay() {
        let fake = Fake::new();
        fake.set("kdamonds/nr_kdamonds", "2\n");
        fake.set("kdamonds/0/state", "on\n");
        let in_use = |result| matches!(result, Err(DamonError::InUse { count: 2, .. }));
        assert!(in_use(fake.damon().probe()));
        assert!(in_use(fake.damon().start(1, &[0..R], window()).map(drop)));
        assert!(!fake.damon().stop_leftover().expect("readable"));
        assert_eq!(fake.get("kdamonds/nr_kdamonds"), "2");
        assert_eq!(fake.get("kdamonds/0/state"), "on");
    }

    #[test]
    fn a_session_configures_one_region_each_and_reads_them_back() {
        let fake = Fake::new();
        let ranges = [4 * R..6 * R, 9 * R..11 * R];
        let session = fake.damon().start(123, &ranges, window()).expect("started");
        assert_eq!(fake.get("kdamonds/nr_kdamonds"), "1");
        assert_eq!(fake.get("kdamonds/0/state"), "on");
        assert_eq!(fake.context("operations"), "fvaddr");
        assert_eq!(fake.context("monitoring_attrs/intervals/sample_us"), "100");
        assert_eq!(fake.context("monitoring_attrs/intervals/aggr_us"), "2000");
        assert_eq!(fake.context("monitoring_attrs/nr_regions/min"), "4");
        assert_eq!(fake.context("monitoring_attrs/nr_regions/max"), "4");
        assert_eq!(fake.context("targets/0/pid_target"), "123");
        assert_eq!(
            fake.context("targets/0/regions/2/start"),
            (9 * R).to_string()
        );
        assert_eq!(
            fake.context("targets/0/regions/2/end"),
            (10 * R).to_string()
        );
        assert_eq!(fake.context("schemes/0/action"), "stat");
        assert_eq!(fake.context("schemes/0/access_pattern/sz/min"), "0");
        assert_eq!(
            fake.context("schemes/0/access_pattern/sz/max"),
            u64::MAX.to_string()
        );
        assert_eq!(session.kdamond_pid().expect("a number"), 77);

        fake.add_result(0, 10 * R..11 * R, 20);
        fake.add_result(1, 4 * R..5 * R, 0);
        fake.add_result(2, 9 * R..10 * R, 5);
        let estimates = session.finish().expect("results");
        assert_eq!(
            estimates,
            [(region(4), 0), (region(9), 128), (region(10), 512)]
        );
        assert_eq!(fake.get("kdamonds/nr_kdamonds"), "0");
        assert_eq!(fake.get("kdamonds/0/state"), "off");
    }

    #[test]
    fn a_dropped_session_leaves_nothing_behind() {
        let fake = Fake::new();
        drop(
            fake.damon()
                .start(1, &[0..4 * R], window())
                .expect("started"),
        );
        assert_eq!(fake.get("kdamonds/nr_kdamonds"), "0");
        assert_eq!(fake.get("kdamonds/0/state"), "off");
    }

    #[test]
    fn a_failed_start_names_the_file_and_leaves_nothing_behind() {
        let fake = Fake::new();
        let error = fake
            .damon()
            .start(1, &[0..5 * R], window())
            .expect_err("a fifth directory");
        assert!(error.to_string().contains("cannot write"), "{error}");
        assert!(
            error.to_string().contains("targets/0/regions/4/start"),
            "{error}"
        );
        assert_eq!(fake.get("kdamonds/nr_kdamonds"), "0");
    }

    #[test]
    fn a_window_without_results_is_an_error() {
        let fake = Fake::new();
        let session = fake
            .damon()
            .start(1, &[0..4 * R], window())
            .expect("started");
        assert!(matches!(
            session.finish(),
            Err(DamonError::TooSlow { regions: 4, .. })
        ));
        assert_eq!(fake.get("kdamonds/nr_kdamonds"), "0");
    }

    #[test]
    fn only_what_a_dead_manager_left_is_stopped() {
        let fake = Fake::new();
        let mark = "kdamonds/0/contexts/0/monitoring_attrs/intervals/update_us";
        let session = fake
            .damon()
            .start(1, &[0..4 * R], window())
            .expect("started");
        assert!(
            !fake.damon().stop_leftover().expect("readable"),
            "its manager lives"
        );
        assert_eq!(fake.get("kdamonds/0/state"), "on");
        std::mem::forget(session);

        fake.set(mark, "1000000\n");
        assert!(
            !fake.damon().stop_leftover().expect("readable"),
            "not a manager's"
        );

        let above_pid_max = 1 << 30;
        fake.set(mark, &(OWNER_MARK | above_pid_max).to_string());
        assert!(fake.damon().stop_leftover().expect("readable"));
        assert_eq!(fake.get("kdamonds/nr_kdamonds"), "0");
        assert_eq!(fake.get("kdamonds/0/state"), "off");
        assert!(
            !fake.damon().stop_leftover().expect("readable"),
            "nothing left"
        );
    }

    #[test]
    fn ranges_are_checked_before_anything_is_written() {
        let check = |ranges: &[Range<u64>]| split_into_regions(ranges);
        assert!(matches!(check(&[]), Err(DamonError::NoRanges)));
        assert!(matches!(check(&[R..R]), Err(DamonError::BadRange(_))));
        assert!(matches!(
            check(&[0..R + 4096]),
            Err(DamonError::BadRange(_))
        ));
        assert!(matches!(
            check(&[2 * R..3 * R, 0..R]),
            Err(DamonError::BadRange(_))
        ));
        assert!(matches!(
            check(&[0..2 * R, R..3 * R]),
            Err(DamonError::BadRange(_))
        ));
        let most = MAX_REGIONS as u64;
        assert_eq!(
            check(&[0..most * R]).expect("as many as fit").len(),
            MAX_REGIONS
        );
        let too_many = check(&[0..most * R, most * R..(most + 1) * R]);
        assert!(matches!(too_many, Err(DamonError::TooManyRegions(4097))));
        assert_eq!(
            check(&[R..2 * R, 2 * R..3 * R]).expect("adjacent"),
            [region(1), region(2)]
        );
    }

    #[test]
    fn few_regions_are_cut_up_so_that_damon_accepts_them() {
        let quarter = R / 4;
        let quarters: Vec<_> = (4..8)
            .map(|index| index * quarter..(index + 1) * quarter)
            .collect();
        assert_eq!(pieces(&[region(1)]), quarters);
        assert_eq!(pieces(&[region(1), region(3)]).len(), 8);
        assert_eq!(pieces(&[region(1), region(3), region(4)]).len(), 3);
    }

    #[test]
    fn parts_are_weighted_by_size_and_silence_is_not_zero() {
        let regions = [region(1), region(2), region(3), region(5)];
        let hits = [
            Hits {
                range: R..R + R / 4,
                count: 10,
            },
            Hits {
                range: R + R / 4..2 * R,
                count: 2,
            },
            Hits {
                range: 2 * R..4 * R,
                count: 99,
            },
            Hits {
                range: 7 * R..8 * R,
                count: 10,
            },
        ];
        let estimates = estimate(&regions, &hits, samples(10));
        assert_eq!(
            estimates,
            [(region(1), 205), (region(2), 512), (region(3), 512)]
        );
    }

    #[test]
    fn pages_cover_everything_in_turn() {
        let ranges = [0..3 * R, 10 * R..12 * R, 20 * R..21 * R];
        let mut pager = Pager::default();
        assert_eq!(pager.next_page(&ranges, 4), [0..3 * R, 10 * R..11 * R]);
        assert_eq!(
            pager.next_page(&ranges, 4),
            [11 * R..12 * R, 20 * R..21 * R]
        );
        assert_eq!(pager.next_page(&ranges, 4), [0..3 * R, 10 * R..11 * R]);
        assert_eq!(pager.next_page(&[0..R], 4), [0..R], "the rest is gone");
        assert_eq!(pager.next_page(&[], 4), []);
        assert_eq!(Pager::default().next_page(&ranges, 100), ranges);
    }

    #[test]
    fn the_default_window_is_a_second() {
        assert_eq!(Window::default().length(), Duration::from_secs(1));
    }
}
