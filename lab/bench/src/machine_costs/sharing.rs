//! What a cache that others use as well keeps of the lines that we read.
//!
//! Last-level caches do not take every line that is read once, and keep what is read again for longer; how they choose is
//! not published. Both are measured, by a few lines that are read one after the other some time after all were.

use super::caches::{
    CacheSize, FAR_BLOCK, NEAR_BLOCK, PAIR, cache_sizes, chase, first, in_blocks, link, sweep,
};
use super::memory::{Memory, Pages};
use super::{Spread, turns};
use hawkeye_linux::LinuxError;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Where the kernel tells of no caches.
const UNTOLD_BYTES: usize = 8 << 20;
/// Read in between, so that nothing is left: more than last-level caches hold.
const FORGETTING_BYTES: usize = 256 << 20;
/// After so many sweeps lines are in a cache that takes one of ten that it has not.
const SWEEPS: usize = 32;
/// Milliseconds that lines are left alone.
const AFTER_MS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// Nanoseconds for reads that wait for each other, by what was read before.
#[derive(Clone, Debug, Serialize)]
pub struct Sharing {
    /// Memory of the lines.
    pub bytes: usize,
    /// None of them.
    pub gone: Spread,
    /// Each once.
    pub once: Spread,
    /// Each many times, just before.
    pub kept: Spread,
    /// Each many times, so many milliseconds before; longer each time.
    pub later: Vec<(f64, Spread)>,
}

/// Measures, in some seconds.
///
/// # Errors
/// Memory or huge pages that can't be had.
pub fn measure() -> Result<Sharing, LinuxError> {
    let bytes = bytes(&cache_sizes());
    let memory = Memory::written(bytes + FORGETTING_BYTES, Pages::Huge)?;
    over(&memory, bytes)
}

/// Memory that only the shared one of these caches holds: a quarter of it, but four to eight times the core's own, so that it
/// takes about as much room there as page tables of gigabytes.
pub(super) fn bytes(caches: &[CacheSize]) -> usize {
    let size = |wanted: fn(u32) -> bool| {
        let cache = caches.iter().rfind(|cache| wanted(cache.level));
        cache.map(|cache| (cache.bytes as usize).next_power_of_two())
    };
    let Some(own) = size(|level| level <= 2) else {
        return UNTOLD_BYTES;
    };
    let quarter = size(|level| level > 2).map_or(0, |shared| shared / 4);
    quarter.clamp(4 * own, 8 * own)
}

/// The same with memory that there is already.
pub(super) fn over(memory: &Memory, bytes: usize) -> Result<Sharing, LinuxError> {
    let order = in_blocks(bytes, NEAR_BLOCK);
    // Of the first of blocks that sweeps go through, so that the core's own caches have it no more.
    let asked = order.get(..NEAR_BLOCK / PAIR).unwrap_or(&order);
    link(memory, asked);
    let after = |sweeps: usize, wait_ms: f64| {
        turns(|| {
            sweep(memory, bytes..bytes + FORGETTING_BYTES, 1, || ());
            sweep(memory, 0..bytes, sweeps, || ());
            idle(Duration::from_secs_f64(wait_ms / 1e3));
            let mut at = first(asked);
            Ok([chase(memory, &mut at, asked.len())])
        })
        .map(|[ns]| ns)
    };
    debug_assert_eq!(FORGETTING_BYTES % FAR_BLOCK, 0);
    Ok(Sharing {
        bytes,
        gone: after(0, 0.0)?,
        once: after(1, 0.0)?,
        kept: after(SWEEPS, 0.0)?,
        later: AFTER_MS
            .iter()
            .map(|ms| Ok((*ms, after(SWEEPS, *ms)?)))
            .collect::<Result<_, LinuxError>>()?,
    })
}

impl Sharing {
    /// Which part of the lines that it does not have the cache takes when they are read: 0 to 1. `None` where no difference is seen
    /// between those it has and those it has not.
    pub fn taken(&self) -> Option<f64> {
        let (gone, kept) = (self.gone.median, self.kept.median);
        let taken = (gone - self.once.median) / (gone - kept);
        (gone > kept).then(|| taken.clamp(0.0, 1.0))
    }

    /// When half of the lines that were read many times are gone, in milliseconds. `None` where that was not seen.
    pub fn kept_for_ms(&self) -> Option<f64> {
        let middle = (self.gone.median + self.kept.median) / 2.0;
        let mut before = (0.0, self.kept.median);
        for (ms, ns) in &self.later {
            let now = (*ms, ns.median);
            if now.1 > middle && before.1 < middle {
                let part = (middle - before.1) / (now.1 - before.1);
                return Some(before.0 + part * (now.0 - before.0));
            }
            before = now;
        }
        None
    }
}

/// Uses the core, and no memory.
fn idle(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(ns: f64) -> Spread {
        Spread::of(vec![ns])
    }

    fn sharing(once: f64, later: &[(f64, f64)]) -> Sharing {
        Sharing {
            bytes: 4 << 20,
            gone: spread(160.0),
            once: spread(once),
            kept: spread(20.0),
            later: later.iter().map(|(ms, ns)| (*ms, spread(*ns))).collect(),
        }
    }

    #[test]
    fn what_is_measured_over_is_in_the_shared_cache_alone() {
        let cache = |level, mib: u64| CacheSize {
            level,
            bytes: mib << 20,
            ways: 16,
        };
        assert_eq!(bytes(&[cache(2, 1), cache(3, 32)]), 8 << 20);
        assert_eq!(bytes(&[cache(2, 1), cache(3, 8)]), 4 << 20);
        assert_eq!(bytes(&[cache(2, 2), cache(3, 105)]), 16 << 20);
        assert_eq!(bytes(&[cache(2, 1)]), 4 << 20);
        assert_eq!(bytes(&[]), UNTOLD_BYTES);
    }

    #[test]
    fn what_is_found_after_one_read_was_taken() {
        assert_eq!(sharing(118.0, &[]).taken(), Some(0.3));
        assert_eq!(sharing(18.0, &[]).taken(), Some(1.0));
        assert_eq!(sharing(165.0, &[]).taken(), Some(0.0));
        let all_the_same = Sharing {
            kept: spread(160.0),
            ..sharing(160.0, &[])
        };
        assert_eq!(all_the_same.taken(), None);
    }

    #[test]
    fn lines_are_kept_until_half_of_them_are_gone() {
        let kept = |later: &[(f64, f64)]| sharing(20.0, later).kept_for_ms();
        assert_eq!(kept(&[(2.0, 30.0), (4.0, 60.0), (8.0, 120.0)]), Some(6.0));
        assert_eq!(kept(&[(2.0, 160.0)]), Some(1.0));
        assert_eq!(
            kept(&[(2.0, 30.0), (4.0, 60.0)]),
            None,
            "nobody else is there"
        );
    }
}
