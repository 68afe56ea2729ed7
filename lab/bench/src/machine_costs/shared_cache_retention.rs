//! Measures which of our lines a cache keeps that others use as well.
//!
//! Last-level caches do not take every line that is read once, and keep lines longer that are read
//! again. Their rules are not published. This measures both: it reads all lines, waits, and then
//! reads a few of them one after the other.

use super::data_cache_levels::{DataCacheLevel, read_data_cache_levels};
use super::line_reads::{
    FAR_BLOCK, NEAR_BLOCK, PAIR, chase_ns_per_read, chase_start_offset,
    independent_laps_ns_per_read, link_lines_into_ring, shuffled_lines_by_block,
};
use super::prelude::*;
use std::time::{Duration, Instant};

/// Assumed size if the kernel reports no caches.
const UNTOLD_BYTES: usize = 8 << 20;
/// Memory read in between to evict all lines: more than last-level caches hold.
const FORGETTING_BYTES: usize = 256 << 20;
/// After this many laps, even a cache that takes one of ten missing lines has them.
const LAPS: usize = 32;
/// Milliseconds of waiting before the lines are read.
const AFTER_MS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// Nanoseconds for dependent reads, by how often the lines were read before.
#[derive(Clone, Debug)]
pub struct SharedCacheRetention {
    pub bytes: usize,
    /// No line was read.
    pub gone: MedianAndRange,
    /// Each line was read once.
    pub once: MedianAndRange,
    /// Each line was read many times, just before.
    pub kept: MedianAndRange,
    /// Each line was read many times, this many milliseconds before; ascending.
    pub later: Vec<(f64, MedianAndRange)>,
}

/// Measures for some seconds.
pub fn measure_cache_retention() -> Result<SharedCacheRetention, LinuxError> {
    let bytes = bytes_held_by_shared_cache_only(&read_data_cache_levels());
    let memory = ScratchMemory::map_and_write(bytes + FORGETTING_BYTES, PageAdvice::Huge)?;
    measure_retention_of_bytes(&memory, bytes)
}

/// A size that only the shared one of these caches holds: a quarter of it, but four to eight times
/// the core's own. It then takes about as much room there as the page tables of gigabytes.
pub(super) fn bytes_held_by_shared_cache_only(caches: &[DataCacheLevel]) -> usize {
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

pub(super) fn measure_retention_of_bytes(
    memory: &ScratchMemory,
    bytes: usize,
) -> Result<SharedCacheRetention, LinuxError> {
    let order = shuffled_lines_by_block(bytes, NEAR_BLOCK);
    // Lines of the first block of a lap, so that the core's own caches no longer have them.
    let asked = order.get(..NEAR_BLOCK / PAIR).unwrap_or(&order);
    link_lines_into_ring(memory, asked);
    let after = |laps: usize, wait_ms: f64| {
        median_figure_over_turns(|| {
            independent_laps_ns_per_read(memory, bytes..bytes + FORGETTING_BYTES, 1, || ());
            independent_laps_ns_per_read(memory, 0..bytes, laps, || ());
            busy_wait(Duration::from_secs_f64(wait_ms / 1e3));
            let mut at = chase_start_offset(asked);
            Ok(chase_ns_per_read(memory, &mut at, asked.len()))
        })
    };
    debug_assert_eq!(FORGETTING_BYTES % FAR_BLOCK, 0);
    Ok(SharedCacheRetention {
        bytes,
        gone: after(0, 0.0)?,
        once: after(1, 0.0)?,
        kept: after(LAPS, 0.0)?,
        later: AFTER_MS
            .iter()
            .map(|ms| Ok((*ms, after(LAPS, *ms)?)))
            .collect::<Result<_, LinuxError>>()?,
    })
}

impl SharedCacheRetention {
    /// The share of missing lines that the cache takes when they are read: 0 to 1. `None` if the
    /// two kinds of lines show no difference.
    pub fn inserted_share_of_misses(&self) -> Option<f64> {
        let (gone, kept) = (self.gone.median, self.kept.median);
        let taken = (gone - self.once.median) / (gone - kept);
        (gone > kept).then(|| taken.clamp(0.0, 1.0))
    }

    /// The time after which half of the lines that were read many times are gone, in milliseconds.
    /// `None` if that did not happen.
    pub fn line_half_life_ms(&self) -> Option<f64> {
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

/// Keeps the core busy without using memory.
fn busy_wait(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(ns: f64) -> MedianAndRange {
        MedianAndRange::from_figures(vec![ns])
    }

    fn sharing(once: f64, later: &[(f64, f64)]) -> SharedCacheRetention {
        SharedCacheRetention {
            bytes: 4 << 20,
            gone: spread(160.0),
            once: spread(once),
            kept: spread(20.0),
            later: later.iter().map(|(ms, ns)| (*ms, spread(*ns))).collect(),
        }
    }

    #[test]
    fn the_measured_memory_fits_the_shared_cache_alone() {
        let cache = |level, mib: u64| DataCacheLevel { level, bytes: mib << 20, ways: 16 };
        assert_eq!(bytes_held_by_shared_cache_only(&[cache(2, 1), cache(3, 32)]), 8 << 20);
        assert_eq!(bytes_held_by_shared_cache_only(&[cache(2, 1), cache(3, 8)]), 4 << 20);
        assert_eq!(bytes_held_by_shared_cache_only(&[cache(2, 2), cache(3, 105)]), 16 << 20);
        assert_eq!(bytes_held_by_shared_cache_only(&[cache(2, 1)]), 4 << 20);
        assert_eq!(bytes_held_by_shared_cache_only(&[]), UNTOLD_BYTES);
    }

    #[test]
    fn a_line_found_after_one_read_was_taken() {
        assert_eq!(sharing(118.0, &[]).inserted_share_of_misses(), Some(0.3));
        assert_eq!(sharing(18.0, &[]).inserted_share_of_misses(), Some(1.0));
        assert_eq!(sharing(165.0, &[]).inserted_share_of_misses(), Some(0.0));
        let all_the_same = SharedCacheRetention { kept: spread(160.0), ..sharing(160.0, &[]) };
        assert_eq!(all_the_same.inserted_share_of_misses(), None);
    }

    #[test]
    fn lines_are_kept_until_half_of_them_are_gone() {
        let kept = |later: &[(f64, f64)]| sharing(20.0, later).line_half_life_ms();
        assert_eq!(kept(&[(2.0, 30.0), (4.0, 60.0), (8.0, 120.0)]), Some(6.0));
        assert_eq!(kept(&[(2.0, 160.0)]), Some(1.0));
        // No other program uses the cache.
        assert_eq!(kept(&[(2.0, 30.0), (4.0, 60.0)]), None);
    }
}
