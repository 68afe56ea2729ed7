//! Describes processes, and explains why a process or a region of it is not managed.

use super::LinuxMachine;
use crate::error::LinuxError;
use crate::machine_lease::thp_settings::{enabled_file, read_setting};
use crate::processes::mappings;
use crate::processes::process::{self, ProcessHandle};
use hawkeye_manager::{Explain, ProcessDescription};
use hawkeye_policy::{ProcessAttributes, ProcessId, RegionAddr};

/// Threads of a process that an explanation visits at most. Any user may ask for one, and a process
/// may have 30,000 threads.
const MOST_THREADS: usize = 1000;

impl Explain for LinuxMachine {
    fn describe(&self, process: ProcessId) -> ProcessDescription {
        let uid = process::effective_uid(process.pid);
        let Some(member) = self.members.get(process) else {
            return ProcessDescription { uid, ..ProcessDescription::default() };
        };
        let identity = &member.identity;
        let selector = self.target.selector();
        let rule_name = member.terms.rule.and_then(|rule| {
            let name = selector?.rule_name_at_index(rule);
            name.map(str::to_owned)
        });
        ProcessDescription {
            name: identity.command.clone(),
            user: Some(identity.user.clone()),
            uid,
            cgroup: Some(identity.cgroup.clone()),
            unit: describe_pod_container_or_unit(identity),
            thp_disabled: member.thp_disabled,
            refused_bytes: member.eligible.refused_bytes,
            terms: Some(member.terms),
            rule_name,
            profile_request: selector.and_then(|it| it.describe_profile_request(identity)),
        }
    }

    fn why_not_managed(&self, pid: u32) -> Option<String> {
        match (ProcessHandle::open(pid), self.target.selector()) {
            // The error states why the process cannot be opened.
            (Err(error), _) => Some(error.to_string()),
            (Ok(_), Some(selector)) => {
                let real_time = process::find_real_time_thread(pid, MOST_THREADS);
                let real_time =
                    real_time.map(|thread| LinuxError::RealTime { pid, thread }.to_string());
                let excluded = selector.read_attributes(pid).is_ok_and(|attributes| {
                    selector.settings_for_attributes(&attributes).is_none()
                });
                let unguarded = excluded.then(|| why_unguarded(pid)).flatten();
                let reasons = [real_time, selector.why_not_managed(pid), unguarded];
                let reasons = reasons.into_iter().flatten();
                reasons.reduce(|a, b| format!("{a}; {b}"))
            }
            (Ok(_), None) => None,
        }
    }

    fn why_region_excluded(&mut self, process: ProcessId, region: RegionAddr) -> Option<String> {
        let member = self.members.get_mut(process).ok()?;
        let managed = self.sampler.managed_memory(member);
        let mappings = self.sampler.list_mappings(member, &mut self.calls).ok()?;
        let eligible = mappings::check_region_eligible(&mappings, region, managed);
        eligible.err().map(|why| why.to_string())
    }
}

/// What an excluded process gets from the kernel, as a clause. `None`: no huge pages that it does
/// not request.
fn why_unguarded(pid: u32) -> Option<String> {
    let status = process::read_proc_entry(pid, process::read_status).ok()?;
    let enabled = read_setting(&enabled_file()).ok()?;
    (enabled == "always" && status.thp_enabled != Some(false)).then(|| {
        "enabled=always gives it huge pages all the same, and nothing recovers what it does not use of them"
            .to_owned()
    })
}

/// The pod, container or unit of a process, in words.
fn describe_pod_container_or_unit(identity: &ProcessAttributes) -> Option<String> {
    if let Some(pod) = &identity.pod {
        return Some(format!("pod {} ({})", pod.uid, pod.qos));
    }
    let container = identity.container.as_ref();
    let container = container.map(|id| format!("container {id}"));
    container.or_else(|| identity.unit.clone())
}
