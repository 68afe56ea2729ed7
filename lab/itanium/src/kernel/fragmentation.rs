//! Fragmentation: memory that no simulated process owns.

use super::ItaniumMachine;
use hawkeye_sim::rng::SimulationRng;

/// Blocks of free memory in which other memory holds one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialFragmentation {
    /// Order of the blocks. If all are broken, no larger block is free.
    pub order: u8,
    /// Share of blocks that are broken, in per cent.
    pub broken_percent: u32,
    /// Share of the broken blocks in which that page can be moved, in per cent.
    pub movable_percent: u32,
}

impl InitialFragmentation {
    /// No page of this order or more is available, and moving pages does not help.
    pub const fn complete(order: u8) -> Self {
        Self {
            order,
            broken_percent: 100,
            movable_percent: 0,
        }
    }
}

impl ItaniumMachine {
    /// Takes the first frame of the broken blocks, which the seed selects.
    pub(super) fn fragment(&mut self, how: InitialFragmentation, seed: u64) {
        let mut rng = SimulationRng::new(seed, 0xf4a6);
        for block in (0..self.buddy.frames()).step_by(1 << how.order.min(31)) {
            let broken = rng.draw_below(100) < how.broken_percent.into();
            let movable = rng.draw_below(100) < how.movable_percent.into();
            if !broken || !self.buddy.take_free_frame(block) {
                continue;
            }
            if movable {
                self.movable.insert(block);
            } else {
                self.held += 1;
            }
        }
    }
}
