//! Protocols of key-value servers: requests and answers.

use crate::error::{WorkloadError, WorkloadResult};
use std::io::{BufRead, Read};

/// A server's language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ServerProtocol {
    /// RESP, version 2.
    Redis,
    /// memcached's text protocol.
    Memcached,
}

impl ServerProtocol {
    pub(super) fn append_get_request(self, key: u64, out: &mut Vec<u8>) {
        let text = match self {
            Self::Redis => format!("*2\r\n$3\r\nGET\r\n$16\r\n{}\r\n", key_name(key)),
            Self::Memcached => format!("get {}\r\n", key_name(key)),
        };
        out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn append_set_request(self, key: u64, value: &[u8], out: &mut Vec<u8>) {
        let (name, bytes) = (key_name(key), value.len());
        let text = match self {
            Self::Redis => format!("*3\r\n$3\r\nSET\r\n$16\r\n{name}\r\n${bytes}\r\n"),
            Self::Memcached => format!("set {name} 0 0 {bytes}\r\n"),
        };
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }

    pub(super) fn append_delete_request(self, key: u64, out: &mut Vec<u8>) {
        let text = match self {
            Self::Redis => format!("*2\r\n$3\r\nDEL\r\n$16\r\n{}\r\n", key_name(key)),
            Self::Memcached => format!("delete {}\r\n", key_name(key)),
        };
        out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn expect_deleted(self, answer: &mut impl BufRead) -> WorkloadResult<()> {
        let deleted = match self {
            Self::Redis => ":1",
            Self::Memcached => "DELETED",
        };
        expect_line(answer, deleted)
    }

    /// Reads the answer to [`Self::append_get_request`], which must be a value of `bytes` bytes.
    pub(super) fn expect_value(
        self,
        key: u64,
        bytes: usize,
        answer: &mut impl BufRead,
    ) -> WorkloadResult<()> {
        match self {
            Self::Redis => {
                expect_line(answer, &format!("${bytes}"))?;
                skip_bytes(answer, bytes)?;
                expect_line(answer, "")
            }
            Self::Memcached => {
                expect_line(answer, &format!("VALUE {} 0 {bytes}", key_name(key)))?;
                skip_bytes(answer, bytes)?;
                expect_line(answer, "")?;
                expect_line(answer, "END")
            }
        }
    }

    pub(super) fn expect_stored(self, answer: &mut impl BufRead) -> WorkloadResult<()> {
        let stored = match self {
            Self::Redis => "+OK",
            Self::Memcached => "STORED",
        };
        expect_line(answer, stored)
    }
}

/// The name of a key: always 16 bytes.
fn key_name(key: u64) -> String {
    format!("key:{key:012}")
}

const LONGEST_LINE: u64 = 256;

fn expect_line(answer: &mut impl BufRead, expected: &str) -> WorkloadResult<()> {
    let mut line = Vec::new();
    answer.take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(answer_read_error)?;
    if line.strip_suffix(b"\r\n") == Some(expected.as_bytes()) {
        return Ok(());
    }
    Err(WorkloadError::Server(format!(
        "the server answered {:?} instead of {expected:?}",
        String::from_utf8_lossy(&line).trim_end()
    )))
}

fn skip_bytes(answer: &mut impl BufRead, mut bytes: usize) -> WorkloadResult<()> {
    while bytes > 0 {
        let there = answer.fill_buf().map_err(answer_read_error)?.len().min(bytes);
        if there == 0 {
            return Err(answer_read_error(std::io::ErrorKind::UnexpectedEof.into()));
        }
        answer.consume(there);
        bytes -= there;
    }
    Ok(())
}

fn answer_read_error(error: std::io::Error) -> WorkloadError {
    WorkloadError::Server(format!("the server's answer could not be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::ServerProtocol::{Memcached, Redis};
    use super::*;

    #[test]
    fn requests_are_as_the_servers_want_them() {
        let mut out = Vec::new();
        Redis.append_get_request(7, &mut out);
        Memcached.append_get_request(7, &mut out);
        Redis.append_set_request(8, b"abc", &mut out);
        Memcached.append_set_request(8, b"abc", &mut out);
        Redis.append_delete_request(8, &mut out);
        Memcached.append_delete_request(8, &mut out);
        let wanted = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000007\r\n\
             get key:000000000007\r\n\
             *3\r\n$3\r\nSET\r\n$16\r\nkey:000000000008\r\n$3\r\nabc\r\n\
             set key:000000000008 0 0 3\r\nabc\r\n\
             *2\r\n$3\r\nDEL\r\n$16\r\nkey:000000000008\r\n\
             delete key:000000000008\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    #[test]
    fn a_key_that_was_missing_is_not_deleted() {
        let mut redis: &[u8] = b":1\r\n:0\r\n";
        Redis.expect_deleted(&mut redis).unwrap();
        assert!(Redis.expect_deleted(&mut redis).is_err());
        let mut memcached: &[u8] = b"DELETED\r\nNOT_FOUND\r\n";
        let memcached = &mut memcached;
        Memcached.expect_deleted(memcached).unwrap();
        assert!(Memcached.expect_deleted(memcached).is_err());
    }

    #[test]
    fn pipelined_answers_are_read_one_by_one() {
        let mut redis: &[u8] = b"+OK\r\n$3\r\nabc\r\n$3\r\n\r\n\r\r\n";
        Redis.expect_stored(&mut redis).unwrap();
        Redis.expect_value(0, 3, &mut redis).unwrap();
        Redis.expect_value(1, 3, &mut redis).unwrap();
        assert!(redis.is_empty());
        let mut memcached: &[u8] =
            b"STORED\r\nVALUE key:000000000001 0 3\r\nabc\r\nEND\r\nVALUE key:000000000002 0 0\r\n\r\nEND\r\n";
        Memcached.expect_stored(&mut memcached).unwrap();
        Memcached.expect_value(1, 3, &mut memcached).unwrap();
        Memcached.expect_value(2, 0, &mut memcached).unwrap();
        assert!(memcached.is_empty());
    }

    #[test]
    fn another_answer_is_told() {
        let told = |dialect: ServerProtocol, mut answer: &[u8]| {
            let error = dialect.expect_value(1, 3, &mut answer).unwrap_err();
            error.to_string()
        };
        assert!(told(Redis, b"$-1\r\n").contains("\"$-1\" instead of \"$3\""));
        assert!(told(Memcached, b"END\r\n").contains("\"END\" instead of"));
        assert!(told(Redis, b"$3\r\nab").contains("could not be read"));
        assert!(told(Redis, b"").contains("\"\""));
        let endless = [b'x'; 100_000];
        assert!(told(Redis, &endless).len() < 1000);
        let mut full: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
        let error = Memcached.expect_stored(&mut full).unwrap_err();
        assert!(error.to_string().contains("out of memory"), "{error}");
    }
}
