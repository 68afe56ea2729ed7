//! Counts of large pages: those of the thesis' kernel (section 5.5.3), and those of other policies.

/// Pages by order, since the machine started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargePageStatistics {
    /// Sizes chosen at `mmap`: pre-allocated in virtual space.
    pub sized: CountsByOrder,
    /// Pages that got memory at a page fault.
    pub faulted: CountsByOrder,
    /// Pages for which there was no contiguous memory.
    pub failed: CountsByOrder,
    /// Pages split for another reason.
    pub demoted: CountsByOrder,
    /// Pages made of smaller ones.
    pub promoted: CountsByOrder,
    /// Reservations that were given up.
    pub given_up: u64,
    /// Base pages that were moved to free larger blocks.
    pub moved: u64,
    /// The largest number of frames unavailable to others: programs' memory and page tables, and a
    /// pool whether used or not. Reserved and unused frames do not count.
    pub most_frames: u32,
    /// The largest number of frames that were reserved and not used.
    pub most_reserved: u32,
}

/// A number for each order of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountsByOrder(Vec<u64>);

impl CountsByOrder {
    /// Adds one.
    pub fn add(&mut self, order: u8) {
        let order = usize::from(order);
        if self.0.len() <= order {
            self.0.resize(order + 1, 0);
        }
        self.0[order] += 1;
    }

    /// The largest order with a count above 0.
    pub fn largest(&self) -> Option<u8> {
        let largest = self.0.iter().rposition(|count| *count > 0);
        largest.map(|order| order as u8)
    }

    /// The count of this order.
    pub fn count(&self, order: u8) -> u64 {
        self.0.get(usize::from(order)).copied().unwrap_or(0)
    }

    /// This order's share of all base pages, in per cent. `None` without pages.
    pub fn percent(&self, order: u8) -> Option<f64> {
        let pages = |order: u8| (self.count(order) << order) as f64;
        let all: f64 = (0..self.0.len()).map(|order| pages(order as u8)).sum();
        Some(pages(order) / all * 100.0).filter(|percent| percent.is_finite())
    }
}
