//! What a session monitors, and for how long.

use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use std::ops::Range;
use std::time::Duration;

/// Most 2 MiB regions in one session (8 GiB): the kernel keeps one sysfs directory for each, and
/// one more for each result.
pub const MAX_REGIONS: usize = 4096;

/// DAMON refuses fewer pieces (`damon_set_attrs` in `mm/damon/core.c`).
const MIN_PIECES: usize = 3;

/// Samples of each region in a window.
pub(super) const SAMPLES: u32 = 20;

/// Shortest sampling interval: two page-table walks per region have to fit into it.
const MIN_SAMPLING: Duration = Duration::from_millis(1);

/// Length of a window, and its sampling interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamonWindow {
    /// Time between the clear of a page's access bit and its read: the time to which an estimate
    /// applies. The kernel counts whole microseconds.
    pub(super) sampling: Duration,
}

impl DamonWindow {
    /// A window of this length, but at least 20 ms.
    pub fn with_length(length: Duration) -> Self {
        Self {
            sampling: (length / SAMPLES).max(MIN_SAMPLING),
        }
    }

    /// Length of the window.
    pub fn length(self) -> Duration {
        self.sampling.saturating_mul(SAMPLES)
    }
}

/// The ranges that DAMON monitors: the regions, or their quarters if there are fewer than it
/// accepts.
///
/// The number of pieces equals DAMON's lower and upper limit. So DAMON does not merge two pieces:
/// no result may be larger than all memory divided by the lower limit. Nor does it split one: it
/// splits up to half of the upper limit.
pub(super) fn monitored_ranges(regions: &[RegionAddr]) -> Vec<Range<u64>> {
    let parts = if regions.len() < MIN_PIECES { 4 } else { 1 };
    let size = HUGE_PAGE_BYTES / parts;
    let piece = |region: &RegionAddr, part: u64| {
        let start = region.start() + part * size;
        start..start + size
    };
    regions
        .iter()
        .flat_map(|region| (0..parts).map(move |part| piece(region, part)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_regions_are_cut_up_so_that_damon_accepts_them() {
        let region = |index: u64| RegionAddr::containing(index * HUGE_PAGE_BYTES);
        let quarter = HUGE_PAGE_BYTES / 4;
        let quarters: Vec<_> = (4..8)
            .map(|index| index * quarter..(index + 1) * quarter)
            .collect();
        assert_eq!(monitored_ranges(&[region(1)]), quarters);
        assert_eq!(monitored_ranges(&[region(1), region(3)]).len(), 8);
        assert_eq!(
            monitored_ranges(&[region(1), region(3), region(4)]).len(),
            3
        );
    }

    #[test]
    fn a_window_keeps_its_length_but_for_the_shortest_interval() {
        let length = |millis| DamonWindow::with_length(Duration::from_millis(millis)).length();
        assert_eq!(length(1000), Duration::from_secs(1));
        assert_eq!(length(5), Duration::from_millis(20));
    }
}
