//! Which bloated huge page is split first.

use crate::page::PAGES_PER_REGION;
use crate::saturating_cast::u32_from_f64;

/// The order in which recovery takes huge pages. Each policy has its own
/// ([`PolicyProperties::recovery_order`](crate::PolicyProperties::recovery_order)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryOrder {
    /// HawkEye paper, section 3.2: the process with the lowest overhead comes first, because it
    /// loses least. A process of unknown overhead counts with the mean of the others. Within a
    /// process, and among processes of equal overhead, huge pages that were not accessed come
    /// first. Then come order of arrival and order of address.
    #[default]
    LowestOverheadFirst,
    /// EMD (P. Gangar, A. Panwar and K. Gopinath, "EMD: Fair and Efficient Dynamic Memory
    /// De-bloating of Transparent Huge Pages", ISMM'25), as far as its abstract describes it. Huge
    /// pages are split one by one where most memory is regained for least speed lost, and no
    /// process is preferred. Chosen here, because the abstract leaves it open:
    ///
    /// - There are ten levels of bloat, and the highest comes first.
    /// - Within a level, pages that were not accessed in the last window come first.
    /// - Of several processes with such pages, the one that gave back least is next.
    MostBloatedFirst,
    /// All huge pages of all processes compete. The page that regains most bytes for the least
    /// expected slow-down comes first. Of processes with similar pages (within a factor of two),
    /// the cgroup that has lost least is next, and in it the process that has lost least. Losses
    /// count by the process's weight.
    MostBytesPerSlowdown,
}

/// What ranks a huge page.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankedHugePage {
    /// Zero base pages, as counted or expected.
    pub(super) zero_pages: f64,
    /// Share of them that is expected to stay with the machine (0-1).
    pub(super) kept_share: f64,
    pub(super) accessed: bool,
    /// Page walks per second that its accesses are expected to cause under base pages.
    pub(super) walks_per_s: f64,
}

/// Levels of bloat in EMD's order, as many as an access map has buckets.
const BLOAT_LEVELS: f64 = 10.0;
/// What a split costs besides page walks, as page walks per second: 0.5 ms of CPU time and later
/// page faults, spread over the five minutes in which a promotion must pay.
pub(super) const SPLIT_WALKS_PER_S: f64 = 20.0;
/// Ranks by slow-down in a factor of two.
const RANKS_PER_DOUBLING: u32 = 4;
/// The base-2 logarithm of a cost that never occurs, so that ranks are over 0.
const LOWEST_LOG: f64 = -16.0;

impl RecoveryOrder {
    /// Whether huge pages are ranked by their zero base pages. These are then counted in advance.
    pub fn counts_zero_pages(self) -> bool {
        self != Self::LowestOverheadFirst
    }

    /// The rank of a huge page among others; the lowest is split first.
    pub(super) fn rank(self, page: &RankedHugePage) -> u32 {
        match self {
            Self::LowestOverheadFirst => u32::from(page.accessed),
            Self::MostBloatedFirst => {
                let level = page.zero_pages * BLOAT_LEVELS / f64::from(PAGES_PER_REGION + 1);
                2 * u32_from_f64(BLOAT_LEVELS - level) + u32::from(page.accessed)
            }
            Self::MostBytesPerSlowdown => {
                let kept = (page.zero_pages * page.kept_share).max(1.0);
                let walks_per_page = (page.walks_per_s + SPLIT_WALKS_PER_S) / kept;
                let doublings = walks_per_page.log2() - LOWEST_LOG;
                u32_from_f64(doublings * f64::from(RANKS_PER_DOUBLING))
            }
        }
    }

    /// How far ranks may be apart for pages to count as similar.
    pub(super) fn similar_ranks(self) -> u32 {
        match self {
            Self::LowestOverheadFirst | Self::MostBloatedFirst => 0,
            Self::MostBytesPerSlowdown => RANKS_PER_DOUBLING,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RecoveryOrder::{LowestOverheadFirst, MostBloatedFirst, MostBytesPerSlowdown};
    use super::*;
    use proptest::prelude::*;

    fn page(zero_pages: f64, accessed: bool, walks_per_s: f64) -> RankedHugePage {
        RankedHugePage { zero_pages, kept_share: 1.0, accessed, walks_per_s }
    }

    #[test]
    fn emd_goes_by_bloat_and_then_by_access() {
        let rank = |zero, accessed| MostBloatedFirst.rank(&page(zero, accessed, 1e9));
        assert!(rank(500.0, true) < rank(400.0, false));
        assert!(rank(410.0, false) < rank(410.0, true));
        assert_eq!(rank(511.0, true), rank(470.0, true), "one level");
        assert!(rank(64.0, false) < rank(0.0, false));
    }

    #[test]
    fn what_was_refilled_before_counts_less() {
        let refilled = RankedHugePage { kept_share: 0.1, ..page(400.0, true, 100.0) };
        let rank = |it: &RankedHugePage| MostBytesPerSlowdown.rank(it);
        assert!(rank(&page(400.0, true, 100.0)) < rank(&refilled));
        assert_eq!(LowestOverheadFirst.rank(&refilled), 1);
    }

    proptest! {
        /// More bytes for the same loss never come later, nor the same bytes for less loss.
        #[test]
        fn a_better_bargain_never_comes_later(
            zero in 0.0..512.0f64, more in 0.0..512.0f64,
            walks in 0.0..1e8f64, fewer in 0.0..1.0f64,
            accessed: bool,
        ) {
            let better = page((zero + more).min(512.0), accessed, walks * fewer);
            for order in [MostBloatedFirst, MostBytesPerSlowdown] {
                prop_assert!(order.rank(&better) <= order.rank(&page(zero, accessed, walks)));
            }
        }

        /// Pages that differ by less than a factor of two count as similar.
        #[test]
        fn similar_means_within_a_factor_of_two(zero in 1.0..512.0f64, walks in 0.0..1e8f64) {
            let order = MostBytesPerSlowdown;
            let (one, half) = (page(zero, true, walks), page((zero * 0.51).max(1.0), true, walks));
            prop_assert!(order.rank(&half) - order.rank(&one) <= order.similar_ranks());
        }
    }
}
