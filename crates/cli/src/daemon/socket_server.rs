//! The socket of `hawkeye status` and other clients. Every user may ask; root may change things.

use super::acceptor::{Acceptor, ConnectionPermit, Peer};
use super::deadline_stream::DeadlineStream;
use super::protocol::{self, DaemonReply, DaemonRequest, MOST_REQUEST_BYTES};
use super::request_channel::RequestSender;
use anyhow::{Context, Result, bail};
use hawkeye_linux::processes::client_credentials::ClientCredentials;
use hawkeye_policy::{RatePerSecond, TokenBucket};
use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of a client for its request, and again for reading the reply.
const CLIENT_TIME: Duration = Duration::from_secs(5);
/// Looks per second that all users except root may cause together. A look reads the state of one
/// thing, which costs the manager time.
const OTHERS_PER_S: f64 = 40.0;
/// The same for each of these users.
const USER_PER_S: f64 = 20.0;
/// Users counted at the same time. At the limit all counts start again.
const MOST_USERS: usize = 1024;
/// Age up to which a status is reused for these users. Each computation adds up the figures of all
/// processes.
const OTHERS_STATUS_AGE: Duration = Duration::from_secs(1);
/// Looks that a request counts as if it visits all regions of a process.
const WHOLE_PROCESS: u32 = 2;

/// The socket's server; it removes the socket when dropped.
pub struct SocketServer {
    path: PathBuf,
    _acceptor: Acceptor,
}

impl SocketServer {
    /// Listens at `path`, and replaces the socket of a daemon that has ended.
    pub fn start(path: &Path, requests: RequestSender) -> Result<Self> {
        let listener = bind_for_all_users(path)?;
        let handler = RequestHandler::new(requests)?;
        let acceptor = Acceptor::start(listener, accept_with_peer, move |stream, peer, permit| {
            let stream = DeadlineStream::new(stream, CLIENT_TIME);
            if let Err(error) = handler.serve_client(stream, peer, permit) {
                tracing::debug!("client request dropped: {error}");
            }
        });
        Ok(Self {
            path: path.to_owned(),
            _acceptor: acceptor.context("can't start the thread for the socket")?,
        })
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Every user may connect; the server checks the user for each request.
fn bind_for_all_users(path: &Path) -> Result<UnixListener> {
    let at = path.display();
    let listening = || format!("can't listen at {at}");
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            bail!("{at} exists and is not a socket; remove it or choose another path");
        }
        if UnixStream::connect(path).is_ok() {
            bail!("another daemon answers at {at}; stop it first");
        }
        fs::remove_file(path).with_context(listening)?;
    }
    let listener = UnixListener::bind(path).with_context(listening)?;
    fs::set_permissions(path, Permissions::from_mode(0o666)).with_context(listening)?;
    Ok(listener)
}

fn accept_with_peer(listener: &UnixListener) -> io::Result<(UnixStream, Peer)> {
    let (stream, _) = listener.accept()?;
    let credentials =
        ClientCredentials::of_socket_peer(stream.as_fd()).map_err(io::Error::other)?;
    Ok((stream, Peer { credentials: Some(credentials) }))
}

struct RequestHandler {
    requests: RequestSender,
    began: Instant,
    others: Mutex<UserRateLimits>,
    may_see_addresses: AddressAccessCheck,
}

/// Whether a client may know the addresses of a process at this moment.
type AddressAccessCheck = fn(Peer, u32) -> bool;

/// Recent requests of users other than root.
struct UserRateLimits {
    together: TokenBucket,
    of_user: RatePerSecond,
    users: HashMap<Option<u32>, TokenBucket>,
}

impl UserRateLimits {
    fn new() -> Result<Self> {
        Ok(Self {
            together: TokenBucket::with_one_second_burst(RatePerSecond::new(OTHERS_PER_S)?),
            of_user: RatePerSecond::new(USER_PER_S)?,
            users: HashMap::new(),
        })
    }

    fn try_take_tokens(&mut self, now: Duration, user: Option<u32>, looks: u32) -> bool {
        if self.users.len() >= MOST_USERS {
            self.users.clear();
        }
        let new = || TokenBucket::with_one_second_burst(self.of_user);
        let own = self.users.entry(user).or_insert_with(new);
        // A refused request of one user must not count against the others.
        own.try_take_tokens(now, looks) && self.together.try_take_tokens(now, looks)
    }
}

impl RequestHandler {
    fn new(requests: RequestSender) -> Result<Self> {
        Ok(Self {
            requests,
            began: Instant::now(),
            others: Mutex::new(UserRateLimits::new()?),
            may_see_addresses: |peer, pid| {
                peer.credentials.is_some_and(|it| it.may_see_addresses_of(pid))
            },
        })
    }

    fn serve_client(
        &self,
        stream: DeadlineStream<UnixStream>,
        peer: Peer,
        permit: &ConnectionPermit,
    ) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        // One byte more than allowed, to detect a request that is too long.
        let most = MOST_REQUEST_BYTES;
        stream.by_ref().take(most + 1).read_until(b'\n', &mut line)?;
        if line.is_empty() || !permit.begin_answer() {
            return Ok(());
        }
        let reply = match protocol::decode_message_line(&line) {
            _ if line.len() as u64 > most => {
                DaemonReply::refused_because(format!("a request may have at most {most} bytes"))
            }
            Ok(request) => self.answer_if_permitted(request, peer),
            Err(why) => DaemonReply::refused_because(format!("invalid request: {why}")),
        };
        permit.mark_answer_ready();
        let stream = stream.get_mut();
        stream.restart_deadline(CLIENT_TIME);
        stream.write_all(&protocol::encode_message_line(&reply)?)
    }

    fn answer_if_permitted(&self, request: DaemonRequest, peer: Peer) -> DaemonReply {
        if peer.is_root_or_daemon_user() {
            return self.requests.send_and_wait_for_reply(request);
        }
        if request.changes_daemon_state() {
            return DaemonReply::refused_because("only root may change what the daemon does");
        }
        let looks = match request {
            DaemonRequest::Why { .. } | DaemonRequest::Strip { .. } => WHOLE_PROCESS,
            DaemonRequest::Status | DaemonRequest::Pause | DaemonRequest::Resume => 1,
        };
        let now = self.began.elapsed();
        let others = || self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if !others().try_take_tokens(now, peer.uid(), looks) {
            return DaemonReply::refused_because("too many requests; try again in a second");
        }
        let (DaemonRequest::Why { pid, .. } | DaemonRequest::Strip { pid, .. }) = request else {
            return self.requests.recent_status(OTHERS_STATUS_AGE);
        };
        let may_see = || (self.may_see_addresses)(peer, pid);
        let before = may_see();
        let of_region = matches!(request, DaemonRequest::Why { address, .. } if address.is_some());
        if of_region && !before {
            // Answering for a region reads the process's mappings: not for clients that may not.
            let request = DaemonRequest::Why { pid, address: None };
            return match self.requests.send_and_wait_for_reply(request) {
                DaemonReply::Explanation(why) if why.is_managed() => permission_denied_reply(),
                other => other,
            };
        }
        let reply = self.requests.send_and_wait_for_reply(request);
        // Meanwhile the process may belong to another user.
        if before && may_see() {
            return reply;
        }
        match reply {
            DaemonReply::Explanation(why) => {
                let why = why.without_addresses().map(DaemonReply::Explanation);
                why.unwrap_or_else(permission_denied_reply)
            }
            DaemonReply::Strip(strip) => DaemonReply::Strip(strip.without_addresses()),
            reply => reply,
        }
    }
}

fn permission_denied_reply() -> DaemonReply {
    DaemonReply::refused_because(
        "only root and the process's owner may see its addresses (users that may read /proc/PID/maps)",
    )
}

#[cfg(test)]
mod tests;
