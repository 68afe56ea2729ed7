//! Takes over the machine: one manager at a time, with settings that are put back.
//!
//! ```text
//!  MachineLease::acquire_and_probe
//!     |-- manager_lock    excludes other managers; names the one that runs
//!     |-- thp_settings    puts back what a killed manager left changed, then guards the settings
//!     |-- sampler::damon  stops the session that a killed manager left running
//!     `-- probe           finds which methods work on this kernel
//!  own_files              HawkEye's own files: for root alone, checked when they are read
//! ```
//!
//! Read [`MachineLease`] first, then [`thp_settings`]. The order matters: nothing is changed before
//! the lock is held, and the settings are put back before it is released.

pub mod manager_lock;
pub mod own_files;
pub mod thp_settings;

use crate::error::Result;
use crate::machine_lease::manager_lock::{ManagerLock, state_dir};
use crate::machine_lease::thp_settings::KernelSettingsGuard;
use crate::probe::{self, KernelDecision, ProbeExtent};
use crate::sample::sampler::damon::{Damon, DamonError};

/// The right to manage this machine, and what the probe found here. Dropping it puts every setting
/// back and lets the next manager in.
#[derive(Debug)]
pub struct MachineLease {
    // Fields drop in this order: the settings are put back before the lock is released.
    settings: KernelSettingsGuard,
    _instance: ManagerLock,
    decision: KernelDecision,
}

impl MachineLease {
    /// Claims the machine, puts back what a killed manager left changed, and probes what works. A
    /// manager that is refused meanwhile shows `purpose`.
    ///
    /// # Errors
    /// Another manager is running, or `HAWKEYE_SAMPLER` requests a sampler that does not work.
    pub fn acquire_and_probe(purpose: &str) -> Result<Self> {
        let state = state_dir();
        let instance = ManagerLock::claim(&state, purpose)?;
        let settings = KernelSettingsGuard::restore_leftovers_and_start(&state)?;
        stop_leftover_damon_session();
        let facts = probe::gather_kernel_facts(ProbeExtent::ForManaging, None)?;
        let decision = probe::decide_kernel_methods(&facts)?;
        Ok(Self { settings, _instance: instance, decision })
    }

    /// The methods that the probe chose.
    pub fn decision(&self) -> &KernelDecision {
        &self.decision
    }

    /// The settings that may be changed while the machine is managed.
    pub fn settings(&mut self) -> &mut KernelSettingsGuard {
        &mut self.settings
    }
}

/// Stops the kdamond that a manager leaves running if it is killed in a sampling window. It touches
/// no other program's kdamond. The caller holds the [`ManagerLock`] lock.
pub fn stop_leftover_damon_session() {
    match Damon::default().stop_leftover_session() {
        Ok(true) => tracing::info!("stopped the DAMON session of a manager that was killed"),
        Ok(false) | Err(DamonError::Absent(_)) => {}
        // DAMON then stays in use, which the probe reports.
        Err(error) => tracing::warn!("a leftover DAMON session could not be stopped: {error}"),
    }
}
