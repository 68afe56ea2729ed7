//! One gRPC call with one answer, over a Unix socket: HTTP/2 (RFC 9113) with a single stream.
//!
//! Hand-written, because the libraries for it (tonic, or h2) bring an asynchronous runtime and more
//! crates than the product may link, for a call that is made a few times an hour. Headers are
//! compressed (RFC 7541). The client asks for a dynamic table of no bytes. So it needs no state of
//! the compression to find the one header that it reads.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Longest answer in bytes: what the kubelet accepts.
const MAX_ANSWER_BYTES: u32 = 16 << 20;
/// Longest frame that a peer may send unless told otherwise, in bytes.
const MAX_FRAME_BYTES: usize = 16384;
/// Longest block of headers that is read, in bytes.
const MAX_HEADER_BYTES: usize = 65536;
/// Before a gRPC message: a byte that says whether it is compressed, and its length.
const MESSAGE_PREFIX_BYTES: usize = 5;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

// Flags of frames.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// The only stream.
const STREAM: u32 = 1;

/// A call that failed.
#[derive(Debug, Error)]
pub enum GrpcError {
    /// The socket cannot be reached.
    #[error("connecting: {0}")]
    Connect(io::Error),
    /// The server has not answered before the deadline.
    #[error("no answer in time")]
    TimedOut,
    /// The connection failed.
    #[error(transparent)]
    Io(io::Error),
    /// Something else than gRPC answers.
    #[error("the answer is not valid gRPC: {0}")]
    Malformed(&'static str),
    /// The server does not know the method.
    #[error("the server does not know the call {0}")]
    Unimplemented(String),
    /// The server answers with another status than "ok" (grpc.io, "Status codes").
    #[error("the call was refused with gRPC status {0}")]
    Refused(u32),
}

impl From<io::Error> for GrpcError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::UnexpectedEof => Self::Malformed("the connection was closed"),
            _ => Self::Io(error),
        }
    }
}

/// Calls `method`, such as `/runtime.v1.RuntimeService/Version`, and returns the answer's message.
///
/// # Errors
/// The server cannot be reached, refuses, or has not answered after `at_most`. A request over
/// 16 KiB is refused without a call.
pub fn call_unary(
    socket: &Path,
    method: &str,
    message: &[u8],
    at_most: Duration,
) -> Result<Vec<u8>, GrpcError> {
    let mut connection = Connection::open(socket, Instant::now() + at_most)?;
    connection.send(&request_frames(method, message)?)?;
    let (headers, body) = connection.read_answer()?;
    match grpc_status(&headers) {
        Some(0) => {}
        Some(12) => return Err(GrpcError::Unimplemented(method.to_owned())),
        Some(status) => return Err(GrpcError::Refused(status)),
        None => return Err(GrpcError::Malformed("it has no status")),
    }
    match body.split_first_chunk::<MESSAGE_PREFIX_BYTES>() {
        Some(([0, length @ ..], message))
            if u32::from_be_bytes(*length) as usize == message.len() =>
        {
            Ok(message.to_owned())
        }
        _ => Err(GrpcError::Malformed("it is not one uncompressed message")),
    }
}

/// Everything that the client sends for its request.
fn request_frames(method: &str, message: &[u8]) -> Result<Vec<u8>, GrpcError> {
    let too_long = || GrpcError::Malformed("the request is too long");
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).map_err(|_| too_long())?.to_be_bytes());
    body.extend(message);
    let method_bytes = u8::try_from(method.len()).ok().filter(|bytes| *bytes < 127);
    if body.len() > MAX_FRAME_BYTES {
        return Err(too_long());
    }
    // Indexed fields and literals that are not indexed (RFC 7541, sections 6.1 and 6.2.2).
    let mut headers = vec![
        0x80 | 3, // :method POST
        0x80 | 6, // :scheme http
        0x04,     // :path
        method_bytes.ok_or_else(too_long)?,
    ];
    headers.extend(method.as_bytes());
    headers.extend(b"\x01\x09localhost"); // :authority
    headers.extend(b"\x0f\x10\x10application/grpc"); // content-type
    headers.extend(b"\x00\x02te\x08trailers");

    let mut frames = PREFACE.to_vec();
    let window = MAX_ANSWER_BYTES.to_be_bytes();
    // SETTINGS_HEADER_TABLE_SIZE 0, SETTINGS_INITIAL_WINDOW_SIZE; then the connection's window.
    let settings = [&[0, 1, 0, 0, 0, 0, 0, 4][..], &window].concat();
    push_frame(&mut frames, SETTINGS, 0, 0, &settings);
    push_frame(&mut frames, WINDOW_UPDATE, 0, 0, &window);
    push_frame(&mut frames, HEADERS, END_HEADERS, STREAM, &headers);
    push_frame(&mut frames, DATA, END_STREAM, STREAM, &body);
    Ok(frames)
}

/// Appends a frame. No payload is longer than [`MAX_FRAME_BYTES`].
fn push_frame(frames: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let [_, length @ ..] = length.to_be_bytes();
    frames.extend(length);
    frames.extend([kind, flags]);
    frames.extend(stream.to_be_bytes());
    frames.extend(payload);
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without padding and priority.
    fn content(&self) -> Result<&[u8], GrpcError> {
        let mut content = &self.payload[..];
        let mut padding = 0;
        if self.kind != CONTINUATION && self.has(PADDED) {
            (padding, content) = content.split_first().map_or((0, content), |(n, c)| (*n, c));
        }
        let skipped = if self.kind == HEADERS && self.has(PRIORITY) { 5 } else { 0 };
        let end = content.len().checked_sub(padding.into());
        let content = end.and_then(|end| content.get(skipped..end));
        content.ok_or(GrpcError::Malformed("its padding is longer than its frame"))
    }
}

/// A connection on which every wait ends at the deadline.
struct Connection {
    stream: UnixStream,
    deadline: Instant,
}

impl Connection {
    fn open(path: &Path, deadline: Instant) -> Result<Self, GrpcError> {
        let failed = |errno: Errno| GrpcError::Connect(errno.into());
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(failed)?;
        // Where its queue is full, connect(2) waits as long as a send may.
        let ms = deadline.saturating_duration_since(Instant::now()).as_millis().max(1);
        let at_most = TimeVal::milliseconds(i64::try_from(ms).unwrap_or(i64::MAX));
        setsockopt(&fd, sockopt::SendTimeout, &at_most).map_err(failed)?;
        let address = UnixAddr::new(path).map_err(failed)?;
        match connect(fd.as_raw_fd(), &address) {
            Ok(()) => Ok(Self { stream: UnixStream::from(fd), deadline }),
            Err(Errno::EAGAIN) => Err(GrpcError::TimedOut),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn time_left(&self) -> Result<Duration, GrpcError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(GrpcError::TimedOut) } else { Ok(left) }
    }

    /// Sends a few hundred bytes, for which the socket's buffer has room.
    fn send(&mut self, bytes: &[u8]) -> Result<(), GrpcError> {
        self.stream.set_write_timeout(Some(self.time_left()?))?;
        Ok(self.stream.write_all(bytes)?)
    }

    fn read(&mut self, mut bytes: &mut [u8]) -> Result<(), GrpcError> {
        while !bytes.is_empty() {
            self.stream.set_read_timeout(Some(self.time_left()?))?;
            match self.stream.read(bytes) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(read) => bytes = &mut bytes[read..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read_frame(&mut self) -> Result<Frame, GrpcError> {
        let mut head = [0; 9];
        self.read(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let bytes = u32::from_be_bytes([0, a, b, c]) as usize;
        if bytes > MAX_FRAME_BYTES {
            return Err(GrpcError::Malformed("a frame is too long"));
        }
        let mut payload = vec![0; bytes];
        self.read(&mut payload)?;
        Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream) & !(1 << 31), payload })
    }

    /// Reads up to the end of the stream. Returns its last block of headers, and its data.
    fn read_answer(&mut self) -> Result<(Vec<u8>, Vec<u8>), GrpcError> {
        let (mut headers, mut body) = (Vec::new(), Vec::new());
        let (mut ended, mut headers_go_on) = (false, false);
        while !ended || headers_go_on {
            let frame = self.read_frame()?;
            let mut reply = Vec::new();
            match (frame.kind, frame.stream) {
                (SETTINGS, _) if !frame.has(ACK) => push_frame(&mut reply, SETTINGS, ACK, 0, &[]),
                (PING, _) if !frame.has(ACK) => {
                    push_frame(&mut reply, PING, ACK, 0, &frame.payload);
                }
                (GOAWAY, _) => return Err(GrpcError::Malformed("the server ended the connection")),
                (RST_STREAM, STREAM) => {
                    return Err(GrpcError::Malformed("the server cancelled the call"));
                }
                (DATA, STREAM) => {
                    body.extend(frame.content()?);
                    ended |= frame.has(END_STREAM);
                }
                (HEADERS | CONTINUATION, STREAM) => {
                    // The status is in the last block.
                    if frame.kind == HEADERS {
                        headers.clear();
                        ended |= frame.has(END_STREAM);
                    }
                    headers.extend(frame.content()?);
                    headers_go_on = !frame.has(END_HEADERS);
                }
                _ => {}
            }
            if body.len() > MAX_ANSWER_BYTES as usize || headers.len() > MAX_HEADER_BYTES {
                return Err(GrpcError::Malformed("it is too long"));
            }
            if !reply.is_empty() {
                self.send(&reply)?;
            }
        }
        Ok((headers, body))
    }
}

/// The number in the header `grpc-status` of a block of headers.
fn grpc_status(mut block: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"grpc-status";
    /// The same in the code of RFC 7541, appendix B.
    const HUFFMAN_NAME: &[u8] = &[0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];
    while let Some(first) = block.first() {
        let prefix_bits = match first {
            0x80.. => 7,      // an indexed field
            0x40..=0x7f => 6, // a literal to be indexed
            0x20..=0x3f => 5, // the size of the dynamic table
            _ => 4,           // a literal
        };
        let index = take_integer(&mut block, prefix_bits)?;
        if matches!(prefix_bits, 5 | 7) {
            continue;
        }
        let name = if index == 0 { take_string(&mut block)? } else { &[] };
        let value = take_string(&mut block)?;
        if name == NAME || name == HUFFMAN_NAME {
            // No encoding of one or two digits is shorter than the digits.
            return std::str::from_utf8(value).ok()?.parse().ok();
        }
    }
    None
}

/// An integer that begins in the lower bits of a byte (RFC 7541, section 5.1).
fn take_integer(block: &mut &[u8], prefix_bits: u32) -> Option<usize> {
    let (first, mut rest) = block.split_first()?;
    let max = (1 << prefix_bits) - 1;
    let mut value = usize::from(*first) & max;
    if value == max {
        for shift in [0, 7, 14, 21] {
            let (byte, after) = rest.split_first()?;
            rest = after;
            value += usize::from(byte & 127) << shift;
            if *byte < 128 {
                *block = rest;
                return Some(value);
            }
        }
        return None;
    }
    *block = rest;
    Some(value)
}

/// The bytes of a string, still encoded if they were.
fn take_string<'b>(block: &mut &'b [u8]) -> Option<&'b [u8]> {
    let bytes = take_integer(block, 7)?;
    let (string, rest) = block.split_at_checked(bytes)?;
    *block = rest;
    Some(string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// Headers of containerd 1.6.20: of an answer, after an answer, and of a refusal.
    const ANSWER: &[u8] = b"\x20\x88\x0f\x10\x8b\x1d\x75\xd0\x62\x0d\x26\x3d\x4c\x4d\x65\x64";
    const TRAILERS: &[u8] =
        b"\x00\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x010\x00\x89\x9a\xca\xc8\xb5\x25\x42\x07\x31\x7f\0";
    const REFUSAL: &[u8] =
        b"\x20\x88\x0f\x10\x8b\x1d\x75\xd0\x62\x0d\x26\x3d\x4c\x4d\x65\x64\x00\x88\x9a\xca\xc8\xb2\
          \x12\x34\xda\x8f\x0212";

    #[test]
    fn the_status_is_found_in_headers_of_a_real_server() {
        assert_eq!(grpc_status(ANSWER), None);
        assert_eq!(grpc_status(TRAILERS), Some(0));
        assert_eq!(grpc_status(REFUSAL), Some(12));
        assert_eq!(grpc_status(b"\x40\x0bgrpc-status\x025x"), None);
        assert_eq!(grpc_status(b"\x40\x0bgrpc-status\x015"), Some(5));
    }

    #[test]
    fn an_integer_may_take_several_bytes() {
        let mut block: &[u8] = &[0xff, 0x9a, 0x0a, 1];
        assert_eq!(take_integer(&mut block, 5), Some(1337), "RFC 7541, C.1.2");
        assert_eq!(block, [1]);
        assert_eq!(take_integer(&mut &[0xff; 9][..], 7), None);
    }

    /// Calls a server that sends `answer` at once, and then nothing.
    fn call_server(answer: Vec<u8>, at_most: Duration) -> Result<Vec<u8>, GrpcError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("the socket can be made");
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("the client connects");
            client.write_all(&answer).expect("the answer can be sent");
            // Up to the client's end.
            let _ = client.read_to_end(&mut Vec::new());
        });
        let result = call_unary(&path, "/service/method", b"request", at_most);
        server.join().expect("the server ends");
        result
    }

    fn answer_frames(data: &[u8], trailers: &[u8]) -> Vec<u8> {
        let mut frames = Vec::new();
        push_frame(&mut frames, SETTINGS, 0, 0, &[]);
        push_frame(&mut frames, PING, 0, 0, &[7; 8]);
        push_frame(&mut frames, HEADERS, END_HEADERS, STREAM, ANSWER);
        let padded = [&[2], data, &[0, 0]].concat();
        push_frame(&mut frames, DATA, PADDED, STREAM, &padded);
        let (a, b) = trailers.split_at(trailers.len() / 2);
        push_frame(&mut frames, HEADERS, END_STREAM, STREAM, a);
        push_frame(&mut frames, CONTINUATION, END_HEADERS, STREAM, b);
        frames
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_answer_in_several_frames_is_put_together() {
        let found = call_server(answer_frames(b"\0\0\0\0\x02hi", TRAILERS), LONG);
        assert_eq!(found.expect("a valid answer"), b"hi");
    }

    #[test]
    fn other_answers_are_errors() {
        let error = |answer| call_server(answer, LONG).expect_err("no answer").to_string();
        let refused = answer_frames(b"", REFUSAL);
        assert_eq!(error(refused), "the server does not know the call /service/method");
        for (answer, said) in [
            (answer_frames(b"\0\0\0\0\x03hi", TRAILERS), "not one uncompressed message"),
            (answer_frames(b"\x01\0\0\0\x02hi", TRAILERS), "not one uncompressed message"),
            (answer_frames(b"\0\0\0\0\x02hi", ANSWER), "it has no status"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "a frame is too long"),
        ] {
            let found = error(answer);
            assert!(found.contains(said), "{found}");
        }
        let mut cancelled = Vec::new();
        push_frame(&mut cancelled, RST_STREAM, 0, STREAM, &[0, 0, 0, 8]);
        assert!(error(cancelled).contains("cancelled"));
    }

    #[test]
    fn a_silent_server_is_not_waited_for() {
        let found = call_server(Vec::new(), Duration::from_millis(100));
        assert!(matches!(found, Err(GrpcError::TimedOut)), "{found:?}");
        let missing = call_unary(Path::new("/nonexistent/socket"), "/a/b", b"", LONG);
        assert!(matches!(missing, Err(GrpcError::Connect(_))), "{missing:?}");
    }

    proptest! {
        #[test]
        fn no_headers_cause_a_panic(block: Vec<u8>) {
            grpc_status(&block);
        }
    }
}
