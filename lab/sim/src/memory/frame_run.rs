//! Frames by number.

use hawkeye_policy::PAGES_PER_REGION;

/// Neighbouring frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// Number of the first frame: its physical address over 4 KiB.
    pub first: u32,
    /// Number of frames.
    pub count: u32,
}

pub(crate) fn pageblock_of_frame(frame: u32) -> u32 {
    frame / u32::from(PAGES_PER_REGION)
}

pub(crate) fn offset_in_pageblock(frame: u32) -> u16 {
    (frame % u32::from(PAGES_PER_REGION)) as u16
}

pub(crate) fn first_frame_of_pageblock(block: u32) -> u32 {
    block * u32::from(PAGES_PER_REGION)
}

impl FrameRun {
    pub(crate) const fn new(first: u32, count: u32) -> Self {
        Self { first, count }
    }

    pub(crate) fn from_pageblock_offset(block: u32, first: u16, count: u16) -> Self {
        Self::new(first_frame_of_pageblock(block) + u32::from(first), count.into())
    }

    pub(crate) fn of_pageblock(block: u32) -> Self {
        Self::from_pageblock_offset(block, 0, PAGES_PER_REGION)
    }

    /// Cuts the run at pageblock boundaries: pageblock, first frame in it, number of frames.
    pub(crate) fn split_by_pageblock(self) -> impl Iterator<Item = (u32, u16, u16)> {
        let end = self.first + self.count;
        let mut from = self.first;
        std::iter::from_fn(move || {
            if from >= end {
                return None;
            }
            let block = pageblock_of_frame(from);
            let to = end.min(first_frame_of_pageblock(block + 1));
            let piece = (block, offset_in_pageblock(from), (to - from) as u16);
            from = to;
            Some(piece)
        })
    }
}
