//! Keeps the metrics served: a port that is taken does not stop the daemon.

use super::acceptor::Acceptor;
use super::metrics_server::start_metrics_server;
use super::request_channel::RequestSender;
use hawkeye_manager::{Event, Machine, Manager};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time after which an address that could not be used is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The metrics at the configured address. Every user can take a port, so a failure only delays
/// them.
pub struct MetricsEndpoint {
    address: Option<SocketAddr>,
    requests: RequestSender,
    server: Option<Acceptor>,
    next_try: Instant,
    last_error: Option<String>,
    reported_error: Option<String>,
}

impl MetricsEndpoint {
    /// Serves at `address`, or tries again later. `None`: metrics are not wanted.
    pub fn start(address: Option<SocketAddr>, requests: RequestSender) -> Self {
        let mut endpoint = Self {
            address,
            requests,
            server: None,
            next_try: Instant::now(),
            last_error: None,
            reported_error: None,
        };
        endpoint.start_server_if_due();
        endpoint
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The error because of which metrics are not served at the moment.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Tries again if that is due. Reports to the log and to the manager when serving fails, and
    /// when it works again.
    pub fn retry_if_due<M: Machine>(&mut self, manager: &mut Manager<M>) {
        self.start_server_if_due();
        if self.last_error == self.reported_error {
            return;
        }
        self.reported_error.clone_from(&self.last_error);
        let message = match &self.last_error {
            Some(why) => {
                format!("{why}; the next try is in {} s", AGAIN_AFTER.as_secs())
            }
            None => "metrics are served again".to_owned(),
        };
        tracing::warn!("{message}");
        manager.record_event(Event::Trouble { message });
    }

    fn start_server_if_due(&mut self) {
        let Some(address) = self.address else { return };
        if self.server.is_some() || Instant::now() < self.next_try {
            return;
        }
        match start_metrics_server(address, self.requests.clone()) {
            Ok(server) => {
                self.server = Some(server);
                self.last_error = None;
            }
            Err(error) => {
                self.next_try = Instant::now() + AGAIN_AFTER;
                self.last_error = Some(format!("{error:#}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::request_channel::request_channel;
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    #[test]
    fn a_taken_port_is_tried_again_after_a_pause() {
        let squatter = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = squatter.local_addr().expect("it has an address");
        let (requests, _calls) = request_channel(Arc::new(|| {}));
        let mut endpoint = MetricsEndpoint::start(Some(address), requests);
        let error = endpoint.last_error().expect("the port is taken");
        assert!(error.contains(&format!("can't listen at {address}")), "{error}");
        drop(squatter);
        endpoint.start_server_if_due();
        assert!(endpoint.last_error().is_some(), "it is tried later");
        endpoint.next_try = Instant::now();
        endpoint.start_server_if_due();
        assert_eq!(endpoint.last_error(), None);
        TcpStream::connect(address).expect("metrics are served");
    }
}
