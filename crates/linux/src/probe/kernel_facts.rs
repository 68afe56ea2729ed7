//! Facts about the primitives, each tried on a throw-away child.

use super::KernelCheckResult;
use super::host_facts::{self, HostFacts};
use super::mthp_sizes::{PageSizeFacts, try_mthp_sizes};
use super::prezeroing::PrezeroingFacts;
use super::probe_child::{ChildCommand, ProbeChild, REGIONS, TOUCHED_PAGES};
use crate::error::{LinuxError, Result};
use crate::machine_lease::thp_settings::{KernelSettingsGuard, THP_DIR};
use crate::memory::prezeroing::PrezeroingFiles;
use crate::prefault::FaultTrace;
use crate::processes::process::{ProcessHandle, cpu_time_and_faults};
use crate::promote::process_madvise;
use crate::promote::target_call::CallHelperPool;
use crate::sample::counters::{CountableWalkEvents, EventCodeOverrides};
use crate::sample::page_table_reader::PageTableReader;
use crate::sample::pagemap;
use crate::sample::sampler::damon::{Damon, DamonError};
use hawkeye_policy::saturating_cast::nanos_of_duration;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr, RegionSample};
use nix::errno::Errno;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Effect of a split that remaps zero pages on a mark that another program set on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum PageMarkAfterSplit {
    /// The mark was seen to stay.
    Kept,
    /// The mark was seen to get lost; how, as a clause.
    Lost(String),
    /// This kernel has no such mark, for this reason, so none can get lost.
    Absent(String),
    /// Not tried, for this reason.
    NotTried(String),
}

impl PageMarkAfterSplit {
    /// Whether it is known that no mark gets lost.
    pub fn is_known_safe(&self) -> bool {
        matches!(self, Self::Kept | Self::Absent(_))
    }
}

/// All facts that the probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelFacts {
    /// Facts that are read, not tried.
    pub host: HostFacts,
    /// BPF programs load and find the direct map.
    pub page_table_walk: KernelCheckResult,
    /// Levels of the page table, where the walk works.
    pub page_table_levels: Option<u32>,
    /// A cleared access bit reads as cleared, and as set after an access.
    pub access_bits: KernelCheckResult,
    /// Cost to its owner of one base page's first access after a clear, in nanoseconds.
    pub first_touch_ns: u64,
    /// That access is a page fault, in which the kernel sets the bit: the processor does not.
    pub first_touch_faults: bool,
    /// A region of another process becomes huge on request.
    pub collapse: KernelCheckResult,
    /// Shared memory of another process becomes huge on request, and its page table shows it.
    pub shared_memory: KernelCheckResult,
    /// A huge page of another process splits on request.
    pub split: KernelCheckResult,
    /// The split maps zero-filled base pages to the shared zero page.
    pub zero_page_remap: KernelCheckResult,
    /// Effect of that split on soft-dirty bits, by which CRIU finds changed pages.
    pub soft_dirty: PageMarkAfterSplit,
    /// Effect of that split on the write protection of userfaultfd, by which a monitor sees each
    /// write.
    pub write_protection: PageMarkAfterSplit,
    /// Zero pages of a split huge page go to swap.
    pub page_out: KernelCheckResult,
    /// An untouched region is populated by a remote read and collapse.
    #[serde(rename = "fault_ahead_collapse")]
    pub prefault_by_collapse: KernelCheckResult,
    /// An untouched region is populated by a remote read while `use_zero_page` is off.
    #[serde(rename = "fault_ahead_read")]
    pub prefault_by_read: KernelCheckResult,
    /// The first touches of another process's memory are reported.
    pub first_touches: KernelCheckResult,
    /// Hardware counters count in another process.
    pub counters: KernelCheckResult,
    /// DAMON sees what another process touches.
    pub damon: KernelCheckResult,
    /// `/sys/kernel/mm/page_idle` exists.
    pub page_idle: KernelCheckResult,
    /// The kernel zeroes free memory in advance.
    pub prezeroing: PrezeroingFacts,
    /// Page sizes below that of a huge page, at first touches.
    pub small_pages: Vec<PageSizeFacts>,
}

impl KernelFacts {
    /// Facts of a host on which nothing is tried, for this reason.
    fn all_untried(host: HostFacts, why: &str) -> Self {
        let (untried, mark) = (KernelCheckResult::NotTried, PageMarkAfterSplit::NotTried);
        let prezeroing = PrezeroingFacts::read(&PrezeroingFiles::default());
        Self::all_alike(host, || untried(why.into()), || mark(why.into()), prezeroing)
    }

    /// Facts of a host on which all checks have the same result.
    fn all_alike(
        host: HostFacts,
        checked: impl Fn() -> KernelCheckResult,
        mark: impl Fn() -> PageMarkAfterSplit,
        prezeroing: PrezeroingFacts,
    ) -> Self {
        Self {
            host,
            page_table_walk: checked(),
            page_table_levels: None,
            access_bits: checked(),
            first_touch_ns: 0,
            first_touch_faults: false,
            collapse: checked(),
            shared_memory: checked(),
            split: checked(),
            zero_page_remap: checked(),
            soft_dirty: mark(),
            write_protection: mark(),
            page_out: checked(),
            prefault_by_collapse: checked(),
            prefault_by_read: checked(),
            first_touches: checked(),
            counters: checked(),
            damon: checked(),
            page_idle: checked(),
            prezeroing,
            small_pages: Vec::new(),
        }
    }
}

/// The facts, and the programs with which they were found.
pub struct ProbedKernel {
    /// All facts that the probe found.
    pub facts: KernelFacts,
    /// The loaded BPF programs, where they load. A manager goes on with them, because loading takes
    /// a large part of its start, and what is loaded is never freed.
    pub page_tables: Option<PageTableReader>,
}

/// How much to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeExtent {
    /// Everything, for a person to read.
    Everything,
    /// What managing a process needs.
    ForManaging,
}

/// Tries the primitives. One of them changes a system-wide setting, through `settings`. Without it,
/// because another program manages the machine, that primitive is not tried.
pub fn gather_kernel_facts(
    extent: ProbeExtent,
    mut settings: Option<&mut KernelSettingsGuard>,
) -> Result<ProbedKernel> {
    let host = host_facts::read_host_facts();
    if let Some(why) = host.unsupported_page_sizes() {
        return Ok(ProbedKernel { facts: KernelFacts::all_untried(host, &why), page_tables: None });
    }
    let (page_table_walk, mut tables) = match PageTableReader::load_bpf_programs() {
        Ok(tables) => (KernelCheckResult::Works, Some(tables)),
        Err(error) => (KernelCheckResult::Fails(error.to_string()), None),
    };
    let page_table_levels = tables.as_ref().map(PageTableReader::page_table_levels);
    let collapse = into_check_result(try_collapse(tables.as_mut()))?;
    let split = check_if_prerequisite_works(&collapse, "promotion", || try_split(false))?;
    let zero_page_remap = check_if_prerequisite_works(&split, "the split", || try_split(true))?;
    let (soft_dirty, write_protection) = if zero_page_remap.works() {
        (try_split_with_soft_dirty()?, try_split_with_write_protection()?)
    } else {
        let unused = || PageMarkAfterSplit::NotTried("the split remaps no zero pages".into());
        (unused(), unused())
    };
    let page_out = if zero_page_remap.works() {
        KernelCheckResult::NotTried("the split has given them back already".into())
    } else if host.swap_bytes == 0 {
        KernelCheckResult::NotTried("there is no swap and no zram".into())
    } else {
        check_if_prerequisite_works(&split, "the split", try_page_out)?
    };
    let mut first_touch = FirstTouchAfterClear::default();
    let access_bits = into_check_result(try_access_bits(tables.as_mut(), &mut first_touch))?;
    let everything = extent == ProbeExtent::Everything;
    let needs_damon = !access_bits.works() || super::requested_sampler_name().is_some();
    // Fields are checked in the order in which they are given here.
    let facts = KernelFacts {
        damon: check_if_wanted(everything || needs_damon, try_damon)?,
        host,
        page_table_walk,
        page_table_levels,
        access_bits,
        first_touch_ns: nanos_of_duration(first_touch.cost),
        first_touch_faults: first_touch.is_fault,
        shared_memory: check_optional(|| try_shared_memory(tables.as_mut())),
        collapse,
        split,
        zero_page_remap,
        soft_dirty,
        write_protection,
        page_out,
        prezeroing: PrezeroingFacts::read(&PrezeroingFiles::default()),
        prefault_by_collapse: check_if_wanted(everything, try_prefault_collapse)?,
        small_pages: if everything { try_mthp_sizes(settings.as_deref_mut())? } else { Vec::new() },
        prefault_by_read: check_if_wanted(everything, || try_prefault_read(settings))?,
        first_touches: check_if_wanted(everything, try_first_touch_reports)?,
        counters: check_if_wanted(everything, try_hardware_counters)?,
        page_idle: check_if_wanted(everything, || {
            fail_unless_holds(
                Path::new("/sys/kernel/mm/page_idle/bitmap").exists(),
                "this kernel was built without CONFIG_IDLE_PAGE_TRACKING",
            )
        })?,
    };
    Ok(ProbedKernel { facts, page_tables: tables })
}

/// Tries a primitive if that is wanted.
fn check_if_wanted(wanted: bool, check: impl FnOnce() -> TryResult) -> Result<KernelCheckResult> {
    into_check_result(if wanted { check() } else { skipped_try("not needed for managing") })
}

/// Tries a primitive that no start may depend on: any error only means that it is not used.
fn check_optional(check: impl FnOnce() -> TryResult) -> KernelCheckResult {
    into_check_result(check()).unwrap_or_else(|error| KernelCheckResult::Fails(error.to_string()))
}

/// How a try ended that did not show a primitive to work.
enum TryFailure {
    /// The try had this result.
    Checked(KernelCheckResult),
    /// No child could be started, or it did not answer.
    ChildFailed(LinuxError),
}

type TryResult<T = ()> = Result<T, TryFailure>;

impl From<LinuxError> for TryFailure {
    fn from(error: LinuxError) -> Self {
        Self::ChildFailed(error)
    }
}

fn into_check_result(tried: TryResult) -> Result<KernelCheckResult> {
    match tried {
        Ok(()) => Ok(KernelCheckResult::Works),
        Err(TryFailure::Checked(checked)) => Ok(checked),
        Err(TryFailure::ChildFailed(error)) => Err(error),
    }
}

fn failed_try<T>(why: impl ToString) -> TryResult<T> {
    Err(TryFailure::Checked(KernelCheckResult::Fails(why.to_string())))
}

fn skipped_try<T>(why: impl ToString) -> TryResult<T> {
    Err(TryFailure::Checked(KernelCheckResult::NotTried(why.to_string())))
}

fn fail_unless_holds(holds: bool, why: &str) -> TryResult {
    if holds { Ok(()) } else { failed_try(why) }
}

/// Tries a primitive that needs another one to work.
fn check_if_prerequisite_works(
    needed: &KernelCheckResult,
    name: &str,
    check: impl FnOnce() -> TryResult,
) -> Result<KernelCheckResult> {
    into_check_result(if needed.works() { check() } else { skipped_try(format!("needs {name}")) })
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

/// A child with a huge page in which ten base pages are in use.
fn spawn_child_with_huge_page() -> Result<ProbeChild> {
    let child = ProbeChild::spawn()?;
    child.send_command_and_wait(ChildCommand::TouchTen)?;
    process_madvise::collapse(&child.handle, child.region(0))?;
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
struct FirstTouchAfterClear {
    cost: Duration,
    is_fault: bool,
}

fn try_access_bits(
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
    let done = process_madvise::clear_access_bits(&child.handle, &touched).or_else(failed_try)?;
    if done != touched.len() {
        let all = touched.len();
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
        "of 512 pages, {cleared} read as accessed after a clear and {set} after use"
    ))
}

fn try_collapse(tables: Option<&mut PageTableReader>) -> TryResult {
    let child = ProbeChild::spawn()?;
    // Where THP is `always` there would be nothing to collapse, and regions advised against huge
    // pages are not collapsed.
    child.send_command_and_wait(ChildCommand::WantBase)?;
    child.send_command_and_wait(ChildCommand::Touch)?;
    child.send_command_and_wait(ChildCommand::WantHuge)?;
    process_madvise::collapse(&child.handle, child.region(0)).or_else(failed_try)?;
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
fn try_shared_memory(tables: Option<&mut PageTableReader>) -> TryResult {
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
    process_madvise::collapse(&child.handle, region).or_else(failed_try)?;
    let huge = read_region_by_bpf(tables, &child.handle, region)?.is_some_and(|r| r.is_huge());
    fail_unless_holds(huge, "the call succeeded, but the region is not a huge page")?;
    verify_child_memory(&child)
}

/// Ten pages are in use, the rest of the huge page is zero. If the split gives zero pages back, the
/// process is smaller by the rest. That is required if `gives_back` is set.
fn try_split(gives_back: bool) -> TryResult {
    let child = spawn_child_with_huge_page()?;
    let before = child_rss_bytes(&child)?;
    process_madvise::split_huge_page(&child.handle, child.region(0)).or_else(failed_try)?;
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

/// Splits the huge page of the child's first region and reports whether both marks are present
/// before and after.
fn split_and_compare_marks(
    child: &ProbeChild,
    is_marked: impl Fn(pagemap::PagemapEntry) -> bool,
) -> Result<PageMarkAfterSplit> {
    let region = child.region(0);
    let marked = || -> Result<[bool; 2]> {
        let [used, zero] = used_and_zero_page_addresses(region);
        let look = |address| pagemap::read_entry(child.handle.id.pid, address).map(&is_marked);
        Ok([look(used)?, look(zero)?])
    };
    let before = marked()?;
    process_madvise::split_huge_page(&child.handle, region)?;
    let after = marked()?;
    Ok(match (before, after) {
        ([true, true], [true, true]) => PageMarkAfterSplit::Kept,
        ([true, true], _) => PageMarkAfterSplit::Lost("the split of a huge page drops it".into()),
        ([used, zero], _) => PageMarkAfterSplit::NotTried(format!(
            "before the split, the used page was marked: {used}; the zero page was marked: {zero}"
        )),
    })
}

/// Clears the soft-dirty bits of a process (`CLEAR_REFS_SOFT_DIRTY`). Only for a child of the
/// manager's own: other tools rely on the bits of their processes.
fn clear_soft_dirty(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    let failed = LinuxError::wrap_io_error("clearing soft-dirty bits through", &path);
    std::fs::write(&path, "4").map_err(failed)
}

fn try_split_with_soft_dirty() -> Result<PageMarkAfterSplit> {
    let child = ProbeChild::spawn()?;
    let region = child.region(0);
    child.send_command_and_wait(ChildCommand::TouchTen)?;
    let [used, _] = used_and_zero_page_addresses(region);
    // All of a new mapping counts as written.
    if !pagemap::read_entry(child.handle.id.pid, used)?.is_soft_dirty() {
        let why = "this kernel has no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)";
        return Ok(PageMarkAfterSplit::Absent(why.into()));
    }
    if let Err(error) = clear_soft_dirty(child.handle.id.pid) {
        return Ok(PageMarkAfterSplit::NotTried(error.to_string()));
    }
    child.send_command_and_wait(ChildCommand::TouchTen)?;
    process_madvise::collapse(&child.handle, region)?;
    split_and_compare_marks(&child, pagemap::PagemapEntry::is_soft_dirty)
}

fn try_split_with_write_protection() -> Result<PageMarkAfterSplit> {
    let child = spawn_child_with_huge_page()?;
    let errno = i32::try_from(child.send_command_and_wait(ChildCommand::Protect)?).unwrap_or(0);
    Ok(match Errno::from_raw(errno) {
        Errno::UnknownErrno => {
            return split_and_compare_marks(&child, pagemap::PagemapEntry::is_write_protected);
        }
        Errno::ENOSYS => {
            PageMarkAfterSplit::Absent("this kernel has no userfaultfd (CONFIG_USERFAULTFD)".into())
        }
        Errno::EOPNOTSUPP => {
            PageMarkAfterSplit::Absent("this kernel's userfaultfd cannot protect pages".into())
        }
        errno => PageMarkAfterSplit::NotTried(format!(
            "a child could not protect its pages by userfaultfd: {errno}"
        )),
    })
}

fn try_page_out() -> TryResult {
    let child = spawn_child_with_huge_page()?;
    let region = child.region(0);
    process_madvise::split_huge_page(&child.handle, region)?;
    let before = child_rss_bytes(&child)?;
    let zero_from = region.start() + 10 * BASE_PAGE_BYTES;
    process_madvise::page_out(&child.handle, zero_from, region.end() - zero_from)
        .or_else(failed_try)?;
    let freed = before.saturating_sub(child_rss_bytes(&child)?);
    verify_child_memory(&child)?;
    fail_unless_holds(
        freed >= LEAST_CHANGE_BYTES,
        "the call succeeded, but no page was swapped out",
    )
}

fn read_page_remotely(child: &ProbeChild, region: RegionAddr) -> TryResult {
    CallHelperPool::with_time_limit(Duration::from_secs(10))
        .map_page_by_reading(&child.handle, region.start(), false)
        .or_else(|error| failed_try(format!("remote read of untouched memory failed: {error}")))
}

fn try_prefault_collapse() -> TryResult {
    let child = ProbeChild::spawn()?;
    // Any kernel refuses a mapping that was never written to.
    child.send_command_and_wait(ChildCommand::TouchTen)?;
    let region = child.first_untouched_region();
    let before = child_rss_bytes(&child)?;
    read_page_remotely(&child, region)?;
    process_madvise::collapse(&child.handle, region).or_else(|error| {
        failed_try(format!("{error} (Linux 6.18 collapses a region that only has its zero page)"))
    })?;
    // Where THP is `always` the read has mapped the region, and it counts as collapsed.
    fail_unless_holds(
        child_rss_bytes(&child)?.saturating_sub(before) >= LEAST_CHANGE_BYTES,
        "the call succeeded, but the region is the huge zero page",
    )
}

fn try_first_touch_reports() -> TryResult {
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

fn try_prefault_read(settings: Option<&mut KernelSettingsGuard>) -> TryResult {
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
    let touched = read_page_remotely(&child, child.first_untouched_region());
    let grown = child_rss_bytes(&child)?.saturating_sub(before);
    settings.put_back(&knob)?;
    touched?;
    fail_unless_holds(grown >= LEAST_CHANGE_BYTES, "a read of untouched memory mapped no huge page")
}

fn try_hardware_counters() -> TryResult {
    let counters = CountableWalkEvents::find(EventCodeOverrides::default()).or_else(failed_try)?;
    let child = ProbeChild::spawn()?;
    counters.bind(child.handle.id.pid).map(drop).or_else(failed_try)
}

/// Touches half of the child's regions in a session on all of them.
fn try_damon() -> TryResult {
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

#[cfg(test)]
impl KernelFacts {
    /// A host on which everything works.
    pub(crate) fn all_work() -> Self {
        let works = || KernelCheckResult::Works;
        let host = HostFacts {
            kernel: "6.18.0".into(),
            missing_capabilities: vec![],
            container: None,
            lockdown: super::host_facts::KernelLockdown::None,
            base_page_bytes: BASE_PAGE_BYTES,
            huge_page_bytes: Some(hawkeye_policy::HUGE_PAGE_BYTES),
            thp_enabled: Some("madvise".into()),
            own_thp_disabled: false,
            cgroup: Some("version 2".into()),
            psi: true,
            swap_bytes: 1 << 30,
        };
        let prezeroing = PrezeroingFacts::There(crate::memory::prezeroing::KernelPrezeroingState {
            active: true,
            module: None,
            zones: Vec::new(),
        });
        Self {
            page_table_levels: Some(4),
            first_touch_ns: 10,
            small_pages: vec![super::mthp_sizes::tests::size(4, works(), [2, 3, 9])],
            ..Self::all_alike(host, works, || PageMarkAfterSplit::Kept, prezeroing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_a_primitive_that_is_optional_ends_no_start() {
        let failed = check_optional(|| Err(TryFailure::ChildFailed(LinuxError::NoSuchProcess(7))));
        assert!(matches!(failed, KernelCheckResult::Fails(_)), "{failed:?}");
        assert_eq!(check_optional(|| skipped_try("no")), KernelCheckResult::NotTried("no".into()));
        assert!(check_optional(|| Ok(())).works());
    }
}
