//! Pages that a stream touches: what access bits show of it.

use super::zipf::zipf_rank_groups;
use super::{PER_REGION, StreamSampler, StreamShape, touch_probability};
use crate::page_bits::PageBits;
use crate::rng::SimulationRng;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use rand_distr::{Distribution, Poisson};

impl StreamSampler {
    /// Number of these pages (of region `number`) that one access touches first in a while.
    pub(in crate::engine) fn page_visits_per_access(&self, number: usize, pages: PageBits) -> f64 {
        let used = self.used.max(1) as f64;
        match &self.shape {
            StreamShape::Random => f64::from(pages.count()) / used,
            StreamShape::Stride { bytes, .. } => {
                let pages_per_access = (*bytes as f64 / BASE_PAGE_BYTES as f64).min(1.0);
                f64::from(pages.count()) / used * pages_per_access
            }
            StreamShape::Zipf { chances, .. } => {
                let each = self.zipf_page_chances(chances, number, pages);
                each.map(|(_, chance)| chance).sum()
            }
        }
    }

    /// The pages among these that the last `accesses` went to.
    pub(in crate::engine) fn draw_visited_pages(
        &self,
        accesses: f64,
        number: usize,
        mut pages: PageBits,
        rng: &mut SimulationRng,
    ) -> PageBits {
        if let StreamShape::Zipf { chances, .. } = &self.shape {
            return self.draw_visited_zipf_pages(chances, accesses, number, pages, rng);
        }
        let chance = match self.touched_share(accesses) {
            TouchedShare::Chance(chance) => chance,
            swept => swept.touch_chance_in_region(number - self.regions.start),
        };
        rng.keep_pages_with_probability(&mut pages, chance);
        pages
    }

    /// For skewed popularity: these pages with the chance that one access goes to each.
    fn zipf_page_chances<'a>(
        &self,
        chances: &'a [f32],
        number: usize,
        pages: PageBits,
    ) -> impl Iterator<Item = (u16, f64)> + 'a {
        let first = (number - self.regions.start) * usize::from(PAGES_PER_REGION);
        // Accesses to pages not in use go to others.
        let others = self.count_pages() as f64 / self.used.max(1) as f64;
        let here = chances.get(first..first + usize::from(PAGES_PER_REGION));
        let all = (0..PAGES_PER_REGION).zip(here.unwrap_or_default());
        all.filter(move |(page, _)| pages.contains(*page))
            .map(move |(page, chance)| (page, f64::from(*chance) * others))
    }

    fn draw_visited_zipf_pages(
        &self,
        chances: &[f32],
        accesses: f64,
        number: usize,
        pages: PageBits,
        rng: &mut SimulationRng,
    ) -> PageBits {
        let mut sum = 0.0;
        let sums: Vec<(f64, u16)> = self
            .zipf_page_chances(chances, number, pages)
            .map(|(page, chance)| {
                sum += chance * accesses;
                (sum, page)
            })
            .collect();
        let mut visited = PageBits::EMPTY;
        if sum > f64::from(2 * PAGES_PER_REGION) {
            for (page, chance) in self.zipf_page_chances(chances, number, pages) {
                if rng.chance(touch_probability(accesses * chance)) {
                    visited.insert(page);
                }
            }
            return visited;
        }
        // `count` accesses, each to one of them.
        let count = Poisson::new(sum).map_or(0.0, |law| law.sample(rng));
        for _ in 0..count as u64 {
            let at = rng.draw_fraction() * sum;
            let place = sums.partition_point(|(up_to, _)| *up_to < at);
            if let Some((_, page)) = sums.get(place) {
                visited.insert(*page);
            }
        }
        visited
    }

    /// The share of the part that `accesses` of it touch.
    pub(in crate::engine) fn touched_share(&self, accesses: f64) -> TouchedShare {
        let pages = self.count_pages() as f64;
        let chance = match &self.shape {
            StreamShape::Random => touch_probability(accesses / self.used.max(1) as f64),
            StreamShape::Zipf { theta, total, .. } => {
                let accesses = accesses * pages / self.used.max(1) as f64;
                let groups = zipf_rank_groups(pages, *theta)
                    .map(|(chance, width)| width * touch_probability(accesses * chance / total));
                groups.sum::<f64>() / pages
            }
            StreamShape::Stride { bytes, at } => {
                let length = self.count_pages() * BASE_PAGE_BYTES;
                let dense = (BASE_PAGE_BYTES as f64 / *bytes as f64).min(1.0);
                let reach = accesses * *bytes as f64;
                if reach < length as f64 {
                    return TouchedShare::Swept {
                        from: (at + length - reach as u64) % length,
                        bytes: reach as u64,
                        length,
                        dense,
                    };
                }
                if *bytes < BASE_PAGE_BYTES {
                    1.0
                } else {
                    // Each round reaches other places, until the stride is back where it began.
                    let places = (length / gcd(length, *bytes)) as f64;
                    accesses.min(places).min(pages) / pages
                }
            }
        };
        TouchedShare::Chance(chance)
    }
}

/// The touched pages of a part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::engine) enum TouchedShare {
    /// Each page with this probability.
    Chance(f64),
    /// A range that starts at `from` and wraps around a part of `length` bytes, and the share of
    /// its pages that is touched.
    Swept { from: u64, bytes: u64, length: u64, dense: f64 },
}

impl TouchedShare {
    /// The mean probability that a page of a region of the part (by number) was touched.
    pub(in crate::engine) fn touch_chance_in_region(self, number: usize) -> f64 {
        match self {
            Self::Chance(chance) => chance,
            Self::Swept { from, bytes, length, dense } => {
                let size = PER_REGION * BASE_PAGE_BYTES;
                let (start, end) = (number as u64 * size, (number as u64 + 1) * size);
                let over = |a: u64, b: u64| b.min(end).saturating_sub(a.max(start));
                let to = from + bytes;
                let here = over(from, to.min(length)) + over(0, to.saturating_sub(length));
                here as f64 / size as f64 * dense
            }
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
