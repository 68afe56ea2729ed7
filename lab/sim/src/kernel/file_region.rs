//! Regions of files of shared memory, by number.

use super::SharedFileId;
use crate::memory::FrameOwner;
use hawkeye_policy::{FileRegion, HUGE_PAGE_BYTES, PAGES_PER_REGION};

/// Device of all files: a tmpfs.
const DEVICE: u32 = 1;

/// 2 MiB of a file, by their number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRegionId {
    pub(crate) file: SharedFileId,
    pub(crate) index: u64,
}

impl FileRegionId {
    /// The same as policies see it.
    pub(super) fn identity(self) -> Option<FileRegion> {
        let inode = u64::from(self.file.0) + 1;
        FileRegion::at_offset(DEVICE, inode, self.index * HUGE_PAGE_BYTES)
    }

    pub(super) fn owner_of_page(self, page: u16) -> FrameOwner {
        let page = self.index * u64::from(PAGES_PER_REGION) + u64::from(page);
        FrameOwner::File { file: self.file.0, page }
    }
}
