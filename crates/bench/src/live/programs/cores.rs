//! Keeps a server and its client on cores of their own. Left to itself the scheduler now and then has one
//! waken the other on the same core for seconds, and then it is that which is measured.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The cores of a client and those of its server; nothing where there is only one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cores {
    client: CpuSet,
    server: CpuSet,
}

impl Cores {
    /// The first core for the client, all others for the server.
    pub(super) fn divided() -> Option<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let is_set = |core: &usize| allowed.is_set(*core).unwrap_or(false);
        let cores: Vec<usize> = (0..CpuSet::count()).filter(is_set).collect();
        match cores.split_first() {
            Some((client, server @ [_, ..])) => Some(Self {
                client: set_of(&[*client])?,
                server: set_of(server)?,
            }),
            _ => None,
        }
    }

    /// Keeps the program that `command` starts on the server's cores.
    pub(super) fn keep_server(self, command: &mut Command) {
        // SAFETY: between fork and exec nothing is done but one system call.
        unsafe {
            command.pre_exec(move || Ok(sched_setaffinity(Pid::from_raw(0), &self.server)?));
        }
    }

    /// Keeps the calling thread on the client's core.
    pub(super) fn keep_client(self) {
        // It works on other cores, too.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.client);
    }
}

fn set_of(cores: &[usize]) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|core| set.set(*core)).ok()?;
    Some(set)
}
