//! The page walkers of a core, and when they are at work.

use super::page::{Page, PageSize};

/// Walkers at work. All times are in cycles since the start.
#[derive(Clone, Debug)]
pub(crate) struct Walkers {
    walkers: Vec<Walker>,
    active: Active,
    /// Each walker's cycles at work, added up.
    pending_cycles: f64,
}

#[derive(Clone, Copy, Debug)]
struct Walker {
    /// What it walked for last.
    page: Page,
    /// When that was done.
    done: f64,
}

impl Walkers {
    pub(crate) fn new(count: u32) -> Self {
        let idle = Walker {
            page: Page {
                number: u64::MAX,
                size: PageSize::Base,
            },
            done: 0.0,
        };
        Self {
            walkers: vec![idle; count.max(1) as usize],
            active: Active::default(),
            pending_cycles: 0.0,
        }
    }

    /// When a walk for this page that is still under way at `start` will be done; `start` if there is
    /// none.
    #[inline]
    pub(crate) fn wait(&self, page: Page, start: f64) -> f64 {
        let walks = self.walkers.iter().filter(|walker| walker.page == page);
        walks.fold(start, |until, walker| until.max(walker.done))
    }

    /// Has the walker that is free first walk for a page from `start` on. `walk` says when a walk
    /// that begins at the time it is shown is done. Returns that.
    #[inline]
    pub(crate) fn walk(&mut self, page: Page, start: f64, walk: impl FnOnce(f64) -> f64) -> f64 {
        let mut first = 0;
        for (index, walker) in self.walkers.iter().enumerate() {
            if walker.done < self.walkers[first].done {
                first = index;
            }
        }
        let begin = start.max(self.walkers[first].done);
        let done = walk(begin);
        self.walkers[first] = Walker { page, done };
        self.pending_cycles += done - begin;
        self.active.add(begin, done);
        done
    }

    /// Each walker's cycles at work, added up.
    pub(crate) fn pending_cycles(&self) -> f64 {
        self.pending_cycles
    }

    /// Cycles with at least one walker at work.
    pub(crate) fn active_cycles(&self) -> f64 {
        self.active.cycles
    }
}

/// Length of the union of time spans. A span may begin before the one that was added last, but not
/// before the last gap: walks are not further out of order than that.
#[derive(Clone, Copy, Debug, Default)]
struct Active {
    cycles: f64,
    /// The last piece without a gap.
    from: f64,
    until: f64,
    /// End of the piece before it.
    gap: f64,
}

impl Active {
    #[inline]
    fn add(&mut self, begin: f64, end: f64) {
        if begin > self.until {
            self.gap = self.until;
            self.from = begin;
            self.until = begin;
        } else if begin < self.from {
            let begin = begin.max(self.gap);
            self.cycles += self.from.min(end).max(begin) - begin;
            self.from = self.from.min(begin);
        }
        if end > self.until {
            self.cycles += end - self.until;
            self.until = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: u64) -> Page {
        Page {
            number,
            size: PageSize::Base,
        }
    }

    #[test]
    fn two_walkers_overlap_and_a_third_walk_waits() {
        let mut walkers = Walkers::new(2);
        let mut walk = |page: Page, start: f64| walkers.walk(page, start, |begin| begin + 100.0);
        assert_eq!(walk(page(1), 0.0), 100.0);
        assert_eq!(walk(page(2), 10.0), 110.0);
        assert_eq!(walk(page(3), 20.0), 200.0);
        assert_eq!(walk(page(4), 500.0), 600.0);
        assert_eq!(walkers.pending_cycles(), 400.0);
        assert_eq!(walkers.active_cycles(), 300.0);
        assert_eq!(walkers.wait(page(4), 550.0), 600.0, "under way");
        assert_eq!(walkers.wait(page(4), 650.0), 650.0, "done");
        assert_eq!(walkers.wait(page(9), 550.0), 550.0, "none");
    }

    #[test]
    fn time_at_work_is_counted_once() {
        let mut active = Active::default();
        let spans = [(0.0, 10.0), (5.0, 15.0), (30.0, 40.0), (20.0, 32.0)];
        let union = [10.0, 15.0, 25.0, 35.0];
        for ((begin, end), cycles) in spans.into_iter().zip(union) {
            active.add(begin, end);
            assert_eq!(active.cycles, cycles, "{begin} to {end}");
        }
    }
}
