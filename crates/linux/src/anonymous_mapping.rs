//! Memory of this process, mapped for one purpose.

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// New memory, readable and writable; `None` where none is available. `kind` is `MAP_SHARED`, or
/// `MAP_PRIVATE` with further flags. It makes one system call, because forked children use it too.
pub(crate) fn map_anonymous(bytes: usize, kind: i32) -> Option<NonNull<c_void>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_ANONYMOUS | kind;
    // SAFETY: a new mapping, placed by the kernel, touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    NonNull::new(start).filter(|start| start.as_ptr() != libc::MAP_FAILED)
}

/// A private anonymous mapping, unmapped when dropped.
#[derive(Debug)]
pub struct AnonymousMapping {
    start: NonNull<c_void>,
    bytes: NonZeroUsize,
}

impl AnonymousMapping {
    /// Maps readable and writable memory.
    pub fn map(bytes: usize) -> Result<Self, Errno> {
        Self::map_with_protection(bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)
    }

    /// Maps memory with this protection.
    pub fn map_with_protection(bytes: usize, protection: ProtFlags) -> Result<Self, Errno> {
        let bytes = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping, placed by the kernel, touches nothing that exists.
        let start = unsafe { mmap_anonymous(None, bytes, protection, flags) }?;
        Ok(Self { start, bytes })
    }

    /// Its first byte.
    pub fn start(&self) -> NonNull<c_void> {
        self.start
    }

    /// Address of its first byte.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Its length in bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes.get()
    }

    /// Advises the kernel about all of it. Kernels without huge pages refuse advice about them.
    pub fn advise(&self, advice: MmapAdvise) -> Result<(), Errno> {
        // SAFETY: the mapping is ours, and no reference into it exists.
        unsafe { madvise(self.start, self.byte_len(), advice) }
    }
}

impl Drop for AnonymousMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing keeps a pointer into it.
        let _ = unsafe { munmap(self.start, self.byte_len()) };
    }
}
