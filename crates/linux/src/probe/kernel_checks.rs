//! Tries primitives on a throw-away child. Other tries are beside what they try.

use super::KernelCheckResult;
use super::probe_child::{ChildCommand, ProbeChild, REGIONS, TOUCHED_PAGES};
use crate::error::{LinuxError, Result};
use crate::machine_lease::thp_settings::{KernelSettingsGuard, THP_DIR};
use crate::prefault::FaultTrace;
use crate::processes::process::{ProcessHandle, cpu_time_and_faults};
use crate::promote::target_call::CallHelperPool;
use crate::sample::page_table_reader::PageTableReader;
use crate::sample::pagemap::{self, PagemapEntry};
use crate::sample::sampler::damon::{Damon, DamonError};
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr, RegionSample};
use nix::errno::Errno;
use std::path::Path;
use std::time::Duration;

/// How a try ended that did not show a primitive to work.
pub(crate) enum TryFailure {
    /// The try had this result.
    Checked(KernelCheckResult),
    /// No child could be started, or it did not answer.
    ChildFailed(LinuxError),
}

pub(crate) type TryResult<T = ()> = Result<T, TryFailure>;

impl From<LinuxError> for TryFailure {
    fn from(error: LinuxError) -> Self {
        Self::ChildFailed(error)
    }
}

pub(super) fn into_check_result(tried: TryResult) -> Result<KernelCheckResult> {
    match tried {
        Ok(()) => Ok(KernelCheckResult::Works),
        Err(TryFailure::Checked(checked)) => Ok(checked),
        Err(TryFailure::ChildFailed(error)) => Err(error),
    }
}

pub(crate) fn failed_try<T>(why: impl ToString) -> TryResult<T> {
    Err(TryFailure::Checked(KernelCheckResult::Fails(why.to_string())))
}

pub(super) fn skipped_try<T>(why: impl ToString) -> TryResult<T> {
    Err(TryFailure::Checked(KernelCheckResult::NotTried(why.to_string())))
}

fn needless_try(why: &str) -> TryResult {
    Err(TryFailure::Checked(KernelCheckResult::NotNeeded(why.into())))
}

fn fail_unless_holds(holds: bool, why: &str) -> TryResult {
    if holds { Ok(()) } else { failed_try(why) }
}

/// RSS is counted in batches per CPU: half of a huge page is proof enough of a change.
const LEAST_CHANGE_BYTES: u64 = 1 << 20;

/// Resident bytes of a process; they show what a primitive changed without BPF.
fn child_rss_bytes(child: &ProbeChild) -> Result<u64> {
    crate::processes::process::rss_bytes(child.handle.id.pid)
}

fn read_region_by_bpf(
    tables: &mut PageTableReader,
    handle: &ProcessHandle,
    region: RegionAddr,
) -> Result<Option<RegionSample>> {
    let target = tables.bind_to_process(handle.id.pid)?;
    tables.read_region(&target, region)
}

fn collapse(calls: &mut CallHelperPool, child: &ProbeChild, region: RegionAddr) -> Result<()> {
    calls.collapse(&child.handle, region, || None).map(drop)
}

fn split_first_region(calls: &mut CallHelperPool, child: &ProbeChild) -> Result<()> {
    calls.split_huge_page(&child.handle, child.region(0), None).map(drop)
}

/// A child with a huge page in which ten base pages are in use.
fn spawn_child_with_huge_page(calls: &mut CallHelperPool) -> Result<ProbeChild> {
    let child = ProbeChild::spawn()?;
    child.send_command_and_wait(ChildCommand::TouchTen)?;
    collapse(calls, &child, child.region(0))?;
    Ok(child)
}

/// Whether a child's memory holds what the child wrote.
fn verify_child_memory(child: &ProbeChild) -> TryResult {
    match child.send_command_and_wait(ChildCommand::Verify)? {
        0 => Ok(()),
        wrong => failed_try(format!("{wrong} bytes of the child's memory had changed afterwards")),
    }
}

/// A base page's first access after a clear.
#[derive(Default)]
pub(super) struct FirstTouchAfterClear {
    pub(super) cost: Duration,
    pub(super) is_fault: bool,
}

pub(super) fn try_access_bits(
    calls: &mut CallHelperPool,
    tables: Option<&mut PageTableReader>,
    first_touch: &mut FirstTouchAfterClear,
) -> TryResult {
    let Some(tables) = tables else {
        return skipped_try("access bits are read by BPF, which does not work here");
    };
    let child = ProbeChild::spawn()?;
    let region = child.region(0);
    // A few huge pages would stay in the TLB.
    child.send_command_and_wait(ChildCommand::WantBase)?;
    child.send_command_and_wait(ChildCommand::Touch)?;
    let touched = child.touched_regions();
    let cleared = calls.clear_access_bits(&child.handle, &touched).or_else(failed_try)?;
    cleared.answer.or_else(failed_try)?;
    let (done, all) = (cleared.done, touched.len());
    if done != all {
        return failed_try(format!("only {done} of {all} regions had their access bits cleared"));
    }
    let mut accessed = || -> Result<u16> {
        Ok(read_region_by_bpf(tables, &child.handle, region)?.map_or(0, |r| r.accessed))
    };
    let cleared = accessed()?;
    let minor_faults = || cpu_time_and_faults(child.handle.id.pid).map(|used| used.minor_faults);
    let faults_before = minor_faults()?;
    let after_clear = child.time_reading_touched_pages()?;
    let faults = minor_faults()?.saturating_sub(faults_before);
    let mut set = accessed()?;
    let again = child.time_reading_touched_pages()?;
    if set < PAGES_PER_REGION / 2 {
        // Some processors (and QEMU) keep that many base pages in the TLB too.
        child.send_command_and_wait(ChildCommand::LeaveTlb)?;
        child.time_reading_touched_pages()?;
        set = accessed()?;
    }
    *first_touch = FirstTouchAfterClear {
        cost: after_clear.saturating_sub(again) / u32::try_from(TOUCHED_PAGES).unwrap_or(u32::MAX),
        // A few faults have other causes, such as pages that the kernel moves.
        is_fault: faults >= TOUCHED_PAGES / 2,
    };
    // A page with a translation that stayed in the TLB is not marked again.
    if cleared == 0 && set >= PAGES_PER_REGION / 2 {
        return Ok(());
    }
    failed_try(format!(
        "of {PAGES_PER_REGION} pages, {cleared} read as accessed after a clear and {set} after use"
    ))
}

pub(super) fn try_collapse(
    calls: &mut CallHelperPool,
    tables: Option<&mut PageTableReader>,
) -> TryResult {
    let child = ProbeChild::spawn()?;
    // Where THP is `always` there would be nothing to collapse, and regions advised against huge
    // pages are not collapsed.
    child.send_command_and_wait(ChildCommand::WantBase)?;
    child.send_command_and_wait(ChildCommand::Touch)?;
    child.send_command_and_wait(ChildCommand::WantHuge)?;
    collapse(calls, &child, child.region(0)).or_else(failed_try)?;
    let huge = match tables {
        Some(tables) => {
            read_region_by_bpf(tables, &child.handle, child.region(0))?.is_some_and(|r| r.is_huge())
        }
        // Without page tables the call's own result counts.
        None => true,
    };
    fail_unless_holds(huge, "the call succeeded, but the region is not a huge page")?;
    verify_child_memory(&child)
}

/// Shared memory with one mapper. Its regions are read as before each promotion.
pub(super) fn try_shared_memory(
    calls: &mut CallHelperPool,
    tables: Option<&mut PageTableReader>,
) -> TryResult {
    let Some(tables) = tables else {
        return skipped_try("its regions are read by BPF, which does not work here");
    };
    let child = ProbeChild::spawn()?;
    let errno = child.send_command_and_wait(ChildCommand::MapShared)?;
    if errno != 0 {
        let errno = Errno::from_raw(i32::try_from(errno).unwrap_or(0));
        return failed_try(format!("a child could not map shared memory: {errno}"));
    }
    child.send_command_and_wait(ChildCommand::Touch)?;
    let region = child.region(0);
    collapse(calls, &child, region).or_else(failed_try)?;
    let huge = read_region_by_bpf(tables, &child.handle, region)?.is_some_and(|r| r.is_huge());
    fail_unless_holds(huge, "the call succeeded, but the region is not a huge page")?;
    verify_child_memory(&child)
}

/// Ten pages are in use, the rest of the huge page is zero. If the split gives zero pages back, the
/// process is smaller by the rest. That is required if `gives_back` is set.
pub(super) fn try_split(calls: &mut CallHelperPool, gives_back: bool) -> TryResult {
    let child = spawn_child_with_huge_page(calls)?;
    let before = child_rss_bytes(&child)?;
    split_first_region(calls, &child).or_else(failed_try)?;
    // Measured before the contents are read, which would map zero pages anew.
    let freed = before.saturating_sub(child_rss_bytes(&child)?);
    verify_child_memory(&child)?;
    fail_unless_holds(
        !gives_back || freed >= LEAST_CHANGE_BYTES,
        "the huge page splits, but its zero pages keep their memory (Linux 6.12 gives it back)",
    )
}

/// A page in use and a zero-filled one, in a huge page in which ten base pages are in use.
fn used_and_zero_page_addresses(region: RegionAddr) -> [u64; 2] {
    [region.start(), region.end() - BASE_PAGE_BYTES]
}

/// Splits the huge page of the child's first region. Both marks must be there before and after.
fn try_split_of_marked_pages(
    calls: &mut CallHelperPool,
    child: &ProbeChild,
    is_marked: impl Fn(PagemapEntry) -> bool,
) -> TryResult {
    let region = child.region(0);
    let marked = || -> Result<[bool; 2]> {
        let [used, zero] = used_and_zero_page_addresses(region);
        let look = |address| pagemap::read_entry(child.handle.id.pid, address).map(&is_marked);
        Ok([look(used)?, look(zero)?])
    };
    let [used, zero] = marked()?;
    if !(used && zero) {
        return skipped_try(format!(
            "before the split, the used page was marked: {used}; the zero page was marked: {zero}"
        ));
    }
    split_first_region(calls, child)?;
    fail_unless_holds(marked()? == [true, true], "the split of a huge page drops it")
}

/// Clears the soft-dirty bits of a process (`CLEAR_REFS_SOFT_DIRTY`). Only for a child of the
/// manager's own: other tools rely on the bits of their processes.
fn clear_soft_dirty(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    let failed = LinuxError::wrap_io_error("clearing soft-dirty bits through", &path);
    std::fs::write(&path, "4").map_err(failed)
}

pub(super) fn try_split_with_soft_dirty(calls: &mut CallHelperPool) -> TryResult {
    let child = ProbeChild::spawn()?;
    let region = child.region(0);
    child.send_command_and_wait(ChildCommand::TouchTen)?;
    let [used, _] = used_and_zero_page_addresses(region);
    // All of a new mapping counts as written.
    if !pagemap::read_entry(child.handle.id.pid, used)?.is_soft_dirty() {
        return needless_try("this kernel has no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)");
    }
    clear_soft_dirty(child.handle.id.pid).or_else(skipped_try)?;
    child.send_command_and_wait(ChildCommand::TouchTen)?;
    collapse(calls, &child, region)?;
    try_split_of_marked_pages(calls, &child, PagemapEntry::is_soft_dirty)
}

pub(super) fn try_split_with_write_protection(calls: &mut CallHelperPool) -> TryResult {
    let child = spawn_child_with_huge_page(calls)?;
    let errno = i32::try_from(child.send_command_and_wait(ChildCommand::Protect)?).unwrap_or(0);
    match Errno::from_raw(errno) {
        Errno::UnknownErrno => {
            try_split_of_marked_pages(calls, &child, PagemapEntry::is_write_protected)
        }
        Errno::ENOSYS => needless_try("this kernel has no userfaultfd (CONFIG_USERFAULTFD)"),
        Errno::EOPNOTSUPP => needless_try("this kernel's userfaultfd cannot protect pages"),
        errno => {
            skipped_try(format!("a child could not protect its pages by userfaultfd: {errno}"))
        }
    }
}

pub(super) fn try_page_out(calls: &mut CallHelperPool) -> TryResult {
    let child = spawn_child_with_huge_page(calls)?;
    let region = child.region(0);
    split_first_region(calls, &child)?;
    let before = child_rss_bytes(&child)?;
    let zero_from = region.start() + 10 * BASE_PAGE_BYTES;
    calls.page_out(&child.handle, zero_from..region.end()).or_else(failed_try)?;
    let freed = before.saturating_sub(child_rss_bytes(&child)?);
    verify_child_memory(&child)?;
    fail_unless_holds(
        freed >= LEAST_CHANGE_BYTES,
        "the call succeeded, but no page was swapped out",
    )
}

fn read_page_remotely(
    calls: &mut CallHelperPool,
    child: &ProbeChild,
    region: RegionAddr,
) -> TryResult {
    calls
        .map_page_by_reading(&child.handle, region.start(), false)
        .or_else(|error| failed_try(format!("remote read of untouched memory failed: {error}")))
}

pub(super) fn try_prefault_collapse(calls: &mut CallHelperPool) -> TryResult {
    let child = ProbeChild::spawn()?;
    // Any kernel refuses a mapping that was never written to.
    child.send_command_and_wait(ChildCommand::TouchTen)?;
    let region = child.first_untouched_region();
    let before = child_rss_bytes(&child)?;
    read_page_remotely(calls, &child, region)?;
    collapse(calls, &child, region).or_else(|error| {
        failed_try(format!("{error} (Linux 6.18 collapses a region that only has its zero page)"))
    })?;
    // Where THP is `always` the read has mapped the region, and it counts as collapsed.
    fail_unless_holds(
        child_rss_bytes(&child)?.saturating_sub(before) >= LEAST_CHANGE_BYTES,
        "the call succeeded, but the region is the huge zero page",
    )
}

pub(super) fn try_first_touch_reports() -> TryResult {
    let (fault_trace, watchlist) = FaultTrace::attach().or_else(failed_try)?;
    let child = ProbeChild::spawn()?;
    let pid = child.handle.id.pid;
    watchlist.add_process(pid)?;
    child.send_command_and_wait(ChildCommand::Touch)?;
    let heard = fault_trace.reports.wait_for_reports(Duration::from_millis(100));
    fail_unless_holds(
        heard.iter().any(|one| one.pid == pid),
        "a child touched memory, but no page fault was reported",
    )
}

pub(super) fn try_prefault_read(
    calls: &mut CallHelperPool,
    settings: Option<&mut KernelSettingsGuard>,
) -> TryResult {
    let Some(settings) = settings else {
        return skipped_try(
            "the check changes a system-wide setting, and another manager is running",
        );
    };
    let knob = Path::new(THP_DIR).join("use_zero_page");
    settings.set(&knob, "0").or_else(skipped_try)?;
    let child = ProbeChild::spawn()?;
    child.send_command_and_wait(ChildCommand::WantHuge)?;
    let before = child_rss_bytes(&child)?;
    let touched = read_page_remotely(calls, &child, child.first_untouched_region());
    let grown = child_rss_bytes(&child)?.saturating_sub(before);
    settings.put_back(&knob)?;
    touched?;
    fail_unless_holds(grown >= LEAST_CHANGE_BYTES, "a read of untouched memory mapped no huge page")
}

/// Touches half of the child's regions in a session on all of them.
pub(super) fn try_damon() -> TryResult {
    const SESSION: Duration = Duration::from_millis(100);
    let child = ProbeChild::spawn()?;
    let regions: Vec<_> = (0..REGIONS).map(|index| child.region(index)).collect();
    let pid = child.handle.id.pid;
    let started = Damon::default().start_session(pid, &regions, SESSION);
    let session = started.or_else(|error| match error {
        DamonError::InUse { .. } | DamonError::Exclusive(_) => skipped_try(error),
        error => failed_try(error),
    })?;
    child.send_command_and_wait(ChildCommand::Touch)?;
    // Pages that stay in the TLB are not marked again; fresh translations are seen in any case.
    while session.started.elapsed() < SESSION / 2 {
        child.time_reading_touched_pages()?;
    }
    let found = session.finish().or_else(failed_try)?;
    let untouched = child.first_untouched_region();
    let seen = |touched: bool| {
        let half = found.iter().filter(|(r, _)| (*r < untouched) == touched);
        half.map(|(_, pages)| u32::from(*pages)).sum::<u32>()
    };
    match (seen(true), seen(false)) {
        (1.., 0) => Ok(()),
        (hits, wrong) => failed_try(format!(
            "it reported {hits} accessed pages in touched memory and {wrong} in untouched memory"
        )),
    }
}
