//! A stream of accesses: single ones drawn for the sample, and each page's long-run frequency.
//!
//! Both follow the same distribution. Coverage over a window of any length therefore follows from
//! the number of accesses in it, whatever the size of the sample. A page that one access goes to
//! with chance `c` was accessed in `n` of them with probability `1 - exp(-n c)`.

use super::area_layout::AreaLayout;
use crate::bits::PageBits;
use crate::mmu::CACHE_LINE_BYTES;
use crate::mmu::translation::Access;
use crate::rng::{Permutation, SimulationRng};
use crate::workloads::{AccessStream, StreamPattern};
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use rand_distr::{Distribution, Poisson, Zipf};
use std::ops::Range;
use std::sync::Arc;

const PER_REGION: u64 = PAGES_PER_REGION as u64;
/// Draws that may hit a page not in use before the next page in use is taken instead.
const DRAWS: u32 = 64;

#[derive(Clone, Debug)]
pub(super) struct StreamSampler {
    pub(super) lot: usize,
    pub(super) regions: Range<usize>,
    /// Its share of all accesses of the phase, 0-1.
    pub(super) share: f64,
    pub(super) cycles: f64,
    pub(super) waited_permille: u32,
    stores: f64,
    shape: StreamShape,
    /// Pages in use when the phase began.
    used: u64,
}

#[derive(Clone, Debug)]
enum StreamShape {
    Random,
    Zipf {
        law: Zipf<f64>,
        theta: f64,
        /// Sum of the chances of all ranks, where the first rank's is 1.
        total: f64,
        order: Permutation,
        /// The chance that one access goes to each page of the part, in page order.
        chances: Arc<[f32]>,
    },
    /// `at` counts bytes from the start of the part.
    Stride {
        bytes: u64,
        at: u64,
    },
}

impl StreamSampler {
    pub(super) fn new(
        stream: &AccessStream,
        total_weight: f64,
        lots: &[AreaLayout],
        rng: &mut SimulationRng,
    ) -> Option<Self> {
        let lot = lots.iter().position(|lot| lot.name == stream.area)?;
        let held = lots.get(lot)?;
        let regions = held.regions_of_part(stream.part);
        let pages = regions.len() as u64 * PER_REGION;
        let shape = match stream.pattern {
            StreamPattern::Random => StreamShape::Random,
            StreamPattern::Zipf(theta) => {
                let total = zipf_rank_groups(pages as f64, theta)
                    .map(|(chance, width)| chance * width)
                    .sum();
                let order = Permutation::new(pages, rng);
                let mut chances = vec![0.0; pages as usize];
                for rank in 0..pages {
                    let chance = (rank as f64 + 1.0).powf(-theta) / total;
                    if let Some(slot) = chances.get_mut(order.permuted(rank) as usize) {
                        *slot = chance as f32;
                    }
                }
                StreamShape::Zipf {
                    law: Zipf::new(pages as f64, theta).ok()?,
                    theta,
                    total,
                    order,
                    chances: chances.into(),
                }
            }
            StreamPattern::Stride(bytes) => StreamShape::Stride { bytes, at: 0 },
        };
        Some(Self {
            lot,
            used: held.count_used(regions.clone()),
            regions,
            share: stream.weight / total_weight,
            cycles: stream.cycles,
            waited_permille: (stream.waited_percent * 10.0).round() as u32,
            stores: stream.stores_percent / 100.0,
            shape,
        })
    }

    /// Whether accesses are scattered. A sweep's lines have left the caches when it returns.
    pub(super) fn is_scattered(&self) -> bool {
        !matches!(self.shape, StreamShape::Stride { .. })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn first_page(&self) -> u64 {
        self.regions.start as u64 * PER_REGION
    }

    fn pages(&self) -> u64 {
        self.regions.len() as u64 * PER_REGION
    }

    pub(super) fn draw_access(&mut self, lot: &AreaLayout, rng: &mut SimulationRng) -> Access {
        let (first, pages) = (self.first_page(), self.pages());
        let mut page = first;
        let mut offset = 0;
        for _ in 0..DRAWS {
            (page, offset) = match &mut self.shape {
                StreamShape::Random => (first + rng.draw_below(pages), rng.draw_below(512) * 8),
                StreamShape::Zipf { law, order, .. } => {
                    let rank = (law.sample(rng) as u64).clamp(1, pages) - 1;
                    (first + order.permuted(rank), rng.draw_below(512) * 8)
                }
                StreamShape::Stride { bytes, at } => {
                    let here = *at;
                    *at = (here + *bytes) % (pages * BASE_PAGE_BYTES);
                    (first + here / BASE_PAGE_BYTES, here % BASE_PAGE_BYTES)
                }
            };
            if lot.is_used(page) {
                break;
            }
        }
        // Hardly any page is in use: the next one that is.
        let end = first + pages;
        let next = (page..end)
            .chain(first..page)
            .find(|page| lot.is_used(*page));
        let address = lot.address(next.unwrap_or(page)) + offset;
        if self.stores > 0.0 && rng.chance(self.stores) {
            Access::store(address)
        } else {
            Access::load(address)
        }
    }

    /// Advances a stride by accesses that are not drawn.
    pub(super) fn advance_stride(&mut self, accesses: f64) {
        let length = self.pages() * BASE_PAGE_BYTES;
        if let StreamShape::Stride { bytes, at } = &mut self.shape {
            let far = accesses.round() as u128 * u128::from(*bytes);
            *at = ((u128::from(*at) + far) % u128::from(length)) as u64;
        }
    }
}

/// The chance that something was accessed, given the average number of accesses to it.
pub(super) fn touch_probability(times: f64) -> f64 {
    -(-times).exp_m1()
}

#[cfg(test)]
pub(super) mod tests;

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
                let each = self.zipf_chances(chances, number, pages);
                each.map(|(_, chance)| chance).sum()
            }
        }
    }

    /// The pages among these that the last `accesses` went to.
    pub(in crate::engine) fn visited(
        &self,
        accesses: f64,
        number: usize,
        mut pages: PageBits,
        rng: &mut SimulationRng,
    ) -> PageBits {
        if let StreamShape::Zipf { chances, .. } = &self.shape {
            return self.zipf_visited(chances, accesses, number, pages, rng);
        }
        let chance = match self.touched_share(accesses) {
            TouchedShare::Chance(chance) => chance,
            swept => swept.of_region(number - self.regions.start),
        };
        rng.thin_out_pages(&mut pages, chance);
        pages
    }

    /// For skewed popularity: these pages with the chance that one access goes to each.
    fn zipf_chances<'a>(
        &self,
        chances: &'a [f32],
        number: usize,
        pages: PageBits,
    ) -> impl Iterator<Item = (u16, f64)> + 'a {
        let first = (number - self.regions.start) * usize::from(PAGES_PER_REGION);
        // Accesses to pages not in use go to others.
        let others = self.pages() as f64 / self.used.max(1) as f64;
        let here = chances.get(first..first + usize::from(PAGES_PER_REGION));
        let all = (0..PAGES_PER_REGION).zip(here.unwrap_or_default());
        all.filter(move |(page, _)| pages.contains(*page))
            .map(move |(page, chance)| (page, f64::from(*chance) * others))
    }

    fn zipf_visited(
        &self,
        chances: &[f32],
        accesses: f64,
        number: usize,
        pages: PageBits,
        rng: &mut SimulationRng,
    ) -> PageBits {
        let mut sum = 0.0;
        let sums: Vec<(f64, u16)> = self
            .zipf_chances(chances, number, pages)
            .map(|(page, chance)| {
                sum += chance * accesses;
                (sum, page)
            })
            .collect();
        let mut visited = PageBits::EMPTY;
        if sum > f64::from(2 * PAGES_PER_REGION) {
            for (page, chance) in self.zipf_chances(chances, number, pages) {
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
        let pages = self.pages() as f64;
        let chance = match &self.shape {
            StreamShape::Random => touch_probability(accesses / self.used.max(1) as f64),
            StreamShape::Zipf { theta, total, .. } => {
                let accesses = accesses * pages / self.used.max(1) as f64;
                let groups = zipf_rank_groups(pages, *theta)
                    .map(|(chance, width)| width * touch_probability(accesses * chance / total));
                groups.sum::<f64>() / pages
            }
            StreamShape::Stride { bytes, at } => {
                let length = self.pages() * BASE_PAGE_BYTES;
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
    Swept {
        from: u64,
        bytes: u64,
        length: u64,
        dense: f64,
    },
}

impl TouchedShare {
    /// The mean probability that a page of a region of the part (by number) was touched.
    pub(in crate::engine) fn of_region(self, number: usize) -> f64 {
        match self {
            Self::Chance(chance) => chance,
            Self::Swept {
                from,
                bytes,
                length,
                dense,
            } => {
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

const LINES_PER_PAGE: f64 = (BASE_PAGE_BYTES / CACHE_LINE_BYTES) as f64;

impl StreamSampler {
    pub(in crate::engine) fn count_touched_lines(&self, per_s: f64, time_s: f64) -> f64 {
        let used = self.used as f64 * LINES_PER_PAGE;
        match &self.shape {
            StreamShape::Random => used * touch_probability(per_s * time_s / used.max(1.0)),
            StreamShape::Stride { bytes, .. } => {
                let (all, each) = self.lines_of_stride(*bytes);
                (per_s * time_s * each).min(all)
            }
            StreamShape::Zipf { theta, total, .. } => {
                let pages = self.pages() as f64;
                let accesses = per_s * time_s * pages / self.used.max(1) as f64;
                let groups = zipf_rank_groups(pages, *theta).map(|(chance, width)| {
                    width * touch_probability(accesses * chance / total / LINES_PER_PAGE)
                });
                groups.sum::<f64>() / pages * used
            }
        }
    }

    /// Lines per access that it brings in, because a line stays in the cache for only `stays_s`.
    pub(in crate::engine) fn missed_lines_per_access(&self, per_s: f64, stays_s: f64) -> f64 {
        match &self.shape {
            StreamShape::Random => {
                let used = self.used.max(1) as f64 * LINES_PER_PAGE;
                (-per_s * stays_s / used).exp()
            }
            StreamShape::Stride { bytes, .. } => {
                let (all, each) = self.lines_of_stride(*bytes);
                if per_s * stays_s * each < all {
                    each
                } else {
                    0.0
                }
            }
            StreamShape::Zipf { theta, total, .. } => {
                let pages = self.pages() as f64;
                let accesses = per_s * stays_s * pages / self.used.max(1) as f64;
                let groups = zipf_rank_groups(pages, *theta).map(|(chance, width)| {
                    let share = chance / total;
                    width * share * (-accesses * share / LINES_PER_PAGE).exp()
                });
                groups.sum()
            }
        }
    }

    /// Lines in one round of a stride, and how many of them one access reaches.
    fn lines_of_stride(&self, bytes: u64) -> (f64, f64) {
        let line = CACHE_LINE_BYTES as f64;
        let used = (self.used * BASE_PAGE_BYTES) as f64;
        (
            used / line.max(bytes as f64),
            (bytes as f64 / line).min(1.0),
        )
    }
}

/// Ranks by Zipf's law: each of the first alone, the others in groups of growing width. Each item
/// is the chance of an access to one rank of the group, in units of the first rank's, and the
/// group's width.
fn zipf_rank_groups(pages: f64, theta: f64) -> impl Iterator<Item = (f64, f64)> {
    const EXACT: f64 = 1000.0;
    /// Width of a group over its first rank.
    const STEP: f64 = 0.01;
    let mut rank = 1.0;
    std::iter::from_fn(move || {
        if rank > pages {
            return None;
        }
        let width = if rank < EXACT {
            1.0
        } else {
            (rank * STEP).floor()
        };
        let width = width.min(pages - rank + 1.0);
        let chance = (rank + (width - 1.0) / 2.0).powf(-theta);
        rank += width;
        Some((chance, width))
    })
}
