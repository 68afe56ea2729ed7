//! Replays allocations and frees on bare memory, to compare with a kernel's free lists.

use super::{FrameContent, FrameOwner, FrameRun, HUGE_ORDER, PhysicalMemory};
use hawkeye_policy::PAGES_PER_REGION;
use std::collections::HashMap;

/// The result of an allocation of several blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatedFrameCounts {
    /// Frames allocated; fewer than asked for where memory was full.
    pub frames: u64,
    /// The number of these that were zeroed in advance.
    pub zeroed: u64,
}

/// Movable memory handed out and taken back by name.
#[derive(Clone, Debug)]
pub struct AllocationReplay {
    memory: PhysicalMemory,
    held: HashMap<String, Vec<FrameRun>>,
    next: u64,
}

impl AllocationReplay {
    /// A replay with nothing allocated.
    pub fn new(memory: PhysicalMemory) -> Self {
        Self { memory, held: HashMap::new(), next: 0 }
    }

    /// The memory as it is now.
    pub fn memory(&self) -> &PhysicalMemory {
        &self.memory
    }

    /// Zeroes at most `most` free frames, and returns the number zeroed.
    pub fn zero_free_frames(&mut self, most: u64) -> u64 {
        self.memory.zero_free_frames(most).frames
    }

    /// Allocates `count` pages of this order, one after the other, under this name.
    pub fn allocate(
        &mut self,
        name: &str,
        count: u64,
        order: u8,
        prefer: FrameContent,
    ) -> AllocatedFrameCounts {
        let mut got = AllocatedFrameCounts::default();
        let held = self.held.entry(name.to_owned()).or_default();
        for _ in 0..count {
            let owner = FrameOwner::Cache { page: self.next };
            let Some(one) = self.memory.allocate(order, prefer, owner) else {
                break;
            };
            let frames = u64::from(one.frames.count);
            self.next += frames;
            got.frames += frames;
            got.zeroed += frames - u64::from(one.dirty);
            held.push(one.frames);
        }
        got
    }

    /// Frees every `step`th base page held under this name, from the first on (1: all of them).
    pub fn free_every_nth_page(&mut self, name: &str, step: u64) {
        let step = step.max(1);
        let mut kept = Vec::new();
        let mut number = 0;
        for run in self.held.remove(name).unwrap_or_default() {
            if step == 1 {
                self.memory.free(run);
                continue;
            }
            for frame in run.first..run.first + run.count {
                let one = FrameRun::new(frame, 1);
                if number % step == 0 {
                    self.memory.free(one);
                } else {
                    kept.push(one);
                }
                number += 1;
            }
        }
        if !kept.is_empty() {
            self.held.insert(name.to_owned(), kept);
        }
    }

    /// Allocates until `frames` are free, from where allocations of any content are served first.
    pub fn allocate_all_but(&mut self, frames: u64) {
        let more = self.memory.count_free_frames().saturating_sub(frames);
        let region = u64::from(PAGES_PER_REGION);
        self.allocate("kernel", more / region, HUGE_ORDER, FrameContent::Dirty);
        self.allocate("kernel", more % region, 0, FrameContent::Dirty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::HUGE_PAGE_BYTES;

    fn replay(regions: u64) -> AllocationReplay {
        AllocationReplay::new(PhysicalMemory::new(regions * HUGE_PAGE_BYTES))
    }

    #[test]
    fn zeroed_blocks_serve_requests_for_zeros() {
        let mut replay = replay(8);
        assert_eq!(replay.zero_free_frames(4 * 512), 4 * 512);
        let file = replay.allocate("file", 100, 0, FrameContent::Dirty);
        assert_eq!((file.frames, file.zeroed), (100, 0));
        let huge = replay.allocate("huge", 3, HUGE_ORDER, FrameContent::Zeroed);
        assert_eq!((huge.frames, huge.zeroed), (1536, 1536));
        replay.free_every_nth_page("huge", 1);
        let rest = replay.allocate("huge", 99, HUGE_ORDER, FrameContent::Zeroed);
        assert_eq!(rest.frames, 7 * 512);
        assert_eq!(replay.memory().check(), Ok(()));
    }

    #[test]
    fn part_of_it_can_be_given_back() {
        let mut replay = replay(4);
        replay.allocate_all_but(1024 + 10);
        assert_eq!(replay.memory().count_free_frames(), 1034);
        replay.allocate("a", 1034, 0, FrameContent::Zeroed);
        replay.free_every_nth_page("a", 2);
        assert_eq!(replay.memory().count_free_frames(), 517);
        replay.free_every_nth_page("a", 1);
        replay.free_every_nth_page("a", 1);
        assert_eq!(replay.memory().count_free_frames(), 1034);
        assert_eq!(replay.memory().check(), Ok(()));
    }
}
