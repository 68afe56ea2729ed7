//! Sets that prefer lines that were reused to lines used once. Last-level caches consist of them.
//!
//! Re-reference interval prediction of two bits (SRRIP with hit priority: A. Jaleel, K. Theobald,
//! S. Steely, J. Emer, "High performance cache replacement using re-reference interval prediction",
//! ISCA 2010). Memory that is read once passes through without evicting page tables, which are
//! reused.
//!
//! If wanted, only a random part of new lines is inserted. In a cache that other programs fill, one
//! read of each line leaves only some of them there (measured on a Zen 5: 20 to 40 of 100, all
//! after 16 reads).
//!
//! Processors' own rules are not published, and differ. Those of Intel's last levels since Ivy
//! Bridge are of this kind (A. Abel, J. Reineke, "nanoBench", ISPASS 2020).

use super::lru_sets::SetShape;
use super::tag_vectors::EMPTY;
use crate::rng::SimulationRng;

/// Age of a line that is replaced next.
const OLDEST: u8 = 3;
/// Age of a new line.
const NEW: u8 = OLDEST - 1;

#[derive(Clone, Copy, Debug)]
struct CacheWay {
    tag: u32,
    age: u8,
}

/// Tags by set. The caller maps tags to sets.
#[derive(Clone, Debug)]
pub(crate) struct RripSets {
    ways: Vec<CacheWay>,
    per_set: usize,
    pub(crate) set_bits: u32,
    taken_percent: u32,
    random: SimulationRng,
}

impl RripSets {
    /// Empty. The number of sets must be a power of two; entries beyond that are left out.
    /// `taken_percent` of the tags that miss are inserted.
    pub(crate) fn new(shape: SetShape, taken_percent: u32) -> Self {
        let per_set = shape.ways.max(1);
        let set_bits = (shape.entries / per_set).max(1).ilog2();
        let empty = CacheWay { tag: EMPTY, age: OLDEST };
        Self {
            ways: vec![empty; (per_set as usize) << set_bits],
            per_set: per_set as usize,
            set_bits,
            taken_percent,
            random: SimulationRng::new(0, 0),
        }
    }

    /// Number of new tags after which a set has none of its earlier ones, however often used.
    pub(crate) fn fills_to_renew_set(&self) -> u32 {
        // Between two steps of ageing, at least one line is new.
        (u32::from(OLDEST) + 1) * self.per_set as u32
    }

    /// Uses `tag`; true if it was there. If inserted, it evicts the first of the oldest.
    #[inline]
    pub(crate) fn access(&mut self, set: usize, tag: u32) -> bool {
        let ways = &mut self.ways[set * self.per_set..][..self.per_set];
        if let Some(way) = ways.iter_mut().find(|way| way.tag == tag) {
            way.age = 0;
            return true;
        }
        if self.random.draw_below(100) < u64::from(self.taken_percent) {
            self.fill(set, tag);
        }
        false
    }

    #[inline]
    pub(crate) fn fill(&mut self, set: usize, tag: u32) {
        let ways = &mut self.ways[set * self.per_set..][..self.per_set];
        let oldest = ways.iter().map(|way| way.age).max().unwrap_or(OLDEST);
        let older = OLDEST - oldest;
        let mut room = None;
        for way in ways {
            way.age += older;
            if way.age == OLDEST && room.is_none() {
                room = Some(way);
            }
        }
        if let Some(way) = room {
            *way = CacheWay { tag, age: NEW };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reused_entries_stay_while_others_pass() {
        let mut sets = RripSets::new(SetShape::new(4, 4), 100);
        assert!(!sets.access(0, 1) && sets.access(0, 1));
        // The three other ways are enough for the lines that pass through. Twice, because all lines
        // age before each third of them.
        assert!((2..=7).all(|tag| !sets.access(0, tag)));
        assert!(sets.access(0, 1));
        // Lines that are no longer used do not stay.
        let passing = 100..100 + sets.fills_to_renew_set();
        assert!(passing.into_iter().all(|tag| !sets.access(0, tag)));
        assert!(!sets.access(0, 1));
    }

    #[test]
    fn sets_share_nothing() {
        let mut sets = RripSets::new(SetShape::new(4, 2), 100);
        assert!(!sets.access(0, 1) && !sets.access(1, 1));
        assert!(sets.access(0, 1) && sets.access(1, 1));
    }

    #[test]
    fn a_part_of_what_is_new_is_taken() {
        let (tags, sets) = (1 << 14, 1 << 10);
        let mut rrip = RripSets::new(SetShape::new(tags, 16), 30);
        // A quarter of the capacity, again and again.
        let mut lap = || {
            let used = (0..tags / 4).map(|n| rrip.access((n % sets) as usize, n));
            used.filter(|there| *there).count() as f64 / f64::from(tags / 4)
        };
        let there: [f64; 4] = std::array::from_fn(|_| lap());
        for (there, expected) in there.into_iter().zip([0.0, 0.3, 0.51, 0.657]) {
            assert!((there - expected).abs() < 0.02, "{there} not {expected}");
        }
    }

    proptest! {
        /// Compared with the paper's own steps, on lists.
        #[test]
        fn as_the_paper_has_it(
            ways in 1usize..18,
            keys in proptest::collection::vec(0u32..48, 1..600),
        ) {
            let mut sets = RripSets::new(SetShape::fully_associative(ways as u32), 100);
            let mut list: Vec<Option<(u32, u8)>> = vec![None; ways];
            for key in keys {
                let at = list.iter().position(|held| held.is_some_and(|(tag, _)| tag == key));
                prop_assert_eq!(sets.access(0, key), at.is_some());
                if let Some(at) = at {
                    list[at] = Some((key, 0));
                    continue;
                }
                let at = loop {
                    let distant = list.iter().position(|held| held.is_none_or(|(_, age)| age == 3));
                    if let Some(at) = distant {
                        break at;
                    }
                    for (_, age) in list.iter_mut().flatten() {
                        *age += 1;
                    }
                };
                list[at] = Some((key, 2));
            }
        }
    }
}
