//! The page sizes by which a program's memory is mapped, over time.

use super::figures::PageSizeFigures;
use crate::kernel::{FaultCounts, MappedBytesBySize};
use hawkeye_policy::PageOrder;
use std::time::Duration;

/// The sizes at the last update, and their sums over the time before.
#[derive(Clone, Debug)]
pub(super) struct TimeWeightedPageSizes {
    began: Duration,
    at: Duration,
    mapped: MappedBytesBySize,
    /// Bytes times seconds, by order.
    sums: [f64; MappedBytesBySize::ORDERS],
}

impl TimeWeightedPageSizes {
    pub(super) fn new(began: Duration) -> Self {
        Self {
            began,
            at: began,
            mapped: MappedBytesBySize::default(),
            sums: [0.0; MappedBytesBySize::ORDERS],
        }
    }

    /// Records what is mapped now. What was recorded before counts until now.
    pub(super) fn record(&mut self, now: Duration, mapped: MappedBytesBySize) {
        let lasted_s = now.saturating_sub(self.at).as_secs_f64();
        for (sum, (_, bytes)) in self.sums.iter_mut().zip(self.mapped.iter()) {
            *sum += bytes as f64 * lasted_s;
        }
        (self.at, self.mapped) = (now, mapped);
    }

    pub(super) fn figures(&self, faults: &FaultCounts, now: Duration) -> Vec<PageSizeFigures> {
        let mut all = self.clone();
        all.record(now, self.mapped);
        let lasted_s = now.saturating_sub(self.began).as_secs_f64().max(1e-9);
        let sizes = all.mapped.iter().zip(&all.sums);
        let sizes = sizes.map(|((order, bytes), sum): ((PageOrder, u64), _)| PageSizeFigures {
            page_bytes: order.bytes(),
            faults: faults.count_first_touches_of_order(order),
            fallbacks: faults.fallbacks_of_order(order),
            mapped_end_bytes: bytes,
            mapped_mean_bytes: (sum / lasted_s).round() as u64,
        });
        let nothing = |size: &PageSizeFigures| {
            let counts = [size.faults, size.fallbacks, size.mapped_end_bytes];
            counts == [0; 3] && size.mapped_mean_bytes == 0
        };
        sizes.filter(|size| !nothing(size)).collect()
    }
}
