//! DAMON for any number of processes: it takes one session at a time, so they take turns.
//!
//! In each window one process has the session; the next process has it in the next window. The
//! others keep the result of their last turn. A process with more regions than one session takes is
//! covered page by page, one page a turn. Regions that no turn has covered yet count as not
//! accessed.

use super::pager::RegionPager;
use super::{Damon, DamonError, DamonSession, DamonWindow, MAX_REGIONS};
use crate::error::{LinuxError, Result};
use crate::processes::mappings;
use crate::sample::pagemap;
use crate::sample::sampler::background_task::{ASK_AGAIN, BackgroundTask};
use crate::sample::sampler::slice::SliceResult;
use hawkeye_manager::SliceProgress;
use hawkeye_policy::{PAGES_PER_REGION, ProcessId, RegionAddr, RegionSample};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// What DAMON has shown of one process.
#[derive(Debug, Default)]
struct AccessEstimates {
    /// Base pages touched within a sampling interval, from the last turn that covered the region.
    touched: BTreeMap<RegionAddr, u16>,
    pager: RegionPager,
}

impl AccessEstimates {
    /// Puts the estimates into a population, and drops those of regions that are not in it.
    fn apply(&mut self, regions: &mut [RegionSample]) {
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
            // DAMON does not report which pages they were.
            sample.runs = u16::from(sample.accessed > 0);
        }
    }
}

/// Order of the processes' turns.
#[derive(Debug, Default)]
struct DamonTurnQueue {
    /// `None`: the process that asks first.
    next: Option<ProcessId>,
    /// Processes that have asked in this window, in order.
    requested: Vec<ProcessId>,
}

impl DamonTurnQueue {
    /// Whether it is this process's turn.
    fn request_turn(&mut self, process: ProcessId) -> bool {
        self.requested.push(process);
        self.next.is_none_or(|next| next == process)
    }

    /// The process that has the turn does not use it: the next one that asks gets it.
    fn skip_turn(&mut self) {
        self.next = None;
    }

    /// Ends the window, in which `served` had the session.
    fn end_turn(&mut self, served: Option<ProcessId>) {
        let place = self.requested.iter().position(|p| Some(*p) == served);
        // The process that had the turn may be gone. Then none was served, and the first one
        // follows.
        self.next = place.map(|place| self.requested[(place + 1) % self.requested.len()]);
        self.requested.clear();
    }
}

/// DAMON sessions of processes, in turn. A separate thread waits for DAMON or for the process, and
/// the loop polls it.
#[derive(Debug)]
pub(crate) struct DamonSessions {
    damon: Damon,
    turns: DamonTurnQueue,
    session: SessionState,
    /// Estimates for each process, from its first window on.
    estimates: HashMap<ProcessId, AccessEstimates>,
    /// Whether the end of this window was seen.
    over: bool,
    /// Length of a window: that of the last one, or the usual one.
    length: Duration,
}

/// State of the session of the process that has the turn.
#[derive(Debug, Default)]
enum SessionState {
    #[default]
    None,
    Listing(ProcessId, BackgroundTask<Result<Vec<RegionAddr>>>),
    Starting(ProcessId, BackgroundTask<Result<DamonSession, DamonError>>),
    Open(ProcessId, DamonSession),
    /// The thread waits for the end of DAMON's window.
    Finishing(
        ProcessId,
        BackgroundTask<Result<Vec<(RegionAddr, u16)>, DamonError>>,
    ),
}

impl SessionState {
    fn process(&self) -> Option<ProcessId> {
        match self {
            Self::None => None,
            Self::Listing(process, _)
            | Self::Starting(process, _)
            | Self::Open(process, _)
            | Self::Finishing(process, _) => Some(*process),
        }
    }
}

/// Time limit for each of listing, setup and the end of a window.
const PATIENCE: Duration = Duration::from_secs(5);

impl Default for DamonSessions {
    fn default() -> Self {
        Self {
            damon: Damon::default(),
            turns: DamonTurnQueue::default(),
            session: SessionState::None,
            estimates: HashMap::new(),
            over: true,
            length: Duration::from_secs(1),
        }
    }
}

impl DamonSessions {
    pub(crate) fn retain(&mut self, there: &dyn Fn(ProcessId) -> bool) {
        self.estimates.retain(|process, _| there(*process));
    }

    /// Puts the estimates for a process into its population; returns whether there were any.
    pub(crate) fn apply(&mut self, process: ProcessId, regions: &mut [RegionSample]) -> bool {
        let estimates = self.estimates.get_mut(&process);
        estimates
            .map(|estimates| estimates.apply(regions))
            .is_some()
    }

    /// Starts a window for a process, if it is its turn. An error means that the process is gone:
    /// failures of DAMON are logged, and the earlier estimates stay.
    pub(crate) fn start_window(&mut self, process: ProcessId) -> SliceResult<()> {
        self.estimates.entry(process).or_default();
        if std::mem::take(&mut self.over) {
            self.session = SessionState::None;
        }
        match &self.session {
            SessionState::None => {
                if self.turns.request_turn(process) {
                    let list = move || populated_regions(process.pid);
                    self.session = SessionState::Listing(process, BackgroundTask::begin(list));
                    return Ok(SliceProgress::Unfinished(ASK_AGAIN));
                }
            }
            session if session.process() == Some(process) => {
                return self.continue_start(process);
            }
            _ => {
                self.turns.request_turn(process);
            }
        }
        Ok(SliceProgress::Done(()))
    }

    fn continue_start(&mut self, process: ProcessId) -> SliceResult<()> {
        match std::mem::take(&mut self.session) {
            SessionState::Listing(_, mut task) => {
                let Some(regions) = task.poll(process.pid, PATIENCE)? else {
                    self.session = SessionState::Listing(process, task);
                    return Ok(SliceProgress::Unfinished(ASK_AGAIN));
                };
                let estimates = self.estimates.entry(process).or_default();
                let page = estimates.pager.next_page(&regions?, MAX_REGIONS).to_vec();
                if page.is_empty() {
                    self.turns.skip_turn();
                    return Ok(SliceProgress::Done(()));
                }
                // A quarter longer than the window: results must be requested before DAMON's own
                // window ends, or they come at the end of its next one.
                let window = DamonWindow::with_length(self.length * 5 / 4);
                let damon = self.damon.clone();
                let start = move || damon.start(process.pid, &page, window);
                self.session = SessionState::Starting(process, BackgroundTask::begin(start));
                Ok(SliceProgress::Unfinished(ASK_AGAIN))
            }
            SessionState::Starting(_, mut task) => match task.poll(process.pid, PATIENCE)? {
                None => {
                    self.session = SessionState::Starting(process, task);
                    Ok(SliceProgress::Unfinished(ASK_AGAIN))
                }
                Some(Ok(session)) => {
                    self.session = SessionState::Open(process, session);
                    Ok(SliceProgress::Done(()))
                }
                Some(Err(error)) => error_if_ended(error, process).map(SliceProgress::Done),
            },
            other => {
                self.session = other;
                Ok(SliceProgress::Done(()))
            }
        }
    }

    /// Takes DAMON's results for a process, if it was its turn. The end of DAMON's window comes up
    /// to a second later, and is not waited for here. Fails if the process is gone.
    pub(crate) fn end_window(&mut self, process: ProcessId) -> SliceResult<()> {
        if !self.estimates.contains_key(&process) {
            return Ok(SliceProgress::Done(()));
        }
        if !std::mem::replace(&mut self.over, true) {
            self.turns.end_turn(self.session.process());
        }
        if self.session.process() != Some(process) {
            return Ok(SliceProgress::Done(()));
        }
        match std::mem::take(&mut self.session) {
            SessionState::Open(_, session) => {
                self.length = Instant::now().saturating_duration_since(session.started());
                let task = BackgroundTask::begin(move || session.finish());
                self.session = SessionState::Finishing(process, task);
                Ok(SliceProgress::Unfinished(ASK_AGAIN))
            }
            SessionState::Finishing(_, mut task) => match task.poll(process.pid, PATIENCE)? {
                None => {
                    self.session = SessionState::Finishing(process, task);
                    Ok(SliceProgress::Unfinished(ASK_AGAIN))
                }
                Some(Ok(found)) => {
                    let estimates = self.estimates.entry(process).or_default();
                    estimates.touched.extend(found);
                    Ok(SliceProgress::Done(()))
                }
                Some(Err(error)) => error_if_ended(error, process).map(SliceProgress::Done),
            },
            // The window ended before it had begun.
            _ => Ok(SliceProgress::Done(())),
        }
    }
}

fn populated_regions(pid: u32) -> Result<Vec<RegionAddr>> {
    let ranges = mappings::eligible(&pagemap::mappings(pid)?).ranges;
    let found = pagemap::population(pid, &ranges)?;
    let populated = found.iter().filter(|sample| sample.present > 0);
    Ok(populated.map(|sample| sample.region).collect())
}

/// Only the end of the process is an error: any other failure may be gone in the next window.
fn error_if_ended(error: DamonError, process: ProcessId) -> Result<()> {
    if super::kdamond::is_alive(process.pid) {
        tracing::warn!("coverage of process {process} was not updated: {error}");
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
    use hawkeye_test_support::events::process;

    /// One window: returns which of the processes that ask is served.
    fn window(turns: &mut DamonTurnQueue, pids: &[u32]) -> Option<u32> {
        let mut served = None;
        for &pid in pids {
            if turns.request_turn(process(pid)) && served.is_none() {
                served = Some(pid);
            }
        }
        turns.end_turn(served.map(process));
        served
    }

    #[test]
    fn processes_take_turns() {
        let mut turns = DamonTurnQueue::default();
        let served: Vec<_> = (0..4).map(|_| window(&mut turns, &[7, 8, 9])).collect();
        assert_eq!(served, [Some(7), Some(8), Some(9), Some(7)]);
        let mut alone = DamonTurnQueue::default();
        assert_eq!(window(&mut alone, &[7]), Some(7));
        assert_eq!(window(&mut alone, &[7]), Some(7));
    }

    #[test]
    fn an_ended_process_loses_its_turn_after_one_window() {
        let mut turns = DamonTurnQueue::default();
        assert_eq!(window(&mut turns, &[7, 8]), Some(7));
        assert_eq!(window(&mut turns, &[7, 9]), None);
        assert_eq!(window(&mut turns, &[7, 9]), Some(7));
        assert_eq!(window(&mut turns, &[7, 9]), Some(9));
    }

    #[test]
    fn a_process_with_nothing_to_sample_passes_its_turn() {
        let mut turns = DamonTurnQueue::default();
        let mut window = || {
            let mut served = None;
            for pid in [7, 8, 9] {
                match (turns.request_turn(process(pid)) && served.is_none(), pid) {
                    (true, 7) => turns.skip_turn(),
                    (true, _) => served = Some(pid),
                    _ => {}
                }
            }
            turns.end_turn(served.map(process));
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
    fn estimates_are_capped_by_population_and_kept_while_it_lasts() {
        let mut estimates = AccessEstimates::default();
        let known = [(1, 300), (2, 300), (3, 30), (4, 0), (9, 512)];
        let region = |index| RegionAddr::containing(index * HUGE_PAGE_BYTES);
        let known = known.map(|(index, pages)| (region(index), pages));
        estimates.touched.extend(known);
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
        // The ninth is gone, the fifth is unknown.
        assert_eq!(estimates.touched.len(), 4);
    }
}
