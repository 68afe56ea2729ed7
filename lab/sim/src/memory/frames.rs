//! Frames by number: their content, their owners (the reverse mapping), and, for the host of a
//! virtual machine, what happens to them.

use super::PhysicalMemory;
use crate::bits::PageBits;
use hawkeye_policy::PAGES_PER_REGION;

/// Neighbouring frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// Number of the first frame: its physical address over 4 KiB.
    pub first: u32,
    /// Number of frames.
    pub count: u32,
}

pub(crate) fn block_of(frame: u32) -> u32 {
    frame / u32::from(PAGES_PER_REGION)
}

pub(crate) fn offset_of(frame: u32) -> u16 {
    (frame % u32::from(PAGES_PER_REGION)) as u16
}

pub(crate) fn first_of(block: u32) -> u32 {
    block * u32::from(PAGES_PER_REGION)
}

impl FrameRun {
    pub(crate) const fn new(first: u32, count: u32) -> Self {
        Self { first, count }
    }

    pub(crate) fn within_pageblock(block: u32, first: u16, count: u16) -> Self {
        Self::new(first_of(block) + u32::from(first), count.into())
    }

    pub(crate) fn of_block(block: u32) -> Self {
        Self::within_pageblock(block, 0, PAGES_PER_REGION)
    }

    /// Cuts the run at pageblock boundaries: pageblock, first frame in it, number of frames.
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

/// What the kernel knows of a free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameContent {
    /// It may hold anything.
    Dirty,
    /// It is all zeros.
    Zeroed,
}

impl FrameContent {
    /// Both contents.
    pub const BOTH: [Self; 2] = [Self::Dirty, Self::Zeroed];

    pub(crate) fn index(self) -> usize {
        usize::from(self == Self::Zeroed)
    }

    pub(crate) fn other(self) -> Self {
        Self::zeroed_if(self == Self::Dirty)
    }

    pub(crate) fn zeroed_if(zeroed: bool) -> Self {
        if zeroed { Self::Zeroed } else { Self::Dirty }
    }
}

/// A frame's owner. Neighbouring frames of an allocation have neighbouring indices: one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FrameOwner {
    /// Anonymous memory of an address space, at this virtual page number.
    Anonymous { space: u32, page: u64 },
    /// A page of the page cache, by its place in the order in which the cache was filled.
    Cache { page: u64 },
    /// The kernel; such a frame can't be moved.
    Kernel { frame: u64 },
    /// Reserved for a virtual page of an address space that was not touched yet (FreeBSD).
    Reserved { space: u32, page: u64 },
}

/// Virtual page numbers have 36 bits, address spaces 24.
const PAGE_BITS: u32 = 36;
const ID_BITS: u32 = 24;
const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;
const ID_MASK: u64 = (1 << ID_BITS) - 1;

impl FrameOwner {
    /// The owner as one number; the next index has the next number.
    pub(crate) fn pack(self) -> u64 {
        let (kind, id, page) = match self {
            Self::Anonymous { space, page } => (0, space, page),
            Self::Cache { page } => (1, 0, page),
            Self::Kernel { frame } => (2, 0, frame),
            Self::Reserved { space, page } => (3, space, page),
        };
        kind << (PAGE_BITS + ID_BITS) | (u64::from(id) & ID_MASK) << PAGE_BITS | page & PAGE_MASK
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        let page = packed & PAGE_MASK;
        let id = (packed >> PAGE_BITS & ID_MASK) as u32;
        match packed >> (PAGE_BITS + ID_BITS) {
            0 => Self::Anonymous { space: id, page },
            1 => Self::Cache { page },
            2 => Self::Kernel { frame: page },
            _ => Self::Reserved { space: id, page },
        }
    }

    pub(crate) fn is_movable(self) -> bool {
        matches!(self, Self::Anonymous { .. } | Self::Cache { .. })
    }
}

/// Frames that got new contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTouch {
    /// The frames.
    pub frames: FrameRun,
    /// [`FrameContent::Zeroed`]: zeroed while free. [`FrameContent::Dirty`]: handed out, and the
    /// new owner is assumed to write to all of them.
    pub content: FrameContent,
}

impl PhysicalMemory {
    pub(crate) fn record_touches(&mut self) {
        self.touches.get_or_insert_default();
    }

    /// Returns the records since the last call, in order.
    pub(crate) fn take_touches(&mut self) -> Vec<FrameTouch> {
        self.touches
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    pub(super) fn record(&mut self, frames: FrameRun, content: FrameContent) {
        let Some(touches) = &mut self.touches else {
            return;
        };
        match touches.last_mut() {
            Some(last)
                if last.content == content
                    && last.frames.first + last.frames.count == frames.first =>
            {
                last.frames.count += frames.count;
            }
            _ => touches.push(FrameTouch { frames, content }),
        }
    }

    pub(super) fn record_zeroed(&mut self, block: u32, frames: PageBits) {
        if self.touches.is_none() {
            return;
        }
        for (first, count) in frames.each_run() {
            self.record(
                FrameRun::within_pageblock(block, first, count),
                FrameContent::Zeroed,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_everything() {
        for owner in [
            FrameOwner::Anonymous {
                space: 7,
                page: PAGE_MASK,
            },
            FrameOwner::Cache { page: 12 },
            FrameOwner::Kernel { frame: 1 << 28 },
            FrameOwner::Reserved {
                space: 0xff_ffff,
                page: 0,
            },
        ] {
            assert_eq!(FrameOwner::unpack(owner.pack()), owner);
        }
        let (low, high) = (FrameOwner::Cache { page: 1 }, FrameOwner::Cache { page: 2 });
        assert_eq!(low.pack() + 1, high.pack());
    }
}
