//! Empties pageblocks, so that many of them in a row become one allocation.

use super::buddy::PageblockState;
use super::frame_run::first_frame_of_pageblock;
use super::{FrameOwner, FrameRun, PhysicalMemory};
use hawkeye_policy::PAGES_PER_REGION;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MovablePages {
    /// A number of pages (0-512).
    Pages(u16),
    /// One page, and its owner.
    Whole(FrameOwner),
}

impl PhysicalMemory {
    pub(crate) fn count_pageblocks(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// The content of a pageblock; `None` if some of it can't move.
    pub(crate) fn movable_pages_of_pageblock(&self, block: u32) -> Option<MovablePages> {
        match self.blocks.get(block as usize)? {
            PageblockState::Free { .. } => Some(MovablePages::Pages(0)),
            PageblockState::Owned(owner) => {
                let owner = FrameOwner::unpack(*owner);
                owner.is_movable().then_some(MovablePages::Whole(owner))
            }
            PageblockState::Parts(parts) => {
                let moves =
                    parts.owners.iter().all(|run| FrameOwner::unpack(run.value).is_movable());
                moves.then(|| MovablePages::Pages(PAGES_PER_REGION - parts.free.count()))
            }
        }
    }

    /// Takes the free frames of a pageblock for the kernel, so that no other allocation gets them
    /// (`MIGRATE_ISOLATE`).
    pub(crate) fn isolate_pageblock(&mut self, block: u32) {
        let start = first_frame_of_pageblock(block);
        loop {
            let free = match self.blocks.get(block as usize) {
                Some(PageblockState::Free { .. }) => Some((0, PAGES_PER_REGION)),
                Some(PageblockState::Parts(parts)) => parts.free.next_run(0),
                Some(PageblockState::Owned(_)) | None => None,
            };
            let Some((first, count)) = free else {
                return;
            };
            let frame = start + u32::from(first);
            let owner = new_kernel_owner(frame);
            if self.allocate_at(frame, count, owner).is_none() {
                return;
            }
        }
    }

    /// Keeps frames of an isolated pageblock for the kernel after their page was moved out.
    pub(crate) fn isolate_emptied_frames(&mut self, frames: FrameRun) {
        self.change_frame_owner(frames, new_kernel_owner(frames.first));
    }
}

fn new_kernel_owner(frame: u32) -> FrameOwner {
    FrameOwner::Kernel { frame: frame.into() }
}
