//! Scarce resources of a core, each busy with one thing at a time: page walkers, fill buffers.
//!
//! Accesses come in program order, but their needs do not come in order of time. An access that
//! depends on another one's data walks and loads long after the next that does not. So a slot is
//! taken only from the start of its work, and is free for other accesses until then. Their work may
//! last longer than that; then there is one slot more for a while.

/// A number of slots, and the work in them.
#[derive(Clone, Debug)]
pub(crate) struct ResourceSlots<T> {
    count: usize,
    /// Work that is not over, in order of its start.
    pub(crate) spans: Vec<BusySpan<T>>,
    /// Between these times all slots are known to be taken, and stay taken.
    full: (f64, f64),
}

/// Work on something. Times are in cycles since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BusySpan<T> {
    pub(crate) on: T,
    pub(crate) begin: f64,
    pub(crate) end: f64,
}

impl<T: Copy + PartialEq> ResourceSlots<T> {
    /// `count` free slots, at least one.
    pub(crate) fn new(count: u32) -> Self {
        Self { count: count.max(1) as usize, spans: Vec::new(), full: (0.0, 0.0) }
    }

    /// Drops work that is over at `before`; nothing is requested before that time any more.
    #[inline]
    pub(crate) fn drop_work_before(&mut self, before: f64) {
        self.spans.retain(|span| span.end > before);
    }

    /// First time from `start` on with a free slot.
    #[inline]
    pub(crate) fn first_free_time(&mut self, start: f64) -> f64 {
        let (from, until) = self.full;
        let known = from <= start && start < until;
        let mut at = if known { until } else { start };
        loop {
            let (mut busy, mut first_end) = (0, f64::INFINITY);
            for span in self.spans.iter().take_while(|span| span.begin <= at) {
                if span.end > at {
                    busy += 1;
                    first_end = span.end.min(first_end);
                }
            }
            if busy < self.count {
                break;
            }
            at = first_end;
        }
        if at > start {
            self.full = (if known { from } else { start }, at);
        }
        at
    }

    #[inline]
    pub(crate) fn add_busy_span(&mut self, on: T, begin: f64, end: f64) {
        let later = self.spans.iter().rev();
        let later = later.take_while(|other| other.begin > begin).count();
        let place = self.spans.len() - later;
        self.spans.insert(place, BusySpan { on, begin, end });
    }

    /// When the last work on `on` that is not over at `start` will end; `start` if there is none.
    #[inline]
    pub(crate) fn end_of_work_on(&self, on: T, start: f64) -> f64 {
        let spans = self.spans.iter().filter(|span| span.on == on);
        spans.fold(start, |until, span| until.max(span.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with every cycle counted by itself.
        #[test]
        fn the_first_free_cycle_is_found(
            wanted in proptest::collection::vec((0u32..30, 0u32..150, 1u32..60), 1..80),
            count in 1u32..4,
        ) {
            let mut slots = ResourceSlots::new(count);
            let mut busy = vec![0; 20_000];
            let mut entered = 0;
            for (later, after, length) in wanted {
                entered += later;
                slots.drop_work_before(f64::from(entered));
                let start = (entered + after) as usize;
                let free = (start..).find(|cycle| busy[*cycle] < count).unwrap_or(start);
                let begin = slots.first_free_time(start as f64);
                prop_assert_eq!(begin, free as f64);
                slots.add_busy_span((), begin, begin + f64::from(length));
                busy[free..free + length as usize].iter_mut().for_each(|busy| *busy += 1);
            }
        }
    }
}
