//! Which processes may be slowed, and the calls of the manager's loop.

use super::LinuxMachine;
use crate::error::LinuxError;
use crate::memory::growth_throttle::{GrowthThrottler, ThrottleRefusal};
use crate::processes::managed_processes::ManagedTarget;
use hawkeye_manager::{Event, GrowthThrottling};
use hawkeye_policy::{SettingsProfile, ThrottleRequest};

impl LinuxMachine {
    /// Slows the growth of cgroups from now on, where the manager asks for it. Only where the whole
    /// machine is managed.
    pub fn enable_growth_throttling(&mut self, throttler: GrowthThrottler) {
        self.throttler = Some(throttler);
    }
}

/// Whether a process may be slowed: the rules include it, with the profile `guard`.
fn check_process(
    target: &ManagedTarget,
    usual: SettingsProfile,
    pid: u32,
) -> Result<(), ThrottleRefusal> {
    let selector = target.selector().ok_or(ThrottleRefusal::NotSelected(pid))?;
    let attributes = match selector.read_attributes(pid) {
        Err(LinuxError::NoSuchProcess(_)) => return Ok(()),
        read => read?,
    };
    let settings = selector.settings_for_attributes(&attributes);
    let settings = settings.ok_or(ThrottleRefusal::NotSelected(pid))?;
    match settings.profile.unwrap_or(usual) {
        SettingsProfile::Guard => Ok(()),
        other => Err(ThrottleRefusal::OtherProfile(pid, other)),
    }
}

impl GrowthThrottling for LinuxMachine {
    fn throttle_growth(&mut self, requests: &[ThrottleRequest]) -> Vec<Event> {
        let Self { throttler: Some(throttler), target, .. } = self else { return Vec::new() };
        let usual = throttler.usual_profile;
        throttler.update(requests, &|pid| check_process(target, usual, pid))
    }
}
