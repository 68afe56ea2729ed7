//! The open connections of a socket, and the choice of the one to close at the limit.

use super::Peer;
use nix::sys::socket::{Shutdown, shutdown};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Connections of all users except root at most: others can't lock root out.
const MOST_OTHERS: usize = 16;
const MOST_ROOT: usize = 8;
/// Connections of each user other than root at most.
const MOST_OF_USER: usize = 4;
/// Threads that serve clients at most, those of disconnected clients included.
const MOST_THREADS: usize = 64;
/// The thread of a closed connection ends as soon as it runs. On a busy machine that takes some
/// time, for which a new client waits instead of being refused.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct Connections {
    state: Mutex<ConnectionTable>,
    thread_ended: Condvar,
}

#[derive(Default)]
struct ConnectionTable {
    next: u64,
    threads: usize,
    /// Oldest first.
    open: Vec<ConnectionEntry>,
}

struct ConnectionEntry {
    id: u64,
    client: ConnectedClient,
    /// A second descriptor of the connection, used to shut it down.
    socket: OwnedFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConnectedClient {
    /// `None` where the socket does not report it.
    user: Option<u32>,
    is_root: bool,
    /// Whether the daemon waits for the client: for its request, or until it has read the reply.
    idle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Accepted,
    /// The connection at this position is closed instead.
    Replaces(usize),
    Refused,
}

/// At the limit, the user with the most connections loses the one that was idle longest.
fn decide_admission(open: &[ConnectedClient], new: ConnectedClient) -> Admission {
    let of_kind = open.iter().filter(|it| it.is_root == new.is_root).count();
    match new.is_root {
        true if of_kind < MOST_ROOT => return Admission::Accepted,
        true => return Admission::Refused,
        false => {}
    }
    let mut held: HashMap<Option<u32>, usize> = HashMap::new();
    for client in open.iter().filter(|it| !it.is_root) {
        *held.entry(client.user).or_default() += 1;
    }
    let own = held.get(&new.user).copied().unwrap_or(0);
    if new.user.is_some() && own >= MOST_OF_USER {
        return Admission::Refused;
    }
    if of_kind < MOST_OTHERS {
        return Admission::Accepted;
    }
    let most = held.values().copied().max().unwrap_or(0);
    let gives_way = |it: &ConnectedClient| {
        it.idle
            && !it.is_root
            && held.get(&it.user) == Some(&most)
            && (most > own || it.user == new.user)
    };
    open.iter().position(gives_way).map_or(Admission::Refused, Admission::Replaces)
}

impl Connections {
    pub(super) fn admit(
        this: &Arc<Self>,
        socket: BorrowedFd<'_>,
        peer: Peer,
    ) -> Option<ConnectionPermit> {
        let client = ConnectedClient {
            user: peer.uid(),
            is_root: peer.is_root_or_daemon_user(),
            idle: true,
        };
        // Done first: if there is no second descriptor, nothing has changed yet.
        let socket = socket.try_clone_to_owned().ok()?;
        let crowded = |state: &mut ConnectionTable| state.threads >= MOST_THREADS;
        let ended = &this.thread_ended;
        let waited = ended.wait_timeout_while(this.lock_table(), PATIENCE, crowded);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        let open: Vec<ConnectedClient> = state.open.iter().map(|it| it.client).collect();
        match decide_admission(&open, client) {
            Admission::Accepted => {}
            Admission::Replaces(place) => {
                let _ = shutdown(state.open.remove(place).socket.as_raw_fd(), Shutdown::Both);
            }
            Admission::Refused => return None,
        }
        let id = state.next;
        state.next += 1;
        state.threads += 1;
        state.open.push(ConnectionEntry { id, client, socket });
        Some(ConnectionPermit { connections: Arc::clone(this), id })
    }

    fn lock_table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right of a connection to be served.
pub struct ConnectionPermit {
    connections: Arc<Connections>,
    id: u64,
}

impl ConnectionPermit {
    /// From now on the connection can't be closed for another one. Returns whether it is open.
    #[must_use]
    pub fn begin_answer(&self) -> bool {
        self.set_idle(false)
    }

    /// Called when the answer is ready: from now on the daemon waits for the client.
    pub fn mark_answer_ready(&self) {
        self.set_idle(true);
    }

    fn set_idle(&self, idle: bool) -> bool {
        let mut state = self.connections.lock_table();
        let Some(place) = state.open.iter().position(|it| it.id == self.id) else { return false };
        let mut open = state.open.remove(place);
        open.client.idle = idle;
        // Its idle time starts again.
        state.open.push(open);
        true
    }

    /// A permit for a connection that no acceptor has admitted.
    #[cfg(test)]
    pub fn for_test() -> Self {
        let (socket, _) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let peer = Peer { credentials: None };
        let socket = std::os::fd::AsFd::as_fd(&socket);
        Connections::admit(&Arc::default(), socket, peer).expect("the only connection")
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.connections.lock_table();
        state.open.retain(|it| it.id != self.id);
        state.threads = state.threads.saturating_sub(1);
        self.connections.thread_ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(user: impl Into<Option<u32>>) -> ConnectedClient {
        let user = user.into();
        ConnectedClient { user, is_root: user == Some(0), idle: true }
    }

    fn answering(user: impl Into<Option<u32>>) -> ConnectedClient {
        ConnectedClient { idle: false, ..client(user) }
    }

    #[test]
    fn one_user_cannot_take_the_connections_of_others() {
        let flood = vec![client(1000); MOST_OF_USER];
        assert_eq!(decide_admission(&flood, client(1000)), Admission::Refused);
        assert_eq!(decide_admission(&flood, client(1001)), Admission::Accepted);
        assert_eq!(decide_admission(&flood, client(0)), Admission::Accepted);
    }

    #[test]
    fn many_users_together_cannot_lock_out_another_user() {
        let places = 0..MOST_OTHERS as u32;
        let crowd: Vec<ConnectedClient> = places.map(|place| client(1000 + place / 4)).collect();
        assert_eq!(decide_admission(&crowd, client(2000)), Admission::Replaces(0));
        assert_eq!(decide_admission(&crowd, client(0)), Admission::Accepted);
        let mut busy = crowd.clone();
        busy[0] = answering(1000);
        assert_eq!(decide_admission(&busy, client(2000)), Admission::Replaces(1));
        let all_different: Vec<ConnectedClient> = (1000..1016).map(client).collect();
        let by_own = decide_admission(&all_different, client(1003));
        assert_eq!(by_own, Admission::Replaces(3), "no user has more connections than this one");
    }

    #[test]
    fn without_known_users_the_longest_idle_connection_is_closed() {
        let mut open = vec![client(None); MOST_OTHERS];
        assert_eq!(decide_admission(&open, client(None)), Admission::Replaces(0));
        open[0] = answering(None);
        assert_eq!(decide_admission(&open, client(None)), Admission::Replaces(1));
        let busy = vec![answering(None); MOST_OTHERS];
        assert_eq!(decide_admission(&busy, client(None)), Admission::Refused);
    }

    #[test]
    fn a_client_waits_for_threads_that_are_ending() {
        use std::os::fd::AsFd;
        let (socket, _) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let connections = Arc::default();
        let peer = || Peer { credentials: None };
        let admit = || Connections::admit(&connections, socket.as_fd(), peer());
        let mut permits: Vec<_> =
            (0..MOST_THREADS).map(|_| admit().expect("a free connection")).collect();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            permits.remove(0);
            permits
        });
        let latest = admit();
        assert!(latest.is_some(), "a thread has ended meanwhile");
        let _permits = ending.join().expect("the thread ends");
        assert!(admit().is_none(), "the limit of threads is reached");
    }

    #[test]
    fn a_connection_of_root_is_never_closed_for_another() {
        let roots = vec![client(0); MOST_ROOT];
        assert_eq!(decide_admission(&roots, client(0)), Admission::Refused);
        let mut open = roots;
        open.extend(vec![client(None); MOST_OTHERS]);
        let admitted = decide_admission(&open, client(None));
        assert_eq!(admitted, Admission::Replaces(MOST_ROOT));
    }
}
