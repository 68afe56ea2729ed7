//! A set of pageblocks that finds its first member in a few steps, however large memory is.

/// Members in words of 64. The words of each level above mark the non-empty words below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockSet {
    levels: Vec<Vec<u64>>,
}

impl BlockSet {
    /// An empty set of blocks below `blocks`.
    pub(crate) fn new(blocks: u32) -> Self {
        let mut levels = Vec::new();
        let mut words = blocks as usize;
        loop {
            words = words.div_ceil(64).max(1);
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels };
            }
        }
    }

    pub(crate) fn insert(&mut self, block: u32) {
        let mut index = block as usize;
        for level in &mut self.levels {
            let word = &mut level[index / 64];
            let was_empty = *word == 0;
            *word |= 1 << (index % 64);
            if !was_empty {
                return;
            }
            index /= 64;
        }
    }

    pub(crate) fn remove(&mut self, block: u32) {
        let mut index = block as usize;
        for level in &mut self.levels {
            let word = &mut level[index / 64];
            *word &= !(1 << (index % 64));
            if *word != 0 {
                return;
            }
            index /= 64;
        }
    }

    pub(crate) fn set(&mut self, block: u32, member: bool) {
        if member {
            self.insert(block);
        } else {
            self.remove(block);
        }
    }

    #[cfg(test)]
    pub(crate) fn contains(&self, block: u32) -> bool {
        let word = self.levels[0][block as usize / 64];
        word >> (block % 64) & 1 == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.levels.last().is_none_or(|top| top[0] == 0)
    }

    pub(crate) fn first(&self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let mut index = 0;
        for level in self.levels.iter().rev() {
            index = index * 64 + level[index as usize].trailing_zeros();
        }
        Some(index)
    }

    /// The lowest member that is at least `from`.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let mut from = from as usize;
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get(from / 64)? & (u64::MAX << (from % 64));
            if word != 0 {
                let mut index = from / 64 * 64 + word.trailing_zeros() as usize;
                for below in self.levels[..height].iter().rev() {
                    index = index * 64 + below[index].trailing_zeros() as usize;
                }
                return Some(index as u32);
            }
            from = from / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_tree(
            blocks in prop::sample::select(vec![1u32, 64, 65, 5000, 300_000]),
            steps in prop::collection::vec((0u32..300_000, prop::bool::ANY), 1..200),
            from in 0u32..300_000,
        ) {
            let mut set = BlockSet::new(blocks);
            let mut tree = BTreeSet::new();
            for (block, insert) in steps {
                let block = block % blocks;
                set.set(block, insert);
                if insert { tree.insert(block); } else { tree.remove(&block); }
                prop_assert_eq!(set.contains(block), insert);
            }
            let from = from % blocks;
            prop_assert_eq!(set.first(), tree.first().copied());
            prop_assert_eq!(set.next(from), tree.range(from..).next().copied());
            prop_assert_eq!(set.is_empty(), tree.is_empty());
        }
    }
}
