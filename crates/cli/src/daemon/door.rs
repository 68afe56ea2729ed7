//! A listening socket and the threads that serve its clients: few, and each for a short time.

use nix::sys::socket::{Shutdown, getsockopt, shutdown, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Clients served at once at most. Root has places of its own, so that others can't keep it out.
const MOST_OTHERS: usize = 16;
const MOST_ROOT: usize = 8;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user; `None` where the socket does not tell.
    pub uid: Option<u32>,
}

impl Peer {
    /// Whether it may change things: root, or the user that the daemon runs as.
    pub fn is_root(self) -> bool {
        self.uid
            .is_some_and(|uid| uid == 0 || uid == geteuid().as_raw())
    }
}

/// A socket that clients come to.
pub trait Listen: AsFd + Send + Sync + 'static {
    /// A connection.
    type Stream: Send + 'static;

    /// Waits for the next client.
    fn accept_client(&self) -> io::Result<(Self::Stream, Peer)>;
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    fn accept_client(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.accept()?;
        // Of the process that connected, as the kernel saw it then.
        let uid = getsockopt(&stream, PeerCredentials)?.uid();
        Ok((stream, Peer { uid: Some(uid) }))
    }
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    fn accept_client(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, _) = self.accept()?;
        Ok((stream, Peer { uid: None }))
    }
}

/// Serves until it is dropped.
pub struct Door<L: Listen> {
    listener: Arc<L>,
    thread: Option<JoinHandle<()>>,
}

impl<L: Listen> Door<L> {
    /// Serves each client in a thread of its own. Where too many are there, the next is turned away.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn open(
        listener: L,
        serve: impl Fn(L::Stream, Peer) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = Arc::new(listener);
        let thread = thread::Builder::new().name("hawkeye-door".into()).spawn({
            let listener = Arc::clone(&listener);
            move || accept(&*listener, &Arc::new(serve))
        })?;
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }
}

impl<L: Listen> Drop for Door<L> {
    fn drop(&mut self) {
        // Ends the accept that the thread waits in.
        let _ = shutdown(self.listener.as_fd().as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept<L: Listen>(listener: &L, serve: &Arc<impl Fn(L::Stream, Peer) + Send + Sync + 'static>) {
    let root = Arc::new(AtomicUsize::new(0));
    let others = Arc::new(AtomicUsize::new(0));
    loop {
        let (stream, peer) = match listener.accept_client() {
            Ok(client) => client,
            // Shut down: the door is closed.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
            Err(error) => {
                tracing::debug!("a client did not get in: {error}");
                // Out of file descriptors, say: the next try would fail at once, too.
                thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        let place = if peer.is_root() {
            Place::take(&root, MOST_ROOT)
        } else {
            Place::take(&others, MOST_OTHERS)
        };
        let Some(place) = place else { continue };
        let serve = Arc::clone(serve);
        let client = thread::Builder::new().name("hawkeye-client".into());
        // Where there is no thread for it, the client is gone with the closure.
        let _ = client.spawn(move || {
            serve(stream, peer);
            drop(place);
        });
    }
}

/// One of the clients that may be there at once.
struct Place(Arc<AtomicUsize>);

impl Place {
    /// Only the accepting thread takes places, so that the count can't grow in between.
    fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        if taken.load(Ordering::Acquire) >= most {
            return None;
        }
        taken.fetch_add(1, Ordering::AcqRel);
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
