//! A listening socket and the threads that serve its clients: few threads, and short ones.

mod connections;

pub use connections::ConnectionPermit;
use connections::Connections;
use hawkeye_linux::processes::client_credentials::ClientCredentials;
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::geteuid;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user and group; `None` where the socket does not report them.
    pub credentials: Option<ClientCredentials>,
}

impl Peer {
    /// Its user, if that is known.
    pub fn uid(self) -> Option<u32> {
        self.credentials.map(|credentials| credentials.uid)
    }

    /// Whether it may change things: it is root, or the user that the daemon runs as.
    pub fn is_root(self) -> bool {
        self.uid()
            .is_some_and(|uid| uid == 0 || uid == geteuid().as_raw())
    }
}

/// A socket that accepts clients.
pub trait Listener: AsFd + Send + Sync + 'static {
    /// A connection.
    type Stream: AsFd + Send + 'static;

    /// Waits for the next client.
    fn accept_client(&self) -> io::Result<(Self::Stream, Peer)>;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn accept_client(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.accept()?;
        let credentials = ClientCredentials::of_peer(stream.as_fd()).map_err(io::Error::other)?;
        let credentials = Some(credentials);
        Ok((stream, Peer { credentials }))
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn accept_client(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, _) = self.accept()?;
        Ok((stream, Peer { credentials: None }))
    }
}

/// Serves clients until it is dropped.
pub struct Acceptor<L: Listener> {
    listener: Arc<L>,
    thread: Option<JoinHandle<()>>,
}

impl<L: Listener> Acceptor<L> {
    /// Serves each client in a thread of its own. At the limit it disconnects an idle client or
    /// refuses the new one.
    pub fn open(
        listener: L,
        serve: impl Fn(L::Stream, Peer, &ConnectionPermit) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = Arc::new(listener);
        let thread = thread::Builder::new()
            .name("hawkeye-accept".into())
            .spawn({
                let listener = Arc::clone(&listener);
                move || accept_loop(&*listener, &Arc::new(serve))
            })?;
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }
}

impl<L: Listener> Drop for Acceptor<L> {
    fn drop(&mut self) {
        // Ends the accept call in which the thread waits.
        let _ = shutdown(self.listener.as_fd().as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept_loop<L: Listener>(
    listener: &L,
    serve: &Arc<impl Fn(L::Stream, Peer, &ConnectionPermit) + Send + Sync + 'static>,
) {
    let connections = Arc::new(Connections::default());
    loop {
        let (stream, peer) = match listener.accept_client() {
            Ok(client) => client,
            // The socket was shut down.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
            Err(error) => {
                tracing::debug!("client connection not accepted: {error}");
                // For example no free file descriptors: the next try would fail at once too.
                thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        let Some(permit) = Connections::admit(&connections, stream.as_fd(), peer) else {
            continue;
        };
        let serve = Arc::clone(serve);
        let client = thread::Builder::new().name("hawkeye-client".into());
        // If no thread can start, dropping the closure closes the connection.
        let _ = client.spawn(move || serve(stream, peer, &permit));
    }
}
