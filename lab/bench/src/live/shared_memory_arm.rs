//! Ways to get huge pages in shared memory, which experiments compare.

use super::attached_manager::AttachedManager;
use super::huge_page_systems::KhugepagedPace;
use super::manager_runs::ManagedMemoryKind;
use super::prelude::*;
use super::programs::poll_for_answer;
use super::shared_memory_use::SharedMemoryUse;
use crate::statistics::MedianAndRange;
use hawkeye_linux::machine_lease::thp_settings::{SHMEM_ENABLED, enabled_file};
use hawkeye_workload::create_memory_file;
use std::fs::File;
use std::iter;

/// The number of pages of 2 MiB in the kernel's hugetlb pool, whatever its default size is.
const HUGETLB_POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// The line of `/proc/meminfo` with the default size, which programs use.
const DEFAULT_SIZE_LINE: &str = "Hugepagesize:";
/// The share of memory that counts as nearly all, in per cent.
const NEARLY_ALL_PERCENT: f64 = 90.0;
/// With this share no more is waited for, in per cent. Some mapped memory is in no whole region.
pub(super) const ALL_PERCENT: f64 = 98.0;

/// The kernel's settings for shared memory that programs start under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedMemoryArm {
    /// Huge from the first touch.
    ShmemAlways,
    /// Base pages that HawkEye can promote: `shmem_enabled=advise`, which `--align-shared-memory`
    /// sets.
    HawkEye,
}

impl SharedMemoryArm {
    /// Runs `work` under these settings. No manager has the machine then, so `work` can start one.
    pub(super) fn run_under_arm<T>(
        self,
        host: &mut BenchHost,
        work: impl FnOnce(&BenchHost) -> BenchResult<T>,
    ) -> BenchResult<T> {
        host.release_lease_under_settings(&self.kernel_settings(), work)
    }

    /// The same beside a hugetlb pool of `bytes`. No program may have pages of it after `work`.
    pub(super) fn run_beside_hugetlb_pool<T>(
        self,
        host: &mut BenchHost,
        bytes: u64,
        work: impl FnOnce(&BenchHost) -> BenchResult<T>,
    ) -> BenchResult<T> {
        let mut settings = self.kernel_settings();
        settings.push(pool_setting(bytes));
        host.release_lease_under_settings(&settings, |host| {
            require_hugetlb_pool(bytes)?;
            work(host)
        })
    }

    fn kernel_settings(self) -> Vec<(PathBuf, String)> {
        let shmem = match self {
            Self::ShmemAlways => "always",
            Self::HawkEye => "advise",
        };
        let mut settings = settings_beside_manager();
        settings.push((Path::new(THP_DIR).join(SHMEM_ENABLED), shmem.to_owned()));
        settings
    }
}

/// Programs may ask for huge pages, and khugepaged rests, as while HawkEye manages.
pub(super) fn settings_beside_manager() -> Vec<(PathBuf, String)> {
    let pace = KhugepagedPace::Resting.thp_settings();
    let pace = pace.map(|(file, value)| (Path::new(THP_DIR).join(file), value));
    iter::once((enabled_file(), "madvise".to_owned())).chain(pace).collect()
}

/// Why no hugetlb pool of `bytes` can be measured here; `None`: it can. Fills one as a trial.
pub(super) fn reason_without_hugetlb(
    host: &mut BenchHost,
    bytes: u64,
) -> BenchResult<Option<String>> {
    let pool = std::fs::read_to_string(HUGETLB_POOL).ok();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    if let Some(reason) = reason_against_pool(pool.as_deref(), &meminfo) {
        return Ok(Some(reason));
    }
    let trial = |_: &_| Ok(require_hugetlb_pool(bytes));
    let filled = host.release_lease_under_settings(&[pool_setting(bytes)], trial)?;
    Ok(filled.err().map(|error| error.to_string()))
}

/// A pool that has pages belongs to another program, so it is not resized.
fn reason_against_pool(pool: Option<&str>, meminfo: &str) -> Option<String> {
    let default_size = meminfo.lines().find_map(|line| line.strip_prefix(DEFAULT_SIZE_LINE));
    match (pool.map(str::trim), default_size.map(str::trim)) {
        (None, _) | (_, None) => Some("this kernel has no hugetlb pages of 2 MiB".to_owned()),
        (_, Some(size)) if size != "2048 kB" => {
            Some(format!("the default size of hugetlb pages is {size}"))
        }
        (Some("0"), _) => None,
        (Some(pages), _) => Some(format!("the hugetlb pool is in use, with {pages} pages")),
    }
}

fn pool_setting(bytes: u64) -> (PathBuf, String) {
    (HUGETLB_POOL.into(), pool_pages(bytes).to_string())
}

fn pool_pages(bytes: u64) -> u64 {
    bytes.div_ceil(HUGE_PAGE_BYTES)
}

/// The kernel makes the pool as large as it can, and reports no error.
fn require_hugetlb_pool(bytes: u64) -> BenchResult<()> {
    let pages = pool_pages(bytes);
    let text = std::fs::read_to_string(HUGETLB_POOL)
        .map_err(LinuxError::wrap_io_error("reading", HUGETLB_POOL))?;
    match text.trim().parse::<u64>() {
        Ok(there) if there >= pages => Ok(()),
        _ => bail!("the hugetlb pool has {} of {pages} pages", text.trim()),
    }
}

/// What a manager did before the measurement, and what it cost until its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PromotionOutcome {
    /// When nearly all shared memory of all processes was huge, in seconds from the start of
    /// `hawkeye attach`; infinite: not before the measurement.
    pub nearly_all_s: f64,
    pub promoted: u64,
    pub cpu_percent_of_core: f64,
    pub cpu_s: f64,
}

/// Attaches HawkEye to `pids`, and waits until the shared memory of `readers` is huge, for at most
/// `at_most`. Then HawkEye goes on while `work` runs.
pub(super) fn promote_then<T>(
    pids: &[u32],
    readers: &[u32],
    at_most: Duration,
    work: impl FnOnce() -> BenchResult<T>,
) -> BenchResult<(T, PromotionOutcome)> {
    let manager = AttachedManager::start(pids, ManagedMemoryKind::Shared)?;
    let begun = Instant::now();
    let mut nearly_all_s = f64::INFINITY;
    poll_for_answer(at_most, || {
        // A look walks the page tables of the process.
        std::thread::sleep(Duration::from_millis(500));
        let percent = least_huge_percent(readers)?;
        if percent >= NEARLY_ALL_PERCENT {
            nearly_all_s = nearly_all_s.min(begun.elapsed().as_secs_f64());
        }
        Ok((percent >= ALL_PERCENT).then_some(()))
    })?;
    let done = work()?;
    let (cpu, wall) = (manager.cpu_time(), begun.elapsed());
    let outcome = PromotionOutcome {
        nearly_all_s,
        promoted: manager.end()?.promoted,
        cpu_percent_of_core: cpu.as_secs_f64() * 100.0 / wall.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
    };
    Ok((done, outcome))
}

/// A file in memory for several programs to map.
pub(super) fn create_shared_file(bytes: u64) -> BenchResult<File> {
    let failed = LinuxError::wrap_io_error("creating", "a file in memory");
    Ok(create_memory_file(bytes).map_err(failed)?)
}

/// Measures rounds one after the other. Prints when each is done, because it takes minutes.
pub(super) fn measure_each_round<T>(
    report: &LiveReport,
    rounds: usize,
    mut measure: impl FnMut() -> BenchResult<T>,
) -> BenchResult<Vec<T>> {
    let measure_round = |round| {
        let figures = measure()?;
        eprintln!("hawkeye-lab: {}: round {round} of {rounds} is done", report.name);
        Ok(figures)
    };
    (1..=rounds).map(measure_round).collect()
}

/// The share of mapped shared memory that is huge, in the process that has least of it.
pub(super) fn least_huge_percent(pids: &[u32]) -> BenchResult<f64> {
    let shares = pids.iter().map(|pid| Ok(SharedMemoryUse::of_process(*pid)?.huge_percent()));
    shares.reduce(|one, other| Ok(f64::min(one?, other?))).unwrap_or(Ok(0.0))
}

/// A row of the median of some figures, with their range; no row without figures.
pub(super) fn add_row_with_range(
    report: &mut LiveReport,
    what: String,
    figures: Vec<f64>,
    unit: &'static str,
    beside: &str,
) {
    if figures.is_empty() {
        return;
    }
    let MedianAndRange { median, low, high, turns } = MedianAndRange::from_figures(figures);
    let rounds = if turns == 1 { "round" } else { "rounds" };
    let range = format!("{low:.2}-{high:.2} in {turns} {rounds}; {beside}");
    report.add_row(what, median, unit, range);
}

/// What HawkEye did in each round. `promoted_of` says what there was to promote.
pub(super) fn add_promotion_rows(
    report: &mut LiveReport,
    outcomes: &[PromotionOutcome],
    promoted_of: &str,
) {
    let mut add = |what: &str, part: fn(&PromotionOutcome) -> f64, unit, beside: &str| {
        let figures = outcomes.iter().map(part).collect();
        add_row_with_range(report, format!("HawkEye: {what}"), figures, unit, beside);
    };
    let nearly_all = format!("time until {NEARLY_ALL_PERCENT:.0} % was huge in each process");
    add(&nearly_all, |it| it.nearly_all_s, "s", "from the start of hawkeye attach");
    add("promotions", |it| it.promoted as f64, "", promoted_of);
    add("CPU time", |it| it.cpu_percent_of_core, "% of a core", "while attached");
    add("CPU time in all", |it| it.cpu_s, "s", "of the manager and its helpers");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_pool_is_resized() {
        let size = |size: &str| format!("HugePages_Total:       0\nHugepagesize:    {size}\n");
        let (small, large) = (size("   2048 kB"), size("1048576 kB"));
        assert_eq!(reason_against_pool(Some("0\n"), &small), None);
        for (pool, meminfo, said) in [
            (Some("8\n"), &small, "in use, with 8 pages"),
            (Some("0\n"), &large, "is 1048576 kB"),
            (None, &small, "no hugetlb pages"),
            (Some("0\n"), &String::new(), "no hugetlb pages"),
        ] {
            let reason = reason_against_pool(pool, meminfo).expect(said);
            assert!(reason.contains(said), "{reason}");
        }
    }

    #[test]
    fn a_row_has_the_median_and_the_range() {
        let mut report = LiveReport::new("shared");
        add_row_with_range(&mut report, "x".into(), vec![3.0, 1.0, 2.0], "times", "of y");
        add_row_with_range(&mut report, "none".into(), Vec::new(), "times", "of y");
        let late = PromotionOutcome { nearly_all_s: f64::INFINITY, ..PromotionOutcome::default() };
        add_promotion_rows(&mut report, &[late], "of 8");
        assert_eq!((report.rows[0].value, report.rows.len()), (2.0, 5));
        assert_eq!(report.rows[0].beside, "1.00-3.00 in 3 rounds; of y");
        assert!(report.to_string().contains("never"), "{report}");
    }
}
