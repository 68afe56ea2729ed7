//! Reads of pages with unequal popularity: the share of the `r`-th most popular page is
//! proportional to `1 / r^theta`.

use super::ReadWorkloadArgs;
use super::access_patterns::AccessPattern;
use super::random_cycle::RandomCycle;
use crate::prelude::*;
use rand_distr::Distribution;

#[derive(Clone, Debug, clap::Args)]
pub struct ZipfArgs {
    /// How uneven popularity is: 0 makes all pages alike, 0.99 is YCSB's.
    #[arg(long, default_value_t = 0.99)]
    pub theta: f64,
    /// Memory and duration.
    #[command(flatten)]
    pub access: ReadWorkloadArgs,
}

/// Independent reads by Zipf's law. Popular pages are not neighbours.
pub(super) struct ZipfReads {
    /// Draws ranks from 1 on.
    ranks: rand_distr::Zipf<f64>,
    /// Maps ranks to pages.
    pages: RandomCycle,
    rng: WorkloadRng,
}

impl ZipfReads {
    pub(super) fn new(memory: &WorkloadMemory, theta: f64, seed: u64) -> WorkloadResult<Self> {
        let refused = |error| WorkloadError::Usage(format!("--theta {theta}: {error}"));
        let ranks = rand_distr::Zipf::new(memory.count_pages() as f64, theta).map_err(refused)?;
        Ok(Self {
            ranks,
            pages: RandomCycle::new(memory.count_pages(), seed),
            rng: WorkloadRng::new(seed, 0),
        })
    }

    #[inline]
    fn draw_page(&mut self) -> usize {
        let rank = self.ranks.sample(&mut self.rng) as usize;
        self.pages.successor(rank - 1)
    }
}

impl AccessPattern for ZipfReads {
    fn read_batch(&mut self, memory: &WorkloadMemory, count: usize) {
        for _ in 0..count {
            let offset = self.draw_page() * PAGE + self.rng.draw_below(PAGE_WORDS) * 8;
            memory.read_word(offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{REGION, REGION_PAGES, RequestedPageKind};

    fn counts(theta: f64) -> Vec<u32> {
        let memory =
            WorkloadMemory::map_private_and_touch(REGION, RequestedPageKind::Default, |_| ())
                .unwrap();
        let mut zipf = ZipfReads::new(&memory, theta, 1).unwrap();
        let mut counts = vec![0; REGION_PAGES];
        for _ in 0..100_000 {
            counts[zipf.draw_page()] += 1;
        }
        counts
    }

    #[test]
    fn popularity_falls_as_the_law_says_and_is_scattered() {
        let counts = counts(0.99);
        let mut ranks: Vec<usize> = (0..REGION_PAGES).collect();
        ranks.sort_by_key(|page| std::cmp::Reverse(counts[*page]));
        // 512 pages: the first is read in 1 / sum(1 / r^0.99) = 14.4 % of all reads.
        assert!((13_500..15_300).contains(&counts[ranks[0]]), "{counts:?}");
        let twentieth = f64::from(counts[ranks[0]]) / f64::from(counts[ranks[19]]);
        assert!((16.0..24.0).contains(&twentieth), "{twentieth}");
        assert!(ranks[..20].windows(2).all(|w| w[0].abs_diff(w[1]) > 1));
    }

    #[test]
    fn without_theta_all_pages_are_alike() {
        assert!(counts(0.0).iter().all(|count| (100..320).contains(count)));
    }

    #[test]
    fn a_theta_that_is_no_number_is_refused() {
        let memory =
            WorkloadMemory::map_private_and_touch(REGION, RequestedPageKind::Default, |_| ())
                .unwrap();
        for theta in [-1.0, f64::NAN] {
            let error = ZipfReads::new(&memory, theta, 1).map(drop).unwrap_err();
            assert!(error.to_string().starts_with("--theta"), "{error}");
        }
    }
}
