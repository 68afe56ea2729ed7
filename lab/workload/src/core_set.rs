//! Sets of cores for a program or a thread.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Some of the machine's cores.
#[derive(Clone, Copy, Debug)]
pub struct CoreSet(CpuSet);

impl CoreSet {
    /// Cores by their numbers; `None` if a number is too large.
    pub fn from_core_numbers(cores: &[usize]) -> Option<Self> {
        let mut set = CpuSet::new();
        cores.iter().try_for_each(|core| set.set(*core)).ok()?;
        Some(Self(set))
    }

    /// Numbers of the cores on which the calling thread may run, ascending.
    pub fn allowed_cores_of_thread() -> Vec<usize> {
        let Ok(allowed) = sched_getaffinity(calling_thread()) else {
            return Vec::new();
        };
        let is_set = |core: &usize| allowed.is_set(*core).unwrap_or(false);
        (0..CpuSet::count()).filter(is_set).collect()
    }

    /// Restricts the program that `command` starts to these cores.
    pub fn restrict_command(self, command: &mut Command) {
        // SAFETY: between fork and exec the child makes only one system call.
        unsafe {
            command.pre_exec(move || Ok(sched_setaffinity(calling_thread(), &self.0)?));
        }
    }

    /// Restricts all present threads of a process, and those that they start later.
    pub fn restrict_threads_of_pid(self, pid: u32) -> io::Result<()> {
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = task?.file_name().into_string().unwrap_or_default();
            match thread.parse().map(Pid::from_raw) {
                Ok(thread) => match sched_setaffinity(thread, &self.0) {
                    // The thread has ended.
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(error) => return Err(error.into()),
                },
                Err(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(())
    }

    /// Restricts the calling thread to these cores until the returned value is dropped.
    pub fn restrict_calling_thread(self) -> CoreRestrictionGuard {
        let before = sched_getaffinity(calling_thread()).ok();
        // The work succeeds on other cores, too.
        let _ = sched_setaffinity(calling_thread(), &self.0);
        CoreRestrictionGuard(before)
    }
}

/// A thread's time on some cores. Dropping it restores the previous ones.
#[must_use]
pub struct CoreRestrictionGuard(Option<CpuSet>);

impl Drop for CoreRestrictionGuard {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(calling_thread(), before);
        }
    }
}

fn calling_thread() -> Pid {
    Pid::from_raw(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_core() -> (usize, CoreSet) {
        let last = *CoreSet::allowed_cores_of_thread().last().expect("it runs somewhere");
        (last, CoreSet::from_core_numbers(&[last]).expect("there is one"))
    }

    #[test]
    fn a_thread_stays_until_it_need_not() {
        let before = CoreSet::allowed_cores_of_thread();
        let (last, one) = last_core();
        let stay = one.restrict_calling_thread();
        assert_eq!(CoreSet::allowed_cores_of_thread(), [last]);
        drop(stay);
        assert_eq!(CoreSet::allowed_cores_of_thread(), before);
    }

    #[test]
    fn a_program_runs_where_it_is_kept() {
        let (last, one) = last_core();
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]);
        one.restrict_command(&mut command);
        let output = command.output().expect("grep is there");
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told.split_whitespace().last(), Some(&*last.to_string()));
    }

    #[test]
    fn a_running_process_is_restricted() {
        let mut child = Command::new("sleep").arg("9").spawn().expect("starts");
        let (_, one) = last_core();
        one.restrict_threads_of_pid(child.id()).expect("is restricted");
        let pid = Pid::from_raw(child.id() as i32);
        let now = sched_getaffinity(pid).expect("has cores");
        child.kill().expect("is killed");
        child.wait().expect("ends");
        assert_eq!(now, one.0);
        assert!(one.restrict_threads_of_pid(u32::MAX).is_err());
    }
}
