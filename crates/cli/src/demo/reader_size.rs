//! How much memory the demo's reader uses: as much as it takes for page walks to matter here.

use anyhow::Result;

/// Memory of the demo's reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderSize {
    /// The hot part, at the highest addresses, in MiB.
    pub hot_mib: u64,
}

impl ReaderSize {
    /// Share of the reads that go to the hot part, in per cent.
    pub const HOT_PERCENT: u64 = 99;
    /// The speed-up that is looked for. Some of it is lost to the reads that are not hot.
    const WANTED: f64 = 1.5;
    /// The speed-up that the demo is to show where huge pages matter at all.
    pub const LEAST_SPEED_UP: f64 = 1.3;
    /// Hot memory to try, in MiB. The least misses the TLB of every processor so far; page tables
    /// of the most exceed the caches of most.
    const TRIED_MIB: [u64; 4] = [384, 768, 1536, 3072];

    /// All of its memory, in MiB. What is not hot is for promotions that miss the hot part: a
    /// little more than they are, because some regions are passed over.
    pub fn total_mib(self) -> u64 {
        self.hot_mib / 8 * 17
    }

    /// Promotions that make the hot part huge.
    pub fn hot_regions(self) -> u64 {
        self.hot_mib / 2
    }

    /// Two readers run side by side. They get at most half of the free memory.
    fn fits(self, free_mib: u64) -> bool {
        2 * self.total_mib() <= free_mib / 2
    }

    /// The next larger size to try, if it fits.
    pub fn next_larger(self, free_mib: u64) -> Option<Self> {
        let all = Self::TRIED_MIB.map(|hot_mib| Self { hot_mib });
        let larger = all.into_iter().find(|size| size.hot_mib > self.hot_mib);
        larger.filter(|size| size.fits(free_mib))
    }

    /// The smallest size with which huge pages bring enough, or the one with which they bring most;
    /// and the speed with all of its hot memory huge over that under base pages, from `measure`.
    pub fn choose_by_speed_up(
        free_mib: u64,
        mut measure: impl FnMut(Self) -> Result<f64>,
    ) -> Result<(Self, f64)> {
        let [smallest, larger @ ..] = Self::TRIED_MIB.map(|hot_mib| Self { hot_mib });
        let (mut best, mut most) = (smallest, measure(smallest)?);
        for size in larger.into_iter().take_while(|size| size.fits(free_mib)) {
            if most >= Self::WANTED {
                break;
            }
            let speed_up = measure(size)?;
            if speed_up > most {
                (best, most) = (size, speed_up);
            }
        }
        Ok((best, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size chosen on a machine with this much free memory, where huge pages bring this much by
    /// size.
    fn chosen(free_mib: u64, speed_ups: [f64; 4]) -> (u64, f64) {
        let measure = |size: ReaderSize| {
            let known = ReaderSize::TRIED_MIB.iter().zip(speed_ups);
            let mut known = known.filter(|(hot_mib, _)| **hot_mib == size.hot_mib);
            Ok(known.next().map_or(f64::NAN, |(_, speed_up)| speed_up))
        };
        let found = ReaderSize::choose_by_speed_up(free_mib, measure);
        let (size, speed_up) = found.expect("nothing fails");
        (size.hot_mib, speed_up)
    }

    #[test]
    fn the_smallest_size_that_shows_enough_is_taken() {
        assert_eq!(chosen(65_536, [1.6, 1.7, 1.8, 2.0]), (384, 1.6));
        assert_eq!(chosen(65_536, [1.1, 1.2, 1.5, 1.6]), (1536, 1.5));
    }

    #[test]
    fn the_next_larger_size_is_taken_only_where_it_fits() {
        let next = |hot_mib, free_mib| {
            ReaderSize { hot_mib }.next_larger(free_mib).map(|size| size.hot_mib)
        };
        assert_eq!(next(384, 65_536), Some(768));
        assert_eq!(next(384, 4096), None);
        assert_eq!(next(3072, 65_536), None);
    }

    #[test]
    fn where_none_shows_enough_the_one_with_most_is_taken() {
        assert_eq!(chosen(65_536, [1.01, 1.05, 1.2, 1.1]), (1536, 1.2));
        // A gibibyte and a half of hot memory takes 6 GiB, which is more than half of 8.
        assert_eq!(chosen(8192, [1.1, 1.2, 1.4, 1.5]), (768, 1.2));
        assert_eq!(chosen(1024, [1.1, 1.2, 1.4, 1.5]), (384, 1.1));
    }
}
