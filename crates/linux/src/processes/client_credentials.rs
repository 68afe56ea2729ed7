//! Decides whether a user may know where a process has its memory. The rule is the kernel's for
//! that user's open of `/proc/PID/maps`: `ptrace_may_access` (kernel/ptrace.c) with
//! `PTRACE_MODE_READ_FSCREDS`.

use crate::error::{LinuxError, Result};
use crate::processes::process;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

/// A client of a Unix socket, as the kernel recorded it when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCredentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// User namespace; `None` where the client had ended before that could be read.
    pub user_namespace: Option<Namespace>,
}

/// A namespace: the device and inode of its file.
pub type Namespace = (u64, u64);

impl ClientCredentials {
    /// The credentials of the process that connected to this Unix socket.
    pub fn of_socket_peer(socket: BorrowedFd<'_>) -> Result<Self> {
        let failed = LinuxError::wrap_errno("getsockopt(SO_PEERCRED)");
        let peer = getsockopt(&socket, PeerCredentials).map_err(failed)?;
        let namespace = u32::try_from(peer.pid()).ok().and_then(user_namespace_of_pid);
        Ok(Self {
            uid: peer.uid(),
            gid: peer.gid(),
            // If the client has ended, another process may have its pid by now.
            user_namespace: namespace.filter(|_| !socket_client_has_ended(socket)),
        })
    }

    /// Whether the client may know where a process has its memory, at this moment. Its capabilities
    /// do not count: it has the rights of an ordinary process.
    pub fn may_see_addresses_of(&self, pid: u32) -> bool {
        let Some(target) = TargetCredentials::read(pid) else {
            return false;
        };
        self.user_namespace.is_some() && target.allows_client(self)
    }
}

/// What the kernel checks in a process that another process inspects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TargetCredentials {
    /// Real, effective and saved user.
    users: [u32; 3],
    /// Real, effective and saved group.
    groups: [u32; 3],
    /// The owner of its files in `/proc`, which is its user only if it is dumpable.
    owner: u32,
    permitted_capabilities: u64,
    user_namespace: Option<Namespace>,
}

impl TargetCredentials {
    /// None of these reads takes the process's `mmap_lock`.
    fn read(pid: u32) -> Option<Self> {
        let status = process::read_proc_entry(pid, process::read_status).ok()?;
        // The owner of a file shows whether it is dumpable; that of the folder /proc/PID does not.
        let owner = fs::metadata(format!("/proc/{pid}/maps")).ok()?.uid();
        Some(Self {
            users: [status.ruid, status.euid, status.suid],
            groups: [status.rgid, status.egid, status.sgid],
            owner,
            permitted_capabilities: status.capprm,
            user_namespace: user_namespace_of_pid(pid),
        })
    }

    fn allows_client(&self, client: &ClientCredentials) -> bool {
        self.users == [client.uid; 3]
            && self.groups == [client.gid; 3]
            && self.owner == client.uid
            && self.permitted_capabilities == 0
            && self.user_namespace == client.user_namespace
    }
}

fn user_namespace_of_pid(pid: u32) -> Option<Namespace> {
    let file = fs::metadata(format!("/proc/{pid}/ns/user")).ok()?;
    Some((file.dev(), file.ino()))
}

/// Whether the client of a socket has ended. Kernels before Linux 6.5 cannot report that; there the
/// answer is no.
fn socket_client_has_ended(socket: BorrowedFd<'_>) -> bool {
    match getsockopt(&socket, PeerPidfd) {
        Ok(pidfd) => {
            let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
            !matches!(poll(&mut fds, PollTimeout::ZERO), Ok(0))
        }
        Err(errno) => errno != Errno::ENOPROTOOPT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const OWN: Option<Namespace> = Some((4, 1));
    const CLIENT: ClientCredentials =
        ClientCredentials { uid: 1000, gid: 100, user_namespace: OWN };
    const TARGET: TargetCredentials = TargetCredentials {
        users: [1000; 3],
        groups: [100; 3],
        owner: 1000,
        permitted_capabilities: 0,
        user_namespace: OWN,
    };

    #[test]
    fn access_needs_the_same_user_groups_and_namespace_and_no_capabilities() {
        assert!(TARGET.allows_client(&CLIENT));
        let changes: [fn(&mut TargetCredentials); 10] = [
            |it| it.owner = 0,
            |it| it.permitted_capabilities = 1 << 13,
            |it| it.user_namespace = None,
            |it| it.user_namespace = Some((4, 2)),
            |it| it.users[0] = 0,
            |it| it.users[1] = 0,
            |it| it.users[2] = 0,
            |it| it.groups[0] = 0,
            |it| it.groups[1] = 0,
            |it| it.groups[2] = 0,
        ];
        for change in changes {
            let mut other = TARGET;
            change(&mut other);
            assert!(!other.allows_client(&CLIENT), "{other:?}");
        }
    }

    #[test]
    fn the_client_of_a_socket_is_known() {
        let (one, _other) = UnixStream::pair().expect("a socket pair can be created");
        let peer = ClientCredentials::of_socket_peer(one.as_fd()).expect("the socket has a peer");
        assert_eq!(peer.uid, nix::unistd::geteuid().as_raw());
        assert_eq!(peer.user_namespace, user_namespace_of_pid(std::process::id()));
        assert!(peer.user_namespace.is_some());
        let of_ended = peer.may_see_addresses_of(u32::MAX / 2);
        assert!(!of_ended, "an ended process shows no addresses");
    }
}
