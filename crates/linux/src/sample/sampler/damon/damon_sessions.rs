//! DAMON for any number of processes: it takes one session at a time, so they take turns.
//!
//! In each window one process has the session; the next process has it in the next window. The
//! others keep the result of their last turn. A process with more regions than one session takes is
//! covered page by page, one page a turn. Regions that no turn has covered yet count as not
//! accessed.

use super::damon_session::DamonSession;
use super::{Damon, DamonError, MAX_REGIONS};
use crate::error::{LinuxError, Result};
use crate::processes::background_task::{BackgroundTask, POLL_INTERVAL};
use crate::sample::pagemap::read_eligible_present_pages;
use crate::sample::sampler::SliceResult;
use hawkeye_manager::SliceProgress;
use hawkeye_policy::{PAGES_PER_REGION, ProcessId, RegionAddr, RegionSample};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// What DAMON has shown of one process.
#[derive(Debug, Default)]
struct ProcessAccessEstimates {
    /// Base pages touched within a sampling interval, from the last turn that covered the region.
    touched: BTreeMap<RegionAddr, u16>,
    /// Where the next session starts. It is an address and not an index, so that regions may come
    /// and go.
    next_page: u64,
}

impl ProcessAccessEstimates {
    /// The next regions, at most `limit`, of `regions` (ascending). Continues from the end of the
    /// last page to the last region, then starts again at the first.
    fn next_regions_to_monitor<'a>(
        &mut self,
        regions: &'a [RegionAddr],
        limit: usize,
    ) -> &'a [RegionAddr] {
        let first = regions.partition_point(|region| region.start() < self.next_page);
        let first = if first == regions.len() { 0 } else { first };
        let page = &regions[first..regions.len().min(first + limit)];
        self.next_page = page.last().map_or(0, |region| region.end());
        page
    }

    /// Puts the estimates into a population, and drops those of regions that are not in it.
    fn apply_to_regions(&mut self, regions: &mut [RegionSample]) {
        let before = std::mem::take(&mut self.touched);
        for sample in regions {
            let known = before.get_key_value(&sample.region);
            self.touched.extend(known);
            let pages = known.map_or(0, |(_, pages)| *pages);
            sample.accessed = match (sample.is_huge(), pages) {
                (true, 1..) => PAGES_PER_REGION,
                _ => pages.min(sample.present),
            };
            // DAMON does not report which pages they were.
            sample.runs = u16::from(sample.accessed > 0);
        }
    }
}

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
    session: Option<(ProcessId, SessionState)>,
    /// Estimates for each process, from its first window on.
    estimates: HashMap<ProcessId, ProcessAccessEstimates>,
    /// Whether the end of this window was seen.
    over: bool,
    /// Length of a window: that of the last one, or the usual one.
    length: Duration,
}

/// State of the session of the process that has the turn.
#[derive(Debug)]
enum SessionState {
    Listing(BackgroundTask<Result<Vec<RegionAddr>>>),
    Starting(BackgroundTask<Result<DamonSession, DamonError>>),
    Open(DamonSession),
    /// The thread waits for the end of DAMON's window.
    Finishing(BackgroundTask<Result<Vec<(RegionAddr, u16)>, DamonError>>),
}

/// Time limit for each of listing, setup and the end of a window.
const PATIENCE: Duration = Duration::from_secs(5);

impl Default for DamonSessions {
    fn default() -> Self {
        Self {
            damon: Damon::default(),
            turns: DamonTurnQueue::default(),
            session: None,
            estimates: HashMap::new(),
            over: true,
            length: Duration::from_secs(1),
        }
    }
}

impl DamonSessions {
    pub(crate) fn retain_processes(&mut self, there: &dyn Fn(ProcessId) -> bool) {
        self.estimates.retain(|process, _| there(*process));
    }

    /// Puts the estimates for a process into its population; returns whether there were any.
    pub(crate) fn apply_estimates(
        &mut self,
        process: ProcessId,
        regions: &mut [RegionSample],
    ) -> bool {
        let estimates = self.estimates.get_mut(&process);
        let applied = estimates.map(|estimates| estimates.apply_to_regions(regions));
        applied.is_some()
    }

    /// Starts a window for a process, if it is its turn. An error means that the process is gone:
    /// failures of DAMON are logged, and the earlier estimates stay.
    pub(crate) fn start_window(&mut self, process: ProcessId) -> SliceResult<()> {
        self.estimates.entry(process).or_default();
        if std::mem::take(&mut self.over) {
            self.session = None;
        }
        match &self.session {
            None if self.turns.request_turn(process) => {
                let list = BackgroundTask::spawn(move || read_populated_regions(process.pid));
                self.store_state_to_poll_later(process, SessionState::Listing(list))
            }
            None => Ok(SliceProgress::Done(())),
            Some((with, _)) if *with == process => self.continue_session_start(process),
            Some(_) => {
                self.turns.request_turn(process);
                Ok(SliceProgress::Done(()))
            }
        }
    }

    fn store_state_to_poll_later(
        &mut self,
        process: ProcessId,
        state: SessionState,
    ) -> SliceResult<()> {
        self.session = Some((process, state));
        Ok(SliceProgress::Unfinished(POLL_INTERVAL))
    }

    fn continue_session_start(&mut self, process: ProcessId) -> SliceResult<()> {
        match self.session.take() {
            Some((_, SessionState::Listing(mut task))) => {
                let Some(regions) = task.poll(process.pid, PATIENCE)? else {
                    return self.store_state_to_poll_later(process, SessionState::Listing(task));
                };
                let estimates = self.estimates.entry(process).or_default();
                let page = estimates.next_regions_to_monitor(&regions?, MAX_REGIONS).to_vec();
                if page.is_empty() {
                    self.turns.skip_turn();
                    return Ok(SliceProgress::Done(()));
                }
                // A quarter longer than the window: results must be requested before DAMON's own
                // window ends, or they come at the end of its next one.
                let length = self.length * 5 / 4;
                let damon = self.damon.clone();
                let start = move || damon.start_session(process.pid, &page, length);
                let task = BackgroundTask::spawn(start);
                self.store_state_to_poll_later(process, SessionState::Starting(task))
            }
            Some((_, SessionState::Starting(mut task))) => {
                match task.poll(process.pid, PATIENCE)? {
                    None => self.store_state_to_poll_later(process, SessionState::Starting(task)),
                    Some(Ok(session)) => {
                        self.session = Some((process, SessionState::Open(session)));
                        Ok(SliceProgress::Done(()))
                    }
                    Some(Err(error)) => {
                        log_error_unless_ended(error, process).map(SliceProgress::Done)
                    }
                }
            }
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
        let served = self.session.as_ref().map(|(process, _)| *process);
        if !std::mem::replace(&mut self.over, true) {
            self.turns.end_turn(served);
        }
        if served != Some(process) {
            return Ok(SliceProgress::Done(()));
        }
        match self.session.take() {
            Some((_, SessionState::Open(session))) => {
                self.length = session.started.elapsed();
                let task = BackgroundTask::spawn(move || session.finish());
                self.store_state_to_poll_later(process, SessionState::Finishing(task))
            }
            Some((_, SessionState::Finishing(mut task))) => {
                match task.poll(process.pid, PATIENCE)? {
                    None => {
                        return self
                            .store_state_to_poll_later(process, SessionState::Finishing(task));
                    }
                    Some(Ok(found)) => {
                        let estimates = self.estimates.entry(process).or_default();
                        estimates.touched.extend(found);
                    }
                    Some(Err(error)) => log_error_unless_ended(error, process)?,
                }
                Ok(SliceProgress::Done(()))
            }
            // The window ended before it had begun.
            _ => Ok(SliceProgress::Done(())),
        }
    }
}

fn read_populated_regions(pid: u32) -> Result<Vec<RegionAddr>> {
    let found = read_eligible_present_pages(pid)?;
    let populated = found.regions.iter().filter(|sample| sample.present > 0);
    Ok(populated.map(|sample| sample.region).collect())
}

/// Only the end of the process is an error: any other failure may be gone in the next window.
fn log_error_unless_ended(error: DamonError, process: ProcessId) -> Result<()> {
    if super::kdamond::process_exists(process.pid) {
        tracing::warn!("coverage of process {process} was not updated: {error}");
        Ok(())
    } else {
        Err(LinuxError::NoSuchProcess(process.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::PageOrder;
    use hawkeye_test_support::event_constructors::{process_with_pid, region_at_index};

    /// Windows in which these processes ask: returns which one is served in each. Process 5 has
    /// nothing to sample.
    fn served<const N: usize>(windows: &[[u32; N]]) -> Vec<Option<u32>> {
        let mut turns = DamonTurnQueue::default();
        let mut window = |pids: &[u32; N]| {
            let mut served = None;
            for &pid in pids {
                match (turns.request_turn(process_with_pid(pid)) && served.is_none(), pid) {
                    (true, 5) => turns.skip_turn(),
                    (true, _) => served = Some(pid),
                    _ => {}
                }
            }
            turns.end_turn(served.map(process_with_pid));
            served
        };
        windows.iter().map(&mut window).collect()
    }

    #[test]
    fn processes_take_turns() {
        let (seven, eight, nine) = (Some(7), Some(8), Some(9));
        assert_eq!(served(&[[7, 8, 9]; 4]), [seven, eight, nine, seven]);
        assert_eq!(served(&[[7]; 2]), [seven; 2]);
        // An ended process loses its turn after one window.
        let ended = [[7, 8], [7, 9], [7, 9], [7, 9]];
        assert_eq!(served(&ended), [seven, None, seven, nine]);
        // A process with nothing to sample passes its turn.
        assert_eq!(served(&[[5, 8, 9]; 4]), [eight, nine, eight, nine]);
    }

    #[test]
    fn pages_cover_everything_in_turn() {
        let all = [0, 1, 2, 10, 11, 20].map(region_at_index);
        let mut estimates = ProcessAccessEstimates::default();
        for page in [&all[..4], &all[4..], &all[..4]] {
            assert_eq!(estimates.next_regions_to_monitor(&all, 4), page);
        }
        assert_eq!(estimates.next_regions_to_monitor(&all[..1], 4), &all[..1], "the rest is gone");
        assert_eq!(estimates.next_regions_to_monitor(&[], 4), []);
        assert_eq!(ProcessAccessEstimates::default().next_regions_to_monitor(&all, 100), all);
    }

    fn sample(index: u64, present: u16, huge: bool) -> RegionSample {
        RegionSample {
            present,
            accessed: present,
            runs: 1,
            order: PageOrder::base_or_huge(huge),
            ..RegionSample::new_full_and_untouched(region_at_index(index))
        }
    }

    #[test]
    fn estimates_are_capped_by_population_and_kept_while_it_lasts() {
        let mut estimates = ProcessAccessEstimates::default();
        let known = [(1, 300), (2, 300), (3, 30), (4, 0), (9, 512)];
        let known = known.map(|(index, pages)| (region_at_index(index), pages));
        estimates.touched.extend(known);
        let mut regions = [
            sample(1, 512, false),
            sample(2, 100, false),
            sample(3, 512, true),
            sample(4, 512, true),
            sample(5, 512, false),
        ];
        estimates.apply_to_regions(&mut regions);
        let accessed: Vec<_> = regions.iter().map(|r| (r.accessed, r.runs)).collect();
        assert_eq!(accessed, [(300, 1), (100, 1), (512, 1), (0, 0), (0, 0)]);
        // The ninth is gone, the fifth is unknown.
        assert_eq!(estimates.touched.len(), 4);
    }
}
