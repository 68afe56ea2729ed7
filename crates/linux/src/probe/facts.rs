//! Facts about the primitives: each one tried on a throw-away child.

use super::checked::Checked;
use super::host::{self, Host};
use super::prezeroing::PrezeroingFacts;
use super::small_pages::{SizeFacts, try_sizes};
use super::throw_away::{REGIONS, ThrowAway};
use crate::error::Result;
use crate::memory::prezeroing::Prezeroing;
use crate::prefault::Frontier;
use crate::processes::process::{ProcessHandle, ProcessMemory};
use crate::promote::remote_advice;
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

/// What a split that remaps zero pages does to a mark that another program set on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum PageMark {
    /// Seen to stay.
    Kept,
    /// Seen to get lost, as a clause.
    Lost(String),
    /// This kernel has no such mark, for this reason: nothing can get lost.
    Absent(String),
    /// Not tried, for this reason.
    NotTried(String),
}

impl PageMark {
    /// Whether it is known that nothing gets lost.
    pub fn is_safe(&self) -> bool {
        matches!(self, Self::Kept | Self::Absent(_))
    }
}

/// Everything that was found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Read, not tried.
    pub host: Host,
    /// BPF programs load and find the direct map.
    pub page_table_walk: Checked,
    /// Levels of the page table, where the walk works.
    pub page_table_levels: Option<u32>,
    /// A cleared access bit reads as cleared, and as set after an access.
    pub access_bits: Checked,
    /// What one base page's first access after a clear costs its owner, in nanoseconds.
    pub first_touch_ns: u64,
    /// A region of another process becomes huge on request.
    pub collapse: Checked,
    /// A huge page of another process splits on request.
    pub split: Checked,
    /// The split maps zero-filled base pages to the shared zero page.
    pub zero_page_remap: Checked,
    /// What that split does to soft-dirty bits, by which CRIU finds changed pages.
    pub soft_dirty: PageMark,
    /// What it does to the write protection of userfaultfd, by which a monitor sees each write.
    pub write_protection: PageMark,
    /// Zero pages of a split huge page go to swap.
    pub page_out: Checked,
    /// An untouched region is populated by a remote read and collapse.
    pub fault_ahead_collapse: Checked,
    /// An untouched region is populated by a remote read while `use_zero_page` is off.
    pub fault_ahead_read: Checked,
    /// Where another process touches memory for the first time is heard of.
    pub first_touches: Checked,
    /// Hardware counters count in another process.
    pub counters: Checked,
    /// DAMON sees what another process touches.
    pub damon: Checked,
    /// `/sys/kernel/mm/page_idle` exists.
    pub page_idle: Checked,
    /// Free memory zeroed by the kernel in advance.
    pub prezeroing: PrezeroingFacts,
    /// Page sizes under that of a huge page, at first touches.
    pub small_pages: Vec<SizeFacts>,
}

/// How much to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything, for a person to see.
    Everything,
    /// What managing a process uses.
    ForManaging,
}

/// Tries the primitives. `settings` is for the one that takes a system-wide setting; without it
/// (somebody else manages the machine) that one is not tried.
///
/// # Errors
/// No child process could be started at all.
pub fn gather(extent: Extent, mut settings: Option<&mut SettingsGuard>) -> Result<Facts> {
    let host = host::read();
    let mut tables = PageTables::load();
    let page_table_walk = Checked::from(tables.as_mut().map(drop).map_err(|e| e.to_string()));
    let page_table_levels = tables
        .as_ref()
        .ok()
        .map(|tables| tables.translation().levels);
    let mut tables = tables.ok();
    let collapse = try_collapse(tables.as_mut())?;
    let split = after(&collapse, "promotion", || try_split(Zeros::Stay))?;
    let zero_page_remap = after(&split, "the split", || try_split(Zeros::GiveBack))?;
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
    let (access_bits, first_touch) = try_access_bits(tables.as_mut())?;
    let damon =
        if extent == Extent::Everything || !access_bits.works() || super::asked_sampler().is_some()
        {
            try_damon()?
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
        facts.fault_ahead_collapse = try_fault_ahead_collapse()?;
        facts.small_pages = try_sizes(settings.as_deref_mut())?;
        facts.fault_ahead_read = try_fault_ahead_read(settings)?;
        facts.first_touches = try_first_touches()?;
        facts.counters = try_counters()?;
        facts.page_idle = Checked::from(
            Path::new("/sys/kernel/mm/page_idle/bitmap")
                .exists()
                .then_some(())
                .ok_or_else(|| "this kernel was built without CONFIG_IDLE_PAGE_TRACKING".into()),
        );
    }
    Ok(facts)
}

fn unasked() -> Checked {
    Checked::NotTried("not needed for managing".into())
}

/// Tries something that needs something else to work.
fn after(needed: &Checked, name: &str, check: impl FnOnce() -> Result<Checked>) -> Result<Checked> {
    match needed {
        Checked::Works => check(),
        _ => Ok(Checked::NotTried(format!("needs {name}"))),
    }
}

/// RSS is kept in batches per CPU: half of a huge page is proof enough that it came or went.
const SURELY_BYTES: u64 = 1 << 20;

/// Resident bytes of a process; what a primitive changed shows here without BPF.
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

fn try_access_bits(tables: Option<&mut PageTables>) -> Result<(Checked, Duration)> {
    let Some(tables) = tables else {
        let why = "access bits are read by BPF, which does not work here";
        return Ok((Checked::NotTried(why.into()), Duration::ZERO));
    };
    let child = ThrowAway::spawn()?;
    let region = child.region(0);
    // Few huge pages would stay in the TLB.
    child.want_base()?;
    child.touch()?;
    match remote_advice::clear_accessed(&child.handle, &child.touched()) {
        Ok(done) if done == child.touched().len() => {}
        Ok(done) => {
            let why = format!(
                "the bits of {done} of {} regions were cleared",
                child.touched().len()
            );
            return Ok((Checked::Fails(why), Duration::ZERO));
        }
        Err(error) => return Ok((Checked::Fails(error.to_string()), Duration::ZERO)),
    }
    let mut accessed =
        || -> Result<u16> { Ok(look(tables, &child.handle, region)?.map_or(0, |r| r.accessed)) };
    let cleared = accessed()?;
    let after_clear = child.read()?;
    let mut set = accessed()?;
    let again = child.read()?;
    if set < PAGES_PER_REGION / 2 {
        // Some processors (and QEMU) keep that many base pages in the TLB too.
        child.leave_tlb()?;
        child.read()?;
        set = accessed()?;
    }
    let checked = match (cleared, set) {
        (0, PAGES_PER_REGION) => Ok(()),
        // Translations that stayed in the TLB are not marked again.
        (0, n) if n >= PAGES_PER_REGION / 2 => Ok(()),
        (c, n) => Err(format!(
            "after a clear {c} of 512 pages read as accessed, after use {n}"
        )),
    };
    let first_touch = after_clear.saturating_sub(again)
        / u32::try_from(ThrowAway::pages_read()).unwrap_or(u32::MAX);
    Ok((Checked::from(checked), first_touch))
}

fn try_collapse(tables: Option<&mut PageTables>) -> Result<Checked> {
    let child = ThrowAway::spawn()?;
    // Where huge pages are `always` there would be nothing to collapse; what wants none is not collapsed.
    child.want_base()?;
    child.touch()?;
    child.want_huge()?;
    if let Err(error) = remote_advice::collapse(&child.handle, child.region(0)) {
        return Ok(Checked::Fails(error.to_string()));
    }
    let huge = match tables {
        Some(tables) => look(tables, &child.handle, child.region(0))?.is_some_and(|r| r.is_huge()),
        // The call's own word, where page tables can't be read.
        None => true,
    };
    let wrong = child.wrong_bytes()?;
    Ok(Checked::from(match (huge, wrong) {
        (true, 0) => Ok(()),
        (false, _) => Err("the call succeeded, but the region is not huge".into()),
        (_, wrong) => Err(format!("{wrong} bytes were different afterwards")),
    }))
}

/// What a split must do to zero-filled base pages to count as working.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeros {
    Stay,
    GiveBack,
}

/// Ten pages in use, the rest of the huge page zero: after the split the process is smaller by the rest
/// where zero pages are given back.
fn try_split(zeros: Zeros) -> Result<Checked> {
    let child = ThrowAway::spawn()?;
    child.touch_ten()?;
    remote_advice::collapse(&child.handle, child.region(0))?;
    let before = rss(&child)?;
    if let Err(error) = remote_advice::split(&child.handle, child.region(0)) {
        return Ok(Checked::Fails(error.to_string()));
    }
    // Before its contents are read, which would map zero pages anew.
    let freed = before.saturating_sub(rss(&child)?);
    let wrong = child.wrong_bytes()?;
    Ok(Checked::from(if wrong != 0 {
        Err(format!("{wrong} bytes were different afterwards"))
    } else if zeros == Zeros::GiveBack && freed < SURELY_BYTES {
        Err(
            "the huge page splits, but its zero pages keep their memory (Linux 6.12 gives it back)"
                .into(),
        )
    } else {
        Ok(())
    }))
}

/// A page in use and one that is all zeros, in the first region after `touch_ten`.
fn used_and_zero(region: RegionAddr) -> [u64; 2] {
    [region.start(), region.end() - BASE_PAGE_BYTES]
}

/// Splits the huge page of the child's first region and says whether both marks are there before and after.
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
        (before, _) => PageMark::NotTried(format!(
            "of a used and a zero page of a huge page {} and {} were marked before the split",
            before[0], before[1]
        )),
    })
}

fn try_soft_dirty() -> Result<PageMark> {
    let child = ThrowAway::spawn()?;
    let region = child.region(0);
    child.touch_ten()?;
    let [used, _] = used_and_zero(region);
    // A new mapping counts as written as a whole.
    if !pagemap::entry(child.handle.id.pid, used)?.is_soft_dirty() {
        let why = "this kernel has no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)";
        return Ok(PageMark::Absent(why.into()));
    }
    if let Err(error) = access_bits::clear_soft_dirty(child.handle.id.pid) {
        return Ok(PageMark::NotTried(error.to_string()));
    }
    child.touch_ten()?;
    remote_advice::collapse(&child.handle, region)?;
    try_mark(&child, pagemap::Entry::is_soft_dirty)
}

fn try_write_protection() -> Result<PageMark> {
    let child = ThrowAway::spawn()?;
    child.touch_ten()?;
    remote_advice::collapse(&child.handle, child.region(0))?;
    match child.protect_first_region()? {
        Ok(()) => try_mark(&child, pagemap::Entry::is_write_protected),
        Err(Errno::ENOSYS) => {
            let why = "this kernel has no userfaultfd (CONFIG_USERFAULTFD)";
            Ok(PageMark::Absent(why.into()))
        }
        Err(Errno::EOPNOTSUPP) => {
            let why = "userfaultfd of this kernel can't protect pages";
            Ok(PageMark::Absent(why.into()))
        }
        Err(errno) => Ok(PageMark::NotTried(format!(
            "a child could not protect its pages by userfaultfd: {errno}"
        ))),
    }
}

fn try_page_out() -> Result<Checked> {
    let child = ThrowAway::spawn()?;
    child.touch_ten()?;
    let region = child.region(0);
    remote_advice::collapse(&child.handle, region)?;
    remote_advice::split(&child.handle, region)?;
    let before = rss(&child)?;
    let zero_from = region.start() + 10 * BASE_PAGE_BYTES;
    let paged_out = remote_advice::page_out(&child.handle, zero_from, region.end() - zero_from);
    let freed = before.saturating_sub(rss(&child)?);
    let wrong = child.wrong_bytes()?;
    Ok(Checked::from(match paged_out {
        Err(error) => Err(error.to_string()),
        Ok(()) if wrong != 0 => Err(format!("{wrong} bytes were different afterwards")),
        Ok(()) if freed < SURELY_BYTES => {
            Err("the call succeeded, but nothing went to swap".into())
        }
        Ok(()) => Ok(()),
    }))
}

fn remote_touch(child: &ThrowAway, region: RegionAddr) -> Result<(), String> {
    ProcessMemory::open(&child.handle)
        .and_then(|memory| memory.read(region.start(), &mut [0]))
        .map_err(|error| format!("reading untouched memory from outside: {error}"))
}

fn try_fault_ahead_collapse() -> Result<Checked> {
    let child = ThrowAway::spawn()?;
    // A mapping that was never written to at all is refused on any kernel.
    child.touch_ten()?;
    let region = child.untouched();
    let before = rss(&child)?;
    let collapsed = remote_touch(&child, region).and_then(|()| {
        remote_advice::collapse(&child.handle, region).map_err(|error| {
            format!("{error} (Linux 6.18 collapses a region that only has its zero page)")
        })
    });
    let grown = rss(&child)?.saturating_sub(before);
    Ok(Checked::from(collapsed.and_then(|()| {
        if grown >= SURELY_BYTES {
            Ok(())
        } else {
            // Where huge pages are `always` the read has mapped it, and it counts as collapsed.
            Err("the call succeeded, but the region is the huge zero page".into())
        }
    })))
}

fn try_first_touches() -> Result<Checked> {
    let mut frontier = match Frontier::attach() {
        Ok((frontier, watchlist)) => (frontier, watchlist),
        Err(error) => return Ok(Checked::Fails(error.to_string())),
    };
    let child = ThrowAway::spawn()?;
    let pid = child.handle.id.pid;
    frontier.1.add(pid)?;
    child.touch()?;
    let heard = frontier.0.listen(Duration::from_millis(100));
    let of_child = heard.iter().any(|one| one.pid == pid);
    Ok(Checked::from(of_child.then_some(()).ok_or_else(|| {
        "a child touched memory, and nothing was heard of it".into()
    })))
}

fn try_fault_ahead_read(settings: Option<&mut SettingsGuard>) -> Result<Checked> {
    let Some(settings) = settings else {
        let why = "it takes a system-wide setting, and another manager is running";
        return Ok(Checked::NotTried(why.into()));
    };
    let knob = Path::new(THP_DIR).join("use_zero_page");
    if let Err(error) = settings.set(&knob, "0") {
        return Ok(Checked::NotTried(error.to_string()));
    }
    let child = ThrowAway::spawn()?;
    child.want_huge()?;
    let before = rss(&child)?;
    let touched = remote_touch(&child, child.untouched());
    let grown = rss(&child)?.saturating_sub(before);
    settings.put_back(&knob)?;
    Ok(Checked::from(touched.and_then(|()| {
        if grown >= SURELY_BYTES {
            Ok(())
        } else {
            Err("a read of untouched memory brought no huge page".into())
        }
    })))
}

fn try_counters() -> Result<Checked> {
    let counters = match Counters::find(CounterEvents::default()) {
        Ok(counters) => counters,
        Err(none) => return Ok(Checked::Fails(none.to_string())),
    };
    let child = ThrowAway::spawn()?;
    Ok(Checked::from(
        counters
            .bind(child.handle.id.pid)
            .map(drop)
            .map_err(|error| error.to_string()),
    ))
}

/// Half of the child's regions are touched in a session on all of them.
fn try_damon() -> Result<Checked> {
    const SESSION: Duration = Duration::from_millis(100);
    let child = ThrowAway::spawn()?;
    let regions: Vec<_> = (0..REGIONS).map(|index| child.region(index)).collect();
    let pid = child.handle.id.pid;
    let session = match Damon::default().start(pid, &regions, Window::lasting(SESSION)) {
        Ok(session) => session,
        Err(error @ (DamonError::InUse { .. } | DamonError::Exclusive(_))) => {
            return Ok(Checked::NotTried(error.to_string()));
        }
        Err(error) => return Ok(Checked::Fails(error.to_string())),
    };
    child.touch()?;
    // What stays in the TLB is not marked again: fresh translations are seen in any case.
    while session.started().elapsed() < SESSION / 2 {
        child.read()?;
    }
    Ok(Checked::from(match session.finish() {
        Err(error) => Err(error.to_string()),
        Ok(found) => {
            let untouched = child.untouched();
            let seen = |touched: bool| {
                let half = found.iter().filter(|(r, _)| (*r < untouched) == touched);
                half.map(|(_, pages)| u32::from(*pages)).sum::<u32>()
            };
            match (seen(true), seen(false)) {
                (1.., 0) => Ok(()),
                (hits, wrong) => Err(format!(
                    "of touched memory it saw {hits} pages, of untouched memory {wrong}"
                )),
            }
        }
    }))
}
