//! Records what happens to frames, for the host of a virtual machine: to the host the guest's
//! frames are memory of its own.

use super::{FrameContent, FrameContentChange, FrameRun, PhysicalMemory};
use crate::page_bits::PageBits;

impl PhysicalMemory {
    pub(crate) fn start_recording_content_changes(&mut self) {
        self.touches.get_or_insert_default();
    }

    /// Returns the records since the last call, in order.
    pub(crate) fn take_content_changes(&mut self) -> Vec<FrameContentChange> {
        self.touches.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn record_content_change(&mut self, frames: FrameRun, content: FrameContent) {
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
            _ => touches.push(FrameContentChange { frames, content }),
        }
    }

    pub(super) fn record_zeroed_frames(&mut self, block: u32, frames: PageBits) {
        if self.touches.is_none() {
            return;
        }
        for (first, count) in frames.runs() {
            self.record_content_change(
                FrameRun::from_pageblock_offset(block, first, count),
                FrameContent::Zeroed,
            );
        }
    }
}
