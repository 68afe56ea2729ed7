//! Lists the processes that a target names, again and again, within a share of the CPU time.

use crate::processes::process::with_cpu_time;
use hawkeye_manager::SliceProgress;
use std::time::{Duration, Instant};

/// Short steps of a listing. One that finds no process gives `None`.
pub(super) type ListingSteps = Box<dyn Iterator<Item = Option<u32>> + Send>;

/// The pause after a listing, in multiples of its CPU time. A family can have thousands of threads,
/// and each of them may have children.
const PAUSE_FACTOR: u32 = 100;

/// The state between two calls.
#[derive(Default)]
pub(super) struct NamedProcesses {
    /// The unfinished listing.
    rest: Option<ListingSteps>,
    /// CPU time of the unfinished listing.
    cpu: Duration,
    /// No listing begins before.
    next: Duration,
}

impl NamedProcesses {
    /// Visits the pids of a listing by `list`, if one is due or unfinished. What is left at the
    /// deadline follows in the next call.
    pub(super) fn visit_until(
        &mut self,
        list: impl FnOnce() -> ListingSteps,
        now: Duration,
        deadline: Instant,
        mut visit: impl FnMut(u32),
    ) -> SliceProgress<()> {
        let mut steps = match self.rest.take() {
            Some(rest) => rest,
            None if now < self.next => return SliceProgress::Done(()),
            None => list(),
        };
        loop {
            let (step, cpu) = with_cpu_time(|| steps.next());
            self.cpu += cpu;
            let Some(found) = step else { break };
            if let Some(pid) = found {
                visit(pid);
            }
            if Instant::now() >= deadline {
                self.rest = Some(steps);
                return SliceProgress::Unfinished(Duration::ZERO);
            }
        }
        let cpu = std::mem::take(&mut self.cpu);
        self.next = now.saturating_add(cpu.saturating_mul(PAUSE_FACTOR));
        SliceProgress::Done(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process::calling_thread_cpu_time;
    use std::iter;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn visited(
        named: &mut NamedProcesses,
        list: impl FnOnce() -> ListingSteps,
        now: Duration,
        deadline: Instant,
    ) -> (Vec<u32>, bool) {
        let mut pids = Vec::new();
        let progress = named.visit_until(list, now, deadline, |pid| pids.push(pid));
        (pids, progress == SliceProgress::Done(()))
    }

    #[test]
    fn a_costly_listing_is_repeated_after_a_long_pause() {
        let costly = || -> ListingSteps {
            Box::new(iter::once_with(|| {
                let begun = calling_thread_cpu_time();
                while calling_thread_cpu_time() < begun + Duration::from_millis(50) {}
                Some(7)
            }))
        };
        let mut named = NamedProcesses::default();
        let later = Instant::now() + S(600);
        assert_eq!(visited(&mut named, costly, S(1), later), (vec![7], true));
        assert_eq!(visited(&mut named, costly, S(5), later), (vec![], true));
        assert_eq!(visited(&mut named, costly, S(36_000), later), (vec![7], true));
    }

    #[test]
    fn a_listing_pauses_at_the_deadline_also_where_it_finds_nothing() {
        let list = || -> ListingSteps { Box::new([None, Some(7), Some(8)].into_iter()) };
        let mut named = NamedProcesses::default();
        let mut next = || visited(&mut named, list, S(1), Instant::now());
        let steps = [next(), next(), next(), next()];
        assert_eq!(steps, [(vec![], false), (vec![7], false), (vec![8], false), (vec![], true)]);
    }
}
