//! Facts about the primitives.

use super::KernelCheckResult;
use super::host_facts::{self, HostFacts};
use super::kernel_checks::{
    FirstTouchAfterClear, TryResult, into_check_result, skipped_try, try_access_bits, try_collapse,
    try_damon, try_first_touch_reports, try_page_out, try_prefault_collapse, try_prefault_read,
    try_shared_memory, try_split, try_split_with_soft_dirty, try_split_with_write_protection,
};
use super::mthp_sizes::{PageSizeFacts, try_mthp_sizes};
use super::prezeroing::PrezeroingFacts;
use crate::error::Result;
use crate::machine_lease::thp_settings::KernelSettingsGuard;
use crate::memory::prezeroing::PrezeroingFiles;
use crate::promote::target_call::CallHelperPool;
use crate::sample::counters::try_hardware_counters;
use crate::sample::page_table_reader::PageTableReader;
use hawkeye_policy::saturating_cast::nanos_of_duration;
use serde::Serialize;
use std::time::Duration;

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
    /// That split keeps soft-dirty bits, by which CRIU finds changed pages.
    pub soft_dirty: KernelCheckResult,
    /// That split keeps the write protection of userfaultfd, by which a monitor sees each write.
    pub write_protection: KernelCheckResult,
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
    /// The kernel zeroes free memory in advance.
    pub prezeroing: PrezeroingFacts,
    /// Page sizes below that of a huge page, at first touches.
    pub small_pages: Vec<PageSizeFacts>,
}

impl KernelFacts {
    /// Facts of a host on which all checks have the same result.
    fn all_alike(
        host: HostFacts,
        checked: impl Fn() -> KernelCheckResult,
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
            soft_dirty: checked(),
            write_protection: checked(),
            page_out: checked(),
            prefault_by_collapse: checked(),
            prefault_by_read: checked(),
            first_touches: checked(),
            counters: checked(),
            damon: checked(),
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
        let untried = || KernelCheckResult::NotTried(why.clone());
        let prezeroing = PrezeroingFacts::read(&PrezeroingFiles::default());
        let facts = KernelFacts::all_alike(host, untried, prezeroing);
        return Ok(ProbedKernel { facts, page_tables: None });
    }
    let (page_table_walk, mut tables) = match PageTableReader::load_bpf_programs() {
        Ok(tables) => (KernelCheckResult::Works, Some(tables)),
        Err(error) => (KernelCheckResult::Fails(error.to_string()), None),
    };
    let page_table_levels = tables.as_ref().map(PageTableReader::page_table_levels);
    // A child holds its locks for microseconds, but the machine may be busy.
    let mut calls = CallHelperPool::with_time_limit(Duration::from_secs(10));
    // Before the children, so that it holds none of their pipes.
    calls.start_idle_helper()?;
    let calls = &mut calls;
    let collapse = into_check_result(try_collapse(calls, tables.as_mut()))?;
    let split = check_if_prerequisite_works(&collapse, "promotion", || try_split(calls, false))?;
    let zero_page_remap =
        check_if_prerequisite_works(&split, "the split", || try_split(calls, true))?;
    let mut try_marks = |check: fn(&mut CallHelperPool) -> TryResult| {
        check_if_prerequisite_works(&zero_page_remap, "the zero-page remap", || check(calls))
    };
    let soft_dirty = try_marks(try_split_with_soft_dirty)?;
    let write_protection = try_marks(try_split_with_write_protection)?;
    let page_out = if zero_page_remap.works() {
        KernelCheckResult::NotTried("the split has given them back already".into())
    } else if host.swap_bytes == 0 {
        KernelCheckResult::NotTried("there is no swap and no zram".into())
    } else {
        check_if_prerequisite_works(&split, "the split", || try_page_out(calls))?
    };
    let mut first_touch = FirstTouchAfterClear::default();
    let access_bits = into_check_result(try_access_bits(calls, tables.as_mut(), &mut first_touch))?;
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
        shared_memory: check_optional(|| try_shared_memory(calls, tables.as_mut())),
        collapse,
        split,
        zero_page_remap,
        soft_dirty,
        write_protection,
        page_out,
        prezeroing: PrezeroingFacts::read(&PrezeroingFiles::default()),
        prefault_by_collapse: check_if_wanted(everything, || try_prefault_collapse(calls))?,
        small_pages: if everything { try_mthp_sizes(settings.as_deref_mut())? } else { Vec::new() },
        prefault_by_read: check_if_wanted(everything, || try_prefault_read(calls, settings))?,
        first_touches: check_if_wanted(everything, try_first_touch_reports)?,
        counters: check_if_wanted(everything, try_hardware_counters)?,
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

/// Tries a primitive that needs another one to work.
fn check_if_prerequisite_works(
    needed: &KernelCheckResult,
    name: &str,
    check: impl FnOnce() -> TryResult,
) -> Result<KernelCheckResult> {
    into_check_result(if needed.works() { check() } else { skipped_try(format!("needs {name}")) })
}

#[cfg(test)]
mod tests;
