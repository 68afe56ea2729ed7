//! Share of time in which the processors are idle, over all of them.

use procfs::{CpuTime, CurrentSI, KernelStats};

/// Measures the share of idle time between calls, from `/proc/stat`.
#[derive(Clone, Debug, Default)]
pub struct IdleTimeMeter {
    /// Ticks since the machine started, idle and all, at the last call.
    last: Option<(u64, u64)>,
}

impl IdleTimeMeter {
    /// Share of all processors' time (0 to 1) that was idle since the last call. `None` at the
    /// first call, if no time has passed, and if `/proc/stat` cannot be read.
    pub fn idle_share_since_last_call(&mut self) -> Option<f64> {
        self.idle_share_by_cpu_time(&KernelStats::current().ok()?.total)
    }

    fn idle_share_by_cpu_time(&mut self, time: &CpuTime) -> Option<f64> {
        let idle = time.idle + time.iowait.unwrap_or(0);
        // Guests' time is left out, because `user` and `nice` contain it.
        let others = [time.irq, time.softirq, time.steal];
        let others: u64 = others.into_iter().flatten().sum();
        let all = idle + time.user + time.nice + time.system + others;
        let (last_idle, last_all) = self.last.replace((idle, all))?;
        let all = all.checked_sub(last_all).filter(|all| *all > 0)?;
        // Idle time of a processor may go back a little (Documentation/filesystems/proc.rst).
        let idle = idle.saturating_sub(last_idle).min(all);
        Some(idle as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::{FromReadSI, current_system_info};

    fn ticks(cpu: &str) -> CpuTime {
        let text = format!("cpu  {cpu}\ncpu0 1 2 3 4\nctxt 1\nbtime 1\nprocesses 1\n");
        let stats = KernelStats::from_read(text.as_bytes(), current_system_info());
        stats.expect("the text is a valid stat file").total
    }

    #[test]
    fn shares_are_of_the_time_since_the_last_call() {
        let mut idle = IdleTimeMeter::default();
        for (cpu, share) in [
            ("10 0 10 70 10 0 0 0 5 5", None),
            // Guests count once.
            ("20 0 20 80 20 0 0 10 5 5", Some(0.4)),
            // No time has passed.
            ("20 0 20 80 20 0 0 10 5 5", None),
            // Idle time went back.
            ("30 0 20 79 20 0 0 10 5 5", Some(0.0)),
        ] {
            assert_eq!(idle.idle_share_by_cpu_time(&ticks(cpu)), share, "{cpu}");
        }
    }

    #[test]
    fn this_machine_can_be_read() {
        assert!(KernelStats::current().is_ok());
    }
}
