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

use crate::error::{LinuxError, Result};
use crate::machine_lease::manager_lock::{ManagerLock, state_dir};
use crate::machine_lease::thp_settings::{
    KernelSettingsGuard, prevent_setting_changes, restore_leftover_settings,
};
use crate::probe::{self, ChosenKernelMethods, KernelDecision, ProbeExtent};
use crate::sample::page_table_reader::PageTableReader;
use crate::sample::sampler::damon::{Damon, DamonError};
use crate::stop_signals::{StopSignals, WaitResult};
use std::io::Write;
use std::thread;
use std::time::Duration;

/// The right to manage this machine, and what the probe found here. Dropping it puts every setting
/// back and lets the next manager in.
pub struct MachineLease {
    // Fields drop in this order: the settings are put back before the lock is released.
    settings: KernelSettingsGuard,
    _instance: ManagerLock,
    decision: KernelDecision,
    /// The probe's, until methods are first set up.
    page_tables: Option<PageTableReader>,
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
        let probed = probe::gather_kernel_facts(ProbeExtent::ForManaging, None)?;
        let decision = probe::decide_kernel_methods(&probed.facts)?;
        Ok(Self { settings, _instance: instance, decision, page_tables: probed.page_tables })
    }

    /// The methods that the probe chose.
    pub fn decision(&self) -> &KernelDecision {
        &self.decision
    }

    /// Sets up the methods that the probe chose.
    pub fn set_up_chosen_methods(&mut self) -> Result<ChosenKernelMethods> {
        probe::set_up_chosen_methods(&self.decision, self.page_tables.take())
    }

    /// The settings that may be changed while the machine is managed.
    pub fn settings(&mut self) -> &mut KernelSettingsGuard {
        &mut self.settings
    }
}

/// Makes `signals` put every setting back before this program ends with status 128 and the signal's
/// number, for programs that do not wait for signals. `also` runs after that. The caller holds the
/// [`ManagerLock`] lock, but took the signals over before, as other threads must not receive them.
pub fn restore_settings_on_stop_signals(
    signals: StopSignals,
    also: impl Fn() + Send + 'static,
) -> Result<()> {
    let wait = move || {
        loop {
            if let WaitResult::Signal(signal) = signals.wait(&[], Duration::from_secs(3600)) {
                let _until_the_end = prevent_setting_changes();
                if let Err(error) = restore_leftover_settings(&state_dir()) {
                    // It may fail where the terminal has closed. `eprintln!` would panic.
                    let advice = "run `hawkeye restore` to restore the settings";
                    let _ = writeln!(std::io::stderr(), "{error}: {advice}");
                }
                also();
                std::process::exit(128 + signal);
            }
        }
    };
    let thread = thread::Builder::new().name("hawkeye-signals".into()).spawn(wait);
    thread.map(drop).map_err(LinuxError::wrap_io_error("starting", "a thread"))
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
