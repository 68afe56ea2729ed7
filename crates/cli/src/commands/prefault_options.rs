//! Prefault for programs, and huge pages at page faults.

use crate::config::PrefaultSettings;
use anyhow::{Context, Result};
use hawkeye_linux::machine_lease::thp_settings::{
    HugePageFaults, KernelSettingsGuard, avoid_huge_zero_page,
};
use hawkeye_linux::prefault::{Prefaulter, StartingPrefaulter};
use hawkeye_linux::{LinuxError, LinuxMachine};
use hawkeye_manager::Manager;

/// What is started before the program is.
#[derive(Default)]
pub struct PrefaultSession {
    fault_ahead: Option<Prefaulter>,
    warm_bytes: u64,
    huge_faults: Option<HugePageFaults>,
    /// Whether `use_zero_page` is off at the moment; `None`: the manager leaves it alone.
    spares_zero_page: Option<bool>,
}

impl PrefaultSession {
    /// Starts the filler in the background, so that it is ready when the rest is.
    pub fn prepare(wanted: &PrefaultSettings) -> Option<Result<StartingPrefaulter, LinuxError>> {
        wanted
            .fault_ahead
            .then(|| Prefaulter::begin(wanted.rate, wanted.threads))
    }

    /// Starts what `wanted` asks for. `required`: it is an error if memory can't be prefaulted.
    pub fn begin(
        wanted: &PrefaultSettings,
        prepared: Option<Result<StartingPrefaulter, LinuxError>>,
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
        if let Some(starting) = prepared {
            let started = starting.and_then(|starting| {
                let ready = starting.wait_ready()?;
                avoid_huge_zero_page(true, settings)?;
                Ok(ready)
            });
            match started {
                Ok(fault_ahead) => {
                    filling.fault_ahead = Some(fault_ahead);
                    filling.spares_zero_page = Some(true);
                }
                Err(error) if required => {
                    return Err(error).context("can't prefault memory here");
                }
                Err(error) => tracing::warn!("prefault is off: {error}"),
            }
        }
        Ok(filling)
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
