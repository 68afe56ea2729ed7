//! Shared memory by file: 2 MiB of a tmpfs file, whichever processes map it.

use crate::page::HUGE_PAGE_BYTES;
use serde::{Deserialize, Serialize};

/// Base pages of a file region that none of its managed processes may map when it becomes huge.
///
/// They may be absent from the file, and then a promotion allocates them. A split does not give
/// them back, unlike in private memory, so they are lost until the file shrinks. A region of 488
/// base pages grows by 5 %.
pub const MAX_FILE_HOLES: u16 = 24;

/// File regions have numbers up to here, in bytes: 8 PiB.
pub const MAX_FILE_BYTES: u64 = (u32::MAX as u64 + 1) * HUGE_PAGE_BYTES;

/// 2 MiB of a file of shared memory (`memfd`, System V, shared anonymous, tmpfs), at a multiple of
/// 2 MiB. Every process that maps it maps the same page: one promotion serves all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileRegion {
    /// Inode of the file.
    pub inode: u64,
    /// Device of the file, as the kernel encodes it.
    pub device: u32,
    /// Offset in the file, in units of 2 MiB.
    pub index: u32,
}

impl FileRegion {
    /// The region at an offset in bytes, which is a multiple of 2 MiB. `None` from
    /// [`MAX_FILE_BYTES`] on.
    pub fn at_offset(device: u32, inode: u64, offset: u64) -> Option<Self> {
        let index = u32::try_from(offset / HUGE_PAGE_BYTES).ok()?;
        Some(Self { inode, device, index })
    }

    /// Its offset in the file, in bytes.
    pub fn offset(self) -> u64 {
        u64::from(self.index) * HUGE_PAGE_BYTES
    }

    /// Major and minor number of the file's device.
    pub fn device_numbers(self) -> (u32, u32) {
        device_numbers(self.device)
    }
}

/// Major and minor number of a device as the kernel encodes it (`MINORBITS`,
/// include/linux/kdev_t.h).
pub(crate) fn device_numbers(device: u32) -> (u32, u32) {
    (device >> 20, device & 0xf_ffff)
}
