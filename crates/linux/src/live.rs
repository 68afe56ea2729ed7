//! The running kernel as a machine under management.

mod explaining;
mod knowing;

use crate::error::{LinuxError, Result};
use crate::memory::cgroup::Groups;
use crate::memory::fragmentation;
use crate::memory::recovery::RecoveryMethod;
use crate::memory::system_memory;
use crate::page_sizes::sizing::Sizing;
use crate::prefault::following::Following;
use crate::prefault::learned::Notebook;
use crate::prefault::{FaultAhead, FillStatistics};
use crate::processes::membership::{MemberView, Membership, Scope};
use crate::processes::process;
use crate::processes::roster::SweepCosts;
use crate::promote::remote_advice::Insisting;
use crate::promote::target_call::{COLLAPSING, Request, TargetCalls};
use crate::sample::counters::{CounterEvents, Counters};
use crate::sample::sampler::{Member, Sampler, Seeing, Slice, Sliced, Turn};
use crate::sample::shared_pages;
use crate::sample::walk_costs;
use crate::stop::{StopSignals, Waited};
use crate::test_costs;
use hawkeye_manager::{
    Footprint, LatePromotion, Machine, MachineError, NotAnswering, OwnCosts, Prefault, Progress,
    Promoted, Recovered, Sampling, Unanswered, Wake, ZeroScan,
};
use hawkeye_policy::{
    BASE_PAGE_BYTES, Errno, MachineShape, MemoryState, MemoryUse, Needs, PAGES_PER_REGION,
    PageOrder, ProcessId, ProcessSample, RegionAddr, RegionSample, Rules, Scope as Whose,
    Selection,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the probe found out about this kernel, as far as managing needs it.
pub struct Means {
    /// How accesses are seen.
    pub sampler: Seeing,
    /// How bloat is recovered.
    pub recovery: RecoveryMethod,
    /// What a base page's first access after a clear costs the program.
    pub first_touch_cost: Duration,
}

impl Means {
    /// Finds out how overhead can be told: by hardware counters where there are any (`events` says
    /// which, if the table does not), and by what page walks cost here. Takes some seconds the first time
    /// after the machine has started.
    ///
    /// # Errors
    /// The memory for measuring can't be had.
    pub fn prepare_overhead(&mut self, state_dir: &Path, events: CounterEvents) -> Result<()> {
        if let Seeing::AccessBits(bits) = &mut self.sampler {
            bits.counters = match Counters::find(events) {
                Ok(counters) => Some(counters),
                Err(none) => {
                    tracing::info!("overhead is told by run-rate: {none}");
                    None
                }
            };
            bits.walk_costs = Some(walk_costs::known_or_measured(state_dir)?);
        }
        Ok(())
    }
}

/// The running kernel.
pub struct LinuxMachine {
    began: Instant,
    scope: Scope,
    signals: StopSignals,
    sampler: Box<dyn Sampler>,
    recovery: RecoveryMethod,
    first_touch_cost: Duration,
    members: Membership,
    calls: TargetCalls,
    /// Promotions that were not answered yet.
    promoting: HashMap<ProcessId, RegionAddr>,
    refused_bytes: u64,
    groups: Groups,
    following: Option<Following>,
    sizing: Sizing,
    notebook: Option<Notebook>,
}

/// More swapped pages than this, and a promotion would mostly wait for the disk (tcmalloc's limit).
const MAX_SWAPPED: u16 = 128;
/// A process that has not answered a call for so long is reported.
const NOT_ANSWERING_AFTER: Duration = Duration::from_secs(1);
/// So often a huge page is split that somebody else holds on to: compaction, a debugger that reads it, DAMON. All let go in microseconds.
const SPLIT_TRIES: u32 = 3;

impl LinuxMachine {
    /// Takes over.
    pub fn new(means: Means, scope: Scope, signals: StopSignals) -> Self {
        let mut calls = TargetCalls::default();
        if let Err(error) = calls.prepare() {
            // The first call tries again, and says so.
            tracing::warn!("{error}");
        }
        Self {
            began: Instant::now(),
            scope,
            signals,
            sampler: means.sampler.sampler(),
            recovery: means.recovery,
            first_touch_cost: means.first_touch_cost,
            members: Membership::default(),
            calls,
            promoting: HashMap::new(),
            refused_bytes: 0,
            groups: Groups::of_this_machine(),
            following: None,
            sizing: Sizing::new(),
            notebook: None,
        }
    }

    /// Fills ahead of everybody under management from now on, and `warm_bytes` at the start of each at once.
    pub fn fill_ahead_with(&mut self, fault_ahead: FaultAhead, warm_bytes: u64) {
        self.following = Some(Following::new(fault_ahead, warm_bytes));
    }

    /// What was filled ahead so far; `None` where nothing is.
    pub fn filled_ahead(&self) -> Option<FillStatistics> {
        self.following.as_ref().map(Following::statistics)
    }

    /// Whether some process was left alone because it was told `PR_SET_THP_DISABLE`.
    pub fn saw_thp_disabled(&self) -> bool {
        self.members.saw_thp_disabled()
    }

    /// Calls into other processes that took longer than 30 ms.
    pub fn slow_calls(&self) -> u64 {
        self.calls.slow()
    }

    /// The most bytes seen that owners keep out by `MADV_NOHUGEPAGE`.
    pub fn refused_bytes(&self) -> u64 {
        self.refused_bytes
    }

    /// Everybody under management, first come first.
    pub fn members(&self) -> Vec<MemberView> {
        self.members.views()
    }

    /// What looking for processes has cost; `None` where they are not looked for.
    pub fn sweep_costs(&self) -> Option<SweepCosts> {
        self.scope.roster().map(|roster| roster.costs())
    }

    /// Manages the whole machine by other rules from now on. Who stays keeps everything that is known of
    /// it; who is excluded now is let go. Without effect where processes were named.
    pub fn set_rules(&mut self, rules: Rules, selection: Selection) {
        if let Some(roster) = self.scope.roster_mut() {
            roster.set_rules(rules, selection);
            self.members.judge_again(roster);
        }
    }
}

impl LinuxMachine {
    /// A moment of the machine's time, as others count it.
    fn instant(&self, moment: Duration) -> Instant {
        self.began + moment
    }

    /// One slice of what the sampler does with a process.
    fn sampled<T>(
        &mut self,
        process: ProcessId,
        until: Duration,
        slice: impl FnOnce(&mut dyn Sampler, &mut Member, &mut Turn) -> Sliced<T>,
    ) -> Result<Progress<T>, MachineError> {
        let deadline = self.instant(until);
        let member = self.members.get_mut(process)?;
        let calls = &mut self.calls;
        let slice = slice(&mut *self.sampler, member, &mut Turn { calls, deadline });
        Ok(self.progress(slice.map_err(|error| error.for_process(process))?))
    }

    fn progress<T>(&self, slice: Slice<T>) -> Progress<T> {
        match slice {
            Slice::Done(done) => Progress::Done(done),
            Slice::Unfinished(wait) => Progress::Unfinished {
                again_at: self.now() + wait,
            },
        }
    }

    /// Why a region is not promoted as it is now, if so.
    fn passes_over(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        expected_present: u16,
    ) -> Result<Option<Promoted>, MachineError> {
        let member = self.members.get_mut(process)?;
        let found = self
            .sampler
            .look(member, region)
            .map_err(|error| error.for_process(process))?;
        match found {
            None => return Ok(Some(Promoted::Freed)),
            Some(r) if r.is_huge() || r.swapped >= MAX_SWAPPED => {
                return Ok(Some(Promoted::NotCandidate));
            }
            // A little change is life; more means that its owner gives it back.
            Some(r) if r.present < expected_present - expected_present / 16 => {
                return Ok(Some(Promoted::Freed));
            }
            Some(r) => {
                if let Some(pages) = shared_pages::above_limit(&mut self.calls, process, &r) {
                    return Ok(Some(Promoted::Shared { pages }));
                }
            }
        }
        let eligible = self.sampler.still_eligible(member, region, &mut self.calls);
        if !eligible.map_err(|error| error.for_process(process))? {
            return Ok(Some(Promoted::NotCandidate));
        }
        Ok(None)
    }
}

impl Machine for LinuxMachine {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wait_until(&mut self, deadline: Duration) -> Wake {
        loop {
            let timeout = deadline.saturating_sub(self.now());
            let others = self.scope.descriptors();
            if others.is_empty() {
                return Wake::Stop;
            }
            match (self.signals.wait(&others, timeout), &mut self.scope) {
                (Waited::TimedOut, _) => return Wake::Deadline,
                (Waited::Readable, Scope::Family(_)) => return Wake::Stop,
                (Waited::Readable, Scope::Processes(_)) => {}
                (Waited::Readable, Scope::Machine { bell, roster }) => {
                    if roster.hear() {
                        return Wake::Joined;
                    }
                    if bell.answer() {
                        return Wake::Called;
                    }
                }
                (Waited::Signal(libc::SIGHUP), _) => return Wake::Reload,
                // Like `perf stat`: the program decides what a signal means, we wait for its end. The
                // terminal has sent SIGINT to it already.
                (Waited::Signal(signal), Scope::Family(root)) => {
                    if signal == libc::SIGTERM {
                        let pid = Pid::from_raw(process::pid_t(root.id.pid));
                        let _ = kill(pid, Signal::SIGTERM);
                    }
                }
                (Waited::Signal(_), _) => return Wake::Stop,
            }
        }
    }

    fn processes(&mut self, until: Duration) -> Progress<Vec<ProcessId>> {
        let now = self.now();
        let deadline = self.instant(until);
        let following = self.following.as_ref();
        let each = self.sampler.descriptors() + following.map_or(0, |_| FaultAhead::DESCRIPTORS);
        let updated = self
            .members
            .update(&mut self.scope, &mut *self.sampler, each, now, deadline);
        let started = self.members.take_started();
        if let Some(notebook) = &mut self.notebook {
            let sizes = || self.sizing.seen(now).unwrap_or_default().sizes;
            notebook.update(self.members.order(), now, sizes);
        }
        if let Some(following) = &self.following {
            following.update(&self.members, &started, self.notebook.as_ref());
        }
        let members = &self.members;
        self.sizing.retain(|process| members.get(process).is_some());
        match updated {
            Slice::Done(()) => Progress::Done(self.members.order().to_vec()),
            Slice::Unfinished(wait) => self.progress(Slice::Unfinished(wait)),
        }
    }

    fn memory(&mut self) -> Result<MemoryState, MachineError> {
        let now = self.now();
        Ok(MemoryState {
            machine: self.memory_use(&Whose::Machine)?,
            groups: self.groups.read(now, self.members.order()),
            pressure_percent: system_memory::pressure(),
            fmfi: fragmentation::fmfi(),
        })
    }

    fn memory_use(&mut self, whose: &Whose) -> Result<MemoryUse, MachineError> {
        match whose {
            Whose::Machine => {
                system_memory::machine().map_err(|error| MachineError::Other(error.to_string()))
            }
            Whose::Group(path) => self.groups.usage(path).ok_or_else(|| {
                MachineError::Other(format!("cgroup {path} has no memory limit any more"))
            }),
        }
    }

    fn unanswered(&mut self) -> Unanswered {
        let mut ended = Vec::new();
        for finished in self.calls.finished() {
            let process = finished.process;
            let Some(region) = self.promoting.remove(&process) else {
                continue;
            };
            let took = finished.answer.as_ref().map_or(finished.waited, |a| a.took);
            let outcome = match finished.answer.map(|answer| answer.result) {
                Some(Ok(_)) => Ok(Promoted::Done(took)),
                Some(Err(errno)) => {
                    let call = finished.call;
                    Err(LinuxError::Call { call, errno }.for_process(process))
                }
                None => Err(MachineError::Gone(process)),
            };
            if let (Ok(_), Some(notebook)) = (&outcome, &mut self.notebook) {
                notebook.note_promoted(process);
            }
            ended.push(LatePromotion {
                process,
                region,
                outcome,
                took,
            });
        }
        let unanswered = self.calls.unanswered().into_iter();
        let long = unanswered.filter(|found| found.waited >= NOT_ANSWERING_AFTER);
        let waiting = long.map(|found| NotAnswering {
            process: found.process,
            call: found.call,
            waited: found.waited,
        });
        Unanswered {
            ended,
            waiting: waiting.collect(),
        }
    }

    fn shape(&self) -> MachineShape {
        self.sizing.shape()
    }

    fn promote(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        order: PageOrder,
        expected_present: u16,
    ) -> Result<Promoted, MachineError> {
        // Neither MADV_COLLAPSE nor khugepaged makes others (up to 7.2).
        if order != PageOrder::HUGE {
            return Err(MachineError::PageSize(order));
        }
        if self.calls.is_unanswered(process) {
            return Err(MachineError::NotAnswering(process));
        }
        if let Some(outcome) = self.passes_over(process, region, expected_present)? {
            return Ok(outcome);
        }
        let member = self.members.get_mut(process)?;
        let range = region.start()..region.end();
        let request = Request::collapse(&member.handle, &range);
        let mut insisting = Insisting::default();
        let (result, took) = loop {
            let result = self.calls.make(process, COLLAPSING, &request);
            let took = match &result {
                Ok(answer) => test_costs::promotion_took(answer.took),
                Err(_) => self.calls.last(),
            };
            if !insisting.again(&result, took) {
                break (result, took);
            }
        };
        match result {
            Err(LinuxError::NotAnswering(_)) => {
                if !self.calls.is_unanswered(process) {
                    // Too many others do not answer: no call was made.
                    return Err(MachineError::NotAnswering(process));
                }
                self.promoting.insert(process, region);
                Ok(Promoted::Pending)
            }
            Ok(_) => {
                if let Some(notebook) = &mut self.notebook {
                    notebook.note_promoted(process);
                }
                Ok(Promoted::Done(took))
            }
            Err(error) => {
                let error = error.for_process(process);
                // What is said where memory is short is said of a hole as well.
                if error.is_shortage() && matches!(self.sampler.look(member, region), Ok(None)) {
                    return Ok(Promoted::Freed);
                }
                Err(error)
            }
        }
    }

    fn scan_zeros(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        enough: u16,
    ) -> Result<ZeroScan, MachineError> {
        let member = self.members.get_mut(process)?;
        let begun = Instant::now();
        let found = self
            .sampler
            .zero_pages(member, region, enough, &mut self.calls);
        let took = begun.elapsed();
        let zero_pages = found
            .map_err(|error| error.for_process(process))?
            .unwrap_or(0);
        Ok(ZeroScan { zero_pages, took })
    }

    fn recover(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Result<Recovered, MachineError> {
        let member = self.members.get_mut(process)?;
        let failed = |error: LinuxError| error.for_process(process);
        let begun = Instant::now();
        let mut longest_call = Duration::ZERO;
        let mut tries = 0;
        let left = loop {
            if !self
                .sampler
                .still_eligible(member, region, &mut self.calls)
                .map_err(failed)?
            {
                return Err(MachineError::Refused {
                    call: "splitting a huge page that may not be managed any more",
                    process,
                    errno: Errno::EPERM,
                });
            }
            let call = self
                .recovery
                .split(&member.handle, region, &mut self.calls)?;
            longest_call = longest_call.max(call);
            let left = self.sampler.look(member, region).map_err(failed)?;
            if !left.is_some_and(|left| self.recovery.was_passed_by(&left)) {
                break left;
            }
            tries += 1;
            if tries == SPLIT_TRIES {
                return Err(MachineError::Refused {
                    call: "splitting a huge page",
                    process,
                    errno: Errno::EBUSY,
                });
            }
        };
        let took = begun.elapsed();
        if let Some(notebook) = &mut self.notebook {
            notebook.note_split(process);
        }
        let left_present = left.map_or(0, |r| r.present);
        Ok(Recovered {
            bytes: u64::from(PAGES_PER_REGION - left_present.min(PAGES_PER_REGION))
                * BASE_PAGE_BYTES,
            left_present,
            took,
            longest_call,
        })
    }

    fn footprint(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<Footprint>, MachineError> {
        let counted = self.sampled(process, until, |sampler, member, turn| {
            sampler.huge_bytes(member, turn.deadline)
        })?;
        let huge_bytes = match counted {
            Progress::Done(bytes) => bytes,
            Progress::Unfinished { again_at } => return Ok(Progress::Unfinished { again_at }),
        };
        let rss_bytes = process::rss_bytes(process.pid).map_err(|e| e.for_process(process))?;
        self.sizing.look(process, self.began.elapsed());
        if let Some(notebook) = &mut self.notebook {
            notebook.note_resident(process, rss_bytes);
        }
        Ok(Progress::Done(Footprint {
            rss_bytes,
            huge_bytes,
        }))
    }

    fn own_costs(&self) -> OwnCosts {
        // Zeroing is work that the programs would have done.
        let filler = self.filled_ahead().unwrap_or_default();
        let own = process::own_cpu() + self.calls.cpu() + filler.helper_cpu;
        OwnCosts {
            cpu: own.saturating_sub(filler.cpu),
            longest_call: self.calls.longest(),
        }
    }
}

impl Sampling for LinuxMachine {
    fn start_window(
        &mut self,
        process: ProcessId,
        needs: Needs,
        until: Duration,
    ) -> Result<Progress<()>, MachineError> {
        self.sampled(process, until, |sampler, member, turn| {
            sampler.start_window(member, needs, turn)
        })
    }

    fn probe(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Option<Duration>, MachineError> {
        let deadline = self.instant(until);
        let member = self.members.get_mut(process)?;
        let calls = &mut self.calls;
        self.sampler
            .probe(member, &mut Turn { calls, deadline })
            .map_err(|e| e.for_process(process))
    }

    fn sample(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<ProcessSample>, MachineError> {
        let sampled = self.sampled(process, until, |sampler, member, turn| {
            sampler.sample(member, turn)
        })?;
        let mut sample = match sampled {
            Progress::Done(sample) => sample,
            Progress::Unfinished { again_at } => return Ok(Progress::Unfinished { again_at }),
        };
        let member = self.members.get_mut(process)?;
        sample.terms = member.terms;
        self.sizing.complete(&mut sample, &member.eligible);
        if let Some(notebook) = &mut self.notebook {
            notebook.note_sample(&sample);
        }
        self.refused_bytes = self.refused_bytes.max(self.members.refused_bytes());
        Ok(Progress::Done(sample))
    }

    fn huge_pages(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<Vec<RegionSample>>, MachineError> {
        self.sampled(process, until, |sampler, member, turn| {
            sampler.huge_pages(member, turn)
        })
    }

    fn abandon_window(&mut self) {
        self.sampler.abandon_window();
    }

    fn first_touch_cost(&self) -> Duration {
        self.first_touch_cost
    }
}

impl Prefault for LinuxMachine {
    fn take_filled(&mut self, process: ProcessId) -> u64 {
        let following = self.following.as_ref();
        following.map_or(0, |following| following.take_filled(process))
    }

    fn allow_fill(&mut self, process: ProcessId, room_bytes: u64) {
        if let Some(following) = &self.following {
            following.allow(process, room_bytes);
        }
    }
}
