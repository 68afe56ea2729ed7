//! Decides which of the machine's processes are managed: those that are large enough and that the
//! rules include.

use crate::error::{LinuxError, Result};
use crate::processes::exec_tracer::ExecTracer;
use crate::processes::join_pauses::JoinPauses;
use crate::processes::proc_scanner::{ProcScanner, ScannedProcess};
use crate::processes::process::{self, with_cpu_time};
use crate::processes::process_attributes::read_process_attributes;
use crate::processes::profile_requests::{
    PodAnnotationStatus, ProfileRequestReader, ProfileRequestSources,
};
use crate::processes::user_names::UserNames;
use crate::promote::reserve::RESERVE;
use crate::promote::target_call::HELPER_NAME;
use hawkeye_manager::SliceProgress;
use hawkeye_policy::management_slot_ranking::max_slots_per_user;
use hawkeye_policy::{
    CpuUseAverages, ManagementSlotCandidate, ProcessAttributes, ProcessId, ProcessScanSchedule,
    ProcessSelectionSettings, ProcessSettings, RuleVerdict, Rules,
};
use procfs::process::Process;
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Finds processes and judges them. The caller keeps the set of managed processes.
pub struct ProcessSelector {
    scanner: ProcScanner,
    rules: Rules,
    selection: ProcessSelectionSettings,
    scans: ProcessScanSchedule,
    /// CPU time of the unfinished scan.
    scan_cpu: Duration,
    /// Large processes that are not managed.
    skipped: JoinPauses,
    /// Present if some rule asks for warm starts.
    execs: Option<ExecTracer>,
    /// Processes just started to which such a rule may apply.
    started: Vec<u32>,
    /// Processes that have just called exec.
    executed: Vec<u32>,
    users: UserNames,
    profile_requests: ProfileRequestReader,
    cpu_use: CpuUseAverages,
    /// Processes that were large at the last scan and have no slot.
    without_slot: HashMap<u32, SlotRefusal>,
}

/// Why a large process that no rule excludes has no slot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SlotRefusal {
    /// It shares most of its memory with processes forked from the same program.
    Shares(ScannedProcess),
    /// Other processes are more important, or its user already has its share of the slots.
    Outranked { slots: usize },
}

/// How long a verdict holds. Processes start other programs, and are renamed and moved to other
/// cgroups.
pub const VERDICT_AGE: Duration = Duration::from_secs(60);
/// Between its fork and its exec a process looks as large as its parent, so it is not judged yet.
const LEAST_AGE: Duration = Duration::from_secs(1);
/// A process that uses at least this much CPU time, in cores, is managed even if it seems to share
/// its memory. That estimate is too low for forks that have all grown.
const BUSY_CORES: f64 = 0.01;
/// Most reports of exec calls that are kept until the next step. The next scan notices those that
/// are lost.
const MOST_EXECUTED: usize = 4096;

impl ProcessSelector {
    /// Starts without known processes.
    pub fn new(rules: Rules, selection: ProcessSelectionSettings) -> Result<Self> {
        Ok(Self {
            scanner: ProcScanner::open()?,
            execs: attach_exec_tracer_if_wanted(&rules),
            started: Vec::new(),
            executed: Vec::new(),
            users: UserNames::default(),
            profile_requests: ProfileRequestReader::default(),
            cpu_use: CpuUseAverages::default(),
            without_slot: HashMap::new(),
            rules,
            selection,
            scans: ProcessScanSchedule::default(),
            scan_cpu: Duration::ZERO,
            skipped: JoinPauses::default(),
        })
    }

    /// Replaces the rules. Processes that the old rules excluded are judged again.
    pub fn set_rules(&mut self, rules: Rules, selection: ProcessSelectionSettings) {
        if rules.any_rule_wants_warm_start() != self.execs.is_some() {
            self.execs = attach_exec_tracer_if_wanted(&rules);
        }
        self.rules = rules;
        self.selection = selection;
        self.skipped.clear();
        self.scanner.discard_unfinished_scan();
        self.scans = ProcessScanSchedule::default();
    }

    /// Takes in the machine's used memory. Much growth makes a scan due.
    pub(crate) fn record_used_memory(&mut self, now: Duration, used_bytes: u64) {
        self.scans.record_used_memory(now, used_bytes);
    }

    /// Changes where workloads may ask for a profile. At first they may not ask anywhere.
    pub fn set_profile_request_sources(&mut self, sources: ProfileRequestSources) {
        self.profile_requests.set_sources(sources);
    }

    /// How reading pods' annotations goes; `None`: they are not read.
    pub fn pod_annotation_status(&self) -> Option<PodAnnotationStatus> {
        self.profile_requests.pod_annotation_status()
    }

    /// The attributes of a process by which the rules decide.
    pub(crate) fn read_attributes(&self, pid: u32) -> Result<ProcessAttributes> {
        let mut attributes = read_process_attributes(pid, &self.users)?;
        self.profile_requests.add_request(&mut attributes);
        Ok(attributes)
    }

    /// What the request of a process's workload leads to, as a clause.
    pub fn describe_profile_request(&self, attributes: &ProcessAttributes) -> Option<String> {
        self.rules.describe_request(attributes)
    }

    /// Readable when a program was started.
    pub fn exec_report_fd(&self) -> Option<BorrowedFd<'_>> {
        self.execs.as_ref().map(|execs| execs.reports.fd())
    }

    /// Reads the reports of started programs. Returns whether some of them may get a warm start.
    pub fn read_exec_reports(&mut self) -> bool {
        let heard = self.execs.as_ref().map(|execs| execs.reports.take_reports());
        let heard = heard.unwrap_or_default();
        let room = MOST_EXECUTED.saturating_sub(self.executed.len());
        let executed = heard.iter().map(|program| program.pid);
        self.executed.extend(executed.take(room));
        let wanted =
            heard.into_iter().filter(|program| self.rules.may_want_warm_start(&program.command));
        self.started.extend(wanted.map(|program| program.pid));
        !self.started.is_empty()
    }

    /// Processes started since the last call that get a warm start, with their rules.
    pub fn take_warm_start_processes(&mut self) -> Vec<(u32, ProcessAttributes, ProcessSettings)> {
        self.read_exec_reports();
        let started = std::mem::take(&mut self.started);
        let judge = |pid| {
            // A process that has already ended is skipped.
            let identity = self.read_attributes(pid).ok()?;
            let terms = self.settings_for_attributes(&identity)?;
            terms.warm_bytes.map(|_| (pid, identity, terms))
        };
        started.into_iter().filter_map(judge).collect()
    }

    /// Processes that have called exec since the last call, as far as BPF reports it.
    pub fn take_executed_pids(&mut self) -> Vec<u32> {
        self.read_exec_reports();
        std::mem::take(&mut self.executed)
    }

    /// Most processes that are managed at a time.
    pub fn max_processes(&self) -> usize {
        self.selection.max_processes()
    }

    /// Scans all processes, if a scan is due. Returns those large enough to stay, the
    /// largest first.
    pub(crate) fn scan_if_due(
        &mut self,
        now: Duration,
        deadline: Instant,
    ) -> SliceProgress<Option<Vec<ScannedProcess>>> {
        if !self.scans.is_due(now) {
            return SliceProgress::Done(None);
        }
        let least = self.selection.min_bytes_to_stay();
        let (found, cpu) = with_cpu_time(|| self.scanner.scan_large_processes(least, deadline));
        self.scan_cpu += cpu;
        let Some(found) = found.transpose() else {
            return SliceProgress::Unfinished(Duration::ZERO);
        };
        let took = std::mem::take(&mut self.scan_cpu);
        self.scans.record_scan(now, took, self.selection);
        let mut large = match found {
            Ok(scan) => scan.large,
            Err(error) => {
                tracing::warn!("the scan for processes failed; the next one tries again: {error}");
                return SliceProgress::Done(None);
            }
        };
        let own = std::process::id();
        let is_own = |pid| pid == own || RESERVE.is_reserve_pid(pid);
        large.retain(|seen| !is_own(seen.process.pid) && !is_own_call_helper(seen));
        large.sort_by_key(|seen| std::cmp::Reverse(seen.own_bytes));
        let there: HashSet<u32> = large.iter().map(|seen| seen.process.pid).collect();
        self.skipped.retain_pids(|pid| there.contains(&pid));
        let there = large.iter().map(|seen| seen.process).collect();
        self.cpu_use.retain_processes(&there);
        SliceProgress::Done(Some(large))
    }

    /// The processes that compete for slots. That is the managed ones, and those that are large
    /// enough to join and were not excluded or refused lately.
    pub fn collect_slot_candidates(
        &mut self,
        large: &[ScannedProcess],
        is_managed: impl Fn(ProcessId) -> bool,
        now: Duration,
    ) -> Vec<ManagementSlotCandidate> {
        self.without_slot.clear();
        let mut candidates = Vec::new();
        for seen in large {
            let process = seen.process;
            let age = process::process_age(process);
            let cores = self.cpu_use.record_and_average(process, now, age, seen.cpu);
            let managed = is_managed(process);
            if managed || self.may_compete_for_slot(seen, cores, now) {
                candidates.push(ManagementSlotCandidate {
                    process,
                    user: seen.program.user,
                    own_bytes: seen.own_bytes,
                    cores,
                    managed,
                });
            }
        }
        candidates
    }

    fn may_compete_for_slot(&mut self, seen: &ScannedProcess, cores: f64, now: Duration) -> bool {
        let pid = seen.process.pid;
        if self.skipped.is_paused(pid, now) {
            return false;
        }
        let joins_at = self.selection.min_bytes_to_join();
        if seen.anonymous_bytes < joins_at {
            return false;
        }
        if seen.own_bytes < joins_at && cores < BUSY_CORES {
            let shares = SlotRefusal::Shares(seen.clone());
            self.without_slot.insert(pid, shares);
            return false;
        }
        true
    }

    /// Notes that a process has no slot because `slots` others do.
    pub fn record_outranked(&mut self, process: ProcessId, slots: usize) {
        let outranked = SlotRefusal::Outranked { slots };
        self.without_slot.insert(process.pid, outranked);
    }

    /// Whether to manage a process, and under which rules. `None`: no, or not yet.
    pub fn evaluate(
        &mut self,
        pid: u32,
        now: Duration,
    ) -> Result<Option<(ProcessAttributes, ProcessSettings)>> {
        let identity = self.read_attributes(pid)?;
        let Some(age) = age_of_pid(pid) else { return Ok(None) };
        if age < LEAST_AGE {
            // A program may fill its memory within a second, and not grow any more.
            self.scans.want_scan_at(now.saturating_add(LEAST_AGE - age));
            return Ok(None);
        }
        Ok(match self.rules.evaluate_process(&identity) {
            RuleVerdict::Include(terms) => Some((identity, terms)),
            // The next scan judges it again.
            RuleVerdict::Undecided { .. } => None,
            RuleVerdict::Exclude { .. } | RuleVerdict::ExcludedByRequest => {
                self.skipped.record_exclusion(pid, now.saturating_add(VERDICT_AGE));
                None
            }
        })
    }

    /// The settings for a process with these attributes; `None`: it is not managed.
    pub fn settings_for_attributes(&self, identity: &ProcessAttributes) -> Option<ProcessSettings> {
        match self.rules.evaluate_process(identity) {
            RuleVerdict::Include(terms) => Some(terms),
            RuleVerdict::Exclude { .. }
            | RuleVerdict::ExcludedByRequest
            | RuleVerdict::Undecided { .. } => None,
        }
    }

    /// Name of the rule at this index of the current rules.
    pub fn rule_name_at_index(&self, rule: usize) -> Option<&str> {
        self.rules.get(rule).map(|rule| rule.name.as_str())
    }

    /// Why a process that could be managed is not, as a sentence.
    pub fn why_not_managed(&self, pid: u32) -> Option<String> {
        let identity = self.read_attributes(pid).ok()?;
        let name = |rule| self.rule_name_at_index(rule);
        let verdict = self.rules.evaluate_process(&identity);
        Some(match (verdict, self.without_slot.get(&pid)) {
            (RuleVerdict::Exclude { rule }, _) => rule.and_then(name).map_or_else(
                || format!("process {pid} matches no rule, and such processes are not managed"),
                |rule| format!("rule {rule:?} excludes process {pid}"),
            ),
            (RuleVerdict::ExcludedByRequest, _) => format!(
                "process {pid} is left alone: {}",
                self.rules.describe_request(&identity).unwrap_or_default()
            ),
            (RuleVerdict::Undecided { rule: None }, _) => format!(
                "process {pid} is not managed until the container runtime says what its pod asks for; {}",
                self.pod_annotation_status().and_then(|it| it.last_error).map_or_else(
                    || "it has not answered yet".to_owned(),
                    |error| format!("the last call failed: {error}"),
                )
            ),
            (RuleVerdict::Undecided { rule: Some(rule) }, _) => format!(
                "process {pid} is not managed until the name service returns the name of user {}: rule {:?} depends on it",
                identity.uid,
                name(rule).unwrap_or_default()
            ),
            (RuleVerdict::Include(_), _) if self.skipped.contains(pid) => format!(
                "process {pid} could not be managed at the last attempt; the log gives the reason"
            ),
            (RuleVerdict::Include(_), Some(SlotRefusal::Shares(shares))) => format!(
                "process {pid} is idle and shares most of its {} MiB of anonymous memory with {} processes forked from the same program: about {} MiB are its own",
                shares.anonymous_bytes >> 20,
                shares.family - 1,
                shares.own_bytes >> 20
            ),
            (RuleVerdict::Include(_), Some(SlotRefusal::Outranked { slots })) => format!(
                "process {pid} has no slot: {slots} processes have more memory of their own or use more CPU time, or its user has {} slots already",
                max_slots_per_user(*slots)
            ),
            (RuleVerdict::Include(_), None) => format!(
                "process {pid} is not under management: it has less than {} MiB of anonymous memory or has just started",
                self.selection.min_bytes_to_join() >> 20
            ),
        })
    }

    /// Records that a process could not be managed, and leaves it alone for a while. Logs only the
    /// first failure.
    pub fn record_refusal(&mut self, pid: u32, now: Duration, error: &LinuxError) {
        self.skipped.record_refusal(pid, now, error);
    }
}

/// Watches starts of programs if some rule asks for warm starts. Without BPF there are no warm
/// starts.
fn attach_exec_tracer_if_wanted(rules: &Rules) -> Option<ExecTracer> {
    if !rules.any_rule_wants_warm_start() {
        return None;
    }
    let execs = ExecTracer::attach();
    execs.inspect_err(|error| tracing::warn!("processes get no warm start: {error}")).ok()
}

/// Time since a process was started; `None` where it has ended.
fn age_of_pid(pid: u32) -> Option<Duration> {
    let start_ticks = process::read_proc_entry(pid, Process::stat).ok()?.starttime;
    Some(process::process_age(ProcessId { pid, start_ticks }))
}

/// Whether a process makes calls for this one. It then shares all memory that neither has changed.
fn is_own_call_helper(seen: &ScannedProcess) -> bool {
    let own = process::saturating_pid_t(std::process::id());
    // Any program can take that name.
    seen.program.command.as_bytes() == HELPER_NAME.to_bytes()
        && process::read_proc_entry(seen.process.pid, Process::stat)
            .is_ok_and(|stat| stat.ppid == own)
}

#[cfg(test)]
mod tests;
