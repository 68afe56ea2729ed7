//! Slows the growth of cgroups that would be full before recovery could prevent that.

use super::Manager;
use crate::machine::Machine;
use hawkeye_policy::ThrottleRequest;
use std::time::Duration;

/// How often each throttled cgroup is checked: its limit, its members, its setting.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The requests at the last check, and when the next check is due.
#[derive(Default)]
pub(super) struct GrowthThrottleChecks {
    requests: Vec<ThrottleRequest>,
    next: Duration,
}

impl<M: Machine> Manager<M> {
    /// Begins, checks and ends throttling. Where management is paused or only measures, it ends.
    pub(super) fn update_growth_throttles(&mut self, now: Duration) {
        let changes_nothing = self.paused || self.settings.measure_only;
        let requests = match changes_nothing {
            true => Vec::new(),
            false => self.memory.guard.throttle_requests(now),
        };
        let guard = &self.memory.guard;
        let begins = requests.iter().any(|request| !guard.is_growth_throttled(&request.cgroup));
        let is_due = guard.is_throttling_growth() && now >= self.throttle_checks.next;
        if begins || is_due || requests != self.throttle_checks.requests {
            self.throttle_growth(now, requests);
        }
    }

    /// Ends all throttling. Call it when management ends and the machine is kept for longer.
    pub fn end_growth_throttles(&mut self) {
        self.throttle_growth(self.machine.now(), Vec::new());
    }

    fn throttle_growth(&mut self, now: Duration, requests: Vec<ThrottleRequest>) {
        for event in self.machine.throttle_growth(&requests) {
            self.dispatch_event(now, event);
        }
        self.throttle_checks = GrowthThrottleChecks { requests, next: now + CHECK_EVERY };
    }

    /// When the next check is due; `None` where nothing is throttled.
    pub(super) fn next_throttle_check_at(&self) -> Option<Duration> {
        self.memory.guard.is_throttling_growth().then_some(self.throttle_checks.next)
    }
}
