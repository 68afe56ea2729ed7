//! Becoming the manager of this machine: one at a time, with settings that are put back.

pub mod instance;
pub mod own_files;
pub mod thp_settings;

use crate::error::Result;
use crate::live::Means;
use crate::probe::{self, Decision, Extent};
use crate::sample::sampler::damon::{Damon, DamonError};
use crate::takeover::instance::{Instance, state_dir};
use crate::takeover::thp_settings::SettingsGuard;

/// The right to manage this machine, and what can be done here. Dropping it puts every setting back
/// and lets the next manager in.
#[derive(Debug)]
pub struct Takeover {
    // Restored before the lock is let go: fields drop in this order.
    settings: SettingsGuard,
    _instance: Instance,
    decision: Decision,
}

impl Takeover {
    /// Claims the machine for `purpose` (for the eyes of whoever is refused meanwhile), puts back
    /// what a killed manager left changed, and finds out what works.
    ///
    /// # Errors
    /// Another manager is running, or `HAWKEYE_SAMPLER` asks for what does not work.
    pub fn begin(purpose: &str) -> Result<Self> {
        let state = state_dir();
        let instance = Instance::claim(&state, purpose)?;
        let settings = SettingsGuard::start(&state)?;
        stop_leftover_damon();
        let decision = probe::choose(&probe::gather(Extent::ForManaging, None)?)?;
        Ok(Self {
            settings,
            _instance: instance,
            decision,
        })
    }

    /// What can be done here.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// What was chosen, set up.
    pub fn means(&self) -> Result<Means> {
        probe::means(&self.decision)
    }

    /// Settings to change for as long as the machine is managed.
    pub fn settings(&mut self) -> &mut SettingsGuard {
        &mut self.settings
    }
}

/// Stops the kdamond that a manager leaves running when it is killed in a sampling window. Nobody
/// else's is touched. The caller holds the [`Instance`] lock.
pub fn stop_leftover_damon() {
    match Damon::default().stop_leftover() {
        Ok(true) => tracing::info!("stopped the DAMON session of a manager that was killed"),
        Ok(false) | Err(DamonError::Absent(_)) => {}
        // Then DAMON stays in use, and the probe says so.
        Err(error) => tracing::warn!("a leftover DAMON session could not be stopped: {error}"),
    }
}
