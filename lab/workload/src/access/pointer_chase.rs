//! A pointer chase: every read yields the address of the next one.

use super::access_patterns::{AccessPattern, HotColdLayout, HotOrColdPartChooser, MemoryPart};
use super::random_cycle::RandomCycle;
use crate::memory::WorkloadMemory;

/// Bytes per node of the cycle: a cache line.
const NODE: usize = 64;

/// One cycle through each part of the memory, in random order.
pub(super) struct PointerChase {
    chooser: HotOrColdPartChooser,
    at: [usize; 2],
}

impl PointerChase {
    /// Writes the cycles into memory: the first word of each node is the offset of the next.
    pub(super) fn new(memory: &mut WorkloadMemory, layout: HotColdLayout, seed: u64) -> Self {
        for area in [layout.cold, layout.hot] {
            let cycle = RandomCycle::new(area.bytes / NODE, seed);
            for node in 0..area.bytes / NODE {
                let next = area.offset + cycle.successor(node) * NODE;
                memory.write_word(area.offset + node * NODE, next as u64);
            }
        }
        let begin = |area: MemoryPart| area.offset;
        Self {
            chooser: HotOrColdPartChooser::new(layout, seed),
            at: [layout.cold, layout.hot].map(begin),
        }
    }
}

impl AccessPattern for PointerChase {
    fn read_batch(&mut self, memory: &WorkloadMemory, count: usize) {
        let at = &mut self.at[self.chooser.draw_part_index()];
        for _ in 0..count {
            *at = memory.read_word(*at) as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{REGION, RequestedPageKind};

    #[test]
    fn the_chase_stays_in_its_part() {
        let mut memory =
            WorkloadMemory::map_private_and_touch(REGION, RequestedPageKind::Default, |_| ())
                .unwrap();
        let half = REGION / 2;
        let layout = HotColdLayout::new(half, half, 50);
        let mut chase = PointerChase::new(&mut memory, layout, 1);
        for _ in 0..100 {
            chase.read_batch(&memory, 1000);
            assert!(chase.at[0] < half && (half..REGION).contains(&chase.at[1]));
        }
    }
}
