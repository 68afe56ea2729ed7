//! What is done ahead of programs: filling, and huge pages at first faults.

use crate::options::{FaultAheadMode, FillOptions};
use anyhow::{Context, Result};
use hawkeye_linux::LinuxMachine;
use hawkeye_linux::fault_ahead::FaultAhead;
use hawkeye_linux::thp_settings::{HugeFaults, SettingsGuard, spare_zero_page};
use hawkeye_manager::Manager;

/// Started before the program is.
#[derive(Default)]
pub struct Filling {
    fault_ahead: Option<FaultAhead>,
    warm_bytes: u64,
    huge_faults: Option<HugeFaults>,
}

impl Filling {
    /// Starts what was asked for.
    pub fn begin(
        options: &FillOptions,
        warm_bytes: u64,
        settings: &mut SettingsGuard,
    ) -> Result<Self> {
        let mut filling = Self {
            warm_bytes,
            huge_faults: options.huge_faults.then(HugeFaults::default),
            ..Self::default()
        };
        if let Some(huge_faults) = &mut filling.huge_faults {
            huge_faults
                .allow(true, settings)
                .context("huge pages at first faults")?;
        }
        let several = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        // Whoever asks for a warm start wants it.
        let wanted = match options.fault_ahead {
            FaultAheadMode::On => true,
            FaultAheadMode::Off => false,
            FaultAheadMode::Auto => several || warm_bytes > 0,
        };
        if wanted {
            let started =
                spare_zero_page(settings).and_then(|()| FaultAhead::start(options.fill_rate));
            match started {
                Ok(fault_ahead) => filling.fault_ahead = Some(fault_ahead),
                Err(error) if options.fault_ahead == FaultAheadMode::On || warm_bytes > 0 => {
                    return Err(error).context("memory can't be filled ahead here");
                }
                Err(error) => tracing::info!("memory is not filled ahead: {error}"),
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

    /// Between steps: huge pages at first faults only while promotion goes on too.
    pub fn update(&mut self, manager: &Manager<LinuxMachine>, settings: &mut SettingsGuard) {
        let Some(huge_faults) = &mut self.huge_faults else {
            return;
        };
        if let Err(error) = huge_faults.allow(manager.held().is_none(), settings) {
            tracing::warn!("{error}");
        }
    }
}
