//! Errors of the crate.

use crate::memory::prezeroing::error::PrezeroingError;
use crate::sample::sampler::damon::DamonError;
use hawkeye_manager::MachineError;
use hawkeye_policy::{ProcessId, PromotionBlockReason};
use nix::errno::Errno;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The result of an operation on the running kernel.
pub type Result<T, E = LinuxError> = std::result::Result<T, E>;

/// A failure on the running kernel. Its message tells the user what to fix.
#[derive(Debug, Error)]
pub enum LinuxError {
    /// No process has that pid.
    #[error("there is no process {0}: it has ended, or never existed")]
    NoSuchProcess(u32),
    /// A call into the process has not returned yet.
    #[error(
        "process {0} does not answer: a call into it waits for a lock that the process holds; it is left alone until the call returns"
    )]
    NotAnswering(u32),
    /// Kernel threads have no memory of their own.
    #[error("process {0} is a kernel thread: it has no memory to manage")]
    KernelThread(u32),
    /// Huge pages are disabled for the process.
    #[error(
        "process {0} has huge pages disabled (PR_SET_THP_DISABLE), by itself or by the process that started it: it is left alone"
    )]
    ThpDisabled(u32),
    /// Memory is short, or would be after a promotion.
    #[error("nothing is promoted: {0}")]
    PromotionBlocked(PromotionBlockReason),
    /// The caller lacks the privilege to manage this process.
    #[error(
        "process {pid} belongs to user {owner}: managing it needs root, or CAP_SYS_PTRACE, CAP_SYS_NICE, CAP_BPF and CAP_PERFMON"
    )]
    NotPermitted {
        /// The process.
        pid: u32,
        /// Its user id.
        owner: u32,
    },
    /// A process with real-time threads that no rule includes.
    #[error(
        "process {pid} has real-time threads (thread {thread}): it is managed only if a rule includes it"
    )]
    RealTime {
        /// The process.
        pid: u32,
        /// One of its real-time threads.
        thread: u32,
    },
    /// A file of the kernel's or of HawkEye's could not be read or written.
    // No `source`: where causes are printed, the error would stand there twice.
    #[error("{doing} {path}: {error}", path = path.display())]
    File {
        /// What was done to the file: "reading", "writing" and so on.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// A file that a process can make as long as it likes.
    #[error("{path} is longer than {most_bytes} bytes, so it is not read", path = path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Bytes that are read at most.
        most_bytes: u64,
    },
    /// A system call failed.
    #[error("{call}: {errno}")]
    Call {
        /// The call that failed.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A call into a process was not made, because the helper process for it failed. This says
    /// nothing about the target.
    #[error("{doing}: {errno}")]
    HelperFailed {
        /// What could not be done.
        doing: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The BPF programs could not be loaded or run.
    #[error("BPF: {0}")]
    Bpf(String),
    /// Something cannot be measured here.
    #[error("{0}")]
    NotMeasured(&'static str),
    /// DAMON could not be used.
    #[error(transparent)]
    Damon(#[from] DamonError),
    /// The kernel's zeroing of free memory (prezeroing) could not be used.
    #[error(transparent)]
    Prezeroing(#[from] PrezeroingError),
    /// `HAWKEYE_SAMPLER` requests a sampler that does not work here.
    #[error("HAWKEYE_SAMPLER={asked} cannot be used here: {why}")]
    Sampler {
        /// The requested sampler.
        asked: String,
        /// Why it does not work.
        why: String,
    },
    /// Another manager holds the machine.
    #[error(
        "this machine is already managed by {0}; stop it first, or let it manage this program too"
    )]
    AlreadyManaged(String),
    /// A setting was changed after all of them had been put back.
    #[error("the kernel settings have been restored already: this manager has ended")]
    SettingsPutBack,
    /// A process that is not a manager holds the manager's lock.
    #[error("the lock {path} is held by {holder}; end that process and try again", path = path.display())]
    LockHeld {
        /// The lock.
        path: PathBuf,
        /// The process that holds it, as far as it can be determined.
        holder: String,
    },
    /// One of HawkEye's own folders is not safe to use.
    #[error("the folder {path} {why}; use another folder, or let only root own it and write to it", path = path.display())]
    UnsafeFolder {
        /// The folder.
        path: PathBuf,
        /// Why it is not safe, as a clause.
        why: String,
    },
    /// The record of changed settings cannot be used.
    #[error(
        "settings that a manager changed may not be restored: {path} {why}; check the files in /sys/kernel/mm/transparent_hugepage, then remove that file",
        path = path.display()
    )]
    UnusableRecord {
        /// The record.
        path: PathBuf,
        /// Why it is not used, as a clause.
        why: String,
    },
    /// HawkEye never changes this file.
    #[error("{path} is not a setting that HawkEye may change", path = .0.display())]
    NotASetting(PathBuf),
    /// Another program or a user has changed a setting meanwhile.
    #[error(
        "another program changed {path} to {now}; HawkEye does not set it again until HawkEye restarts",
        path = path.display()
    )]
    ChangedByOthers {
        /// The setting.
        path: PathBuf,
        /// Its value now.
        now: String,
    },
}

impl LinuxError {
    /// Wraps an I/O error with the operation and the file.
    pub fn wrap_io_error(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { doing, path, error }
    }

    /// Wraps the `errno` of a system call.
    pub fn wrap_errno(call: &'static str) -> impl Fn(Errno) -> Self + Copy {
        move |errno| Self::Call { call, errno }
    }

    /// The kernel's error number behind this error, if there is one. That of a failed helper is
    /// none: it would pass for the answer to the call.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { errno, .. } => Some(*errno),
            Self::File { error, .. } => error.raw_os_error().map(Errno::from_raw),
            _ => None,
        }
    }

    /// Whether the error means that the process has ended.
    pub fn is_process_gone(&self) -> bool {
        matches!(self, Self::NoSuchProcess(_)) || self.errno() == Some(Errno::ESRCH)
    }

    /// The error as the manager's loop knows it.
    pub fn into_machine_error(self, process: ProcessId) -> MachineError {
        match (self.errno(), self) {
            (Some(Errno::ESRCH), _) | (_, Self::NoSuchProcess(_)) => MachineError::Gone(process),
            (_, Self::NotAnswering(_)) => MachineError::NotAnswering(process),
            (Some(errno), Self::Call { call, .. }) => {
                MachineError::Refused { call, process, errno: to_policy_errno(errno) }
            }
            (_, failed @ Self::HelperFailed { .. }) => MachineError::NoHelper(failed.to_string()),
            (_, other) => MachineError::Other(other.to_string()),
        }
    }
}

/// The error number as the manager knows it. It knows those that the managed calls return.
fn to_policy_errno(errno: Errno) -> hawkeye_policy::Errno {
    // Both sides have the kernel's names.
    let name = format!("{errno:?}");
    name.parse().unwrap_or(hawkeye_policy::Errno::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_are_known_by_their_names() {
        let names =
            [Errno::EBUSY, Errno::ENOMEM, Errno::EXDEV].map(|e| to_policy_errno(e).to_string());
        assert_eq!(names, ["EBUSY", "ENOMEM", "other"]);
    }
}
