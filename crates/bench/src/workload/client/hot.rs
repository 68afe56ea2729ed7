//! Which keys questions are about.

use crate::workload::Rng;

/// A hot part of the keys: those stored last, so that they lie together in memory where a program stores its values
/// in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    /// So many of the keys are hot, 1-100 %.
    pub keys_percent: u8,
    /// So many of the questions are about them, 0-100 %; the others are about the others.
    pub questions_percent: u8,
}

impl Hot {
    /// Every key is asked for as often as any other.
    pub const UNIFORM: Self = Self {
        keys_percent: 100,
        questions_percent: 100,
    };

    /// How many of the first of so many keys are not hot; at least one is hot.
    fn cold(self, keys: u64) -> u64 {
        let hot = keys * u64::from(self.keys_percent.min(100)) / 100;
        keys - hot.clamp(1, keys.max(1))
    }

    /// The next key of so many to ask for. There must be one.
    pub(super) fn pick(self, keys: u64, rng: &mut Rng) -> u64 {
        let cold = self.cold(keys);
        let below = |bound: u64, rng: &mut Rng| rng.below(bound as usize) as u64;
        if cold > 0 && below(100, rng) >= u64::from(self.questions_percent) {
            below(cold, rng)
        } else {
            cold + below(keys - cold, rng)
        }
    }

    /// As programs take it on their command lines.
    pub(crate) fn words(self) -> [String; 2] {
        [self.keys_percent, self.questions_percent].map(|percent| percent.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Hot = Hot {
        keys_percent: 10,
        questions_percent: 90,
    };

    /// How many of 10,000 picks are among the last tenth of 1,000 keys.
    fn picks_of_the_last_tenth(hot: Hot) -> usize {
        let mut rng = Rng::new(1, 0);
        let picks = (0..10_000).map(|_| hot.pick(1000, &mut rng));
        picks
            .inspect(|key| assert!(*key < 1000))
            .filter(|key| *key >= 900)
            .count()
    }

    #[test]
    fn questions_go_to_the_keys_stored_last() {
        assert!((850..1150).contains(&picks_of_the_last_tenth(Hot::UNIFORM)));
        assert!((8900..9100).contains(&picks_of_the_last_tenth(TENTH)));
    }

    #[test]
    fn the_ends_are_what_they_say() {
        let only = |questions_percent| Hot {
            keys_percent: 10,
            questions_percent,
        };
        assert_eq!(picks_of_the_last_tenth(only(100)), 10_000);
        assert_eq!(picks_of_the_last_tenth(only(0)), 0);
        let mut rng = Rng::new(1, 0);
        assert_eq!(TENTH.pick(1, &mut rng), 0);
        assert!((0..100).all(|_| TENTH.pick(3, &mut rng) < 3));
    }
}
