//! Limits fills: to the configured rate, and to times with enough free huge pages.

use crate::memory::fragmentation;
use hawkeye_policy::{RatePerSecond, TokenBucket};
use std::time::Duration;

/// Fills between two looks at free memory.
const FILLS_PER_LOOK: u32 = 16;
/// Free huge pages that are left to other programs.
const MIN_FREE_HUGE_PAGES: u64 = 64;

pub(super) struct PrefaultRateAndMemoryLimit {
    bucket: Option<TokenBucket>,
    /// Fills until the next look at free memory, and whether there was enough at the last one.
    until_look: u32,
    enough_free: bool,
}

impl PrefaultRateAndMemoryLimit {
    /// `rate`: at most this many regions per second. They are spread: a burst disturbs neighbours
    /// more than the same amount spread out.
    pub(super) fn new(rate: Option<RatePerSecond>) -> Self {
        const BURST_S: f64 = 1.0 / 16.0;
        let spread = |rate: RatePerSecond| {
            // With less than one token nothing could ever pass.
            TokenBucket::new_full(rate.get(), (rate.get() * BURST_S).max(1.0))
        };
        Self { bucket: rate.map(spread), until_look: 0, enough_free: true }
    }

    /// Whether one more fill is allowed beside the `under_way` that have not ended.
    pub(super) fn try_take_prefault(&mut self, now: Duration, under_way: u64) -> bool {
        // Without free huge pages, the next allocation of one would have to compact memory.
        if self.until_look == 0 {
            self.until_look = FILLS_PER_LOOK;
            let wanted = MIN_FREE_HUGE_PAGES + under_way;
            self.enough_free =
                fragmentation::count_free_huge_pages().is_none_or(|free| free > wanted);
        }
        self.until_look -= 1;
        let bucket = self.bucket.as_mut();
        self.enough_free && bucket.is_none_or(|bucket| bucket.try_take_tokens(now, 1))
    }

    /// How long the rate allows no fill.
    pub(super) fn wait_left(&self, now: Duration) -> Duration {
        let next = self.bucket.map_or(now, |bucket| bucket.next_token_at(now));
        next.saturating_sub(now)
    }

    pub(super) fn give_back_prefault(&mut self) {
        if let Some(bucket) = &mut self.bucket {
            bucket.give_back_tokens(1);
        }
    }
}
