//! Resources that the managed program used, measured from outside.

use hawkeye_linux::processes::process::{self, CpuTimeAndFaults};
use hawkeye_policy::ProcessId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProgramResourceUse {
    pub user_s: f64,
    pub system_s: f64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    pub rss_peak_bytes: u64,
    pub rss_end_bytes: u64,
    pub huge_end_bytes: u64,
}

impl ProgramResourceUse {
    pub fn add_usage(&mut self, used: Self) {
        self.user_s += used.user_s;
        self.system_s += used.system_s;
        self.minor_faults += used.minor_faults;
        self.rss_peak_bytes = self.rss_peak_bytes.max(used.rss_peak_bytes);
    }
}

/// Counters of processes that other programs started: their use while they were managed.
#[derive(Debug)]
pub struct ProgramResourceMeter {
    /// The counters at the start, and the last ones seen.
    processes: BTreeMap<ProcessId, (CpuTimeAndFaults, CpuTimeAndFaults)>,
}

impl ProgramResourceMeter {
    pub fn new(processes: &[ProcessId]) -> Self {
        let used = |process: &ProcessId| {
            let used = process::cpu_time_and_faults_of_process(*process).ok()?;
            Some((*process, (used, used)))
        };
        Self { processes: processes.iter().filter_map(used).collect() }
    }

    /// Reads the counters again. A process that has ended keeps its last ones, even if another one
    /// has its pid now.
    pub fn update(&mut self) {
        for (process, (_, last)) in &mut self.processes {
            if let Ok(used) = process::cpu_time_and_faults_of_process(*process) {
                *last = used;
            }
        }
    }

    pub fn used_so_far(&self) -> ProgramResourceUse {
        let mut used = ProgramResourceUse::default();
        for (first, last) in self.processes.values() {
            used.user_s += (last.user_s - first.user_s).max(0.0);
            used.system_s += (last.system_s - first.system_s).max(0.0);
            used.minor_faults += last.minor_faults.saturating_sub(first.minor_faults);
        }
        used
    }
}

/// Returns the status of a child, and the resources that it and its own children used.
pub fn wait_for_child(pid: u32) -> io::Result<(ExitStatus, ProgramResourceUse)> {
    let mut status = 0;
    // SAFETY: all zeros is a valid rusage; the call below fills it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to local variables.
    while unsafe { libc::wait4(pid as libc::pid_t, &raw mut status, 0, &raw mut usage) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    let used = ProgramResourceUse {
        user_s: seconds(usage.ru_utime),
        system_s: seconds(usage.ru_stime),
        minor_faults: usage.ru_minflt as u64,
        rss_peak_bytes: usage.ru_maxrss as u64 * 1024,
        ..ProgramResourceUse::default()
    };
    Ok((ExitStatus::from_raw(status), used))
}

/// The exit code that passes a status on, as shells do: 128 + signal for a killed process.
pub fn exit_code_of_status(status: ExitStatus) -> u8 {
    let signal = 128 + status.signal().unwrap_or_default();
    status.code().unwrap_or(signal) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_linux::processes::process::ProcessHandle;

    #[test]
    fn a_process_that_took_over_a_pid_does_not_count() {
        let own = ProcessHandle::open(std::process::id()).expect("this process exists").id;
        let ended = ProcessId { start_ticks: own.start_ticks + 1, ..own };
        assert!(ProgramResourceMeter::new(&[ended]).processes.is_empty());
        let used = CpuTimeAndFaults { user_s: 1e9, system_s: 1e9, minor_faults: 0 };
        let mut meter = ProgramResourceMeter { processes: [(ended, (used, used))].into() };
        meter.update();
        assert_eq!(meter.used_so_far(), ProgramResourceUse::default());
    }
}
