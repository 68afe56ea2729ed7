//! Sets of a few ways that keep what was used again before what was used once: what last-level caches are made of.
//!
//! Re-reference interval prediction of two bits (SRRIP with hit priority: A. Jaleel, K. Theobald, S. Steely, J. Emer, "High
//! performance cache replacement using re-reference interval prediction", ISCA 2010). Memory that is read once passes
//! through without driving out page tables, which are come back to. Processors' own rules are not published, and differ;
//! those of Intel's last levels since Ivy Bridge are of this kind (A. Abel, J. Reineke, "nanoBench", ISPASS 2020).

use super::lru::{EMPTY, Shape};

/// Of a line that makes room for the next one.
const OLDEST: u8 = 3;
/// Of a line that is new.
const NEW: u8 = OLDEST - 1;

/// A way.
#[derive(Clone, Copy, Debug)]
struct Way {
    tag: u32,
    age: u8,
}

/// Tags by set. Which set a tag belongs to is the user's business.
#[derive(Clone, Debug)]
pub(crate) struct RripSets {
    ways: Vec<Way>,
    per_set: usize,
    set_bits: u32,
}

impl RripSets {
    /// Empty. The shape must have a power of two of sets; what is over it is left out.
    pub(crate) fn new(shape: Shape) -> Self {
        let per_set = shape.ways.max(1);
        let set_bits = (shape.entries / per_set).max(1).ilog2();
        let empty = Way {
            tag: EMPTY,
            age: OLDEST,
        };
        Self {
            ways: vec![empty; (per_set as usize) << set_bits],
            per_set: per_set as usize,
            set_bits,
        }
    }

    /// New tags after which no tag is left in a set of those that were there, however often they had been used.
    pub(crate) fn renewed_after(&self) -> u32 {
        // Each time that all ways have got older, one at least is new.
        (u32::from(OLDEST) + 1) * self.per_set as u32
    }

    /// Bits of a key that choose its set.
    pub(crate) fn set_bits(&self) -> u32 {
        self.set_bits
    }

    /// Uses `tag`; whether it was there. If it was not, the first of the oldest has made room.
    #[inline]
    pub(crate) fn access(&mut self, set: usize, tag: u32) -> bool {
        let ways = &mut self.ways[set * self.per_set..][..self.per_set];
        if let Some(way) = ways.iter_mut().find(|way| way.tag == tag) {
            way.age = 0;
            return true;
        }
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
            *way = Way { tag, age: NEW };
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_used_again_stays_while_others_pass() {
        let mut sets = RripSets::new(Shape::new(4, 4));
        assert!(!sets.access(0, 1) && sets.access(0, 1));
        // The three other ways are enough for what passes: twice, as all get older before each third of it.
        assert!((2..=7).all(|tag| !sets.access(0, tag)));
        assert!(sets.access(0, 1));
        // Nothing stays that is not used any more.
        let passing = 100..100 + sets.renewed_after();
        assert!(passing.into_iter().all(|tag| !sets.access(0, tag)));
        assert!(!sets.access(0, 1));
    }

    #[test]
    fn sets_share_nothing() {
        let mut sets = RripSets::new(Shape::new(4, 2));
        assert!(!sets.access(0, 1) && !sets.access(1, 1));
        assert!(sets.access(0, 1) && sets.access(1, 1));
    }

    proptest! {
        /// Against the paper's own steps, over lists.
        #[test]
        fn as_the_paper_has_it(
            ways in 1usize..18,
            keys in proptest::collection::vec(0u32..48, 1..600),
        ) {
            let mut sets = RripSets::new(Shape::fully_associative(ways as u32));
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
