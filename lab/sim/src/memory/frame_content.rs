//! Contents of free memory.

use super::FrameRun;

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

    pub(crate) fn opposite(self) -> Self {
        Self::zeroed_if(self == Self::Dirty)
    }

    pub(crate) fn zeroed_if(zeroed: bool) -> Self {
        if zeroed { Self::Zeroed } else { Self::Dirty }
    }
}

/// Frames that got new contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameContentChange {
    /// The frames.
    pub frames: FrameRun,
    /// [`FrameContent::Zeroed`]: zeroed while free. [`FrameContent::Dirty`]: handed out, and the
    /// new owner is assumed to write to all of them.
    pub content: FrameContent,
}
