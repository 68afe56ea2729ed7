//! The filler of a machine: its start beside that of the manager, and how much it may fill.

use super::LinuxMachine;
use crate::error::Result;
use crate::prefault::{PrefaultDelayReason, PrefaultStatistics, Prefaulter, StartingPrefaulter};
use hawkeye_manager::{BudgetWait, ExhaustedBudget, Machine, Prefault};
use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId, ProcessSettings};
use std::time::{Duration, Instant};

/// The filler, if there is one.
#[derive(Default)]
pub(super) struct PrefaultControl {
    pub(super) running: Option<Prefaulter>,
    starting: Option<StartingPrefaulter>,
    /// CPU time of a filler that could not start.
    failed_cpu: Duration,
    start_result: Option<Result<()>>,
}

impl PrefaultControl {
    fn enable(&mut self, mut prefaulter: Prefaulter, warm_bytes: u64) {
        prefaulter.warm_regions = warm_bytes / HUGE_PAGE_BYTES;
        self.running = Some(prefaulter);
    }

    pub(super) fn enable_if_ready(&mut self) {
        let Some(starting) = self.starting.take() else { return };
        match starting.try_into_ready() {
            Ok((started, cpu)) => {
                if started.is_err() {
                    self.failed_cpu = cpu;
                }
                let started = started.map(|prefaulter| self.enable(prefaulter, 0));
                self.start_result = Some(started);
            }
            Err(starting) => self.starting = Some(starting),
        }
    }

    /// CPU time of a start that goes on or has failed.
    pub(super) fn start_cpu_time(&self) -> Duration {
        self.starting.as_ref().map_or(self.failed_cpu, StartingPrefaulter::cpu_time)
    }
}

impl LinuxMachine {
    /// Fills ahead of all managed processes from now on, and `warm_bytes` at the start of each one.
    pub fn enable_prefault(&mut self, prefaulter: Prefaulter, warm_bytes: u64) {
        self.prefault.enable(prefaulter, warm_bytes);
    }

    /// Fills ahead of all managed processes once the filler has started.
    pub fn enable_prefault_when_ready(&mut self, starting: StartingPrefaulter) {
        self.prefault.starting = Some(starting);
    }

    /// Whether that filler could start. `None` until it is known, and once it was returned.
    pub fn take_prefault_start_result(&mut self) -> Option<Result<()>> {
        self.prefault.start_result.take()
    }

    /// What was filled ahead so far; `None` if nothing is filled ahead.
    pub fn prefault_statistics(&self) -> Option<PrefaultStatistics> {
        self.prefault.running.as_ref().map(Prefaulter::statistics)
    }
}

impl Prefault for LinuxMachine {
    fn take_prefaulted_bytes(&mut self, process: ProcessId) -> u64 {
        let prefaulter = self.prefault.running.as_ref();
        prefaulter.map_or(0, |prefaulter| prefaulter.take_prefaulted_bytes(process))
    }

    fn process_settings(&self, process: ProcessId) -> Option<ProcessSettings> {
        self.prefault.running.as_ref()?;
        self.members.get(process).map(|member| member.terms)
    }

    fn prefault_wait(&self) -> Option<BudgetWait> {
        let (reason, until) = self.prefault_statistics()?.delay?;
        let left = until.saturating_duration_since(Instant::now());
        let budget = match reason {
            PrefaultDelayReason::NoSpareCore => ExhaustedBudget::PrefaultCores,
            PrefaultDelayReason::LongCall => ExhaustedBudget::PrefaultPause,
            PrefaultDelayReason::Rate => ExhaustedBudget::PrefaultRate,
        };
        let until = Some(self.now() + left);
        (!left.is_zero()).then_some(BudgetWait { budget, until })
    }

    fn set_prefault_limit(&mut self, process: ProcessId, room_bytes: u64) {
        if let Some(prefaulter) = &self.prefault.running {
            let cgroup = self.groups.last_cgroup_of_process(process);
            // One that has just joined may have a limit that was not read yet.
            let is_known = cgroup.is_some() || !self.groups.are_there();
            let room_bytes = if is_known { room_bytes } else { 0 };
            prefaulter.set_prefault_room_in_cgroup(process, room_bytes, cgroup);
        }
    }
}
