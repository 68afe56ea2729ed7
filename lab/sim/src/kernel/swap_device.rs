//! The device to swap to, and its speed.

use super::kernel_costs::time_of_operations;
use hawkeye_policy::BASE_PAGE_BYTES;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A device to swap to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapSpec {
    /// Its size, in bytes.
    pub bytes: u64,
    /// Time to read a page, for which the faulting program waits.
    pub read_ns: u64,
    /// Time that the device needs to write a page. It does one write after the other.
    pub write_ns: u64,
}

impl SwapSpec {
    /// A SATA SSD, as in the paper (96 GB; it does not say which): about 100 us to read a page at
    /// random, 205 MB/s to write.
    ///
    /// Intel's DC S4500 of 2017 is specified with 110 us to read. It writes up to 490 MB/s in a
    /// stream, and up to 33,000 pages/s (135 MB/s) at random. Its DC S3610 of 2015 has 520 MB/s and
    /// 28,000. Linux's pattern lies between the two. Each core fills a cluster of 256 pages of its
    /// own (`scan_swap_map_try_ssd_cluster` of `mm/swapfile.c`), 32 pages at a time, and takes
    /// turns with the others. The resulting rate between the two is not known; it is chosen for
    /// Figure 11.
    ///
    /// Neighbours in the swap area are not read along. After random accesses that made no use of
    /// them Linux reads only one page (`swapin_nr_pages` of `mm/swap_state.c`). Programs here don't
    /// access memory in swap in order.
    pub const fn ssd(bytes: u64) -> Self {
        Self { bytes, read_ns: 100_000, write_ns: 20_000 }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SwapDevice {
    spec: Option<SwapSpec>,
    pub(crate) used: u64,
    /// The device's time for writes of this interval, and the elapsed part of the interval.
    given: Duration,
    over: Duration,
    /// Factor by which a writer waits longer than alone: all writers share the device.
    crowd: f64,
}

/// Time between two estimates of each writer's share of the device.
const SHARED_EVERY: Duration = Duration::from_millis(100);

impl SwapDevice {
    pub(crate) fn new(spec: Option<SwapSpec>) -> Self {
        Self { spec, used: 0, given: Duration::ZERO, over: Duration::ZERO, crowd: 1.0 }
    }

    pub(crate) fn is_configured(&self) -> bool {
        self.spec.is_some()
    }

    pub(crate) fn count_free_swap_pages(&self) -> u64 {
        let pages = self.spec.map_or(0, |spec| spec.bytes / BASE_PAGE_BYTES);
        pages.saturating_sub(self.used)
    }

    pub(crate) fn read_time(&self, pages: u64) -> Duration {
        time_of_operations(pages, self.spec.map_or(0, |spec| spec.read_ns))
    }

    /// Writes pages; returns how long the writer waits for the device.
    pub(crate) fn write_pages(&mut self, pages: u64) -> Duration {
        let own = time_of_operations(pages, self.spec.map_or(0, |spec| spec.write_ns));
        self.given += own;
        own.mul_f64(self.crowd)
    }

    /// Advances time. If writers exceeded the device's speed, they wait longer from now on.
    pub(crate) fn advance_time(&mut self, step: Duration) {
        self.over += step;
        if self.over < SHARED_EVERY {
            return;
        }
        let load = self.given.as_secs_f64() / self.over.as_secs_f64();
        self.crowd = (self.crowd * load).max(1.0);
        (self.given, self.over) = (Duration::ZERO, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages written per second for this many writers, where each waits for its last 32 pages.
    fn written_pages_per_s(writers: usize) -> u64 {
        let mut swap = SwapDevice::new(Some(SwapSpec::ssd(1 << 40)));
        let step = Duration::from_millis(10);
        let mut owed = vec![Duration::ZERO; writers];
        let mut pages = 0;
        // The first writes to the device are not counted.
        for moment in 0..200 {
            for owed in &mut owed {
                while *owed < step {
                    *owed += swap.write_pages(32);
                    pages += if moment < 100 { 0 } else { 32 };
                }
                *owed -= step;
            }
            swap.advance_time(step);
        }
        pages
    }

    #[test]
    fn all_writers_together_write_as_much_as_the_device_can() {
        let can = 1_000_000_000 / SwapSpec::ssd(0).write_ns;
        for writers in 1..=4 {
            let pages = written_pages_per_s(writers);
            assert!(pages.abs_diff(can) < can / 50, "{writers}: {pages} of {can}");
        }
    }
}
