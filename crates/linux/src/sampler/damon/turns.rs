//! DAMON as the sampler of any number of processes: it takes one session at a time, so they take turns.
//!
//! In every window one process has the session, the next one in the next window. The others keep what
//! their last turn showed, and so do the regions of a process that has more than one session takes:
//! they are paged through, a page a turn. What no turn has shown yet counts as not accessed.

use super::pager::Pager;
use super::{Damon, DamonError, DamonSession, MAX_REGIONS, Window};
use crate::error::LinuxError;
use hawkeye_policy::{PAGES_PER_REGION, ProcessId, RegionAddr, RegionSample};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What DAMON has shown of one process.
#[derive(Debug, Default)]
pub struct Estimates {
    /// Base pages touched within a sampling interval, by the last turn that covered the region.
    touched: BTreeMap<RegionAddr, u16>,
    pager: Pager,
}

impl Estimates {
    /// Puts the estimates into a population, and forgets those of regions that are not in it.
    pub fn apply(&mut self, regions: &mut [RegionSample]) {
        let before = std::mem::take(&mut self.touched);
        for sample in regions {
            let estimate = before.get(&sample.region).copied();
            self.touched
                .extend(estimate.map(|pages| (sample.region, pages)));
            let pages = estimate.unwrap_or(0);
            sample.accessed = match (sample.is_huge(), pages) {
                (true, 1..) => PAGES_PER_REGION,
                _ => pages.min(sample.present),
            };
            // Which pages they were nobody knows.
            sample.runs = u16::from(sample.accessed > 0);
        }
    }
}

/// Who is next.
#[derive(Debug, Default)]
struct Turns {
    /// `None`: whoever asks first.
    next: Option<ProcessId>,
    /// Who has asked in this window, in their order.
    asked: Vec<ProcessId>,
}

impl Turns {
    /// Whether it is this process's turn.
    fn ask(&mut self, process: ProcessId) -> bool {
        self.asked.push(process);
        self.next.is_none_or(|next| next == process)
    }

    /// The one that was told yes has no use for it: whoever asks next.
    fn decline(&mut self) {
        self.next = None;
    }

    /// The window is over; `served` had it.
    fn pass(&mut self, served: Option<ProcessId>) {
        let place = self.asked.iter().position(|p| Some(*p) == served);
        // One whose turn it was may be gone: then nobody was served, and the first one follows.
        self.next = place.map(|place| self.asked[(place + 1) % self.asked.len()]);
        self.asked.clear();
    }
}

/// Samples processes by DAMON, in turn.
#[derive(Debug)]
pub struct DamonSampler {
    damon: Damon,
    turns: Turns,
    session: Option<(ProcessId, DamonSession)>,
    /// Whether this window's end was seen.
    over: bool,
    /// How long a window is: the last one, or what is usual.
    length: Duration,
}

impl Default for DamonSampler {
    fn default() -> Self {
        Self {
            damon: Damon::default(),
            turns: Turns::default(),
            session: None,
            over: true,
            length: Duration::from_secs(1),
        }
    }
}

impl DamonSampler {
    /// Starts a window for a process, if it is its turn. `populated` lists its regions.
    ///
    /// # Errors
    /// The process is gone. That DAMON can't be used is no error: it is logged, and what was known stays.
    pub fn start_window(
        &mut self,
        process: ProcessId,
        estimates: &mut Estimates,
        populated: impl FnOnce() -> Result<Vec<RegionAddr>, LinuxError>,
    ) -> Result<(), LinuxError> {
        if std::mem::take(&mut self.over) {
            self.session = None;
        }
        if !self.turns.ask(process) || self.session.is_some() {
            return Ok(());
        }
        let regions = populated()?;
        let page = estimates.pager.next_page(&regions, MAX_REGIONS);
        if page.is_empty() {
            self.turns.decline();
            return Ok(());
        }
        // A quarter longer than the window: results must be asked for before DAMON's own window ends,
        // or they come at the end of its next one.
        let window = Window::lasting(self.length * 5 / 4);
        match self.damon.start(process.pid, page, window) {
            Ok(session) => self.session = Some((process, session)),
            Err(error) => tolerate(error, process)?,
        }
        Ok(())
    }

    /// Takes in what DAMON found out about a process, if it was its turn. Waits for the end of DAMON's
    /// window: a quarter of the window that is over, but up to a second where that was not as long as
    /// the one before it (or the first one not a second).
    ///
    /// # Errors
    /// The process is gone.
    pub fn end_window(
        &mut self,
        process: ProcessId,
        estimates: &mut Estimates,
    ) -> Result<(), LinuxError> {
        if !std::mem::replace(&mut self.over, true) {
            self.turns.pass(self.session.as_ref().map(|(who, _)| *who));
        }
        let Some((_, session)) = self.session.take_if(|(who, _)| *who == process) else {
            return Ok(());
        };
        self.length = Instant::now().saturating_duration_since(session.started());
        match session.finish() {
            Ok(found) => estimates.touched.extend(found),
            Err(error) => tolerate(error, process)?,
        }
        Ok(())
    }
}

/// Only the end of the process is an error: everything else may be better in the next window.
fn tolerate(error: DamonError, process: ProcessId) -> Result<(), LinuxError> {
    if super::kdamond::is_alive(process.pid) {
        tracing::warn!("process {process} keeps its last coverage: {error}");
        Ok(())
    } else {
        Err(LinuxError::NoSuchProcess(process.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::HUGE_PAGE_BYTES;
    use hawkeye_policy::PageOrder;

    fn process(pid: u32) -> ProcessId {
        ProcessId {
            pid,
            start_ticks: 1,
        }
    }

    /// One window: who is served of those that ask.
    fn window(turns: &mut Turns, pids: &[u32]) -> Option<u32> {
        let mut served = None;
        for &pid in pids {
            if turns.ask(process(pid)) && served.is_none() {
                served = Some(pid);
            }
        }
        turns.pass(served.map(process));
        served
    }

    #[test]
    fn processes_take_turns() {
        let mut turns = Turns::default();
        let served: Vec<_> = (0..4).map(|_| window(&mut turns, &[7, 8, 9])).collect();
        assert_eq!(served, [Some(7), Some(8), Some(9), Some(7)]);
        let mut alone = Turns::default();
        assert_eq!(window(&mut alone, &[7]), Some(7));
        assert_eq!(window(&mut alone, &[7]), Some(7));
    }

    #[test]
    fn one_that_is_gone_holds_nobody_up_for_long() {
        let mut turns = Turns::default();
        assert_eq!(window(&mut turns, &[7, 8]), Some(7));
        assert_eq!(window(&mut turns, &[7, 9]), None);
        assert_eq!(window(&mut turns, &[7, 9]), Some(7));
        assert_eq!(window(&mut turns, &[7, 9]), Some(9));
    }

    #[test]
    fn one_with_nothing_to_sample_passes_its_turn_on() {
        let mut turns = Turns::default();
        let mut window = || {
            let mut served = None;
            for pid in [7, 8, 9] {
                match (turns.ask(process(pid)) && served.is_none(), pid) {
                    (true, 7) => turns.decline(),
                    (true, _) => served = Some(pid),
                    _ => {}
                }
            }
            turns.pass(served.map(process));
            served
        };
        let served: Vec<_> = (0..4).map(|_| window()).collect();
        assert_eq!(served, [Some(8), Some(9), Some(8), Some(9)]);
    }

    fn sample(index: u64, present: u16, huge: bool) -> RegionSample {
        RegionSample {
            present,
            accessed: present,
            runs: 1,
            order: PageOrder::of_region(huge),
            ..RegionSample::untouched(RegionAddr::containing(index * HUGE_PAGE_BYTES))
        }
    }

    #[test]
    fn estimates_are_capped_by_what_is_there_and_kept_while_it_is() {
        let mut estimates = Estimates::default();
        let known = [(1, 300), (2, 300), (3, 30), (4, 0), (9, 512)];
        estimates.touched.extend(
            known.map(|(index, pages)| (RegionAddr::containing(index * HUGE_PAGE_BYTES), pages)),
        );
        let mut regions = [
            sample(1, 512, false),
            sample(2, 100, false),
            sample(3, 512, true),
            sample(4, 512, true),
            sample(5, 512, false),
        ];
        estimates.apply(&mut regions);
        let accessed: Vec<_> = regions.iter().map(|r| (r.accessed, r.runs)).collect();
        assert_eq!(accessed, [(300, 1), (100, 1), (512, 1), (0, 0), (0, 0)]);
        assert_eq!(
            estimates.touched.len(),
            4,
            "the ninth is gone, the fifth unknown"
        );
    }
}
