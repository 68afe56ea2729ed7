//! Prefault for programs, and huge pages at page faults.

use crate::config::{PrefaultMode, PrefaultSettings};
use anyhow::{Context, Result, anyhow};
use hawkeye_linux::LinuxMachine;
use hawkeye_linux::machine_lease::thp_settings::{
    HugePageFaultSwitch, KernelSettingsGuard, enabled_file, read_setting,
    set_huge_zero_page_avoided, uses_huge_zero_page,
};
use hawkeye_linux::memory::promotion_check::check_memory_of_machine;
use hawkeye_linux::prefault::{Prefaulter, StartingPrefaulter};
use hawkeye_manager::Manager;
use hawkeye_policy::MemoryGuard;
use hawkeye_policy::prefault::PrefaultThreadCount;
use serde::Serialize;
use std::num::NonZero;
use std::thread::available_parallelism;

/// What is started before the program is.
#[derive(Default)]
pub struct PrefaultSession {
    /// `None` with the mode off.
    pub start_outcome: Option<PrefaultStartOutcome>,
    wanted: PrefaultSettings,
    prefaulter: Option<Prefaulter>,
    /// The filler for which the program does not wait.
    starting: Option<StartingPrefaulter>,
    warm_bytes: u64,
    huge_faults: Option<HugePageFaultSwitch>,
    /// Whether `use_zero_page` is off at the moment; `None`: the manager leaves it alone.
    spares_zero_page: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrefaultStartOutcome {
    pub on: bool,
    /// By how many threads, or what is in the way; a clause.
    pub reason: String,
}

/// Why `auto` leaves prefault off, if so. `huge_at_every_fault`: every program gets huge pages at
/// page faults, and the huge zero page at reads.
fn auto_mode_obstacle(cpus: usize, huge_at_every_fault: bool) -> Option<&'static str> {
    match cpus {
        ..2 => Some("there is only one CPU, and the program needs it"),
        _ if huge_at_every_fault => {
            Some("the kernel gives every program huge pages at page faults")
        }
        _ => None,
    }
}

/// CPUs that this process may use.
fn available_cpus() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// With the huge zero page, a remote read can't fill memory that gets huge pages at faults. The
/// setting holds for the whole machine, so the user must have asked for a change.
fn may_disable_huge_zero_page(wanted: &PrefaultSettings) -> bool {
    wanted.mode == PrefaultMode::On || wanted.huge_faults
}

impl PrefaultSession {
    /// Starts the filler in the background. `None` where prefault is off.
    pub fn start_loading_prefaulter(
        wanted: &PrefaultSettings,
    ) -> Option<Result<StartingPrefaulter>> {
        let obstacle = match wanted.mode {
            PrefaultMode::Off => return None,
            PrefaultMode::On => None,
            PrefaultMode::Auto => {
                let always = read_setting(&enabled_file()).is_ok_and(|value| value == "always");
                let huge = always && uses_huge_zero_page() && !may_disable_huge_zero_page(wanted);
                auto_mode_obstacle(available_cpus(), huge)
            }
        };
        let threads = Some(prefault_thread_count(wanted));
        let begin = || Ok(Prefaulter::start_loading(wanted.rate, threads)?);
        Some(obstacle.map_or_else(begin, |obstacle| Err(anyhow!(obstacle))))
    }

    /// Starts what `wanted` asks for. `required`: it is an error if memory can't be prefaulted.
    /// Waits for the filler only where the user asked for it. Otherwise [`Self::record_late_start`]
    /// takes in the result. Settings that cost memory wait for [`Self::switch_machine_settings`]
    /// while `memory` blocks promotion.
    pub fn start_wanted_prefault(
        wanted: &PrefaultSettings,
        prepared: Option<Result<StartingPrefaulter>>,
        required: bool,
        warm_bytes: u64,
        memory: MemoryGuard,
        settings: &mut KernelSettingsGuard,
    ) -> Result<Self> {
        let mut filling = Self { wanted: *wanted, warm_bytes, ..Self::default() };
        let allowed = check_memory_of_machine(memory).is_ok();
        if wanted.huge_faults {
            let huge_faults = filling.huge_faults.insert(HugePageFaultSwitch::of_kernel());
            let switched = huge_faults.set_allowed(allowed, settings);
            switched.context(
                "can't enable huge pages at page faults; start without --huge-faults (daemon: fault_ahead.huge_faults off)",
            )?;
        }
        let Some(starting) = prepared else { return Ok(filling) };
        if !may_disable_huge_zero_page(wanted) {
            match starting {
                Ok(starting) => {
                    filling.starting = Some(starting);
                    let reason = "it had not started yet at the end".into();
                    filling.start_outcome = Some(PrefaultStartOutcome { on: false, reason });
                }
                Err(error) => filling.record_start(Err(error)),
            }
            return Ok(filling);
        }
        let started = starting.and_then(|starting| {
            let ready = starting.wait_until_ready()?;
            if allowed {
                set_huge_zero_page_avoided(true, settings)?;
            }
            Ok(ready)
        });
        match started {
            Ok(prefaulter) => {
                filling.prefaulter = Some(prefaulter);
                filling.spares_zero_page = Some(allowed);
                filling.record_start(Ok(()));
            }
            Err(error) if required => {
                return Err(error.context(
                    "can't prefault memory here; --fault-ahead auto without --warm does not need it",
                ));
            }
            Err(error) => filling.record_start(Err(error)),
        }
        Ok(filling)
    }

    fn record_start(&mut self, started: Result<()>) {
        self.start_outcome = Some(match started {
            Ok(()) => {
                let reason = match prefault_thread_count(&self.wanted).get() {
                    1 => "by 1 thread on a spare CPU".into(),
                    n => format!("by up to {n} threads on spare CPUs"),
                };
                PrefaultStartOutcome { on: true, reason }
            }
            Err(error) => {
                match self.wanted.mode {
                    PrefaultMode::On => tracing::warn!("prefault is off: {error:#}"),
                    _ => tracing::info!("prefault is off: {error:#}"),
                }
                let reason = format!("{error:#}");
                PrefaultStartOutcome { on: false, reason }
            }
        });
    }

    pub fn hand_prefaulter_to_machine(&mut self, machine: &mut LinuxMachine) {
        if let Some(prefaulter) = self.prefaulter.take() {
            machine.enable_prefault(prefaulter, self.warm_bytes);
        }
        if let Some(starting) = self.starting.take() {
            machine.enable_prefault_when_ready(starting);
        }
    }

    /// Called between steps, and at the end. Takes in whether a filler could start for which
    /// nothing has waited.
    pub fn record_late_start(&mut self, machine: &mut LinuxMachine) {
        if let Some(started) = machine.take_prefault_start_result() {
            self.record_start(started.map_err(anyhow::Error::from));
        }
    }

    /// Called between steps. Settings that cost memory hold only while promotion goes on.
    pub fn switch_machine_settings(
        &mut self,
        manager: &Manager<LinuxMachine>,
        settings: &mut KernelSettingsGuard,
    ) {
        let allowed = manager.memory().held.is_none() && !manager.is_paused();
        if let Some(huge_faults) = &mut self.huge_faults {
            if let Err(error) = huge_faults.set_allowed(allowed, settings) {
                tracing::warn!("huge pages at page faults not switched: {error}");
            }
        }
        if self.spares_zero_page == Some(!allowed) {
            self.spares_zero_page = Some(allowed);
            if let Err(error) = set_huge_zero_page_avoided(allowed, settings) {
                tracing::warn!("use_zero_page not switched: {error}");
            }
        }
    }
}

fn prefault_thread_count(wanted: &PrefaultSettings) -> PrefaultThreadCount {
    wanted.threads.unwrap_or_else(|| PrefaultThreadCount::default_for_cores(available_cpus()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_needs_a_second_cpu_and_memory_that_the_kernel_does_not_make_huge_itself() {
        for (cpus, huge_at_every_fault, why) in
            [(1, false, Some("one CPU")), (2, false, None), (64, true, Some("at page faults"))]
        {
            let obstacle = auto_mode_obstacle(cpus, huge_at_every_fault);
            assert_eq!(obstacle.is_some(), why.is_some(), "{cpus}");
            assert!(obstacle.unwrap_or_default().contains(why.unwrap_or_default()));
        }
    }

    #[test]
    fn the_outcome_of_a_late_start_is_kept_for_the_summary() {
        let threads = PrefaultThreadCount::default_for_cores(2);
        let wanted = PrefaultSettings { threads: Some(threads), ..PrefaultSettings::default() };
        let mut session = PrefaultSession { wanted, ..PrefaultSession::default() };
        let mut outcome = |started| {
            session.record_start(started);
            session.start_outcome.clone().map(|outcome| (outcome.on, outcome.reason))
        };
        let failed = Some((false, "no BPF here".to_owned()));
        assert_eq!(outcome(Err(anyhow!("no BPF here"))), failed);
        assert_eq!(outcome(Ok(())), Some((true, "by 1 thread on a spare CPU".to_owned())));
    }

    #[test]
    fn only_a_user_that_asks_for_it_changes_the_setting_of_the_machine() {
        for (mode, huge_faults, avoids) in [
            (PrefaultMode::Auto, false, false),
            (PrefaultMode::On, false, true),
            (PrefaultMode::Auto, true, true),
        ] {
            let wanted = PrefaultSettings { mode, huge_faults, ..PrefaultSettings::default() };
            assert_eq!(may_disable_huge_zero_page(&wanted), avoids, "{mode:?}");
        }
    }
}
