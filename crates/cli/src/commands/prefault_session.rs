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
    prefaulter: Option<Prefaulter>,
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
    /// Settings that cost memory wait for [`Self::switch_machine_settings`] while `memory` blocks
    /// promotion.
    pub fn start_wanted_prefault(
        wanted: &PrefaultSettings,
        prepared: Option<Result<StartingPrefaulter>>,
        required: bool,
        warm_bytes: u64,
        memory: MemoryGuard,
        settings: &mut KernelSettingsGuard,
    ) -> Result<Self> {
        let mut filling = Self { warm_bytes, ..Self::default() };
        let allowed = check_memory_of_machine(memory).is_ok();
        if wanted.huge_faults {
            let huge_faults = filling.huge_faults.insert(HugePageFaultSwitch::of_kernel());
            let switched = huge_faults.set_allowed(allowed, settings);
            switched.context(
                "can't enable huge pages at page faults; start without --huge-faults (daemon: fault_ahead.huge_faults off)",
            )?;
        }
        let Some(starting) = prepared else { return Ok(filling) };
        let avoid = may_disable_huge_zero_page(wanted);
        let started = starting.and_then(|starting| {
            let ready = starting.wait_until_ready()?;
            if avoid && allowed {
                set_huge_zero_page_avoided(true, settings)?;
            }
            Ok(ready)
        });
        filling.start_outcome = Some(match started {
            Ok(prefaulter) => {
                filling.prefaulter = Some(prefaulter);
                filling.spares_zero_page = avoid.then_some(allowed);
                let reason = match prefault_thread_count(wanted).get() {
                    1 => "by 1 thread on a spare CPU".into(),
                    n => format!("by up to {n} threads on spare CPUs"),
                };
                PrefaultStartOutcome { on: true, reason }
            }
            Err(error) if required => {
                return Err(error.context(
                    "can't prefault memory here; --fault-ahead auto without --warm does not need it",
                ));
            }
            Err(error) => {
                match wanted.mode {
                    PrefaultMode::On => tracing::warn!("prefault is off: {error:#}"),
                    _ => tracing::info!("prefault is off: {error:#}"),
                }
                let reason = format!("{error:#}");
                PrefaultStartOutcome { on: false, reason }
            }
        });
        Ok(filling)
    }

    pub fn hand_prefaulter_to_machine(&mut self, machine: &mut LinuxMachine) {
        if let Some(prefaulter) = self.prefaulter.take() {
            machine.enable_prefault(prefaulter, self.warm_bytes);
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
