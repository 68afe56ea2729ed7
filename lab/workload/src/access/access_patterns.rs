//! Access patterns.
//!
//! The loops are tight: a few instructions beside the read itself, and nothing shared.

use crate::memory::WorkloadMemory;
use crate::rng::{WorkloadRng, scale_below};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryPart {
    /// Byte offset of its first byte.
    pub offset: usize,
    /// Its length in bytes; it may be empty.
    pub bytes: usize,
}

/// The cold and the hot part of the memory, and how often each is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct HotColdLayout {
    pub cold: MemoryPart,
    pub hot: MemoryPart,
    /// Share of the reads that goes to the hot part.
    pub hot_percent: u8,
}

impl HotColdLayout {
    /// The hot part follows the cold one.
    pub(super) fn new(cold_bytes: usize, hot_bytes: usize, hot_percent: u8) -> Self {
        let part = |offset, bytes| MemoryPart { offset, bytes };
        Self { cold: part(0, cold_bytes), hot: part(cold_bytes, hot_bytes), hot_percent }
    }

    /// A draw of 32 bits below this goes to the hot part. An empty part is never drawn.
    pub(super) fn hot_draw_limit(self) -> u64 {
        match (self.cold.bytes, self.hot.bytes) {
            (_, 0) => 0,
            (0, _) => 1 << 32,
            _ => (u64::from(self.hot_percent) << 32) / 100,
        }
    }
}

pub(super) trait AccessPattern {
    fn read_batch(&mut self, memory: &WorkloadMemory, count: usize);
}

pub(super) struct RandomReads {
    layout: HotColdLayout,
    threshold: u64,
    rng: WorkloadRng,
}

impl RandomReads {
    pub(super) fn new(layout: HotColdLayout, seed: u64) -> Self {
        Self { layout, threshold: layout.hot_draw_limit(), rng: WorkloadRng::new(seed, 0) }
    }
}

impl AccessPattern for RandomReads {
    fn read_batch(&mut self, memory: &WorkloadMemory, count: usize) {
        let HotColdLayout { cold, hot, .. } = self.layout;
        let mut rng = self.rng.clone();
        for _ in 0..count {
            let draw = rng.next_bits();
            let area = if draw & 0xffff_ffff < self.threshold { hot } else { cold };
            // The low bits have selected the part; the high ones select the word.
            let word = scale_below(draw, area.bytes / 8);
            memory.read_word(area.offset + word * 8);
        }
        self.rng = rng;
    }
}

pub(super) struct HotOrColdPartChooser {
    threshold: u64,
    rng: WorkloadRng,
}

impl HotOrColdPartChooser {
    pub(super) fn new(layout: HotColdLayout, seed: u64) -> Self {
        Self { threshold: layout.hot_draw_limit(), rng: WorkloadRng::new(seed, 1) }
    }

    /// 1 for the hot part, 0 for the cold one.
    pub(super) fn draw_part_index(&mut self) -> usize {
        usize::from(self.rng.next_bits() >> 32 < self.threshold)
    }
}

/// Reads at a constant distance, from the first byte of each part again and again.
pub(super) struct StridedReads {
    chooser: HotOrColdPartChooser,
    /// Each part, and the place in it of the next read.
    cursors: [(MemoryPart, usize); 2],
    distance: usize,
}

impl StridedReads {
    pub(super) fn new(layout: HotColdLayout, distance: usize, seed: u64) -> Self {
        let cursors = [(layout.cold, 0), (layout.hot, 0)];
        Self { chooser: HotOrColdPartChooser::new(layout, seed), cursors, distance }
    }
}

impl AccessPattern for StridedReads {
    fn read_batch(&mut self, memory: &WorkloadMemory, count: usize) {
        let (area, next) = &mut self.cursors[self.chooser.draw_part_index()];
        let (mut at, end) = (area.offset + *next, area.offset + area.bytes);
        for _ in 0..count {
            memory.read_word(at);
            at += self.distance;
            if at >= end {
                at = area.offset;
            }
        }
        *next = at - area.offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chooser(cold: usize, hot: usize, hot_percent: u8) -> HotOrColdPartChooser {
        HotOrColdPartChooser::new(HotColdLayout::new(cold, hot, hot_percent), 3)
    }

    #[test]
    fn the_hot_part_gets_its_share() {
        let mut chooser = chooser(8192, 4096, 90);
        let hot: usize = (0..10_000).map(|_| chooser.draw_part_index()).sum();
        assert!((8_800..9_200).contains(&hot), "{hot} of 10000");
    }

    #[test]
    fn an_empty_part_is_never_chosen() {
        let mut all_cold = chooser(8192, 0, 100);
        assert!((0..1000).all(|_| all_cold.draw_part_index() == 0));
        let mut all_hot = chooser(0, 4096, 0);
        assert!((0..1000).all(|_| all_hot.draw_part_index() == 1));
    }
}
