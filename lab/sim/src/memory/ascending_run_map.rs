//! Values of 512 places by runs: neighbours with ascending values take no more room than one.

/// Neighbouring places: `first + i` has the value `value + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AscendingRun {
    pub(crate) first: u16,
    pub(crate) count: u16,
    pub(crate) value: u64,
}

impl AscendingRun {
    pub(crate) const fn new(first: u16, count: u16, value: u64) -> Self {
        Self { first, count, value }
    }

    pub(crate) fn without_first_places(self, places: u16) -> Self {
        let value = self.value + u64::from(places);
        Self::new(self.first + places, self.count - places, value)
    }

    fn end(self) -> u16 {
        self.first + self.count
    }

    fn clipped(self, first: u16, end: u16) -> Option<Self> {
        let from = self.first.max(first);
        let to = self.end().min(end);
        (from < to)
            .then(|| Self { count: to - from, ..self.without_first_places(from - self.first) })
    }
}

/// A partial map from the base pages of a region (or the frames of a pageblock) to numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct AscendingRunMap(
    /// In ascending order, disjoint, and as few as possible: no run continues the one before it.
    Vec<AscendingRun>,
);

/// Index of the first run that ends after `place`.
fn first_run_ending_after(runs: &[AscendingRun], place: u16) -> usize {
    runs.partition_point(|run| run.end() <= place)
}

fn continues(low: &AscendingRun, high: &AscendingRun) -> bool {
    low.end() == high.first && low.value + u64::from(low.count) == high.value
}

impl AscendingRunMap {
    pub(crate) fn from_run(run: AscendingRun) -> Self {
        Self(vec![run])
    }

    pub(crate) fn is_exactly_run(&self, run: AscendingRun) -> bool {
        self.0 == [run]
    }

    pub(crate) fn get(&self, place: u16) -> Option<u64> {
        let run = self.0.get(first_run_ending_after(&self.0, place))?;
        Some(run.clipped(place, place + 1)?.value)
    }

    pub(crate) fn insert(&mut self, run: AscendingRun) {
        if run.count == 0 {
            return;
        }
        let runs = &mut self.0;
        let at = first_run_ending_after(runs, run.first);
        debug_assert!(runs.get(at).is_none_or(|next| next.first >= run.end()));
        let joins_next = runs.get(at).is_some_and(|next| continues(&run, next));
        let before = at.checked_sub(1).and_then(|i| runs.get_mut(i));
        if let Some(before) = before.filter(|before| continues(before, &run)) {
            before.count += run.count;
            if joins_next {
                let next = runs.remove(at);
                runs[at - 1].count += next.count;
            }
        } else if joins_next {
            let next = &mut runs[at];
            (next.first, next.value) = (run.first, run.value);
            next.count += run.count;
        } else {
            runs.insert(at, run);
        }
    }

    pub(crate) fn remove(&mut self, first: u16, count: u16) {
        let (runs, end) = (&mut self.0, first + count);
        let from = first_run_ending_after(runs, first);
        let to = from + runs[from..].partition_point(|run| run.first < end);
        if from < to {
            let low = runs[from].clipped(0, first);
            let high = runs[to - 1].clipped(end, u16::MAX);
            runs.splice(from..to, low.into_iter().chain(high));
        }
    }

    /// The runs within `count` places from `first` on, cut at both ends.
    pub(crate) fn runs_within(&self, first: u16, count: u16) -> impl Iterator<Item = AscendingRun> {
        let end = first + count;
        let runs = self.0[first_run_ending_after(&self.0, first)..].iter();
        runs.map_while(move |run| run.clipped(first, end))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = AscendingRun> {
        self.0.iter().copied()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_an_array(steps in prop::collection::vec((0u16..512, 1u16..40, 0u64..3, prop::bool::ANY), 1..200)) {
            let mut map = AscendingRunMap::default();
            let mut array = [None; 512];
            for (first, count, value, insert) in steps {
                let count = count.min(512 - first);
                let places = usize::from(first)..usize::from(first + count);
                map.remove(first, count);
                array[places.clone()].fill(None);
                if insert {
                    let value = value * 1000 + u64::from(first);
                    map.insert(AscendingRun { first, count, value });
                    for (i, place) in places.enumerate() {
                        array[place] = Some(value + i as u64);
                    }
                }
            }
            for place in 0..512u16 {
                prop_assert_eq!(map.get(place), array[usize::from(place)]);
            }
            let mut rebuilt = [None; 512];
            for run in map.runs_within(0, 512) {
                for i in 0..run.count {
                    rebuilt[usize::from(run.first + i)] = Some(run.value + u64::from(i));
                }
            }
            prop_assert_eq!(rebuilt, array);
            prop_assert!(map.iter().zip(map.iter().skip(1)).all(|(a, b)| !continues(&a, &b)));
        }
    }
}
