//! A connection to a server of keys and values.

use super::dialect::Dialect;
use super::hot::Hot;
use crate::Rng;
use crate::error::WorkloadError;
use std::io::{BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Questions {
    /// The server's language.
    pub dialect: Dialect,
    /// Keys 0 to here are stored.
    pub keys: u64,
    /// Size of every value.
    pub value_bytes: usize,
    /// Which of the keys are asked for.
    pub hot: Hot,
}

/// A server that says nothing for so long is stuck.
pub(super) const SILENCE: Duration = Duration::from_secs(20);
/// Values stored at a time.
const FILL_BATCH: u64 = 64;

#[derive(Clone, Copy, Debug)]
enum Asked {
    Value(u64),
    Storing,
}

/// One connection.
pub(super) struct Connection {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
    questions: Questions,
    value: Vec<u8>,
    requests: Vec<u8>,
    asked: Vec<Asked>,
}

impl Connection {
    pub(super) fn open(socket: &Path, questions: Questions) -> Result<Self, WorkloadError> {
        let open = || {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(SILENCE))?;
            stream.set_write_timeout(Some(SILENCE))?;
            let answers = BufReader::with_capacity(1 << 17, stream.try_clone()?);
            Ok((stream, answers))
        };
        let (stream, answers) = open().map_err(|error: std::io::Error| {
            let socket = socket.display();
            WorkloadError::Server(format!("connecting to {socket}: {error}"))
        })?;
        Ok(Self {
            stream,
            answers,
            questions,
            value: vec![b'x'; questions.value_bytes],
            requests: Vec::new(),
            asked: Vec::new(),
        })
    }

    /// Asks for so many keys.
    pub(super) fn ask(&mut self, count: usize, rng: &mut Rng) -> Result<(), WorkloadError> {
        let Questions {
            dialect, keys, hot, ..
        } = self.questions;
        for _ in 0..count {
            let key = hot.pick(keys, rng);
            dialect.get(key, &mut self.requests);
            self.asked.push(Asked::Value(key));
        }
        self.send()
    }

    /// Has a value stored.
    pub(super) fn store(&mut self, key: u64) -> Result<(), WorkloadError> {
        let dialect = self.questions.dialect;
        dialect.set(key, &self.value, &mut self.requests);
        self.asked.push(Asked::Storing);
        self.send()
    }

    /// Reads the answers to all that was asked; how many there were.
    pub(super) fn read_answers(&mut self) -> Result<u64, WorkloadError> {
        let Questions {
            dialect,
            value_bytes,
            ..
        } = self.questions;
        for asked in &self.asked {
            match *asked {
                Asked::Value(key) => dialect.expect_value(key, value_bytes, &mut self.answers)?,
                Asked::Storing => dialect.expect_stored(&mut self.answers)?,
            }
        }
        let answered = self.asked.len() as u64;
        self.asked.clear();
        Ok(answered)
    }

    /// Stores all values.
    pub(super) fn fill(&mut self) -> Result<(), WorkloadError> {
        let Questions { dialect, keys, .. } = self.questions;
        for first in (0..keys).step_by(FILL_BATCH as usize) {
            for key in first..keys.min(first + FILL_BATCH) {
                dialect.set(key, &self.value, &mut self.requests);
                self.asked.push(Asked::Storing);
            }
            self.send()?;
            self.read_answers()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), WorkloadError> {
        let sent = self.stream.write_all(&self.requests);
        self.requests.clear();
        sent.map_err(|error| WorkloadError::Server(format!("the server takes nothing: {error}")))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
