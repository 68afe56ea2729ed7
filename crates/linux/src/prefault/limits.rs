//! How much may be filled: as often as the rate says, while enough huge pages are free.

use crate::memory::fragmentation;
use hawkeye_policy::{Rate, TokenBucket};
use std::time::Duration;

/// So many fills from one look at free memory to the next.
const LOOK_EVERY: u32 = 16;
/// Free huge pages that are left to others.
const LEFT_FREE: u64 = 64;

pub(super) struct Limits {
    bucket: Option<TokenBucket>,
    /// Fills until free memory is looked at again, and whether there was enough.
    until_look: u32,
    enough_free: bool,
}

impl Limits {
    /// `rate`: regions per second at the most.
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self {
            bucket: rate.map(evenly),
            until_look: 0,
            enough_free: true,
        }
    }

    /// Allows one fill more beside so many that are under way, or not.
    pub(super) fn allow(&mut self, now: Duration, under_way: u64) -> bool {
        let bucket = &mut self.bucket;
        let mut take = || bucket.as_mut().is_none_or(|bucket| bucket.take(now, 1));
        // Whoever needs a huge page where none is left would have to compact memory.
        if self.until_look == 0 {
            self.until_look = LOOK_EVERY;
            let wanted = LEFT_FREE + under_way;
            self.enough_free = fragmentation::free_huge_pages().is_none_or(|free| free > wanted);
        }
        self.until_look -= 1;
        self.enough_free && take()
    }

    /// What was allowed came to nothing.
    pub(super) fn give_back(&mut self) {
        if let Some(bucket) = &mut self.bucket {
            bucket.give_back(1);
        }
    }
}

/// A neighbour feels a burst more than the same amount spread out.
fn evenly(rate: Rate) -> TokenBucket {
    const BURST_S: f64 = 1.0 / 16.0;
    let burst = (rate.get() * BURST_S).max(1.0);
    TokenBucket::new(rate, burst).unwrap_or_else(|_| TokenBucket::one_second(rate))
}
