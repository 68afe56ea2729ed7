//! Prefault for programs, and huge pages at page faults.

use crate::config::{PrefaultMode, PrefaultSettings};
use anyhow::{Context, Result, anyhow};
use hawkeye_linux::LinuxMachine;
use hawkeye_linux::machine_lease::thp_settings::{
    HugePageFaults, KernelSettingsGuard, avoid_huge_zero_page, enabled_file, read_setting,
    uses_huge_zero_page,
};
use hawkeye_linux::prefault::{Prefaulter, StartingPrefaulter};
use hawkeye_manager::Manager;
use hawkeye_policy::prefault::PrefaultThreads;
use serde::Serialize;
use std::num::NonZero;
use std::thread::available_parallelism;

/// What is started before the program is.
#[derive(Default)]
pub struct PrefaultSession {
    choice: Option<PrefaultChoice>,
    fault_ahead: Option<Prefaulter>,
    warm_bytes: u64,
    huge_faults: Option<HugePageFaults>,
    /// Whether `use_zero_page` is off at the moment; `None`: the manager leaves it alone.
    spares_zero_page: Option<bool>,
}

/// Whether memory is prefaulted, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrefaultChoice {
    pub on: bool,
    /// By how many threads, or what is in the way; a clause.
    pub reason: String,
}

/// What `auto` depends on.
struct HostConditions {
    /// CPUs that this process may use.
    cpus: usize,
    /// Whether every program gets huge pages at page faults, and the huge zero page at reads.
    huge_at_every_fault: bool,
}

impl HostConditions {
    fn read(wanted: &PrefaultSettings) -> Self {
        let always = read_setting(&enabled_file()).is_ok_and(|value| value == "always");
        Self {
            cpus: available_parallelism().map_or(1, NonZero::get),
            huge_at_every_fault: always && uses_huge_zero_page() && !avoids_zero_page(wanted),
        }
    }

    /// Why `auto` leaves prefault off, if so.
    fn obstacle(&self) -> Option<&'static str> {
        if self.cpus < 2 {
            Some("there is only one CPU, and the program needs it")
        } else if self.huge_at_every_fault {
            Some("the kernel gives every program huge pages at page faults")
        } else {
            None
        }
    }
}

/// With the huge zero page, a remote read can't fill memory that gets huge pages at faults. The
/// setting holds for the whole machine, so the user must have asked for a change.
fn avoids_zero_page(wanted: &PrefaultSettings) -> bool {
    wanted.mode == PrefaultMode::On || wanted.huge_faults
}

impl PrefaultSession {
    /// Starts the filler in the background, so that it is ready when the rest is. `None` where
    /// prefault is off.
    pub fn prepare(wanted: &PrefaultSettings) -> Option<Result<StartingPrefaulter>> {
        let obstacle = match wanted.mode {
            PrefaultMode::Off => return None,
            PrefaultMode::On => None,
            PrefaultMode::Auto => HostConditions::read(wanted).obstacle(),
        };
        Some(match obstacle {
            Some(obstacle) => Err(anyhow!(obstacle)),
            None => Prefaulter::begin(wanted.rate, Some(threads(wanted))).map_err(Into::into),
        })
    }

    /// Starts what `wanted` asks for. `required`: it is an error if memory can't be prefaulted.
    pub fn begin(
        wanted: &PrefaultSettings,
        prepared: Option<Result<StartingPrefaulter>>,
        required: bool,
        warm_bytes: u64,
        settings: &mut KernelSettingsGuard,
    ) -> Result<Self> {
        let mut filling = Self {
            warm_bytes,
            ..Self::default()
        };
        if wanted.huge_faults {
            let mut huge_faults = HugePageFaults::default();
            huge_faults
                .allow(true, settings)
                .context("can't enable huge pages at page faults")?;
            filling.huge_faults = Some(huge_faults);
        }
        let Some(starting) = prepared else {
            return Ok(filling);
        };
        let avoid = avoids_zero_page(wanted);
        let started = starting.and_then(|starting| {
            let ready = starting.wait_ready()?;
            if avoid {
                avoid_huge_zero_page(true, settings)?;
            }
            Ok(ready)
        });
        filling.choice = Some(match started {
            Ok(fault_ahead) => {
                filling.fault_ahead = Some(fault_ahead);
                filling.spares_zero_page = avoid.then_some(true);
                PrefaultChoice {
                    on: true,
                    reason: threads_text(threads(wanted).get()),
                }
            }
            Err(error) if required => {
                return Err(error).context("can't prefault memory here");
            }
            Err(error) => {
                match wanted.mode {
                    PrefaultMode::On => tracing::warn!("prefault is off: {error:#}"),
                    _ => tracing::info!("prefault is off: {error:#}"),
                }
                PrefaultChoice {
                    on: false,
                    reason: format!("{error:#}"),
                }
            }
        });
        Ok(filling)
    }

    /// Whether memory is prefaulted, and why; `None` with the mode off.
    pub fn choice(&self) -> Option<&PrefaultChoice> {
        self.choice.as_ref()
    }

    /// Hands the filler over to the machine.
    pub fn attach(&mut self, machine: &mut LinuxMachine) {
        if let Some(fault_ahead) = self.fault_ahead.take() {
            machine.enable_prefault(fault_ahead, self.warm_bytes);
        }
    }

    /// Called between steps. Settings that cost memory hold only while promotion goes on.
    pub fn update(&mut self, manager: &Manager<LinuxMachine>, settings: &mut KernelSettingsGuard) {
        let allowed = manager.promotion_held_by().is_none() && !manager.is_paused();
        if let Some(huge_faults) = &mut self.huge_faults {
            if let Err(error) = huge_faults.allow(allowed, settings) {
                tracing::warn!("huge pages at page faults not switched: {error}");
            }
        }
        if self.spares_zero_page == Some(!allowed) {
            self.spares_zero_page = Some(allowed);
            if let Err(error) = avoid_huge_zero_page(allowed, settings) {
                tracing::warn!("use_zero_page not switched: {error}");
            }
        }
    }
}

fn threads(wanted: &PrefaultSettings) -> PrefaultThreads {
    let cpus = available_parallelism().map_or(1, NonZero::get);
    let usual = || PrefaultThreads::default_for_cores(cpus);
    wanted.threads.unwrap_or_else(usual)
}

fn threads_text(threads: usize) -> String {
    match threads {
        1 => "by 1 thread on a spare CPU".into(),
        n => format!("by up to {n} threads on spare CPUs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_needs_a_second_cpu_and_memory_that_the_kernel_does_not_make_huge_itself() {
        for (cpus, huge_at_every_fault, why) in [
            (1, false, Some("one CPU")),
            (2, false, None),
            (64, true, Some("at page faults")),
        ] {
            let host = HostConditions {
                cpus,
                huge_at_every_fault,
            };
            let obstacle = host.obstacle();
            assert_eq!(obstacle.is_some(), why.is_some(), "{cpus}");
            assert!(
                obstacle
                    .unwrap_or_default()
                    .contains(why.unwrap_or_default())
            );
        }
    }

    #[test]
    fn only_a_user_that_asks_for_it_changes_the_setting_of_the_machine() {
        for (mode, huge_faults, avoids) in [
            (PrefaultMode::Auto, false, false),
            (PrefaultMode::On, false, true),
            (PrefaultMode::Auto, true, true),
        ] {
            let wanted = PrefaultSettings {
                mode,
                huge_faults,
                ..PrefaultSettings::default()
            };
            assert_eq!(avoids_zero_page(&wanted), avoids, "{mode:?}");
        }
    }
}
