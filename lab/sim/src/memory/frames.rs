//! Frames by number.

use hawkeye_policy::PAGES_PER_REGION;

/// Neighbouring frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// Number of the first: its physical address over 4 KiB.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// Number of the pageblock that holds a frame.
pub(crate) fn block_of(frame: u32) -> u32 {
    frame / u32::from(PAGES_PER_REGION)
}

/// Place of a frame in its pageblock.
pub(crate) fn offset_of(frame: u32) -> u16 {
    (frame % u32::from(PAGES_PER_REGION)) as u16
}

/// First frame of a pageblock.
pub(crate) fn first_of(block: u32) -> u32 {
    block * u32::from(PAGES_PER_REGION)
}

impl FrameRun {
    /// The 512 frames of a pageblock.
    pub(crate) fn of_block(block: u32) -> Self {
        Self {
            first: first_of(block),
            count: PAGES_PER_REGION.into(),
        }
    }

    /// Cut at pageblocks: for each its number, the first frame in it, and how many.
    pub(crate) fn by_block(self) -> impl Iterator<Item = (u32, u16, u16)> {
        let end = self.first + self.count;
        let mut from = self.first;
        std::iter::from_fn(move || {
            if from >= end {
                return None;
            }
            let block = block_of(from);
            let to = end.min(first_of(block + 1));
            let piece = (block, offset_of(from), (to - from) as u16);
            from = to;
            Some(piece)
        })
    }
}
