//! Population without BPF: `/proc/PID/pagemap` and `/proc/PID/smaps`.

use crate::error::{LinuxError, Result};
use crate::memory::ksm::Ksm;
use crate::processes::mappings::Mapping;
use hawkeye_policy::whole::usize_of;
use hawkeye_policy::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, RegionAddr, RegionSample,
};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use procfs::process::{MMPermissions, MMapPath, VmFlags};
use std::fs::File;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const WRITE_PROTECTED: u64 = 1 << 57;
/// Mapped by this process alone; the zero page never is.
const EXCLUSIVE: u64 = 1 << 56;
const SOFT_DIRTY: u64 = 1 << 55;
const FRAME: u64 = (1 << 55) - 1;
/// `/proc/kpageflags` (include/uapi/linux/kernel-page-flags.h): any page of a block but its first.
const KPF_COMPOUND_TAIL: u64 = 1 << 16;
const KPF_THP: u64 = 1 << 22;
/// The zero page, or (part of) the huge zero page.
const KPF_ZERO_PAGE: u64 = 1 << 24;

/// All mappings of a process, from `smaps`. Walks the page tables: costs milliseconds per GiB.
pub fn mappings(pid: u32) -> Result<Vec<Mapping>> {
    let maps = crate::processes::process::entry(pid)
        .and_then(|process| process.smaps())
        .map_err(|_| LinuxError::NoSuchProcess(pid))?;
    let ksm = Ksm::default();
    Ok(maps
        .iter()
        .map(|m| {
            let has = |flag: VmFlags| m.extension.vm_flags.contains(flag);
            let flags = [
                (m.perms.contains(MMPermissions::WRITE), 0x2),
                (m.perms.contains(MMPermissions::SHARED), 0x8),
                (has(VmFlags::GD), 0x100),
                (has(VmFlags::UM), 0x200),
                (has(VmFlags::UW), 0x1000),
                (has(VmFlags::LO), 0x2000),
                (has(VmFlags::PF), 0x400),
                (has(VmFlags::IO), 0x4000),
                (has(VmFlags::HT), 0x0040_0000),
                (has(VmFlags::MM), 0x1000_0000),
                (has(VmFlags::HG), 0x2000_0000),
                (has(VmFlags::NH), 0x4000_0000),
                (has(VmFlags::MG), 0x8000_0000),
            ];
            let flags = flags.iter().filter(|(set, _)| *set);
            Mapping {
                range: m.address.0..m.address.1,
                flags: ksm.effective(flags.map(|(_, bit)| bit).sum()),
                file_backed: m.inode != 0 || matches!(m.pathname, MMapPath::Path(_)),
            }
        })
        .collect())
}

/// Base pages of every populated region, without access bits: `accessed` repeats `present`, and what is
/// mapped by this process alone counts as written.
pub fn population(pid: u32, ranges: &[Range<u64>]) -> Result<Vec<RegionSample>> {
    let path = format!("/proc/{pid}/pagemap");
    let file = File::open(&path).map_err(|_| LinuxError::NoSuchProcess(pid))?;
    let mut found = Vec::new();
    let mut bytes = [0u8; PAGES_PER_REGION as usize * 8];
    for range in ranges {
        for start in (range.start..range.end).step_by(usize_of(HUGE_PAGE_BYTES)) {
            file.read_exact_at(&mut bytes, start / BASE_PAGE_BYTES * 8)
                .map_err(LinuxError::file("reading", &path))?;
            let region = RegionAddr::containing(start);
            let mut sample = count(region, entries(&bytes), zero_frame());
            if sample.is_huge() {
                let kind = kind_of_run(first_frame(&bytes));
                sample.order = PageOrder::of_region(kind != Run::BasePages);
                if kind == Run::HugeZeroPage {
                    sample.zero_mapped = std::mem::take(&mut sample.present);
                    sample.maybe_shared = 0;
                    (sample.accessed, sample.runs) = (0, 0);
                }
            }
            if sample.present > 0 || sample.swapped > 0 || sample.zero_mapped > 0 {
                found.push(sample);
            }
        }
    }
    Ok(found)
}

/// The entries of a part of a page map, one for each base page.
pub(crate) fn entries(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let entries = bytes.chunks_exact(8);
    entries.map(|e| u64::from_ne_bytes(e.try_into().expect("chunks of 8 bytes")))
}

/// Whether an entry is a page that another process maps too. Every process maps the zero page: that is none.
pub(crate) fn is_shared(entry: u64) -> bool {
    let shared = entry & PRESENT != 0 && entry & EXCLUSIVE == 0;
    shared && Some(entry & FRAME) != zero_frame()
}

fn first_frame(entries: &[u8]) -> u64 {
    entries
        .first_chunk()
        .map_or(0, |entry| u64::from_ne_bytes(*entry) & FRAME)
}

/// What an aligned run of 512 frames is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    HugePage,
    /// Its frame is not always the same, unlike the small one's.
    HugeZeroPage,
    /// Neighbours by chance, as they often are on a machine that was just started.
    BasePages,
}

/// By `/proc/kpageflags`. A huge page that is not mapped as one (after `mprotect` of a part, say)
/// can't be told from one that is.
fn kind_of_run(first: u64) -> Run {
    let flags = |file: &File, frame: u64| {
        let mut bytes = [0u8; 8];
        file.read_exact_at(&mut bytes, frame * 8)
            .map(|()| u64::from_ne_bytes(bytes))
    };
    let both = File::open("/proc/kpageflags").and_then(|file| {
        let half = first + u64::from(PAGES_PER_REGION / 2);
        Ok((flags(&file, first)?, flags(&file, half)?))
    });
    match both {
        Ok((first, _)) if first & KPF_ZERO_PAGE != 0 => Run::HugeZeroPage,
        // Blocks are aligned to their size: one that goes on in its middle fills the region.
        Ok((first, half)) if first & KPF_THP != 0 && half & KPF_COMPOUND_TAIL != 0 => Run::HugePage,
        _ => Run::BasePages,
    }
}

/// The frame of the shared zero page, learned from a page of our own that was only read; `None`
/// where the kernel doesn't show frames.
fn zero_frame() -> Option<u64> {
    static FRAME_OF_ZEROS: OnceLock<Option<u64>> = OnceLock::new();
    *FRAME_OF_ZEROS.get_or_init(learn_zero_frame)
}

fn learn_zero_frame() -> Option<u64> {
    let bytes = NonZeroUsize::new(usize_of(BASE_PAGE_BYTES))?;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let page = unsafe { mmap_anonymous(None, bytes, protection, MapFlags::MAP_PRIVATE) }.ok()?;
    // SAFETY: the page was just mapped, and its memory is all zeros.
    let value = unsafe { page.cast::<u8>().read_volatile() };
    let mut entry = [0u8; 8];
    let read = File::open("/proc/self/pagemap").and_then(|file| {
        file.read_exact_at(&mut entry, page.as_ptr() as u64 / BASE_PAGE_BYTES * 8)
    });
    // SAFETY: the mapping made above, to which no reference is left.
    let unmapped = unsafe { munmap(page, bytes.get()) };
    let entry = u64::from_ne_bytes(entry);
    let shown = read.is_ok() && unmapped.is_ok() && value == 0;
    let zero = entry & PRESENT != 0 && entry & EXCLUSIVE == 0 && entry & FRAME != 0;
    (shown && zero).then_some(entry & FRAME)
}

fn count(
    region: RegionAddr,
    entries: impl Iterator<Item = u64>,
    zero_frame: Option<u64>,
) -> RegionSample {
    let mut present = 0;
    let mut zero_mapped = 0;
    let mut written = 0;
    let mut swapped = 0;
    let mut first_frame = None;
    let mut contiguous = 0;
    for (index, entry) in entries.enumerate() {
        let frame = entry & FRAME;
        if entry & PRESENT != 0 && Some(frame) == zero_frame {
            zero_mapped += 1;
        } else if entry & PRESENT != 0 {
            present += 1;
            written += u16::from(entry & EXCLUSIVE != 0);
            let first = *first_frame.get_or_insert(frame);
            contiguous += u16::from(frame == first + index as u64);
        } else if entry & SWAPPED != 0 {
            swapped += 1;
        }
    }
    // One aligned run of frames: a huge page, or it looks like one. Frames read as 0 without privilege.
    let aligned = first_frame.is_some_and(|f| f != 0 && f % u64::from(PAGES_PER_REGION) == 0);
    RegionSample {
        region,
        present,
        accessed: present,
        runs: u16::from(present > 0),
        written,
        zero_mapped,
        maybe_shared: present - written,
        swapped,
        order: PageOrder::of_region(aligned && contiguous == PAGES_PER_REGION),
        walks_per_s: 0,
    }
}

/// What `/proc/PID/pagemap` shows of the page at an address (Documentation/admin-guide/mm/pagemap.rst).
///
/// # Errors
/// The process is gone.
pub fn entry(pid: u32, address: u64) -> Result<Entry> {
    let path = format!("/proc/{pid}/pagemap");
    let file = File::open(&path).map_err(|_| LinuxError::NoSuchProcess(pid))?;
    let mut bytes = [0u8; 8];
    file.read_exact_at(&mut bytes, address / BASE_PAGE_BYTES * 8)
        .map_err(LinuxError::file("reading", &path))?;
    Ok(Entry(u64::from_ne_bytes(bytes)))
}

/// One entry of `/proc/PID/pagemap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(u64);

impl Entry {
    /// Written since the soft-dirty bits were last cleared.
    pub fn is_soft_dirty(self) -> bool {
        self.0 & SOFT_DIRTY != 0
    }

    /// The page's frame; 0 where it is not present, or frames are hidden.
    pub fn frame(self) -> u64 {
        if self.0 & PRESENT != 0 {
            self.0 & FRAME
        } else {
            0
        }
    }

    /// Protected from writes by userfaultfd.
    pub fn is_write_protected(self) -> bool {
        self.0 & WRITE_PROTECTED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> RegionAddr {
        RegionAddr::containing(HUGE_PAGE_BYTES)
    }

    #[test]
    fn a_huge_page_looks_like_one_aligned_run_of_frames() {
        let run = |first: u64| (0..512).map(move |i| PRESENT | EXCLUSIVE | (first + i));
        assert!(count(region(), run(1024), None).is_huge());
        assert!(!count(region(), run(1025), None).is_huge(), "not aligned");
        let broken = run(1024).map(|e| if e & FRAME == 1030 { e + 4096 } else { e });
        assert!(!count(region(), broken, None).is_huge(), "not contiguous");
    }

    #[test]
    fn swapped_pages_are_not_present() {
        let entries = (0..512).map(|i| {
            if i < 10 {
                SWAPPED
            } else {
                PRESENT | EXCLUSIVE | i
            }
        });
        let sample = count(region(), entries, None);
        assert_eq!(
            (sample.present, sample.swapped, sample.is_huge()),
            (502, 10, false)
        );
    }

    #[test]
    fn pages_that_others_map_too_are_shared_exactly() {
        let entries = (0..512).map(|i| match i {
            0..100 => PRESENT | EXCLUSIVE | (1000 + i),
            100..107 => PRESENT | (1000 + i),
            107..200 => PRESENT | 7,
            200..210 => SWAPPED,
            _ => 0,
        });
        let sample = count(region(), entries, Some(7));
        assert_eq!((sample.present, sample.maybe_shared), (107, 7));
    }

    #[test]
    fn the_zero_page_is_nobodys_memory() {
        let entries = (0..512).map(|i| PRESENT | if i < 100 { EXCLUSIVE | (1000 + i) } else { 7 });
        let sample = count(region(), entries, Some(7));
        assert_eq!(
            (sample.present, sample.zero_mapped, sample.accessed),
            (100, 412, 100)
        );
    }

    #[test]
    fn frames_hidden_for_lack_of_privilege_are_no_huge_page() {
        assert!(!count(region(), (0..512).map(|_| PRESENT | EXCLUSIVE), None).is_huge());
    }
}
