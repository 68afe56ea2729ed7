//! What the kernel's direct map is recognised by.

use crate::error::{LinuxError, Result};
use hawkeye_policy::BASE_PAGE_BYTES;
use hawkeye_policy::whole::usize_of;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// A page of our own with a value that is nowhere else. It is no part of a huge page, which memory of the heap may be
/// where huge pages are `always`: the walk that looks for it ends at a table of base pages.
pub(super) struct MarkedPage {
    page: NonNull<c_void>,
    magic: u64,
}

impl MarkedPage {
    const BYTES: NonZeroUsize = NonZeroUsize::new(usize_of(BASE_PAGE_BYTES)).expect("is not zero");

    /// Maps it.
    pub(super) fn new() -> Result<Self> {
        let mut random = [0u8; 8];
        // SAFETY: the buffer is ours and as long as we say.
        let got = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
        if usize::try_from(got) != Ok(random.len()) {
            return Err(LinuxError::last_call("getrandom"));
        }
        let failed = |errno| LinuxError::Call {
            call: "mapping a page of our own",
            errno,
        };
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, which nobody else knows of.
        let page = unsafe { mmap_anonymous(None, Self::BYTES, both, MapFlags::MAP_PRIVATE) };
        let marked = Self {
            page: page.map_err(failed)?,
            magic: u64::from_ne_bytes(random),
        };
        let advice = MmapAdvise::MADV_NOHUGEPAGE;
        // SAFETY: advice about our own mapping. Kernels without huge pages refuse it, and need it not.
        let _ = unsafe { madvise(marked.page, Self::BYTES.get(), advice) };
        // SAFETY: the mapping is a page long, aligned and writable.
        unsafe { marked.page.cast::<u64>().write_volatile(marked.magic) };
        Ok(marked)
    }

    /// The value that it holds at its start.
    pub(super) fn magic(&self) -> u64 {
        self.magic
    }

    /// Where it is.
    pub(super) fn address(&self) -> u64 {
        self.page.as_ptr() as u64
    }
}

impl Drop for MarkedPage {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference is left.
        let _ = unsafe { munmap(self.page, Self::BYTES.get()) };
    }
}
