//! Just enough HTTP for a scraper: `GET /metrics`, one request per connection.
//!
//! A server library would replace one short function, but not the limits on what clients cost the
//! daemon ([`Acceptor`], [`DeadlineStream`]), which are those of the socket.

use super::acceptor::{Acceptor, ConnectionPermit, Peer};
use super::deadline_stream::DeadlineStream;
use super::prometheus;
use super::protocol::{DaemonReply, DaemonRequest};
use super::request_channel::RequestSender;
use anyhow::{Context, Result, bail};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of a client for its request, and again for reading the answer.
const CLIENT_TIME: Duration = Duration::from_secs(5);
/// Longest head of a request, in bytes.
const MOST_HEAD_BYTES: u64 = 8192;
/// Time for which an answer is reused: the manager should not count for every scraper.
const FRESH: Duration = Duration::from_secs(1);

/// Serves metrics at a loopback address until the result is dropped.
pub fn start_metrics_server(address: SocketAddr, requests: RequestSender) -> Result<Acceptor> {
    if !address.ip().is_loopback() {
        bail!(
            "can't serve metrics at {address}: it is not a loopback address, and metrics name every user's programs; use 127.0.0.1:{}",
            address.port()
        );
    }
    let listener = TcpListener::bind(address)
        .with_context(|| format!("can't listen at {address} for metrics"))?;
    let metrics = CachedMetrics { requests, last: Mutex::new(None) };
    let accept = |listener: &TcpListener| Ok((listener.accept()?.0, Peer { credentials: None }));
    let acceptor = Acceptor::start(listener, accept, move |stream, _, permit| {
        let stream = DeadlineStream::new(stream, CLIENT_TIME);
        if let Err(error) = serve_metrics_request(stream, permit, || metrics.fresh_or_cached_text())
        {
            tracing::debug!("metrics request dropped: {error}");
        }
    });
    acceptor.context("can't start the thread for metrics")
}

struct CachedMetrics {
    requests: RequestSender,
    last: Mutex<Option<(Instant, String)>>,
}

impl CachedMetrics {
    fn fresh_or_cached_text(&self) -> Result<String, String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(text.clone());
        }
        let text = match self.requests.send_and_wait_for_reply(DaemonRequest::Status) {
            DaemonReply::Status(status) => {
                prometheus::render_metrics(*status).map_err(|error| error.to_string())?
            }
            DaemonReply::Refused { why } => return Err(why),
            _ => return Err("the manager sent an unexpected reply".to_owned()),
        };
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

fn serve_metrics_request<S: AsFd + Read + Write>(
    stream: DeadlineStream<S>,
    permit: &ConnectionPermit,
    metrics: impl FnOnce() -> Result<String, String>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let request_line = read_request_line_skip_headers(&mut stream)?;
    let Some(request_line) = request_line.filter(|_| permit.begin_answer()) else { return Ok(()) };
    let mut words = request_line.split_whitespace();
    let path = match (words.next(), words.next(), words.next()) {
        // A query string has no effect.
        (Some("GET"), Some(path), Some(version)) if version.starts_with("HTTP/1.") => {
            path.split('?').next()
        }
        _ => None,
    };
    let bad = "bad request: only GET /metrics is supported";
    let text = match path {
        Some("/metrics") => metrics().map_err(|why| ("503 Service Unavailable", why)),
        Some(_) => Err(("404 Not Found", "not found: only /metrics is served".into())),
        None => Err(("400 Bad Request", bad.into())),
    };
    let (status, kind, body) = match text {
        Ok(text) => ("200 OK", prometheus::CONTENT_TYPE, text),
        Err((status, why)) => (status, "text/plain; charset=utf-8", format!("{why}\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    permit.mark_answer_ready();
    let stream = stream.get_mut();
    stream.restart_deadline(CLIENT_TIME);
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Reads up to the end of the headers. Returns the first line; `None` if nothing is sent.
fn read_request_line_skip_headers(stream: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut head = stream.take(MOST_HEAD_BYTES);
    let mut first = None;
    loop {
        let mut line = Vec::new();
        head.read_until(b'\n', &mut line)?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if text.is_empty() {
            return Ok(first);
        }
        first.get_or_insert_with(|| text.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::deadline_stream::tests::exchange;
    use super::*;

    /// The answer to a client that sends these bytes.
    fn answer(request: &[u8], metrics: Result<String, String>) -> String {
        let answer = exchange(request, true, |server| {
            let stream = DeadlineStream::new(server, CLIENT_TIME);
            let _ = serve_metrics_request(stream, &ConnectionPermit::for_test(), || metrics);
        });
        String::from_utf8(answer).expect("the answer is UTF-8")
    }

    #[test]
    fn metrics_are_served_and_nothing_else() {
        let get = |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
            answer(request.as_bytes(), Ok("a_metric 1\n".into()))
        };
        for path in ["/metrics", "/metrics?name=x"] {
            let answer = get(path);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.contains("Content-Length: 11\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\na_metric 1\n"), "{answer}");
        }
        for path in ["/", "/metrics/x", "//metrics"] {
            assert!(get(path).starts_with("HTTP/1.1 404 "), "{path}");
        }
    }

    #[test]
    fn a_manager_that_does_not_answer_gives_status_503() {
        let answer = answer(b"GET /metrics HTTP/1.0\n\n", Err("it is busy".into()));
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.ends_with("it is busy\n"), "{answer}");
    }

    #[test]
    fn invalid_empty_and_endless_requests_are_ended() {
        let metrics = || Ok("never".to_owned());
        let post = &b"POST /metrics HTTP/1.1\r\n\r\n"[..];
        for garbage in [post, b"\xff\xfe\n\n", b"GET"] {
            assert!(answer(garbage, metrics()).starts_with("HTTP/1.1 400 "));
        }
        assert_eq!(answer(b"", metrics()), "");
        let endless = b"GET /nowhere HTTP/1.1\r\n".repeat(100_000);
        assert!(answer(&endless, metrics()).starts_with("HTTP/1.1 404 "));
    }

    #[test]
    fn idle_connections_cannot_lock_out_a_scraper() {
        let (requests, calls) =
            super::super::request_channel::request_channel(std::sync::Arc::new(|| {}));
        // Without a manager the client gets an error, not silence.
        drop(calls);
        let address = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let address = address.expect("a free port");
        let _server = start_metrics_server(address, requests).expect("the server starts");
        let connect = || std::net::TcpStream::connect(address).expect("the connection succeeds");
        let idle: Vec<_> = (0..64).map(|_| connect()).collect();
        let mut scraper = connect();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("the request is sent");
        let mut answer = String::new();
        scraper.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains("the daemon is shutting down"), "{answer}");
        drop(idle);
    }

    #[test]
    fn only_loopback_addresses_are_served() {
        let (requests, _calls) =
            super::super::request_channel::request_channel(std::sync::Arc::new(|| {}));
        for address in ["0.0.0.0:0", "192.0.2.1:9500", "[::]:0"] {
            let address = address.parse().expect("a valid address");
            let error = start_metrics_server(address, requests.clone()).err();
            let said = error.map(|e| e.to_string()).unwrap_or_default();
            assert!(said.contains("not a loopback address"), "{said}");
        }
        let loopback = "127.0.0.1:0".parse().expect("a valid address");
        assert!(start_metrics_server(loopback, requests).is_ok());
    }
}
