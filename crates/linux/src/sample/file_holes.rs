//! Base pages that a file of shared memory lacks: a promotion allocates them, and no split gives
//! them back.
//!
//! A page table shows which pages its process has mapped. The file may have others, so its holes
//! are read from the file itself.

use crate::error::Result;
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::{CallHelperPool, TargetRequest};
use crate::ring_buffer::decode_u64s;
use hawkeye_policy::{FileRegion, HUGE_PAGE_BYTES};
use nix::errno::Errno;
use std::ops::Range;

impl CallHelperPool {
    /// Base pages that a file lacks in a region, up to `enough`. `mapping`: the exact addresses of
    /// a mapping of the file, as they were just read. Pages that were allocated but never written
    /// count as missing. `None`: the mapping has changed since.
    pub(crate) fn count_file_holes(
        &mut self,
        process: &ProcessHandle,
        mapping: &Range<u64>,
        file: FileRegion,
        enough: u16,
    ) -> Result<Option<u16>> {
        let call = "looking for holes in shared memory of";
        let (offset, length) = (file.offset(), HUGE_PAGE_BYTES);
        let request =
            TargetRequest::for_counting_file_holes(process, mapping, offset, length, enough);
        let answer = match self.call_target(process.id, call, &request) {
            Ok(answer) => answer,
            Err(error) if matches!(error.errno(), Some(Errno::ENOENT | Errno::ESTALE)) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut identity = decode_u64s(&answer.data);
        let [inode, device] = std::array::from_fn(|_| identity.next().unwrap_or(0));
        if inode != file.inode || kernel_device_number(device) != u64::from(file.device) {
            return Ok(None);
        }
        Ok(Some(answer.result.map_or(enough, |holes| u16::try_from(holes).unwrap_or(enough))))
    }
}

/// The kernel's own encoding of a device: 12 bits of major, 20 bits of minor number
/// (include/linux/kdev_t.h).
fn kernel_device_number(device: u64) -> u64 {
    u64::from(nix::libc::major(device)) << 20 | u64::from(nix::libc::minor(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::BASE_PAGE_BYTES;
    use hawkeye_policy::saturating_cast::usize_from_u64;
    use hawkeye_test_support::this_test;
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::time::Duration;

    #[test]
    fn devices_are_compared_in_the_kernels_encoding() {
        for (major, minor) in [(0, 1), (0, 0x1b), (259, 300), (8, 0xf_ffff)] {
            let device = nix::libc::makedev(major, minor);
            assert_eq!(kernel_device_number(device), u64::from(major << 20 | minor));
        }
    }

    /// A file of two regions, mapped by this process. The first has 12 of its base pages, the
    /// second all but two.
    #[test]
    fn holes_are_counted_in_the_file() {
        if !nix::unistd::geteuid().is_root() {
            return this_test!().skip("it needs root");
        }
        let file = memory_file();
        file.set_len(2 * HUGE_PAGE_BYTES).expect("the file can grow");
        let first = [3, 511].into_iter().chain(10..20);
        let second = (512..1024).filter(|page| ![600, 1023].contains(page));
        for page in first.chain(second) {
            let written = file.write_all_at(&[1; 4096], page * BASE_PAGE_BYTES);
            written.expect("the file can be written");
        }
        let bytes = usize_from_u64(2 * HUGE_PAGE_BYTES);
        let (access, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, shared, file.as_raw_fd(), 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let mapping = start as u64..start as u64 + 2 * HUGE_PAGE_BYTES;
        let status = file.metadata().expect("the file exists");
        let device = u32::try_from(kernel_device_number(status.dev())).expect("32 bits");
        let region = |index| FileRegion { inode: status.ino(), device, index };
        let own = ProcessHandle::open(std::process::id()).expect("this process exists");
        let mut calls = CallHelperPool::with_time_limit(Duration::from_secs(60));
        let mut count = |mapping: &Range<u64>, region, enough| {
            calls.count_file_holes(&own, mapping, region, enough).expect("the holes are counted")
        };
        assert_eq!(count(&mapping, region(0), 600), Some(500));
        assert_eq!(count(&mapping, region(0), 25), Some(25));
        assert_eq!(count(&mapping, region(1), 25), Some(2));
        assert_eq!(count(&mapping, region(2), 600), Some(512), "beyond the end of the file");
        // Another file, and another mapping.
        let other = FileRegion { inode: status.ino() + 1, ..region(0) };
        assert_eq!(count(&mapping, other, 25), None);
        assert_eq!(count(&(mapping.start..mapping.end - 4096), region(0), 25), None);
        // SAFETY: mapped above, and no reference into it exists.
        unsafe { libc::munmap(start, bytes) };
        assert_eq!(count(&mapping, region(0), 25), None);
    }

    fn memory_file() -> File {
        // SAFETY: the name ends with a zero.
        let descriptor = unsafe { libc::memfd_create(c"holes".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(descriptor >= 0, "a file can be created");
        // SAFETY: a new descriptor that nothing else owns.
        unsafe { File::from_raw_fd(descriptor) }
    }
}
