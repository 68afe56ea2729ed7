//! The socket that `hawkeye status` and its like talk to: everybody may ask, root may change things.

use super::calls::Caller;
use super::deadline::{Timed, UntilDeadline};
use super::door::{Door, Peer, Permit};
use super::protocol::{self, MOST_REQUEST_BYTES, Reply, Request};
use crate::view::Explanation;
use anyhow::{Context, Result, bail};
use hawkeye_policy::{Rate, TokenBucket};
use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A client has so long for its request, and as long again for taking the reply.
const CLIENT_TIME: Duration = Duration::from_secs(5);
/// Looks at one thing that users other than root may ask for together, a second: each costs the manager time.
const OTHERS_PER_S: f64 = 40.0;
/// And each of them alone.
const USER_PER_S: f64 = 20.0;
/// Users that are counted at once; then all are counted anew.
const MOST_USERS: usize = 1024;
/// What visits all regions of a process counts as so many of them.
const WHOLE_PROCESS: u32 = 2;

/// The socket; it is removed when this is dropped.
pub struct SocketServer {
    path: PathBuf,
    _door: Door<UnixListener>,
}

impl SocketServer {
    /// Listens at `path`, in place of a daemon that is no more.
    ///
    /// # Errors
    /// Another daemon answers there, or the path can't be had.
    pub fn start(path: &Path, caller: Caller) -> Result<Self> {
        let listener = bind(path)?;
        let desk = Desk::new(caller)?;
        let door = Door::open(listener, move |stream, peer, permit| {
            let stream = UntilDeadline::new(stream, CLIENT_TIME);
            if let Err(error) = desk.serve(stream, peer, permit) {
                tracing::debug!("a client was dropped: {error}");
            }
        });
        Ok(Self {
            path: path.to_owned(),
            _door: door.context("starting a thread")?,
        })
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Everybody may connect: who may do what is decided by who they are.
fn bind(path: &Path) -> Result<UnixListener> {
    let listening = || format!("listening at {}", path.display());
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            bail!(
                "{} is there and is no socket; another path is needed",
                path.display()
            );
        }
        if UnixStream::connect(path).is_ok() {
            bail!(
                "another daemon answers at {}; stop it first",
                path.display()
            );
        }
        fs::remove_file(path).with_context(listening)?;
    }
    let listener = UnixListener::bind(path).with_context(listening)?;
    fs::set_permissions(path, Permissions::from_mode(0o666)).with_context(listening)?;
    Ok(listener)
}

/// Where requests are checked, passed on and answered.
struct Desk {
    caller: Caller,
    began: Instant,
    others: Mutex<Others>,
    may_see_addresses: MaySeeAddresses,
}

/// Whether a client may know, at this moment, where a process has its memory.
type MaySeeAddresses = fn(Peer, u32) -> bool;

/// How much users other than root have asked for lately.
struct Others {
    together: TokenBucket,
    of_user: Rate,
    users: HashMap<Option<u32>, TokenBucket>,
}

impl Others {
    fn new() -> Result<Self> {
        Ok(Self {
            together: TokenBucket::one_second(Rate::per_second(OTHERS_PER_S)?),
            of_user: Rate::per_second(USER_PER_S)?,
            users: HashMap::new(),
        })
    }

    /// Whether this user may ask for `looks` things now.
    fn take(&mut self, now: Duration, user: Option<u32>, looks: u32) -> bool {
        if self.users.len() >= MOST_USERS {
            self.users.clear();
        }
        let rate = self.of_user;
        let own = self.users.entry(user);
        let own = own.or_insert_with(|| TokenBucket::one_second(rate));
        // What one user has asked for in vain costs the others nothing.
        own.take(now, looks) && self.together.take(now, looks)
    }
}

impl Desk {
    fn new(caller: Caller) -> Result<Self> {
        Ok(Self {
            caller,
            began: Instant::now(),
            others: Mutex::new(Others::new()?),
            may_see_addresses: |peer, pid| {
                let credentials = peer.credentials;
                credentials.is_some_and(|credentials| credentials.may_see_addresses(pid))
            },
        })
    }

    /// Takes one request and answers it.
    fn serve<S: Timed>(
        &self,
        stream: UntilDeadline<S>,
        peer: Peer,
        permit: &Permit,
    ) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        // One byte more shows that it is too long.
        let most = MOST_REQUEST_BYTES;
        let read = stream
            .by_ref()
            .take(most + 1)
            .read_until(b'\n', &mut line)?;
        if read == 0 || !permit.begin_answer() {
            return Ok(());
        }
        let reply = match read as u64 {
            read if read > most => Reply::refused(format!("a request has {most} bytes at most")),
            _ => match protocol::parse(&line) {
                Ok(request) => self.answer(request, peer),
                Err(why) => Reply::refused(why),
            },
        };
        permit.end_answer();
        let stream = stream.get_mut();
        stream.extend(CLIENT_TIME);
        stream.write_all(&protocol::line(&reply)?)
    }

    fn answer(&self, request: Request, peer: Peer) -> Reply {
        if peer.is_root() {
            return self.caller.ask(request);
        }
        if request.changes() {
            return Reply::refused("only root may change what the daemon does");
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if !others.take(self.began.elapsed(), peer.uid(), looks(request)) {
            return Reply::refused("too many requests: try again in a second");
        }
        drop(others);
        let (Request::Why { pid, .. } | Request::Strip { pid, .. }) = request else {
            return self.caller.ask(request);
        };
        let may_see = || (self.may_see_addresses)(peer, pid);
        let before = may_see();
        if let (
            Request::Why {
                address: Some(_), ..
            },
            false,
        ) = (request, before)
        {
            // An answer about a region takes a look at the process's mappings: only clients that may see them cause it.
            return match self.caller.ask(Request::Why { pid, address: None }) {
                Reply::Explanation(Explanation::NotManaged { pid, why }) => {
                    Reply::Explanation(Explanation::NotManaged { pid, why })
                }
                Reply::Explanation(_) => not_yours(),
                other => other,
            };
        }
        let reply = self.caller.ask(request);
        // The process may have become another user's meanwhile.
        if before && may_see() {
            return reply;
        }
        match reply {
            Reply::Explanation(answer) => answer
                .without_addresses()
                .map_or_else(not_yours, Reply::Explanation),
            Reply::Strip(strip) => Reply::Strip(strip.without_addresses()),
            reply => reply,
        }
    }
}

/// What answering costs, in looks at one thing.
fn looks(request: Request) -> u32 {
    match request {
        Request::Why { .. } | Request::Strip { .. } => WHOLE_PROCESS,
        _ => 1,
    }
}

fn not_yours() -> Reply {
    Reply::refused(
        "only root and its owner may ask about a process's addresses: users that may read /proc/PID/maps",
    )
}

#[cfg(test)]
mod tests;
