//! Population and page contents without BPF: `/proc/PID/pagemap`, `/proc/PID/smaps` and remote reads.

use crate::error::LinuxError;
use crate::mappings::Mapping;
use crate::process::ProcessHandle;
use hawkeye_policy::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr, RegionSample,
};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use procfs::process::{MMPermissions, MMapPath, Process, VmFlags};
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// File page or shared anonymous page; in private anonymous memory the zero page has neither this nor
/// "mapped exclusively".
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;

/// All mappings of a process, from `smaps`. Walks the page tables: costs milliseconds per GiB.
pub fn mappings(pid: u32) -> Result<Vec<Mapping>, LinuxError> {
    let maps = Process::new(pid as i32)
        .and_then(|process| process.smaps())
        .map_err(|_| LinuxError::NoSuchProcess(pid))?;
    Ok(maps
        .iter()
        .map(|m| {
            let has = |flag: VmFlags| m.extension.vm_flags.contains(flag);
            let flags = [
                (m.perms.contains(MMPermissions::WRITE), 0x2),
                (m.perms.contains(MMPermissions::SHARED), 0x8),
                (has(VmFlags::GD), 0x100),
                (has(VmFlags::PF), 0x400),
                (has(VmFlags::IO), 0x4000),
                (has(VmFlags::HT), 0x0040_0000),
                (has(VmFlags::MM), 0x1000_0000),
                (has(VmFlags::NH), 0x4000_0000),
            ];
            Mapping {
                range: m.address.0..m.address.1,
                flags: flags
                    .iter()
                    .filter(|(set, _)| *set)
                    .map(|(_, bit)| bit)
                    .sum(),
                file_backed: m.inode != 0 || matches!(m.pathname, MMapPath::Path(_)),
            }
        })
        .collect())
}

/// Base pages of every populated region, without access bits: `accessed` repeats `present`.
pub fn population(pid: u32, ranges: &[Range<u64>]) -> Result<Vec<RegionSample>, LinuxError> {
    let path = format!("/proc/{pid}/pagemap");
    let file = File::open(&path).map_err(|_| LinuxError::NoSuchProcess(pid))?;
    let mut found = Vec::new();
    let mut bytes = [0u8; PAGES_PER_REGION as usize * 8];
    for range in ranges {
        for start in (range.start..range.end).step_by(HUGE_PAGE_BYTES as usize) {
            file.read_exact_at(&mut bytes, start / BASE_PAGE_BYTES * 8)
                .map_err(LinuxError::file("reading", &path))?;
            let entries = bytes
                .chunks_exact(8)
                .map(|e| u64::from_ne_bytes(e.try_into().expect("chunks of 8 bytes")));
            let sample = count(RegionAddr::containing(start), entries);
            if sample.present > 0 || sample.swapped > 0 {
                found.push(sample);
            }
        }
    }
    Ok(found)
}

fn count(region: RegionAddr, entries: impl Iterator<Item = u64>) -> RegionSample {
    let mut present = 0;
    let mut shared_or_zero = 0;
    let mut swapped = 0;
    let mut first_frame = None;
    let mut contiguous = 0;
    for (index, entry) in entries.enumerate() {
        if entry & PRESENT != 0 {
            present += 1;
            shared_or_zero += u16::from(entry & EXCLUSIVE == 0);
            let frame = entry & FRAME;
            let first = *first_frame.get_or_insert(frame);
            contiguous += u16::from(frame == first + index as u64);
        } else if entry & SWAPPED != 0 {
            swapped += 1;
        }
    }
    // One aligned run of frames: a huge page (or as good as one). Frames read as 0 without privilege.
    let aligned = first_frame.is_some_and(|f| f != 0 && f % u64::from(PAGES_PER_REGION) == 0);
    RegionSample {
        region,
        present,
        accessed: present,
        runs: u16::from(present > 0),
        written: present - shared_or_zero,
        zero_mapped: 0,
        swapped,
        huge: aligned && contiguous == PAGES_PER_REGION,
    }
}

/// Indices of the zero-filled base pages of a region, up to `enough` of them, by copying its contents.
pub fn zero_pages(
    process: &ProcessHandle,
    region: RegionAddr,
    enough: u16,
) -> Result<Vec<u16>, LinuxError> {
    let pid = Pid::from_raw(process.id.pid as i32);
    let mut zero = Vec::new();
    let mut page = [0u8; BASE_PAGE_BYTES as usize];
    for index in 0..PAGES_PER_REGION {
        let start = region.start() + u64::from(index) * BASE_PAGE_BYTES;
        let mut clean = true;
        // The first bytes mostly show that a page is in use.
        for part in [0..64, 64..page.len()] {
            let remote = RemoteIoVec {
                base: start as usize + part.start,
                len: part.len(),
            };
            process_vm_readv(
                pid,
                &mut [IoSliceMut::new(&mut page[part.clone()])],
                &[remote],
            )
            .map_err(|errno| LinuxError::Call {
                call: "reading a page",
                errno,
            })?;
            if page[part].iter().any(|&byte| byte != 0) {
                clean = false;
                break;
            }
        }
        if clean {
            zero.push(index);
            if zero.len() >= usize::from(enough) {
                break;
            }
        }
    }
    Ok(zero)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> RegionAddr {
        RegionAddr::containing(HUGE_PAGE_BYTES)
    }

    #[test]
    fn a_huge_page_is_one_aligned_run_of_frames() {
        let run = |first: u64| (0..512).map(move |i| PRESENT | EXCLUSIVE | (first + i));
        assert!(count(region(), run(1024)).huge);
        assert!(!count(region(), run(1025)).huge, "not aligned");
        let broken = run(1024).map(|e| if e & FRAME == 1030 { e + 4096 } else { e });
        assert!(!count(region(), broken).huge, "not contiguous");
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
        let sample = count(region(), entries);
        assert_eq!(
            (sample.present, sample.swapped, sample.huge),
            (502, 10, false)
        );
    }

    #[test]
    fn frames_hidden_for_lack_of_privilege_are_no_huge_page() {
        assert!(!count(region(), (0..512).map(|_| PRESENT | EXCLUSIVE)).huge);
    }
}
