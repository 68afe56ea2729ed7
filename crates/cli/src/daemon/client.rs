//! Sends requests to the daemon.

use super::deadline_stream::DeadlineStream;
use super::protocol::{self, DaemonReply, DaemonRequest, MOST_REPLY_BYTES};
use anyhow::{Result, anyhow, bail};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longer than the time in which the daemon's manager must answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Sends a request to the daemon at this socket.
pub fn send_request(socket: &Path, request: DaemonRequest) -> Result<DaemonReply> {
    let at = socket.display();
    let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow!(
            "no daemon runs: nothing answers at {at}; `status`, `why` and `top` need the daemon: start it with `systemctl start hawkeye` or `hawkeye daemon`; if it has another socket, name that (--socket PATH); `run` and `attach` answer no requests: see their recording (--record FILE)"
        ),
        _ => anyhow!("the daemon can't be reached at {at}: {error}"),
    })?;
    let mut stream = DeadlineStream::new(stream, PATIENCE);
    let mut line = Vec::new();
    // A daemon that refuses at once may already have closed the connection. Its reply still counts.
    let sent = stream.write_all(&protocol::encode_message_line(&request)?);
    let mut reply = BufReader::new(stream).take(MOST_REPLY_BYTES);
    let read = reply.read_until(b'\n', &mut line);
    if line.is_empty() {
        use ErrorKind::{BrokenPipe, ConnectionReset};
        match sent.and(read) {
            Err(error) if !matches!(error.kind(), BrokenPipe | ConnectionReset) => {
                bail!("the daemon at {at} does not answer: {error}; see `systemctl status hawkeye`")
            }
            _ => bail!("the daemon at {at} is busy: too many open connections; try again"),
        }
    }
    match protocol::decode_message_line(&line) {
        Ok(DaemonReply::Refused { why }) => bail!("{why}"),
        Ok(reply) => Ok(reply),
        Err(why) => bail!("invalid answer of the daemon at {at}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// The result of asking a daemon that sends `answer` and closes the connection.
    fn request_answered_by(answer: &str) -> Result<DaemonReply> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("the socket can be bound");
        let answer = answer.to_owned();
        let daemon = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(answer.as_bytes()).expect("the answer is sent");
        });
        let reply = send_request(&path, DaemonRequest::Status);
        daemon.join().expect("the thread ends");
        reply
    }

    #[test]
    fn a_missing_daemon_is_reported() {
        let error =
            send_request(Path::new("/no/such/socket"), DaemonRequest::Status).expect_err("fails");
        let error = error.to_string();
        for part in ["no daemon runs", "`top` need the daemon", "--record FILE"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn an_invalid_or_empty_answer_is_an_error() {
        let error = request_answered_by("hello\n").expect_err("fails");
        assert!(error.to_string().contains("protocol"), "{error}");
        let error = request_answered_by("{\"protocol\":1}\n").expect_err("fails");
        assert!(error.to_string().contains("same version"), "{error}");
        assert!(request_answered_by("").is_err());
    }

    #[test]
    fn a_refusal_is_an_error_with_the_daemons_reason() {
        let line = |reply| format!("{{\"protocol\":{},\"reply\":{reply}}}\n", protocol::VERSION);
        let refusal = line(r#""refused","why":"only root may""#);
        let error = request_answered_by(&refusal).expect_err("fails");
        assert_eq!(error.to_string(), "only root may");
        let done = line(r#""done","changed":true"#);
        let reply = request_answered_by(&done).expect("a reply");
        assert_eq!(reply, DaemonReply::Done { changed: true });
    }
}
