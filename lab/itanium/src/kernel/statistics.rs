//! What the thesis' kernel counts of large pages (section 5.5.3), and what is counted of other policies.

use serde::Serialize;

/// Pages by order, since the machine started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Chosen at `mmap`: pre-allocated in virtual space.
    pub sized: ByOrder,
    /// Given memory at a page fault.
    pub faulted: ByOrder,
    /// For which there was no contiguous memory.
    pub failed: ByOrder,
    /// Split otherwise.
    pub demoted: ByOrder,
    /// Made of smaller ones.
    pub promoted: ByOrder,
    /// Reservations that were given up.
    pub given_up: u64,
    /// Base pages that were moved to free larger blocks.
    pub moved: u64,
    /// Frames that were out of others' reach, at the most: programs' memory and page tables, and a pool whether used or not. What is reserved and not
    /// used is not among them.
    pub most_frames: u32,
    /// Frames that were reserved and not used, at the most.
    pub most_reserved: u32,
}

/// A number for each order of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByOrder(Vec<u64>);

impl ByOrder {
    /// One more.
    pub fn add(&mut self, order: u8) {
        let order = usize::from(order);
        if self.0.len() <= order {
            self.0.resize(order + 1, 0);
        }
        if let Some(count) = self.0.get_mut(order) {
            *count += 1;
        }
    }

    /// The largest order of which there are any.
    pub fn largest(&self) -> Option<u8> {
        let largest = self.0.iter().rposition(|count| *count > 0);
        largest.map(|order| order as u8)
    }

    /// How many of this order.
    pub fn of(&self, order: u8) -> u64 {
        self.0.get(usize::from(order)).copied().unwrap_or(0)
    }

    /// Their share of all base pages, in per cent. None where there are none.
    pub fn percent(&self, order: u8) -> Option<f64> {
        let pages = |order: u8| (self.of(order) << order) as f64;
        let all: f64 = (0..self.0.len()).map(|order| pages(order as u8)).sum();
        Some(pages(order) / all * 100.0).filter(|percent| percent.is_finite())
    }
}
