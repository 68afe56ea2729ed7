//! A listening socket and the threads that serve its clients: few threads, and short ones.

mod connections;

pub use connections::ConnectionPermit;
use connections::Connections;
use hawkeye_linux::processes::client_credentials::ClientCredentials;
use hawkeye_linux::processes::process::run_for_client;
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::geteuid;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user and group; `None` where the socket does not report them.
    pub credentials: Option<ClientCredentials>,
}

impl Peer {
    pub fn uid(self) -> Option<u32> {
        self.credentials.map(|credentials| credentials.uid)
    }

    /// Whether it may change things: it is root, or the user that the daemon runs as.
    pub fn is_root_or_daemon_user(self) -> bool {
        self.uid().is_some_and(|uid| uid == 0 || uid == geteuid().as_raw())
    }
}

/// Serves clients until it is dropped.
pub struct Acceptor {
    /// A second descriptor of the listening socket.
    listener: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Serves each client in a thread of its own. At the limit it disconnects an idle client or
    /// refuses the new one. `accept` waits for the next client of `listener`.
    pub fn start<L: AsFd + Send + 'static, S: AsFd + Send + 'static>(
        listener: L,
        accept: fn(&L) -> io::Result<(S, Peer)>,
        serve: impl Fn(S, Peer, &ConnectionPermit) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let second = listener.as_fd().try_clone_to_owned()?;
        let thread = thread::Builder::new().name("hawkeye-accept".into());
        let thread = thread.spawn(move || accept_loop(|| accept(&listener), &Arc::new(serve)))?;
        Ok(Self { listener: second, thread: Some(thread) })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        // Ends the accept call in which the thread waits.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept_loop<S: AsFd + Send + 'static>(
    accept: impl Fn() -> io::Result<(S, Peer)>,
    serve: &Arc<impl Fn(S, Peer, &ConnectionPermit) + Send + Sync + 'static>,
) {
    let connections = Arc::new(Connections::default());
    loop {
        let (stream, peer) = match run_for_client(&accept) {
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
        run_for_client(|| {
            let admitted = Connections::admit(&connections, stream.as_fd(), peer);
            let Some(permit) = admitted else { return };
            let serve = Arc::clone(serve);
            let client = thread::Builder::new().name("hawkeye-client".into());
            // If no thread can start, dropping the closure closes the connection.
            let _ = client.spawn(move || run_for_client(|| serve(stream, peer, &permit)));
        });
    }
}
