//! Reads page tables and page contents of other processes through BPF.
//!
//! One call is one slice: it reads at most [`TABLES_PER_CALL`] page tables, in about half a
//! millisecond. So neither the target nor its CPU waits for a whole address space.

mod direct_map;

use crate::bpf_skeletons::{HawkeyeSkel, HawkeyeSkelBuilder, types};
use crate::error::{LinuxError, Result};
use crate::memory::ksm::KsmState;
use crate::processes::mapping_records::mapping_of_fields;
use crate::processes::mappings::Mapping;
use crate::promote::target_call::CallHelperPool;
use direct_map::{map_unique_and_inaccessible_page, read_end_frame};
use hawkeye_policy::walk_rate::PageBitmap;
use hawkeye_policy::{
    BASE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, ProcessId, RegionAddr, RegionSample,
};
use libbpf_rs::libbpf_sys;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use nix::errno::Errno;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Most last-level page tables that one call reads.
pub const TABLES_PER_CALL: u32 = 512 * 512 / PAGES_PER_REGION as u32;

/// Most regions for which one call can read access bits.
pub const ACCESS_BITS_PER_CALL: usize = 64;

/// Shortest time between two reads of where memory ends. On a machine with many CPUs one takes
/// milliseconds, and a target can cause it.
const END_FRAME_PAUSE: Duration = Duration::from_secs(10);

/// Attempts to take a held `mmap_lock`; a process that maps memory holds it for microseconds.
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_micros(50);

/// The access bits of one region at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessBitSnapshot {
    /// When they were read, on CLOCK_MONOTONIC.
    pub at: Duration,
    /// Base pages marked accessed; all or none for a huge page. Of pages under contiguous entries,
    /// which are one TLB entry with one mark, only the first.
    pub accessed: PageBitmap,
    /// Base pages with memory of their own (0 to 512).
    pub present: u16,
    /// Of the present pages, those on which a write would fault: other processes may map them too.
    pub write_protected: u16,
    /// Whether it is one huge page.
    pub huge: bool,
}

/// Page-table access for any number of targets. Reads fail with `NoSuchProcess` if the target exits
/// meanwhile.
pub struct PageTableReader {
    skel: HawkeyeSkel<'static>,
    end_frame_read_at: Instant,
}

/// The programs bound to one process. Dropping it unbinds them.
pub struct ProcessBpfLinks {
    pid: u32,
    walk: OwnedFd,
    list: OwnedFd,
    find: OwnedFd,
    scan: OwnedFd,
    marks: OwnedFd,
}

impl ProcessBpfLinks {
    /// File descriptors of one target: its five links.
    pub const DESCRIPTORS: usize = 5;

    /// Runs the program that lists mappings, for
    /// [`CallHelperPool::list_mappings`](crate::promote::target_call::CallHelperPool::list_mappings).
    pub(crate) fn mapping_list_link(&self) -> BorrowedFd<'_> {
        self.list.as_fd()
    }
}

// Another link is another descriptor.
const _: () = assert!(
    size_of::<ProcessBpfLinks>() / size_of::<OwnedFd>() == 1 + ProcessBpfLinks::DESCRIPTORS
);

/// What to report of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkDetail {
    /// Every region with anything in it.
    Regions,
    /// Huge pages only; tables of base pages are skipped unread.
    HugeOnly,
}

/// A walk that can be interrupted.
#[derive(Debug)]
pub(crate) struct RegionWalk {
    ranges: Vec<Range<u64>>,
    detail: WalkDetail,
    /// Index of the range in which the walk continues, and the address in it.
    next: usize,
    from: Option<u64>,
    pub(crate) found: Vec<RegionSample>,
}

impl RegionWalk {
    /// Walks over all regions in `ranges` (2 MiB-aligned, ascending).
    pub(crate) fn new(ranges: Vec<Range<u64>>, detail: WalkDetail) -> Self {
        Self { ranges, detail, next: 0, from: None, found: Vec::new() }
    }
}

impl PageTableReader {
    /// Loads the programs and finds the direct map. Fails where BPF is missing or forbidden (no
    /// privilege, lockdown).
    pub fn load_bpf_programs() -> Result<Self> {
        // A rejected program's verifier output is megabytes: only `HAWKEYE_LOG=debug` shows it.
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, text| {
            tracing::debug!("libbpf: {}", text.trim_end());
        })));
        // A thread of a manager loads it once and keeps it until the manager exits, so it is never
        // freed.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let open = HawkeyeSkelBuilder::default().open(storage);
        let skel = open.and_then(OpenSkel::load);
        let skel = skel.map_err(|error| LinuxError::Bpf(format!("{error:#}")))?;
        let mut tables = Self { skel, end_frame_read_at: Instant::now() };
        tables.find_direct_map()?;
        Ok(tables)
    }

    /// Levels of the page table, 3 to 5.
    pub fn page_table_levels(&self) -> u32 {
        self.bss().levels
    }

    fn bss(&self) -> &types::bss {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.expect("the BPF programs have global variables")
    }

    fn bss_mut(&mut self) -> &mut types::bss {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        bss.expect("the BPF programs have global variables")
    }

    /// Finds where physical memory is mapped: searches for a known value on a page of our own.
    fn find_direct_map(&mut self) -> Result<()> {
        let (pages, value) = map_unique_and_inaccessible_page()?;
        let frames = read_end_frame().ok_or_else(|| {
            LinuxError::Bpf("the end of memory is unknown: /proc/zoneinfo cannot be read".into())
        })?;
        let bss = self.bss_mut();
        bss.magic = value;
        bss.magic_va = pages.address();
        bss.inaccessible_va = pages.address() + BASE_PAGE_BYTES;
        bss.memory_frames = frames;
        let own = link_program_to_process(self.skel.progs.calibrate.as_fd(), std::process::id())?;
        run_bpf_iterator(&own)?;
        if self.bss().direct_map == 0 {
            let why = "the kernel's direct map was not found: memory is encrypted, or the page-table layout is unknown";
            return Err(LinuxError::Bpf(why.into()));
        }
        Ok(())
    }

    /// Runs a program that reads page tables. It ignores entries that point behind memory. Where it
    /// met one, memory may have been added, so the end of memory is read again for later runs.
    fn run_page_table_program(&mut self, link: &OwnedFd) -> Result<()> {
        self.bss_mut().pointed_behind_memory = 0;
        run_bpf_iterator(link)?;
        let is_due = self.end_frame_read_at.elapsed() >= END_FRAME_PAUSE;
        if self.bss().pointed_behind_memory != 0 && is_due {
            self.end_frame_read_at = Instant::now();
            if let Some(frames) = read_end_frame() {
                self.bss_mut().memory_frames = frames;
            }
        }
        Ok(())
    }

    /// Binds the programs to a process.
    pub fn bind_to_process(&self, pid: u32) -> Result<ProcessBpfLinks> {
        let programs = &self.skel.progs;
        Ok(ProcessBpfLinks {
            pid,
            walk: link_program_to_process(programs.walk.as_fd(), pid)?,
            list: link_program_to_process(programs.list_mappings.as_fd(), pid)?,
            find: link_program_to_process(programs.find_mapping.as_fd(), pid)?,
            scan: link_program_to_process(programs.scan_zeros.as_fd(), pid)?,
            marks: link_program_to_process(programs.read_access_bits.as_fd(), pid)?,
        })
    }

    /// The mapping at an address, as it is now; `None` where nothing is mapped.
    ///
    /// The cost does not depend on the size of the process. `target` is bound to `process`.
    ///
    /// # Errors
    /// The process has ended or does not answer a helper of `calls` in time, no helper can be
    /// started, or its `mmap_lock` is held for a quarter of a millisecond (`EBUSY`).
    pub fn vma_at_address(
        &mut self,
        target: &ProcessBpfLinks,
        process: ProcessId,
        address: u64,
        calls: &mut CallHelperPool,
    ) -> Result<Option<Mapping>> {
        // `bpf_find_vma` of 5.17 to 6.18 at least takes no reference to another process's address
        // space before it takes the `mmap_lock` in it; later kernels do. If the process ended just
        // then, it would write to freed memory. What is held does not cover a process that executes
        // another program and ends, both after this call.
        calls.hold_address_space(process)?;
        let mut errno = Errno::EBUSY;
        for attempt in 0..LOCK_TRIES {
            if attempt > 0 {
                std::thread::sleep(LOCK_PAUSE);
            }
            let bss = self.bss_mut();
            bss.mapping_at = address;
            bss.mapping_found = 0;
            run_bpf_iterator(&target.find)?;
            let bss = self.bss();
            match bss.mapping_found {
                0 => return Ok(None),
                1.. => {
                    let found = &bss.found_mapping;
                    let fields = [
                        found.start,
                        found.end,
                        found.flags,
                        found.file,
                        found.device,
                        found.inode,
                        found.offset,
                    ];
                    return Ok(Some(mapping_of_fields(fields, &KsmState::default())));
                }
                error => errno = Errno::from_raw(i32::try_from(-error).unwrap_or(libc::EIO)),
            }
            if errno != Errno::EBUSY {
                break;
            }
        }
        Err(LinuxError::wrap_errno("looking up a mapping")(errno))
    }

    /// Reads all regions in `ranges` (2 MiB-aligned, ascending) into `found`. Calls `timed` with
    /// the duration of each call.
    /// On an error, `found` keeps what was read before.
    pub fn walk_ranges(
        &mut self,
        target: &ProcessBpfLinks,
        ranges: &[Range<u64>],
        detail: WalkDetail,
        found: &mut Vec<RegionSample>,
        timed: impl FnMut(Duration),
    ) -> Result<()> {
        let mut walk = RegionWalk::new(ranges.to_vec(), detail);
        let result = self.continue_walk_until(target, &mut walk, None, timed);
        found.append(&mut walk.found);
        result.map(drop)
    }

    /// Continues a walk until `deadline`; returns whether it is done. A call takes about 0.5 ms.
    pub(crate) fn continue_walk_until(
        &mut self,
        target: &ProcessBpfLinks,
        walk: &mut RegionWalk,
        deadline: Option<Instant>,
        mut timed: impl FnMut(Duration),
    ) -> Result<bool> {
        const MAX_RANGES: usize = 1024;
        while walk.next < walk.ranges.len() {
            let chunk = &walk.ranges[walk.next..];
            let chunk = &chunk[..chunk.len().min(MAX_RANGES)];
            let bss = self.bss_mut();
            for (slot, range) in bss.walk_ranges.iter_mut().zip(chunk) {
                (slot.start, slot.end) = (range.start, range.end);
            }
            bss.request = types::walk_request {
                ranges: u32::try_from(chunk.len()).unwrap_or(u32::MAX),
                range: 0,
                va: walk.from.unwrap_or(chunk[0].start),
                max_tables: TABLES_PER_CALL,
                huge_only: u32::from(walk.detail == WalkDetail::HugeOnly),
            };
            loop {
                self.bss_mut().result = types::walk_result::default();
                let begun = Instant::now();
                self.run_page_table_program(&target.walk)?;
                timed(begun.elapsed());
                let bss = self.bss();
                if bss.result.alive == 0 {
                    return Err(LinuxError::NoSuchProcess(target.pid));
                }
                let records = &bss.records[..bss.result.records as usize];
                walk.found.extend(records.iter().map(region_sample_from_record));
                if bss.result.done != 0 {
                    walk.next += chunk.len();
                    walk.from = None;
                    break;
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    walk.next += bss.request.range as usize;
                    walk.from = Some(bss.request.va);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// One region as it is now; `None` where nothing is in it.
    pub fn read_region(
        &mut self,
        target: &ProcessBpfLinks,
        region: RegionAddr,
    ) -> Result<Option<RegionSample>> {
        let mut found = Vec::new();
        let range = region.start()..region.end();
        self.walk_ranges(target, &[range], WalkDetail::Regions, &mut found, |_| {})?;
        Ok(found.pop())
    }

    /// Reads which base pages of up to [`ACCESS_BITS_PER_CALL`] regions are marked accessed. `None`
    /// for a region that is not mapped, or that changed during the read.
    pub fn read_access_bits(
        &mut self,
        target: &ProcessBpfLinks,
        regions: &[RegionAddr],
    ) -> Result<Vec<Option<AccessBitSnapshot>>> {
        let regions = &regions[..regions.len().min(ACCESS_BITS_PER_CALL)];
        let bss = self.bss_mut();
        // The program leaves both as they are where the process has ended.
        bss.result = types::walk_result::default();
        bss.marked_regions = u32::try_from(regions.len()).unwrap_or(u32::MAX);
        for (slot, region) in bss.marks.iter_mut().zip(regions) {
            (slot.va, slot.read) = (region.start(), 0);
        }
        self.run_page_table_program(&target.marks)?;
        let bss = self.bss();
        if bss.result.alive == 0 {
            return Err(LinuxError::NoSuchProcess(target.pid));
        }
        let found = bss.marks[..regions.len()].iter().map(|m| {
            (m.read != 0).then_some(AccessBitSnapshot {
                at: Duration::from_nanos(m.at_ns),
                accessed: PageBitmap(m.accessed),
                present: m.present,
                write_protected: m.write_protected,
                huge: m.huge != 0,
            })
        });
        Ok(found.collect())
    }

    /// Counts the zero-filled base pages of a huge page, up to `enough`; `None` if it is not, or no
    /// longer, a huge page.
    ///
    /// The count is a hint: the owner may write meanwhile. The kernel checks again when it splits.
    pub fn count_zero_pages(
        &mut self,
        target: &ProcessBpfLinks,
        region: RegionAddr,
        enough: u16,
    ) -> Result<Option<u16>> {
        self.bss_mut().zero_scan = types::zero_scan {
            va: region.start(),
            enough: u32::from(enough),
            ..Default::default()
        };
        self.run_page_table_program(&target.scan)?;
        let scan = &self.bss().zero_scan;
        Ok((scan.huge != 0).then_some(u16::try_from(scan.zero_pages).unwrap_or(u16::MAX)))
    }
}

fn region_sample_from_record(r: &types::region_record) -> RegionSample {
    RegionSample {
        region: RegionAddr::containing(r.va),
        present: r.present,
        accessed: r.accessed,
        runs: r.runs,
        written: r.written,
        zero_mapped: r.zero_mapped,
        maybe_shared: r.write_protected,
        swapped: r.swapped,
        order: mapped_order_from_record(r),
        walks_per_s: 0,
        touches_per_s: None,
        freed: 0,
        file: None,
    }
}

/// Contiguous entries count where they map more than half of what is present.
fn mapped_order_from_record(r: &types::region_record) -> PageOrder {
    let contiguous_pages = u64::from(r.contiguous) * PageOrder::CONTIGUOUS.pages();
    if r.huge == 0 && contiguous_pages * 2 > u64::from(r.present) {
        return PageOrder::CONTIGUOUS;
    }
    PageOrder::base_or_huge(r.huge != 0)
}

fn link_program_to_process(program: BorrowedFd<'_>, pid: u32) -> Result<OwnedFd> {
    let mut info = libbpf_sys::bpf_iter_link_info::default();
    info.task.tid = pid;
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        iter_info: &raw mut info,
        iter_info_len: u32::try_from(size_of_val(&info)).unwrap_or(u32::MAX),
        ..Default::default()
    };
    // SAFETY: `options` and the `info` it points to outlive the call, which only reads them.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, libbpf_sys::BPF_TRACE_ITER, &options)
    };
    owned_fd_or_error(fd, "binding a BPF program to a process")
}

/// Runs an iterator once. Its program writes nothing: the read returns when the program has
/// finished.
fn run_bpf_iterator(link: &OwnedFd) -> Result<()> {
    let iterator = create_bpf_iterator(link)?;
    while read_bpf_iterator(&iterator, &mut [0u8; 16])? > 0 {}
    Ok(())
}

fn create_bpf_iterator(link: &OwnedFd) -> Result<OwnedFd> {
    // SAFETY: a plain system call on a descriptor that is open.
    let fd = unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) };
    owned_fd_or_error(fd, "creating a BPF iterator")
}

fn read_bpf_iterator(iterator: &OwnedFd, bytes: &mut [u8]) -> Result<usize> {
    loop {
        match nix::unistd::read(iterator, bytes) {
            // There are more objects than one read covers.
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            read => return read.map_err(LinuxError::wrap_errno("running a BPF iterator")),
        }
    }
}

fn owned_fd_or_error(fd: i32, call: &'static str) -> Result<OwnedFd> {
    if fd < 0 {
        return Err(LinuxError::wrap_errno(call)(Errno::from_raw(-fd)));
    }
    // SAFETY: the call just made this descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests;
