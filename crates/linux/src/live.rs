//! The running kernel as a machine under management.

use crate::cgroup::Groups;
use crate::error::LinuxError;
use crate::process::{self, ProcessHandle};
use crate::remote_advice;
use crate::sampler::{CallTimes, Member, Sampler};
use crate::stop::{StopSignals, Waited};
use crate::{pagemap, system_memory};
use hawkeye_manager::{Footprint, Machine, MachineError, Promoted, Recovered, Wake, ZeroScan};
use hawkeye_policy::{
    BASE_PAGE_BYTES, MemoryState, MemoryUse, PAGES_PER_REGION, ProcessId, ProcessSample,
    RegionAddr, RegionSample, Scope as Whose,
};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How zero pages are taken back; the probe chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryMethod {
    /// The split itself maps zero pages to the shared zero page (6.12 and later).
    SplitRemaps,
    /// Split, then page the zero pages out into swap or zram.
    SplitAndPageOut,
    /// Neither works here.
    None,
}

/// Which processes are managed.
pub enum Scope {
    /// These, until all have ended.
    Processes(Vec<ProcessHandle>),
    /// One and its descendants, until it ends. It gets the signals that end management.
    Family(ProcessHandle),
}

/// What the probe found out about this kernel, as far as managing needs it.
pub struct Means {
    /// How accesses are seen.
    pub sampler: Sampler,
    /// How bloat is recovered.
    pub recovery: RecoveryMethod,
    /// What a base page's first access after a clear costs the program.
    pub first_touch_cost: Duration,
}

/// The running kernel.
pub struct LinuxMachine {
    began: Instant,
    scope: Scope,
    signals: StopSignals,
    sampler: Sampler,
    recovery: RecoveryMethod,
    first_touch_cost: Duration,
    members: BTreeMap<u32, Member>,
    /// In order of arrival.
    order: Vec<ProcessId>,
    calls: CallTimes,
    saw_thp_disabled: bool,
    refused_bytes: u64,
    groups: Groups,
}

/// More swapped pages than this, and a promotion would mostly wait for the disk (tcmalloc's limit).
const MAX_SWAPPED: u16 = 128;

impl LinuxMachine {
    /// Takes over.
    pub fn new(means: Means, scope: Scope, signals: StopSignals) -> Self {
        Self {
            began: Instant::now(),
            scope,
            signals,
            sampler: means.sampler,
            recovery: means.recovery,
            first_touch_cost: means.first_touch_cost,
            members: BTreeMap::new(),
            order: Vec::new(),
            calls: CallTimes::default(),
            saw_thp_disabled: false,
            refused_bytes: 0,
            groups: Groups::of_this_machine(),
        }
    }

    /// Whether some process was left alone because it was told `PR_SET_THP_DISABLE`.
    pub fn saw_thp_disabled(&self) -> bool {
        self.saw_thp_disabled
    }

    /// The most bytes seen that owners keep out by `MADV_NOHUGEPAGE`.
    pub fn refused_bytes(&self) -> u64 {
        self.refused_bytes
    }

    fn admit(&mut self, pid: u32) {
        if self
            .members
            .get(&pid)
            .is_some_and(|member| member.handle.alive())
        {
            return;
        }
        // A process that ended between the listing and now just doesn't join.
        let Ok(mut member) = Member::open(pid) else {
            return;
        };
        self.saw_thp_disabled |= member.thp_disabled;
        match self.sampler.bind(&mut member) {
            Ok(()) => {
                self.order.push(member.handle.id);
                self.members.insert(pid, member);
            }
            Err(error) => tracing::warn!("process {pid} can't be managed: {error}"),
        }
    }

    fn member(&mut self, process: ProcessId) -> Result<&mut Member, MachineError> {
        member(&mut self.members, process)
    }
}

fn member(
    members: &mut BTreeMap<u32, Member>,
    process: ProcessId,
) -> Result<&mut Member, MachineError> {
    members
        .get_mut(&process.pid)
        .filter(|member| member.handle.id == process && member.handle.alive())
        .ok_or(MachineError::Gone(process))
}

impl Machine for LinuxMachine {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wait_until(&mut self, deadline: Duration) -> Wake {
        loop {
            let timeout = deadline.saturating_sub(self.now());
            let processes: Vec<_> = match &self.scope {
                Scope::Family(root) => vec![root.fd()],
                Scope::Processes(handles) => handles
                    .iter()
                    .filter(|h| h.alive())
                    .map(|h| h.fd())
                    .collect(),
            };
            if processes.is_empty() {
                return Wake::Stop;
            }
            match (self.signals.wait(&processes, timeout), &self.scope) {
                (Waited::TimedOut, _) => return Wake::Deadline,
                (Waited::ProcessEnded, Scope::Family(_)) => return Wake::Stop,
                (Waited::ProcessEnded, Scope::Processes(_)) => {}
                (Waited::Signal(_), Scope::Processes(_)) => return Wake::Stop,
                // Like `perf stat`: the program decides what a signal means, we wait for its end. The
                // terminal has sent SIGINT to it already.
                (Waited::Signal(signal), Scope::Family(root)) => {
                    if signal == Signal::SIGTERM as i32 {
                        let pid = Pid::from_raw(root.id.pid as i32);
                        let _ = kill(pid, Signal::SIGTERM);
                    }
                }
            }
        }
    }

    fn processes(&mut self) -> Vec<ProcessId> {
        self.members.retain(|_, member| member.handle.alive());
        let wanted: Vec<u32> = match &self.scope {
            Scope::Processes(handles) => handles
                .iter()
                .filter(|h| h.alive())
                .map(|h| h.id.pid)
                .collect(),
            Scope::Family(root) => process::family(root.id.pid).into_iter().collect(),
        };
        for pid in wanted {
            self.admit(pid);
        }
        let members = &self.members;
        self.order
            .retain(|id| members.get(&id.pid).is_some_and(|m| m.handle.id == *id));
        self.order.clone()
    }

    fn memory(&mut self) -> Result<MemoryState, MachineError> {
        let now = self.now();
        Ok(MemoryState {
            machine: self.memory_use(&Whose::Machine)?,
            groups: self.groups.read(now, &self.order),
            pressure_percent: system_memory::pressure(),
            fmfi: None,
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

    fn huge_pages(&mut self, process: ProcessId) -> Result<Vec<RegionSample>, MachineError> {
        let member = member(&mut self.members, process)?;
        self.sampler
            .huge_pages(member, &mut self.calls)
            .map_err(|error| error.for_process(process))
    }

    fn start_window(&mut self, process: ProcessId) -> Result<(), MachineError> {
        let member = member(&mut self.members, process)?;
        self.sampler
            .start_window(member, &mut self.calls)
            .map_err(|e| e.for_process(process))
    }

    fn sample(&mut self, process: ProcessId) -> Result<ProcessSample, MachineError> {
        let member = member(&mut self.members, process)?;
        let sample = self
            .sampler
            .sample(member, &mut self.calls)
            .map_err(|e| e.for_process(process))?;
        let refused = self
            .members
            .values()
            .map(|m| m.eligible.refused_bytes)
            .sum();
        self.refused_bytes = self.refused_bytes.max(refused);
        Ok(sample)
    }

    fn first_touch_cost(&self) -> Duration {
        self.first_touch_cost
    }

    fn promote(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        expected_present: u16,
    ) -> Result<Promoted, MachineError> {
        let member = member(&mut self.members, process)?;
        let found = self
            .sampler
            .look(member, region)
            .map_err(|error| error.for_process(process))?;
        match found {
            None => return Ok(Promoted::Freed),
            Some(r) if r.huge || r.swapped >= MAX_SWAPPED => return Ok(Promoted::NotCandidate),
            // A little change is life; more means that its owner gives it back.
            Some(r) if r.present < expected_present - expected_present / 16 => {
                return Ok(Promoted::Freed);
            }
            Some(_) => {}
        }
        let (result, took) = self
            .calls
            .time(|| remote_advice::collapse(&member.handle, region));
        match result {
            Ok(()) => Ok(Promoted::Done(took)),
            Err(error) => Err(error.for_process(process)),
        }
    }

    fn scan_zeros(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        enough: u16,
    ) -> Result<ZeroScan, MachineError> {
        let member = member(&mut self.members, process)?;
        let (found, took) = self
            .calls
            .time(|| self.sampler.zero_pages(member, region, enough));
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
        let method = self.recovery;
        let member = member(&mut self.members, process)?;
        let failed = |error: LinuxError| error.for_process(process);
        let begun = Instant::now();
        let mut longest_call = Duration::ZERO;
        let mut time = |calls: &mut CallTimes, call: &mut dyn FnMut() -> Result<(), LinuxError>| {
            let (result, took) = calls.time(call);
            longest_call = longest_call.max(took);
            result
        };
        match method {
            RecoveryMethod::SplitRemaps => {
                time(&mut self.calls, &mut || {
                    remote_advice::split(&member.handle, region)
                })
                .map_err(failed)?;
            }
            RecoveryMethod::SplitAndPageOut => {
                // Which pages are zero must be known before they are no huge page any more.
                let zero = pagemap::zero_pages(&member.handle, region, PAGES_PER_REGION)
                    .map_err(failed)?;
                time(&mut self.calls, &mut || {
                    remote_advice::split(&member.handle, region)
                })
                .map_err(failed)?;
                for (first, pages) in runs(&zero) {
                    let start = region.start() + u64::from(first) * BASE_PAGE_BYTES;
                    let bytes = u64::from(pages) * BASE_PAGE_BYTES;
                    time(&mut self.calls, &mut || {
                        remote_advice::page_out(&member.handle, start, bytes)
                    })
                    .map_err(failed)?;
                }
            }
            RecoveryMethod::None => {
                return Err(MachineError::Other(
                    "zero pages can't be given back on this kernel (see `hawkeye doctor`)".into(),
                ));
            }
        }
        let took = begun.elapsed();
        let left = self.sampler.look(member, region).map_err(failed)?;
        let left_present = left.map_or(0, |r| r.present);
        Ok(Recovered {
            bytes: u64::from(PAGES_PER_REGION - left_present.min(PAGES_PER_REGION))
                * BASE_PAGE_BYTES,
            left_present,
            took,
            longest_call,
        })
    }

    fn footprint(&mut self, process: ProcessId) -> Result<Footprint, MachineError> {
        let rss_bytes =
            process::rss_bytes(process.pid).map_err(|error| error.for_process(process))?;
        self.member(process)?;
        let member = &self.members[&process.pid];
        let huge_bytes = self
            .sampler
            .huge_bytes(member)
            .map_err(|error| error.for_process(process))?;
        Ok(Footprint {
            rss_bytes,
            huge_bytes,
        })
    }

    fn manager_cpu(&self) -> Duration {
        own_cpu()
    }

    fn longest_call(&self) -> Duration {
        self.calls.longest
    }
}

/// CPU time that this process has used so far.
pub fn own_cpu() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Duration::ZERO;
    };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros.max(0) as u64)
}

/// Runs of consecutive numbers: (first, how many).
fn runs(sorted: &[u16]) -> Vec<(u16, u16)> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for &index in sorted {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == index => *count += 1,
            _ => runs.push((index, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn runs_join_neighbours() {
        assert_eq!(runs(&[0, 1, 2, 5, 9, 10]), vec![(0, 3), (5, 1), (9, 2)]);
        assert_eq!(runs(&[]), vec![]);
    }
}
