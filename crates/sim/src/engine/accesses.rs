//! A stream of accesses: single ones drawn for the sample, and how often each page is accessed in the long run.
//!
//! Both are of the same distribution, so that coverage over a window of any length follows from how many accesses
//! were made in it, whatever the size of the sample: a page that one access goes to with chance `c` was accessed in `n`
//! of them with probability `1 - exp(-n c)`.

use super::layout::Lot;
use crate::bits::PageBits;
use crate::mmu::CACHE_LINE_BYTES;
use crate::mmu::scatter::Scatter;
use crate::mmu::translation::Access;
use crate::rng::Rng;
use crate::workloads::{Pattern, Stream};
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use rand_distr::{Distribution, Poisson, Zipf};
use std::ops::Range;
use std::sync::Arc;

const PER_REGION: u64 = PAGES_PER_REGION as u64;
const LINES_PER_PAGE: f64 = (BASE_PAGE_BYTES / CACHE_LINE_BYTES) as f64;
/// How often a page that is not in use is drawn again before the next one in use is taken.
const DRAWS: u32 = 64;

/// A stream in a phase that is under way.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) lot: usize,
    /// Regions of the lot.
    pub(super) regions: Range<usize>,
    /// Of all accesses of the phase, 0-1.
    pub(super) share: f64,
    pub(super) cycles: f64,
    pub(super) waited_permille: u32,
    stores: f64,
    shape: Shape,
    /// Pages in use, at the begin of the phase.
    used: u64,
}

#[derive(Clone, Debug)]
enum Shape {
    Random,
    Zipf {
        law: Zipf<f64>,
        theta: f64,
        /// Of the chances of all ranks, that of the first being 1.
        total: f64,
        order: Scatter,
        /// How likely one access goes to each page of the part, in their order.
        chances: Arc<[f32]>,
    },
    /// `at` counts bytes from the begin of the part.
    Stride {
        bytes: u64,
        at: u64,
    },
}

impl Source {
    pub(super) fn new(
        stream: &Stream,
        total_weight: f64,
        lots: &[Lot],
        rng: &mut Rng,
    ) -> Option<Self> {
        let lot = lots.iter().position(|lot| lot.name == stream.area)?;
        let held = lots.get(lot)?;
        let regions = held.part(stream.part);
        let pages = regions.len() as u64 * PER_REGION;
        let shape = match stream.pattern {
            Pattern::Random => Shape::Random,
            Pattern::Zipf(theta) => {
                let total = zipf_ranks(pages as f64, theta)
                    .map(|(chance, width)| chance * width)
                    .sum();
                let order = Scatter::new(pages, rng);
                let mut chances = vec![0.0; pages as usize];
                for rank in 0..pages {
                    let chance = (rank as f64 + 1.0).powf(-theta) / total;
                    if let Some(slot) = chances.get_mut(order.of(rank) as usize) {
                        *slot = chance as f32;
                    }
                }
                Shape::Zipf {
                    law: Zipf::new(pages as f64, theta).ok()?,
                    theta,
                    total,
                    order,
                    chances: chances.into(),
                }
            }
            Pattern::Stride(bytes) => Shape::Stride { bytes, at: 0 },
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

    /// Whether its accesses lie scattered. What is swept has left the caches again when it comes round.
    pub(super) fn is_scattered(&self) -> bool {
        !matches!(self.shape, Shape::Stride { .. })
    }

    /// Whether there is anything to access.
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn first_page(&self) -> u64 {
        self.regions.start as u64 * PER_REGION
    }

    fn pages(&self) -> u64 {
        self.regions.len() as u64 * PER_REGION
    }

    /// The next access.
    pub(super) fn draw(&mut self, lot: &Lot, rng: &mut Rng) -> Access {
        let (first, pages) = (self.first_page(), self.pages());
        let mut page = first;
        let mut offset = 0;
        for _ in 0..DRAWS {
            (page, offset) = match &mut self.shape {
                Shape::Random => (first + rng.below(pages), rng.below(512) * 8),
                Shape::Zipf { law, order, .. } => {
                    let rank = (law.sample(rng) as u64).clamp(1, pages) - 1;
                    (first + order.of(rank), rng.below(512) * 8)
                }
                Shape::Stride { bytes, at } => {
                    let here = *at;
                    *at = (here + *bytes) % (pages * BASE_PAGE_BYTES);
                    (first + here / BASE_PAGE_BYTES, here % BASE_PAGE_BYTES)
                }
            };
            if lot.is_used(page) {
                break;
            }
        }
        // Hardly anything is in use: the next page that is.
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

    /// Lets a stride go on by accesses that are not drawn.
    pub(super) fn skip(&mut self, accesses: f64) {
        let length = self.pages() * BASE_PAGE_BYTES;
        if let Shape::Stride { bytes, at } = &mut self.shape {
            let far = accesses.round() as u128 * u128::from(*bytes);
            *at = ((u128::from(*at) + far) % u128::from(length)) as u64;
        }
    }

    /// Lines of memory that it touches in `time_s`, with so many accesses per second.
    pub(super) fn lines(&self, per_s: f64, time_s: f64) -> f64 {
        let used = self.used as f64 * LINES_PER_PAGE;
        match &self.shape {
            Shape::Random => used * touched(per_s * time_s / used.max(1.0)),
            Shape::Stride { bytes, .. } => {
                let (all, each) = self.strided(*bytes);
                (per_s * time_s * each).min(all)
            }
            Shape::Zipf { theta, total, .. } => {
                let pages = self.pages() as f64;
                let accesses = per_s * time_s * pages / self.used.max(1) as f64;
                let groups = zipf_ranks(pages, *theta).map(|(chance, width)| {
                    width * touched(accesses * chance / total / LINES_PER_PAGE)
                });
                groups.sum::<f64>() / pages * used
            }
        }
    }

    /// How many lines an access brings in that don't stay in the cache for longer than `stays_s`.
    pub(super) fn missed(&self, per_s: f64, stays_s: f64) -> f64 {
        match &self.shape {
            Shape::Random => {
                let used = self.used.max(1) as f64 * LINES_PER_PAGE;
                (-per_s * stays_s / used).exp()
            }
            Shape::Stride { bytes, .. } => {
                let (all, each) = self.strided(*bytes);
                if per_s * stays_s * each < all {
                    each
                } else {
                    0.0
                }
            }
            Shape::Zipf { theta, total, .. } => {
                let pages = self.pages() as f64;
                let accesses = per_s * stays_s * pages / self.used.max(1) as f64;
                let groups = zipf_ranks(pages, *theta).map(|(chance, width)| {
                    let share = chance / total;
                    width * share * (-accesses * share / LINES_PER_PAGE).exp()
                });
                groups.sum()
            }
        }
    }

    /// Lines of a stride's round, and how many of them an access comes to.
    fn strided(&self, bytes: u64) -> (f64, f64) {
        let line = CACHE_LINE_BYTES as f64;
        let used = (self.used * BASE_PAGE_BYTES) as f64;
        (
            used / line.max(bytes as f64),
            (bytes as f64 / line).min(1.0),
        )
    }

    /// How many of these pages of a region of the lot (by number) one access touches for the first time in a while.
    pub(super) fn visits(&self, number: usize, pages: PageBits) -> f64 {
        let used = self.used.max(1) as f64;
        match &self.shape {
            Shape::Random => f64::from(pages.count()) / used,
            Shape::Stride { bytes, .. } => {
                let pages_per_access = (*bytes as f64 / BASE_PAGE_BYTES as f64).min(1.0);
                f64::from(pages.count()) / used * pages_per_access
            }
            Shape::Zipf { chances, .. } => {
                let each = self.zipf_chances(chances, number, pages);
                each.map(|(_, chance)| chance).sum()
            }
        }
    }

    /// Those of these pages of a region that `accesses`, the last ones made, went to.
    pub(super) fn visited(
        &self,
        accesses: f64,
        number: usize,
        mut pages: PageBits,
        rng: &mut Rng,
    ) -> PageBits {
        if let Shape::Zipf { chances, .. } = &self.shape {
            return self.zipf_visited(chances, accesses, number, pages, rng);
        }
        let chance = match self.exposure(accesses) {
            Exposure::Chance(chance) => chance,
            swept => swept.of_region(number - self.regions.start),
        };
        rng.thin(&mut pages, chance);
        pages
    }

    /// Where popularity differs: these pages of a region, and how likely one access goes to each.
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
        rng: &mut Rng,
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
                if rng.chance(touched(accesses * chance)) {
                    visited.insert(page);
                }
            }
            return visited;
        }
        // So many accesses, each to one of them.
        let count = Poisson::new(sum).map_or(0.0, |law| law.sample(rng));
        for _ in 0..count as u64 {
            let at = rng.share() * sum;
            let place = sums.partition_point(|(up_to, _)| *up_to < at);
            if let Some((_, page)) = sums.get(place) {
                visited.insert(*page);
            }
        }
        visited
    }

    /// What `accesses` of it touch.
    pub(super) fn exposure(&self, accesses: f64) -> Exposure {
        let pages = self.pages() as f64;
        let chance = match &self.shape {
            Shape::Random => touched(accesses / self.used.max(1) as f64),
            Shape::Zipf { theta, total, .. } => {
                // Accesses to pages not in use go to others.
                let accesses = accesses * pages / self.used.max(1) as f64;
                zipf_touched(accesses, pages, *theta, *total)
            }
            Shape::Stride { bytes, at } => {
                let length = self.pages() * BASE_PAGE_BYTES;
                let dense = (BASE_PAGE_BYTES as f64 / *bytes as f64).min(1.0);
                let reach = accesses * *bytes as f64;
                if reach < length as f64 {
                    return Exposure::Swept {
                        from: (at + length - reach as u64) % length,
                        bytes: reach as u64,
                        length,
                        dense,
                    };
                }
                if *bytes < BASE_PAGE_BYTES {
                    1.0
                } else {
                    // Round after round it comes to other places, until it is back where it began.
                    let places = (length / gcd(length, *bytes)) as f64;
                    accesses.min(places).min(pages) / pages
                }
            }
        };
        Exposure::Chance(chance)
    }
}

/// What of a part was touched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Exposure {
    /// Each page with this probability.
    Chance(f64),
    /// So many bytes from `from` on, round a part of `length`, of their pages a share.
    Swept {
        from: u64,
        bytes: u64,
        length: u64,
        dense: f64,
    },
}

impl Exposure {
    /// The mean probability that a page of a region of the part (by number) was touched.
    pub(super) fn of_region(self, number: usize) -> f64 {
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

/// The chance that something was accessed that is accessed so many times on average.
pub(super) fn touched(times: f64) -> f64 {
    -(-times).exp_m1()
}

/// Ranks by Zipf's law, each of the first and groups of growing width of the others: an access's chance to go to one of the
/// group, in units of the first rank's, and how many they are.
fn zipf_ranks(pages: f64, theta: f64) -> impl Iterator<Item = (f64, f64)> {
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

/// The share of pages touched by so many accesses by Zipf's law.
fn zipf_touched(accesses: f64, pages: f64, theta: f64, total: f64) -> f64 {
    let sum: f64 = zipf_ranks(pages, theta)
        .map(|(chance, width)| width * touched(accesses * chance / total))
        .sum();
    sum / pages
}

#[cfg(test)]
mod tests {
    use super::super::layout::lots;
    use super::*;
    use crate::bits::PageBits;
    use crate::workloads::{Area, Size};
    use std::collections::BTreeSet;

    fn source(pattern: Pattern, regions: u64, pages: u16) -> (Source, Vec<Lot>) {
        let area = Area {
            name: "a".to_owned(),
            size: Size(regions << 21),
            start: None,
        };
        let mut lots = lots(&[area]);
        for number in 0..regions as usize {
            lots[0].use_pages(number, PageBits::spread(pages));
        }
        let stream = Stream {
            area: "a".to_owned(),
            part: [0.0, 1.0],
            pattern,
            weight: 1.0,
            stores_percent: 0.0,
            cycles: 1.0,
            waited_percent: 100.0,
        };
        let source = Source::new(&stream, 1.0, &lots, &mut Rng::new(1, 1));
        (source.unwrap_or_else(|| panic!("no source")), lots)
    }

    #[test]
    fn the_coverage_reckoned_is_that_of_accesses_made() {
        let cases = [
            (Pattern::Random, 512),
            (Pattern::Random, 100),
            (Pattern::Zipf(0.99), 512),
            (Pattern::Stride(64), 512),
            (Pattern::Stride(3 << 12), 512),
        ];
        for (pattern, pages) in cases {
            for accesses in [500u64, 5_000, 50_000] {
                let (mut source, lots) = source(pattern, 16, pages);
                let mut rng = Rng::new(7, 7);
                let mut seen = BTreeSet::new();
                for _ in 0..accesses {
                    seen.insert(source.draw(&lots[0], &mut rng).address() >> 12);
                }
                let exposure = source.exposure(accesses as f64);
                let mean = (0..16).map(|n| exposure.of_region(n)).sum::<f64>() / 16.0;
                let reckoned = mean * 16.0 * f64::from(pages);
                let made = seen.len() as f64;
                assert!(
                    (reckoned - made).abs() <= 0.03 * made + 5.0,
                    "{pattern:?}, {accesses} accesses: {reckoned:.0} reckoned, {made} made"
                );
            }
        }
    }

    #[test]
    fn only_pages_in_use_are_accessed() {
        let (mut source, lots) = source(Pattern::Random, 4, 1);
        let mut rng = Rng::new(3, 3);
        for _ in 0..1000 {
            let address = source.draw(&lots[0], &mut rng).address();
            assert!(lots[0].is_used((address - lots[0].start) >> 12));
        }
    }
}
