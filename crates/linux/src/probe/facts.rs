//! Facts about the primitives, each tried on a throw-away child.

use super::checked::Checked;
use super::host::{self, Host};
use super::prezeroing::PrezeroingFacts;
use super::small_pages::{SizeFacts, try_sizes};
use super::throw_away::{Order, REGIONS, ThrowAway};
use crate::error::{LinuxError, Result};
use crate::memory::prezeroing::Prezeroing;
use crate::prefault::Frontier;
use crate::processes::process::ProcessHandle;
use crate::promote::remote_advice;
use crate::promote::target_call::TargetCalls;
use crate::sample::access_bits;
use crate::sample::counters::{CounterEvents, Counters};
use crate::sample::page_tables::PageTables;
use crate::sample::pagemap;
use crate::sample::sampler::damon::{Damon, DamonError, Window};
use crate::takeover::thp_settings::{SettingsGuard, THP_DIR};
use hawkeye_policy::whole::nanos_of;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr, RegionSample};
use nix::errno::Errno;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Effect of a split that remaps zero pages on a mark that another program set on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum PageMark {
    /// The mark was seen to stay.
    Kept,
    /// The mark was seen to get lost; how, as a clause.
    Lost(String),
    /// This kernel has no such mark, for this reason, so none can get lost.
    Absent(String),
    /// Not tried, for this reason.
    NotTried(String),
}

impl PageMark {
    /// Whether it is known that no mark gets lost.
    pub fn is_safe(&self) -> bool {
        matches!(self, Self::Kept | Self::Absent(_))
    }
}

/// All facts that the probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Facts that are read, not tried.
    pub host: Host,
    /// BPF programs load and find the direct map.
    pub page_table_walk: Checked,
    /// Levels of the page table, where the walk works.
    pub page_table_levels: Option<u32>,
    /// A cleared access bit reads as cleared, and as set after an access.
    pub access_bits: Checked,
    /// Cost to its owner of one base page's first access after a clear, in nanoseconds.
    pub first_touch_ns: u64,
    /// A region of another process becomes huge on request.
    pub collapse: Checked,
    /// A huge page of another process splits on request.
    pub split: Checked,
    /// The split maps zero-filled base pages to the shared zero page.
    pub zero_page_remap: Checked,
    /// Effect of that split on soft-dirty bits, by which CRIU finds changed pages.
    pub soft_dirty: PageMark,
    /// Effect of that split on the write protection of userfaultfd, by which a monitor sees each
    /// write.
    pub write_protection: PageMark,
    /// Zero pages of a split huge page go to swap.
    pub page_out: Checked,
    /// An untouched region is populated by a remote read and collapse.
    pub fault_ahead_collapse: Checked,
    /// An untouched region is populated by a remote read while `use_zero_page` is off.
    pub fault_ahead_read: Checked,
    /// The first touches of another process's memory are reported.
    pub first_touches: Checked,
    /// Hardware counters count in another process.
    pub counters: Checked,
    /// DAMON sees what another process touches.
    pub damon: Checked,
    /// `/sys/kernel/mm/page_idle` exists.
    pub page_idle: Checked,
    /// The kernel zeroes free memory in advance.
    pub prezeroing: PrezeroingFacts,
    /// Page sizes below that of a huge page, at first touches.
    pub small_pages: Vec<SizeFacts>,
}

/// How much to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything, for a person to read.
    Everything,
    /// What managing a process needs.
    ForManaging,
}

/// Tries the primitives. One of them changes a system-wide setting, through `settings`. Without it,
/// because another program manages the machine, that primitive is not tried.
///
/// # Errors
/// No child process could be started at all.
pub fn gather(extent: Extent, mut settings: Option<&mut SettingsGuard>) -> Result<Facts> {
    let host = host::read();
    let (page_table_walk, mut tables) = match PageTables::load() {
        Ok(tables) => (Checked::Works, Some(tables)),
        Err(error) => (Checked::Fails(error.to_string()), None),
    };
    let page_table_levels = tables.as_ref().map(PageTables::levels);
    let collapse = checked(try_collapse(tables.as_mut()))?;
    let split = after(&collapse, "promotion", || try_split(false))?;
    let zero_page_remap = after(&split, "the split", || try_split(true))?;
    let (soft_dirty, write_protection) = if zero_page_remap.works() {
        (try_soft_dirty()?, try_write_protection()?)
    } else {
        let unused = || PageMark::NotTried("the split remaps no zero pages".into());
        (unused(), unused())
    };
    let page_out = if zero_page_remap.works() {
        Checked::NotTried("the split has given them back already".into())
    } else if host.swap_bytes == 0 {
        Checked::NotTried("there is no swap and no zram".into())
    } else {
        after(&split, "the split", try_page_out)?
    };
    let mut first_touch = Duration::ZERO;
    let access_bits = checked(try_access_bits(tables.as_mut(), &mut first_touch))?;
    let damon =
        if extent == Extent::Everything || !access_bits.works() || super::asked_sampler().is_some()
        {
            checked(try_damon())?
        } else {
            unasked()
        };
    let mut facts = Facts {
        host,
        page_table_walk,
        page_table_levels,
        access_bits,
        first_touch_ns: nanos_of(first_touch),
        collapse,
        split,
        zero_page_remap,
        soft_dirty,
        write_protection,
        page_out,
        fault_ahead_collapse: unasked(),
        fault_ahead_read: unasked(),
        first_touches: unasked(),
        counters: unasked(),
        damon,
        page_idle: unasked(),
        prezeroing: PrezeroingFacts::read(&Prezeroing::default()),
        small_pages: Vec::new(),
    };
    if extent == Extent::Everything {
        facts.fault_ahead_collapse = checked(try_fault_ahead_collapse())?;
        facts.small_pages = try_sizes(settings.as_deref_mut())?;
        facts.fault_ahead_read = checked(try_fault_ahead_read(settings))?;
        facts.first_touches = checked(try_first_touches())?;
        facts.counters = checked(try_counters())?;
        facts.page_idle = checked(require(
            Path::new("/sys/kernel/mm/page_idle/bitmap").exists(),
            "this kernel was built without CONFIG_IDLE_PAGE_TRACKING",
        ))?;
    }
    Ok(facts)
}

fn unasked() -> Checked {
    Checked::NotTried("not needed for managing".into())
}

/// How a try ended that did not show a primitive to work.
enum Ended {
    /// The try had this result.
    Checked(Checked),
    /// No child could be started, or it did not answer.
    Broken(LinuxError),
}

type Try<T = ()> = Result<T, Ended>;

impl From<LinuxError> for Ended {
    fn from(error: LinuxError) -> Self {
        Self::Broken(error)
    }
}

fn checked(tried: Try) -> Result<Checked> {
    match tried {
        Ok(()) => Ok(Checked::Works),
        Err(Ended::Checked(checked)) => Ok(checked),
        Err(Ended::Broken(error)) => Err(error),
    }
}

fn fails<T>(why: impl ToString) -> Try<T> {
    Err(Ended::Checked(Checked::Fails(why.to_string())))
}

fn not_tried<T>(why: impl ToString) -> Try<T> {
    Err(Ended::Checked(Checked::NotTried(why.to_string())))
}

fn require(holds: bool, why: &str) -> Try {
    if holds { Ok(()) } else { fails(why) }
}

/// Tries a primitive that needs another one to work.
fn after(needed: &Checked, name: &str, check: impl FnOnce() -> Try) -> Result<Checked> {
    match needed {
        Checked::Works => checked(check()),
        _ => Ok(Checked::NotTried(format!("needs {name}"))),
    }
}

/// RSS is counted in batches per CPU: half of a huge page is proof enough of a change.
const SURELY_BYTES: u64 = 1 << 20;

/// Resident bytes of a process; they show what a primitive changed without BPF.
fn rss(child: &ThrowAway) -> Result<u64> {
    crate::processes::process::rss_bytes(child.handle.id.pid)
}

fn look(
    tables: &mut PageTables,
    handle: &ProcessHandle,
    region: RegionAddr,
) -> Result<Option<RegionSample>> {
    let target = tables.bind(handle.id.pid)?;
    tables.region(&target, region)
}

/// A child with a huge page in which ten base pages are in use.
fn with_huge_page() -> Result<ThrowAway> {
    let child = ThrowAway::spawn()?;
    child.ask(Order::TouchTen)?;
    remote_advice::collapse(&child.handle, child.region(0))?;
    Ok(child)
}

/// Whether a child's memory holds what the child wrote.
fn is_unchanged(child: &ThrowAway) -> Try {
    match child.ask(Order::Verify)? {
        0 => Ok(()),
        wrong => fails(format!(
            "{wrong} bytes of the child's memory had changed afterwards"
        )),
    }
}

fn try_access_bits(tables: Option<&mut PageTables>, first_touch: &mut Duration) -> Try {
    let Some(tables) = tables else {
        return not_tried("access bits are read by BPF, which does not work here");
    };
    let child = ThrowAway::spawn()?;
    let region = child.region(0);
    // A few huge pages would stay in the TLB.
    child.ask(Order::WantBase)?;
    child.ask(Order::Touch)?;
    let touched = child.touched();
    let done = remote_advice::clear_accessed(&child.handle, &touched).or_else(fails)?;
    if done != touched.len() {
        let all = touched.len();
        return fails(format!(
            "only {done} of {all} regions had their access bits cleared"
        ));
    }
    let mut accessed =
        || -> Result<u16> { Ok(look(tables, &child.handle, region)?.map_or(0, |r| r.accessed)) };
    let cleared = accessed()?;
    let after_clear = child.read()?;
    let mut set = accessed()?;
    let again = child.read()?;
    if set < PAGES_PER_REGION / 2 {
        // Some processors (and QEMU) keep that many base pages in the TLB too.
        child.ask(Order::LeaveTlb)?;
        child.read()?;
        set = accessed()?;
    }
    *first_touch = after_clear.saturating_sub(again)
        / u32::try_from(ThrowAway::pages_read()).unwrap_or(u32::MAX);
    // A page with a translation that stayed in the TLB is not marked again.
    if cleared == 0 && set >= PAGES_PER_REGION / 2 {
        return Ok(());
    }
    fails(format!(
        "of 512 pages, {cleared} read as accessed after a clear and {set} after use"
    ))
}

fn try_collapse(tables: Option<&mut PageTables>) -> Try {
    let child = ThrowAway::spawn()?;
    // Where THP is `always` there would be nothing to collapse, and regions advised against huge
    // pages are not collapsed.
    child.ask(Order::WantBase)?;
    child.ask(Order::Touch)?;
    child.ask(Order::WantHuge)?;
    remote_advice::collapse(&child.handle, child.region(0)).or_else(fails)?;
    let huge = match tables {
        Some(tables) => look(tables, &child.handle, child.region(0))?.is_some_and(|r| r.is_huge()),
        // Without page tables the call's own result counts.
        None => true,
    };
    require(
        huge,
        "the call succeeded, but the region is not a huge page",
    )?;
    is_unchanged(&child)
}

/// Ten pages are in use, the rest of the huge page is zero. If the split gives zero pages back, the
/// process is smaller by the rest. That is required if `gives_back` is set.
fn try_split(gives_back: bool) -> Try {
    let child = with_huge_page()?;
    let before = rss(&child)?;
    remote_advice::split(&child.handle, child.region(0)).or_else(fails)?;
    // Measured before the contents are read, which would map zero pages anew.
    let freed = before.saturating_sub(rss(&child)?);
    is_unchanged(&child)?;
    require(
        !gives_back || freed >= SURELY_BYTES,
        "the huge page splits, but its zero pages keep their memory (Linux 6.12 gives it back)",
    )
}

/// A page in use and a zero-filled one, in a huge page in which ten base pages are in use.
fn used_and_zero(region: RegionAddr) -> [u64; 2] {
    [region.start(), region.end() - BASE_PAGE_BYTES]
}

/// Splits the huge page of the child's first region and reports whether both marks are present
/// before and after.
fn try_mark(child: &ThrowAway, is_marked: impl Fn(pagemap::Entry) -> bool) -> Result<PageMark> {
    let region = child.region(0);
    let marked = || -> Result<[bool; 2]> {
        let [used, zero] = used_and_zero(region);
        let look = |address| pagemap::entry(child.handle.id.pid, address).map(&is_marked);
        Ok([look(used)?, look(zero)?])
    };
    let before = marked()?;
    remote_advice::split(&child.handle, region)?;
    let after = marked()?;
    Ok(match (before, after) {
        ([true, true], [true, true]) => PageMark::Kept,
        ([true, true], _) => PageMark::Lost("the split of a huge page drops it".into()),
        ([used, zero], _) => PageMark::NotTried(format!(
            "before the split, the used page was marked: {used}; the zero page was marked: {zero}"
        )),
    })
}

fn try_soft_dirty() -> Result<PageMark> {
    let child = ThrowAway::spawn()?;
    let region = child.region(0);
    child.ask(Order::TouchTen)?;
    let [used, _] = used_and_zero(region);
    // All of a new mapping counts as written.
    if !pagemap::entry(child.handle.id.pid, used)?.is_soft_dirty() {
        let why = "this kernel has no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)";
        return Ok(PageMark::Absent(why.into()));
    }
    if let Err(error) = access_bits::clear_soft_dirty(child.handle.id.pid) {
        return Ok(PageMark::NotTried(error.to_string()));
    }
    child.ask(Order::TouchTen)?;
    remote_advice::collapse(&child.handle, region)?;
    try_mark(&child, pagemap::Entry::is_soft_dirty)
}

fn try_write_protection() -> Result<PageMark> {
    let child = with_huge_page()?;
    let errno = i32::try_from(child.ask(Order::Protect)?).unwrap_or(0);
    Ok(match Errno::from_raw(errno) {
        Errno::UnknownErrno => return try_mark(&child, pagemap::Entry::is_write_protected),
        Errno::ENOSYS => {
            PageMark::Absent("this kernel has no userfaultfd (CONFIG_USERFAULTFD)".into())
        }
        Errno::EOPNOTSUPP => {
            PageMark::Absent("this kernel's userfaultfd cannot protect pages".into())
        }
        errno => PageMark::NotTried(format!(
            "a child could not protect its pages by userfaultfd: {errno}"
        )),
    })
}

fn try_page_out() -> Try {
    let child = with_huge_page()?;
    let region = child.region(0);
    remote_advice::split(&child.handle, region)?;
    let before = rss(&child)?;
    let zero_from = region.start() + 10 * BASE_PAGE_BYTES;
    remote_advice::page_out(&child.handle, zero_from, region.end() - zero_from).or_else(fails)?;
    let freed = before.saturating_sub(rss(&child)?);
    is_unchanged(&child)?;
    require(
        freed >= SURELY_BYTES,
        "the call succeeded, but no page was swapped out",
    )
}

fn remote_touch(child: &ThrowAway, region: RegionAddr) -> Try {
    TargetCalls::waiting(Duration::from_secs(10))
        .map_page(&child.handle, region.start())
        .or_else(|error| fails(format!("remote read of untouched memory failed: {error}")))
}

fn try_fault_ahead_collapse() -> Try {
    let child = ThrowAway::spawn()?;
    // Any kernel refuses a mapping that was never written to.
    child.ask(Order::TouchTen)?;
    let region = child.untouched();
    let before = rss(&child)?;
    remote_touch(&child, region)?;
    remote_advice::collapse(&child.handle, region).or_else(|error| {
        fails(format!(
            "{error} (Linux 6.18 collapses a region that only has its zero page)"
        ))
    })?;
    // Where THP is `always` the read has mapped the region, and it counts as collapsed.
    require(
        rss(&child)?.saturating_sub(before) >= SURELY_BYTES,
        "the call succeeded, but the region is the huge zero page",
    )
}

fn try_first_touches() -> Try {
    let (mut frontier, watchlist) = Frontier::attach().or_else(fails)?;
    let child = ThrowAway::spawn()?;
    let pid = child.handle.id.pid;
    watchlist.add(pid)?;
    child.ask(Order::Touch)?;
    let heard = frontier.listen(Duration::from_millis(100));
    require(
        heard.iter().any(|one| one.pid == pid),
        "a child touched memory, but no page fault was reported",
    )
}

fn try_fault_ahead_read(settings: Option<&mut SettingsGuard>) -> Try {
    let Some(settings) = settings else {
        return not_tried(
            "the check changes a system-wide setting, and another manager is running",
        );
    };
    let knob = Path::new(THP_DIR).join("use_zero_page");
    settings.set(&knob, "0").or_else(not_tried)?;
    let child = ThrowAway::spawn()?;
    child.ask(Order::WantHuge)?;
    let before = rss(&child)?;
    let touched = remote_touch(&child, child.untouched());
    let grown = rss(&child)?.saturating_sub(before);
    settings.put_back(&knob)?;
    touched?;
    require(
        grown >= SURELY_BYTES,
        "a read of untouched memory mapped no huge page",
    )
}

fn try_counters() -> Try {
    let counters = Counters::find(CounterEvents::default()).or_else(fails)?;
    let child = ThrowAway::spawn()?;
    counters.bind(child.handle.id.pid).map(drop).or_else(fails)
}

/// Touches half of the child's regions in a session on all of them.
fn try_damon() -> Try {
    const SESSION: Duration = Duration::from_millis(100);
    let child = ThrowAway::spawn()?;
    let regions: Vec<_> = (0..REGIONS).map(|index| child.region(index)).collect();
    let pid = child.handle.id.pid;
    let started = Damon::default().start(pid, &regions, Window::lasting(SESSION));
    let session = started.or_else(|error| match error {
        DamonError::InUse { .. } | DamonError::Exclusive(_) => not_tried(error),
        error => fails(error),
    })?;
    child.ask(Order::Touch)?;
    // Pages that stay in the TLB are not marked again; fresh translations are seen in any case.
    while session.started().elapsed() < SESSION / 2 {
        child.read()?;
    }
    let found = session.finish().or_else(fails)?;
    let untouched = child.untouched();
    let seen = |touched: bool| {
        let half = found.iter().filter(|(r, _)| (*r < untouched) == touched);
        half.map(|(_, pages)| u32::from(*pages)).sum::<u32>()
    };
    match (seen(true), seen(false)) {
        (1.., 0) => Ok(()),
        (hits, wrong) => fails(format!(
            "it reported {hits} accessed pages in touched memory and {wrong} in untouched memory"
        )),
    }
}

#[cfg(test)]
impl Facts {
    /// A host on which everything works.
    pub(crate) fn all_work() -> Self {
        use crate::memory::prezeroing::Prezeroed;
        use crate::probe::small_pages::tests::size;
        let works = || Checked::Works;
        Self {
            host: Host {
                kernel: "6.18.0".into(),
                missing_capabilities: vec![],
                container: None,
                lockdown: host::Lockdown::None,
                thp_enabled: Some("madvise".into()),
                own_thp_disabled: false,
                cgroup: Some("version 2".into()),
                psi: true,
                swap_bytes: 1 << 30,
            },
            page_table_walk: works(),
            page_table_levels: Some(4),
            access_bits: works(),
            first_touch_ns: 10,
            collapse: works(),
            split: works(),
            zero_page_remap: works(),
            soft_dirty: PageMark::Kept,
            write_protection: PageMark::Kept,
            page_out: works(),
            fault_ahead_collapse: works(),
            fault_ahead_read: works(),
            first_touches: works(),
            counters: works(),
            damon: works(),
            page_idle: works(),
            prezeroing: PrezeroingFacts::There(Prezeroed {
                active: true,
                module: None,
                zones: Vec::new(),
            }),
            small_pages: vec![size(4, works(), [2, 3, 9])],
        }
    }
}
