//! A stream of accesses: single ones drawn for the sample, and each page's long-run frequency.
//!
//! ```text
//!  AccessStream --> StreamSampler --draw_access----------> access_cost: the sample
//!  (workload)         |-- page_touch_probability --------> coverage, swap_waits: pages touched
//!                     |     ^ zipf: sums over pages
//!                     `-- touched_lines -----------------> zeroing_neighbour: cache lines touched
//! ```
//!
//! Read `StreamSampler::new` and `draw_access` first, then `page_touch_probability.rs`.
//!
//! Both follow the same distribution. Coverage over a window of any length therefore follows from
//! the number of accesses in it, whatever the size of the sample. A page that one access goes to
//! with chance `c` was accessed in `n` of them with probability `1 - exp(-n c)`.

mod page_touch_probability;
mod touched_lines;
mod zipf;

pub(super) use page_touch_probability::TouchedShare;

use super::area_layout::AreaLayout;
use crate::mmu::permutation::Permutation;
use crate::mmu::translation::Access;
use crate::rng::SimulationRng;
use crate::workloads::{AccessStream, StreamPattern};
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use rand_distr::{Distribution, Zipf};
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
        let regions = held.region_numbers_of_part(stream.part);
        let pages = regions.len() as u64 * PER_REGION;
        let shape = match stream.pattern {
            StreamPattern::Random => StreamShape::Random,
            StreamPattern::Zipf(theta) => {
                let total = zipf::zipf_rank_groups(pages as f64, theta)
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
            used: held.count_used_pages(regions.clone()),
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

    pub(super) fn has_no_used_pages(&self) -> bool {
        self.used == 0
    }

    fn first_page(&self) -> u64 {
        self.regions.start as u64 * PER_REGION
    }

    fn count_pages(&self) -> u64 {
        self.regions.len() as u64 * PER_REGION
    }

    pub(super) fn draw_access(&mut self, lot: &AreaLayout, rng: &mut SimulationRng) -> Access {
        let (first, pages) = (self.first_page(), self.count_pages());
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
            if lot.is_page_used(page) {
                break;
            }
        }
        // Hardly any page is in use: the next one that is.
        let end = first + pages;
        let next = (page..end).chain(first..page).find(|page| lot.is_page_used(*page));
        let address = lot.page_address(next.unwrap_or(page)) + offset;
        if self.stores > 0.0 && rng.chance(self.stores) {
            Access::store(address)
        } else {
            Access::load(address)
        }
    }

    /// Advances a stride by accesses that are not drawn.
    pub(super) fn skip_stride_accesses(&mut self, accesses: f64) {
        let length = self.count_pages() * BASE_PAGE_BYTES;
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
