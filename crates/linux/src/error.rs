//! What can go wrong between the manager and the kernel.

use crate::memory::prezeroing::error::PrezeroingError;
use crate::sample::sampler::damon::error::DamonError;
use hawkeye_manager::MachineError;
use hawkeye_policy::ProcessId;
use nix::errno::Errno;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// What is done on the running kernel, or why it could not be.
pub type Result<T, E = LinuxError> = std::result::Result<T, E>;

/// A failure on the running kernel, in words for the person who has to mend it.
#[derive(Debug, Error)]
pub enum LinuxError {
    /// No process with that pid.
    #[error("there is no process {0}: it has ended, or was never there")]
    NoSuchProcess(u32),
    /// A call into the process is still under way.
    #[error(
        "process {0} does not answer: a call into it waits for a lock that it holds; it is left alone until then"
    )]
    NotAnswering(u32),
    /// Kernel threads have no memory of their own.
    #[error("process {0} is a kernel thread: it has no memory to manage")]
    KernelThread(u32),
    /// The caller lacks the privilege to manage this process.
    #[error(
        "process {pid} belongs to user {owner}: managing it takes root, or CAP_SYS_PTRACE, CAP_SYS_NICE, CAP_BPF and CAP_PERFMON"
    )]
    NotPermitted {
        /// Target.
        pid: u32,
        /// Its user id.
        owner: u32,
    },
    /// A process with real-time threads that no rule includes.
    #[error(
        "process {pid} has real-time threads (thread {thread}): it is managed only where a rule includes it"
    )]
    RealTime {
        /// Target.
        pid: u32,
        /// One of its real-time threads.
        thread: u32,
    },
    /// A file of the kernel's or ours could not be read or written.
    #[error("{doing} {path}: {source}", path = path.display())]
    File {
        /// "reading", "writing" ...
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{call}: {errno}")]
    Call {
        /// What was tried.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The BPF programs could not be loaded or run.
    #[error("BPF: {0}")]
    Bpf(String),
    /// Something can't be measured here.
    #[error("{0}")]
    NotMeasured(&'static str),
    /// DAMON could not be used.
    #[error(transparent)]
    Damon(#[from] DamonError),
    /// The kernel's own zeroing of free memory could not be used.
    #[error(transparent)]
    Prezeroing(#[from] PrezeroingError),
    /// `HAWKEYE_SAMPLER` asks for what does not work here.
    #[error("HAWKEYE_SAMPLER={asked} can't be had: {why}")]
    Sampler {
        /// What it asks for.
        asked: String,
        /// Why not.
        why: String,
    },
    /// Another manager holds the machine.
    #[error(
        "this machine is already managed by {0}; stop it first, or let it manage this program too"
    )]
    AlreadyManaged(String),
    /// A setting was to be changed when all of them had been put back.
    #[error("settings have been put back already: management is over")]
    SettingsPutBack,
    /// Something that is no manager holds the manager's lock.
    #[error("the lock {path} is held by {holder}; end that process and try again", path = path.display())]
    LockHeld {
        /// Which lock.
        path: PathBuf,
        /// What holds it, as far as it can be seen.
        holder: String,
    },
    /// A folder of HawkEye's own is not safe to use.
    #[error("the folder {path} {why}; use another, or make it root's alone", path = path.display())]
    UnsafeFolder {
        /// Which folder.
        path: PathBuf,
        /// Why not, as a clause.
        why: String,
    },
    /// A file that HawkEye never changes was to be set.
    #[error("{path} is none of the settings that HawkEye may change", path = path.display())]
    NotASetting {
        /// Which file.
        path: PathBuf,
    },
    /// Another program or a person has changed a setting meanwhile.
    #[error(
        "{path} was changed to {now} by another program; it stays so until HawkEye is restarted",
        path = path.display()
    )]
    ChangedByOthers {
        /// Which setting.
        path: PathBuf,
        /// What it is now.
        now: String,
    },
}

impl LinuxError {
    /// Wraps an I/O error with what was being done to which file.
    pub fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            doing,
            path,
            source,
        }
    }

    /// Wraps the last `errno` of a system call.
    pub fn last_call(call: &'static str) -> Self {
        Self::Call {
            call,
            errno: Errno::last(),
        }
    }

    /// The kernel's error number behind this, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { errno, .. } => Some(*errno),
            Self::File { source, .. } => source.raw_os_error().map(Errno::from_raw),
            _ => None,
        }
    }

    /// Whether it says that the process has ended.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::NoSuchProcess(_)) || self.errno() == Some(Errno::ESRCH)
    }

    /// The same as the manager's loop knows it.
    pub fn for_process(self, process: ProcessId) -> MachineError {
        match (self.errno(), self) {
            (Some(Errno::ESRCH), _) | (_, Self::NoSuchProcess(_)) => MachineError::Gone(process),
            (_, Self::NotAnswering(_)) => MachineError::NotAnswering(process),
            (Some(errno), Self::Call { call, .. }) => MachineError::Refused {
                call,
                process,
                errno: known_errno(errno),
            },
            (_, other) => MachineError::Other(other.to_string()),
        }
    }
}

/// The same for the manager, which knows those that the managed calls can give.
fn known_errno(errno: Errno) -> hawkeye_policy::Errno {
    use hawkeye_policy::Errno as Known;
    match errno {
        Errno::EACCES => Known::EACCES,
        Errno::EAGAIN => Known::EAGAIN,
        Errno::EBADF => Known::EBADF,
        Errno::EBUSY => Known::EBUSY,
        Errno::EFAULT => Known::EFAULT,
        Errno::EINTR => Known::EINTR,
        Errno::EINVAL => Known::EINVAL,
        Errno::EIO => Known::EIO,
        Errno::ENOMEM => Known::ENOMEM,
        Errno::ENOSYS => Known::ENOSYS,
        Errno::EPERM => Known::EPERM,
        Errno::ESRCH => Known::ESRCH,
        _ => Known::Other,
    }
}
