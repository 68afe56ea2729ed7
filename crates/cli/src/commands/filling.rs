//! What is done ahead of programs: filling, and huge pages at first faults.

use crate::config::{FillSettings, Switch};
use anyhow::{Context, Result};
use hawkeye_linux::prefault::{FaultAhead, Starting};
use hawkeye_linux::takeover::thp_settings::{HugeFaults, SettingsGuard, spare_zero_page};
use hawkeye_linux::{LinuxError, LinuxMachine};
use hawkeye_manager::Manager;

/// Started before the program is.
#[derive(Default)]
pub struct Filling {
    fault_ahead: Option<FaultAhead>,
    warm_bytes: u64,
    huge_faults: Option<HugeFaults>,
    /// Whether `use_zero_page` is off at the moment; `None`: it is not ours to change.
    spares_zero_page: Option<bool>,
}

impl Filling {
    /// Begins to start what was asked for, so that it is ready when all else is.
    pub fn prepare(wanted: &FillSettings) -> Option<Result<Starting, LinuxError>> {
        (wanted.fault_ahead == Switch::On).then(|| FaultAhead::begin(wanted.rate, wanted.threads))
    }

    /// Starts what was asked for. `required`: it is an error where memory can't be filled ahead.
    pub fn begin(
        wanted: &FillSettings,
        prepared: Option<Result<Starting, LinuxError>>,
        required: bool,
        warm_bytes: u64,
        settings: &mut SettingsGuard,
    ) -> Result<Self> {
        let mut filling = Self {
            warm_bytes,
            ..Self::default()
        };
        if wanted.huge_faults == Switch::On {
            let mut huge_faults = HugeFaults::default();
            huge_faults
                .allow(true, settings)
                .context("huge pages at first faults")?;
            filling.huge_faults = Some(huge_faults);
        }
        if let Some(starting) = prepared {
            let started = starting.and_then(|starting| {
                let ready = starting.ready()?;
                spare_zero_page(true, settings)?;
                Ok(ready)
            });
            match started {
                Ok(fault_ahead) => {
                    filling.fault_ahead = Some(fault_ahead);
                    filling.spares_zero_page = Some(true);
                }
                Err(error) if required => {
                    return Err(error).context("memory can't be filled ahead here");
                }
                Err(error) => tracing::warn!("memory is not filled ahead: {error}"),
            }
        }
        Ok(filling)
    }

    /// Hands the filler over to the machine.
    pub fn attach(&mut self, machine: &mut LinuxMachine) {
        if let Some(fault_ahead) = self.fault_ahead.take() {
            machine.fill_ahead_with(fault_ahead, self.warm_bytes);
        }
    }

    /// Between steps: settings that cost memory hold only while promotion goes on too.
    pub fn update(&mut self, manager: &Manager<LinuxMachine>, settings: &mut SettingsGuard) {
        let allowed = manager.held().is_none() && !manager.is_paused();
        if let Some(huge_faults) = &mut self.huge_faults {
            if let Err(error) = huge_faults.allow(allowed, settings) {
                tracing::warn!("{error}");
            }
        }
        if self
            .spares_zero_page
            .is_some_and(|spares| spares != allowed)
        {
            self.spares_zero_page = Some(allowed);
            if let Err(error) = spare_zero_page(allowed, settings) {
                tracing::warn!("{error}");
            }
        }
    }
}
