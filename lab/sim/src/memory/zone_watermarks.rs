//! Watermarks: the memory that is kept free.

/// Free frames at which something happens (`mm/page_alloc.c`, `__setup_per_zone_wmarks`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneWatermarks {
    /// No program gets a frame if fewer would remain free; it has to reclaim some itself.
    pub min: u64,
    /// Below it kswapd starts to reclaim.
    pub low: u64,
    /// At it kswapd stops.
    pub high: u64,
}

/// Largest `min_free_kbytes` (`init_per_zone_wmark_min`: 64 MiB until Linux 5.8, 256 MiB since).
const MOST_MIN_KIB: u64 = 65_536;
const LEAST_MIN_KIB: u64 = 128;

impl ZoneWatermarks {
    /// Linux's watermarks for this number of frames. `min_free_kbytes` is the square root of 16
    /// times memory in KiB. The low watermark is one step above that, and the high one two steps. A
    /// step is a quarter of `min_free_kbytes`, or a thousandth of memory if that is more
    /// (`watermark_scale_factor`).
    pub fn of_frames(frames: u64) -> Self {
        let kib = frames * 4;
        let min = (kib * 16).isqrt().clamp(LEAST_MIN_KIB, MOST_MIN_KIB) / 4;
        // A machine of a few MiB must still have memory to hand out.
        let min = min.min(frames / 8);
        let step = (min / 4).max(frames / 1000);
        Self { min, low: min + step, high: min + 2 * step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `min_free_kbytes`: about 16 MiB on machines of 16 GiB, about 39 MiB on machines of 96 GiB.
    #[test]
    fn follow_the_square_root_of_memory() {
        let of = |gib: u64| ZoneWatermarks::of_frames(gib << 18);
        assert_eq!(of(16).min, 4096);
        assert_eq!(of(96).min, 10_033);
        assert_eq!(of(1024).min, 16_384);
        assert_eq!(of(16).low - of(16).min, 4194);
        assert_eq!(of(16).high, of(16).low + 4194);
    }
}
