//! The page by which the kernel's direct map is recognised.

use crate::error::{LinuxError, Result};
use crate::own_memory::OwnMemory;
use hawkeye_policy::BASE_PAGE_BYTES;
use hawkeye_policy::saturating_cast::usize_of;
use nix::errno::Errno;
use nix::sys::mman::MmapAdvise;

/// A page of our own with a unique value. It is not part of a huge page, as the heap may be under
/// THP `always`: the walk that searches for it ends at a table of base pages.
pub(super) struct DirectMapProbePage {
    pub(super) page: OwnMemory,
    /// The value that it holds at its start.
    pub(super) magic: u64,
}

impl DirectMapProbePage {
    pub(super) fn new() -> Result<Self> {
        let mut random = [0u8; 8];
        // SAFETY: the buffer is ours and has the given length.
        let got = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
        if usize::try_from(got) != Ok(random.len()) {
            return Err(LinuxError::call("getrandom")(Errno::last()));
        }
        let failed = LinuxError::call("mapping a page with a known value");
        let page = OwnMemory::map(usize_of(BASE_PAGE_BYTES)).map_err(failed)?;
        let magic = u64::from_ne_bytes(random);
        // Kernels without huge pages refuse the advice, and do not need it.
        let _ = page.advise(MmapAdvise::MADV_NOHUGEPAGE);
        // SAFETY: the mapping is a page long, aligned and writable.
        unsafe { page.start().cast::<u64>().write_volatile(magic) };
        Ok(Self { page, magic })
    }
}
