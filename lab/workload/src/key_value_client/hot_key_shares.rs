//! The choice of keys for requests.

use crate::WorkloadRng;

/// A hot part of the keys: the last of each tenth, in the order in which they are stored. If a
/// program stores its values in that order, the hot keys lie together in ten places of memory. A
/// scan of memory in address order then reaches them neither early nor late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotKeyShares {
    /// Share of the keys that are hot, 1-100 %.
    pub keys_percent: u8,
    /// Share of the requests for hot keys, 0-100 %; the other requests are for the other keys.
    pub questions_percent: u8,
}

const STRETCHES: u64 = 10;

impl HotKeyShares {
    /// All keys are equally likely.
    pub const UNIFORM: Self = Self { keys_percent: 100, questions_percent: 100 };

    /// Picks the next of `keys` keys to request. There must be at least one.
    pub(super) fn pick_key(self, keys: u64, rng: &mut WorkloadRng) -> u64 {
        let mut below = |bound: u64| rng.draw_below(bound as usize) as u64;
        let stretch = keys / STRETCHES;
        if stretch == 0 {
            return below(keys);
        }
        let hot = (stretch * u64::from(self.keys_percent.min(100)) / 100).max(1);
        let cold = stretch - hot;
        let is_hot = cold == 0 || below(100) < u64::from(self.questions_percent);
        let key = if is_hot { cold + below(hot) } else { below(cold) };
        below(STRETCHES) * stretch + key
    }

    /// The options for a program's command line.
    pub fn to_option_values(self) -> [String; 2] {
        [self.keys_percent, self.questions_percent].map(|percent| percent.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: HotKeyShares = HotKeyShares { keys_percent: 10, questions_percent: 90 };

    /// The number of hot picks among 10,000: of 1,000 keys the last ten of each hundred are hot.
    fn hot_picks(hot: HotKeyShares) -> usize {
        let mut rng = WorkloadRng::new(1, 0);
        let mut places = [0; 10];
        for _ in 0..10_000 {
            let key = hot.pick_key(1000, &mut rng) as usize;
            if key % 100 >= 90 {
                places[key / 100] += 1;
            }
        }
        let all: usize = places.iter().sum();
        // The places have equal shares.
        let shares = places.map(|picks| picks * 10);
        assert!(shares.iter().all(|share| all.abs_diff(*share) <= all / 5 + 100), "{places:?}");
        all
    }

    #[test]
    fn questions_go_to_the_hot_keys() {
        assert!((850..1150).contains(&hot_picks(HotKeyShares::UNIFORM)));
        assert!((8900..9100).contains(&hot_picks(TENTH)));
    }

    #[test]
    fn the_ends_are_what_they_say() {
        let only = |questions_percent| HotKeyShares { keys_percent: 10, questions_percent };
        assert_eq!(hot_picks(only(100)), 10_000);
        assert_eq!(hot_picks(only(0)), 0);
        let mut rng = WorkloadRng::new(1, 0);
        assert_eq!(TENTH.pick_key(1, &mut rng), 0);
        assert!((0..100).all(|_| TENTH.pick_key(3, &mut rng) < 3));
        assert!((0..100).all(|_| TENTH.pick_key(19, &mut rng) < 19));
    }
}
