//! Access patterns.
//!
//! The loops are tight: a few instructions beside the read itself, and nothing shared.

use crate::memory::Mapping;
use crate::rng::{Rng, scale};

/// A part of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    /// Byte offset of its begin.
    pub offset: usize,
    /// Its length in bytes; it may be empty.
    pub bytes: usize,
}

/// The cold and the hot part of the memory, and how often each is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The lower addresses.
    pub cold: Area,
    /// The higher addresses.
    pub hot: Area,
    /// Share of the reads that goes to the hot part.
    pub hot_percent: u8,
}

impl Layout {
    /// A draw of 32 bits below this goes to the hot part. An empty part is never drawn.
    fn threshold(self) -> u64 {
        match (self.cold.bytes, self.hot.bytes) {
            (_, 0) => 0,
            (0, _) => 1 << 32,
            _ => (u64::from(self.hot_percent) << 32) / 100,
        }
    }
}

/// Makes reads in a certain order.
pub(super) trait Walk {
    /// Makes `count` reads.
    fn read(&mut self, memory: &Mapping, count: usize);
}

/// Independent reads of random words.
pub(super) struct RandomReads {
    layout: Layout,
    threshold: u64,
    rng: Rng,
}

impl RandomReads {
    pub(super) fn new(layout: Layout, seed: u64) -> Self {
        Self {
            layout,
            threshold: layout.threshold(),
            rng: Rng::new(seed, 0),
        }
    }
}

impl Walk for RandomReads {
    fn read(&mut self, memory: &Mapping, count: usize) {
        let Layout { cold, hot, .. } = self.layout;
        let mut rng = self.rng.clone();
        for _ in 0..count {
            let draw = rng.next();
            let area = if draw & 0xffff_ffff < self.threshold {
                hot
            } else {
                cold
            };
            // The low bits have decided on the part; the high ones decide on the word.
            let word = scale(draw, area.bytes / 8);
            memory.read(area.offset + word * 8);
        }
        self.rng = rng;
    }
}

/// Chooses a part of the memory for a whole batch of reads.
pub(super) struct Chooser {
    threshold: u64,
    rng: Rng,
}

impl Chooser {
    pub(super) fn new(layout: Layout, seed: u64) -> Self {
        Self {
            threshold: layout.threshold(),
            rng: Rng::new(seed, 1),
        }
    }

    /// 1 for the hot part, 0 for the cold one.
    pub(super) fn choose(&mut self) -> usize {
        usize::from(self.rng.next() >> 32 < self.threshold)
    }
}

/// Reads at a constant distance, from the begin of each part again and again.
pub(super) struct Stride {
    chooser: Chooser,
    /// Each part and where in it to go on.
    cursors: [(Area, usize); 2],
    distance: usize,
}

impl Stride {
    pub(super) fn new(layout: Layout, distance: usize, seed: u64) -> Self {
        let cursors = [(layout.cold, 0), (layout.hot, 0)];
        Self {
            chooser: Chooser::new(layout, seed),
            cursors,
            distance,
        }
    }
}

impl Walk for Stride {
    fn read(&mut self, memory: &Mapping, count: usize) {
        let (area, next) = &mut self.cursors[self.chooser.choose()];
        let (mut at, end) = (area.offset + *next, area.offset + area.bytes);
        for _ in 0..count {
            memory.read(at);
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

    const COLD: Area = Area {
        offset: 0,
        bytes: 8192,
    };
    const HOT: Area = Area {
        offset: 8192,
        bytes: 4096,
    };

    #[test]
    fn the_hot_part_gets_its_share() {
        let layout = Layout {
            cold: COLD,
            hot: HOT,
            hot_percent: 90,
        };
        let mut chooser = Chooser::new(layout, 3);
        let hot: usize = (0..10_000).map(|_| chooser.choose()).sum();
        assert!((8_800..9_200).contains(&hot), "{hot} of 10000");
    }

    #[test]
    fn an_empty_part_is_never_chosen() {
        let nothing = Area {
            offset: 8192,
            bytes: 0,
        };
        let mut all_cold = Chooser::new(
            Layout {
                cold: COLD,
                hot: nothing,
                hot_percent: 100,
            },
            3,
        );
        assert!((0..1000).all(|_| all_cold.choose() == 0));
        let empty = Area {
            offset: 0,
            bytes: 0,
        };
        let mut all_hot = Chooser::new(
            Layout {
                cold: empty,
                hot: HOT,
                hot_percent: 0,
            },
            3,
        );
        assert!((0..1000).all(|_| all_hot.choose() == 1));
    }
}
