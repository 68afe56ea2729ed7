//! Two levels of TLB for data.

use super::lru::{Lookup, LruSets, Shape};
use super::page::{Page, PageSize};
use serde::{Deserialize, Serialize};

/// The first level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum L1Tlb {
    /// One for each page size.
    Split {
        /// For base pages.
        base: Shape,
        /// For huge pages.
        huge: Shape,
        /// For pages of 1 GiB.
        giant: Shape,
    },
    /// One for all pages.
    Shared(Shape),
}

/// A second level that holds pages of both sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2Tlb {
    /// Its size.
    pub shape: Shape,
    /// Where all entries of more than one base page are, if they have a part of their own; what is said of huge pages and of
    /// pages of 1 GiB below does not matter then.
    #[serde(default)]
    pub large: Option<Shape>,
    /// Ways of a set that huge pages may take (1 to all).
    pub huge_ways: u32,
    /// Where pages of 1 GiB are.
    pub giant: GiantPages,
    /// What a hit in it takes longer than one in the first level, in cycles.
    pub hit_cycles: u32,
}

/// Where the second level has pages of 1 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum GiantPages {
    /// Nowhere: what the first level has not is walked for.
    Nowhere,
    /// Among the others, in at most so many ways of a set (1 to all).
    Among {
        /// Ways of a set.
        ways: u32,
    },
    /// In a TLB of their own.
    Own(Shape),
    /// Among the others, as pieces of 2 MiB that count as huge pages ("smashed").
    AsHuge,
}

/// Where a translation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    L1,
    L2,
    /// Nowhere: the page table must be walked.
    Nowhere,
}

/// Both levels. A page that is looked up is in both afterwards; what falls out of the second level
/// may stay in the first.
#[derive(Clone, Debug)]
pub(crate) struct Tlb {
    /// For base pages, or for all.
    l1: LruSets,
    /// For huge pages, if they have their own.
    l1_huge: Option<LruSets>,
    l2: LruSets,
    l2_huge_ways: usize,
}

impl Tlb {
    pub(crate) fn new(l1: L1Tlb, l2: L2Tlb) -> Self {
        let (l1, l1_huge) = match l1 {
            L1Tlb::Split { base, huge, .. } => (base, Some(huge)),
            L1Tlb::Shared(shape) => (shape, None),
        };
        Self {
            l1: LruSets::new(l1),
            l1_huge: l1_huge.map(LruSets::new),
            l2: LruSets::new(l2.shape),
            l2_huge_ways: l2.huge_ways as usize,
        }
    }

    /// Translates an address on `page`.
    #[inline]
    pub(crate) fn look_up(&mut self, page: Page) -> Found {
        let l1 = match (&mut self.l1_huge, page.size) {
            (Some(huge), PageSize::Huge) => huge,
            _ => &mut self.l1,
        };
        let (set, tag) = place(l1, page);
        if l1.access(set, tag).is_hit() {
            return Found::L1;
        }
        let (set, tag) = place(&self.l2, page);
        let Lookup::Miss { evicted } = self.l2.access(set, tag) else {
            return Found::L2;
        };
        if page.size == PageSize::Huge && self.l2.count(set, is_huge) > self.l2_huge_ways {
            self.l2.evict_instead(set, evicted, is_huge);
        }
        Found::Nowhere
    }

    /// Forgets every page for which `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(Page) -> bool) {
        let levels = [
            Some(&mut self.l1),
            self.l1_huge.as_mut(),
            Some(&mut self.l2),
        ];
        for level in levels.into_iter().flatten() {
            let set_bits = level.set_bits();
            level.retain(|set, tag| keep(page_of(set_bits, set, tag)));
        }
    }
}

/// Set and tag of a page: the tag's lowest bit is its size.
#[inline]
fn place(sets: &LruSets, page: Page) -> (usize, u32) {
    let (set, high) = sets.split(page.number);
    (set, high << 1 | u32::from(page.size == PageSize::Huge))
}

fn is_huge(tag: u32) -> bool {
    tag & 1 == 1
}

/// The page that was placed there.
fn page_of(set_bits: u32, set: usize, tag: u32) -> Page {
    let size = if is_huge(tag) {
        PageSize::Huge
    } else {
        PageSize::Base
    };
    Page {
        number: u64::from(tag >> 1) << set_bits | set as u64,
        size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TINY: L1Tlb = L1Tlb::Split {
        base: Shape::new(2, 1),
        huge: Shape::new(1, 1),
        giant: Shape::new(1, 1),
    };

    fn l2(entries: u32, ways: u32, huge_ways: u32) -> L2Tlb {
        L2Tlb {
            shape: Shape::new(entries, ways),
            large: None,
            huge_ways,
            giant: GiantPages::Nowhere,
            hit_cycles: 7,
        }
    }

    fn base(number: u64) -> Page {
        Page {
            number,
            size: PageSize::Base,
        }
    }

    fn huge(number: u64) -> Page {
        Page {
            number,
            size: PageSize::Huge,
        }
    }

    #[test]
    fn worked_by_hand() {
        // L1: two sets of one way; L2: two sets of two ways.
        let mut tlb = Tlb::new(TINY, l2(4, 2, 2));
        let steps = [
            (base(0), Found::Nowhere),
            (base(0), Found::L1),
            (base(2), Found::Nowhere), // pushes 0 out of the first level
            (base(0), Found::L2),
            (base(1), Found::Nowhere), // another set
            (base(0), Found::L1),
            (base(4), Found::Nowhere), // third page of set 0: 2 was used before 0
            (base(2), Found::Nowhere),
            (base(0), Found::Nowhere),
            (base(1), Found::L1),
        ];
        for (step, (page, found)) in steps.into_iter().enumerate() {
            assert_eq!(tlb.look_up(page), found, "step {step}: {page:?}");
        }
    }

    #[test]
    fn sizes_are_told_apart_and_share_the_second_level() {
        let mut tlb = Tlb::new(TINY, l2(2, 2, 2));
        assert_eq!(tlb.look_up(base(0)), Found::Nowhere);
        assert_eq!(tlb.look_up(huge(0)), Found::Nowhere);
        assert_eq!(tlb.look_up(huge(1)), Found::Nowhere);
        assert_eq!(tlb.look_up(base(2)), Found::Nowhere);
        assert_eq!(tlb.look_up(huge(0)), Found::Nowhere, "three others since");
        assert_eq!(tlb.look_up(base(2)), Found::L1, "not its TLB");
        let mut shared = Tlb::new(L1Tlb::Shared(Shape::fully_associative(1)), l2(8, 8, 8));
        shared.look_up(base(0));
        shared.look_up(huge(0));
        assert_eq!(shared.look_up(base(0)), Found::L2, "one entry for all");
    }

    #[test]
    fn huge_pages_keep_to_their_ways() {
        let mut tlb = Tlb::new(TINY, l2(4, 4, 2));
        for page in [base(0), huge(1), huge(2), huge(3)] {
            assert_eq!(tlb.look_up(page), Found::Nowhere);
        }
        tlb.look_up(base(2));
        assert_eq!(tlb.look_up(base(0)), Found::L2, "the oldest, but untouched");
        assert_eq!(tlb.look_up(huge(2)), Found::L2);
        assert_eq!(tlb.look_up(huge(1)), Found::Nowhere, "made room for 3");
    }

    proptest! {
        #[test]
        fn what_is_forgotten_is_walked_for_again(numbers in proptest::collection::vec(0u64..3000, 1..300)) {
            let giant = Shape::new(4, 4);
            let l1 = L1Tlb::Split { base: Shape::new(64, 4), huge: Shape::new(32, 4), giant };
            let mut tlb = Tlb::new(l1, l2(8192, 16, 16));
            for number in &numbers {
                tlb.look_up(base(*number));
                tlb.look_up(huge(*number));
            }
            tlb.retain(|page| page.size == PageSize::Huge || page.number % 3 != 0);
            let mut seen = std::collections::BTreeSet::new();
            for number in numbers {
                let again = !seen.insert(number);
                let kept = number % 3 != 0 || again;
                prop_assert_eq!(tlb.look_up(base(number)) != Found::Nowhere, kept);
                prop_assert!(tlb.look_up(huge(number)) != Found::Nowhere);
            }
        }
    }
}
