//! Slows the growth of cgroups by `memory.high` (version 2), and puts back what was found.
//!
//! Above `memory.high` the kernel lets each task that takes more memory reclaim and then sleep, up
//! to two seconds at a time. Tasks that take none are not slowed
//! (`mem_cgroup_handle_over_high` in mm/memcontrol.c).
//!
//! `eligibility` says where that is allowed. The settings guard saves each value before its change.

mod eligibility;

use crate::machine_lease::thp_settings::KernelSettingsHandle;
use crate::memory::cgroup_limits::{CgroupVersion, cgroup_folder, find_memory_hierarchy};
pub use eligibility::ThrottleRefusal;

use eligibility::HostFiles;
use hawkeye_manager::Event;
use hawkeye_policy::{SettingsProfile, ThrottleRequest, throttle_level_bytes};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Throttles cgroups. Each one has a state of its own; what fails in one leaves the others alone.
#[derive(Debug)]
pub struct GrowthThrottler {
    host: HostFiles,
    settings: KernelSettingsHandle,
    /// The profile of processes for which no rule sets another.
    pub(crate) usual_profile: SettingsProfile,
    throttled: BTreeMap<String, Throttle>,
}

#[derive(Debug)]
struct Throttle {
    limit_bytes: u64,
    level_bytes: u64,
    /// Why it ends, once it has to. It is kept until `memory.high` is put back.
    ending: Option<String>,
}

impl GrowthThrottler {
    /// `None` where memory is not controlled by cgroups of version 2.
    pub fn new(settings: KernelSettingsHandle, usual_profile: SettingsProfile) -> Option<Self> {
        let (version, root) = find_memory_hierarchy()?;
        let host = HostFiles::of_this_machine(root);
        let throttled = BTreeMap::new();
        (version == CgroupVersion::V2).then_some(Self { host, settings, usual_profile, throttled })
    }

    /// Throttles the requested cgroups and ends all other throttling. `check_process` refuses for a
    /// process that must not be slowed. Returns what has changed.
    pub fn update(
        &mut self,
        requests: &[ThrottleRequest],
        check_process: &dyn Fn(u32) -> Result<(), ThrottleRefusal>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        // What has to end now is not begun again in the same call.
        let is_new = |request: &&ThrottleRequest| !self.throttled.contains_key(&request.cgroup);
        let new: Vec<&ThrottleRequest> = requests.iter().filter(is_new).collect();
        for (cgroup, mut throttle) in std::mem::take(&mut self.throttled) {
            let request = requests.iter().find(|request| request.cgroup == cgroup);
            if throttle.ending.is_none() {
                throttle.ending = match request {
                    None => Some("recovery has caught up, or the time for it is over".to_owned()),
                    Some(request) => {
                        let checked =
                            self.check_and_follow_limit(request, &mut throttle, check_process);
                        checked.map(|event| events.extend(event)).err().map(|why| why.to_string())
                    }
                };
            }
            let Some(because) = throttle.ending.clone() else {
                self.throttled.insert(cgroup, throttle);
                continue;
            };
            match self.settings.release(&self.high_file(&cgroup)) {
                Ok(()) => events.push(Event::GrowthReleased { cgroup, because }),
                Err(error) => {
                    let message = format!("cgroup {cgroup} is still slowed: {error}");
                    events.push(Event::Trouble { message });
                    self.throttled.insert(cgroup, throttle);
                }
            }
        }
        for request in new {
            events.push(self.begin(request, check_process));
        }
        events
    }

    fn begin(
        &mut self,
        request: &ThrottleRequest,
        check_process: &dyn Fn(u32) -> Result<(), ThrottleRefusal>,
    ) -> Event {
        let cgroup = request.cgroup.clone();
        match self.try_to_begin(request, check_process) {
            Ok(throttle) => {
                let Throttle { limit_bytes, level_bytes, .. } = throttle;
                self.throttled.insert(cgroup.clone(), throttle);
                Event::GrowthThrottled { cgroup, level_bytes, limit_bytes }
            }
            Err(why) => Event::GrowthNotThrottled { cgroup, why: why.to_string() },
        }
    }

    fn try_to_begin(
        &mut self,
        request: &ThrottleRequest,
        check_process: &dyn Fn(u32) -> Result<(), ThrottleRefusal>,
    ) -> Result<Throttle, ThrottleRefusal> {
        let folder = self.folder(&request.cgroup);
        eligibility::check_no_operator_level(&folder)?;
        let limit_bytes = self.host.check_cgroup(&folder, check_process)?;
        let level_bytes = choose_level(&folder, limit_bytes, request)?;
        let high = self.high_file(&request.cgroup);
        if let Err(error) = self.settings.set(&high, &level_bytes.to_string()) {
            // It may have failed after the change. The record of it stays if this fails, too.
            if let Err(error) = self.settings.release(&high) {
                tracing::warn!("{error}");
            }
            return Err(error.into());
        }
        Ok(Throttle { limit_bytes, level_bytes, ending: None })
    }

    /// Whether throttling may go on, with a level that follows the operator's limit. Returns the
    /// event of a new level.
    fn check_and_follow_limit(
        &mut self,
        request: &ThrottleRequest,
        throttle: &mut Throttle,
        check_process: &dyn Fn(u32) -> Result<(), ThrottleRefusal>,
    ) -> Result<Option<Event>, ThrottleRefusal> {
        let folder = self.folder(&request.cgroup);
        let limit_bytes = self.host.check_cgroup(&folder, check_process)?;
        let is_new = limit_bytes != throttle.limit_bytes;
        if is_new {
            throttle.level_bytes = choose_level(&folder, limit_bytes, request)?;
            throttle.limit_bytes = limit_bytes;
        }
        let level_bytes = throttle.level_bytes;
        // Fails where another program has changed it meanwhile. Otherwise, with the same level, it
        // writes nothing.
        self.settings.set(&self.high_file(&request.cgroup), &level_bytes.to_string())?;
        let cgroup = request.cgroup.clone();
        Ok(is_new.then_some(Event::GrowthThrottled { cgroup, level_bytes, limit_bytes }))
    }

    fn folder(&self, cgroup: &str) -> PathBuf {
        cgroup_folder(&self.host.root, Path::new(cgroup))
    }

    fn high_file(&self, cgroup: &str) -> PathBuf {
        self.folder(cgroup).join("memory.high")
    }
}

fn choose_level(
    folder: &Path,
    limit_bytes: u64,
    request: &ThrottleRequest,
) -> Result<u64, ThrottleRefusal> {
    let current = eligibility::read_bytes(&folder.join("memory.current"))?;
    let current = current.ok_or(ThrottleRefusal::TooFull)?;
    throttle_level_bytes(limit_bytes, current, request.from_percent).ok_or(ThrottleRefusal::TooFull)
}

#[cfg(test)]
mod tests;
