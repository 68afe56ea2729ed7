//! A connection to a key-value server.

use super::hot_key_shares::HotKeyShares;
use super::request_schedule::SILENCE;
use super::server_protocol::ServerProtocol;
use crate::prelude::*;
use std::io::{BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub(super) struct KeyValueRequestSettings {
    pub dialect: ServerProtocol,
    /// Keys below this number are stored.
    pub keys: u64,
    pub value_bytes: usize,
    /// The choice of keys to request.
    pub hot: HotKeyShares,
}

/// Values stored or deleted at a time.
const KEY_BATCH: u64 = 64;

#[derive(Clone, Copy, Debug)]
enum PendingRequest {
    Value(u64),
    Storing,
    Deleting,
}

pub(super) struct ServerConnection {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
    questions: KeyValueRequestSettings,
    value: Vec<u8>,
    requests: Vec<u8>,
    asked: Vec<PendingRequest>,
}

impl ServerConnection {
    pub(super) fn open(socket: &Path, questions: KeyValueRequestSettings) -> WorkloadResult<Self> {
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

    pub(super) fn send_get_requests(
        &mut self,
        count: usize,
        rng: &mut WorkloadRng,
    ) -> WorkloadResult<()> {
        let KeyValueRequestSettings { dialect, keys, hot, .. } = self.questions;
        for _ in 0..count {
            let key = hot.pick_key(keys, rng);
            dialect.append_get_request(key, &mut self.requests);
            self.asked.push(PendingRequest::Value(key));
        }
        self.send_written_requests()
    }

    pub(super) fn send_store_request(&mut self, key: u64) -> WorkloadResult<()> {
        let dialect = self.questions.dialect;
        dialect.append_set_request(key, &self.value, &mut self.requests);
        self.asked.push(PendingRequest::Storing);
        self.send_written_requests()
    }

    pub(super) fn read_and_check_pending_answers(&mut self) -> WorkloadResult<u64> {
        let KeyValueRequestSettings { dialect, value_bytes, .. } = self.questions;
        for asked in &self.asked {
            match *asked {
                PendingRequest::Value(key) => {
                    dialect.expect_value(key, value_bytes, &mut self.answers)?
                }
                PendingRequest::Storing => dialect.expect_stored(&mut self.answers)?,
                PendingRequest::Deleting => dialect.expect_deleted(&mut self.answers)?,
            }
        }
        let answered = self.asked.len() as u64;
        self.asked.clear();
        Ok(answered)
    }

    pub(super) fn store_all_keys(&mut self) -> WorkloadResult<()> {
        let KeyValueRequestSettings { dialect, keys, .. } = self.questions;
        for first in (0..keys).step_by(KEY_BATCH as usize) {
            for key in first..keys.min(first + KEY_BATCH) {
                dialect.append_set_request(key, &self.value, &mut self.requests);
                self.asked.push(PendingRequest::Storing);
            }
            self.send_written_requests()?;
            self.read_and_check_pending_answers()?;
        }
        Ok(())
    }

    /// Deletes a part of the keys, and returns their number.
    pub(super) fn delete_percent_of_keys(
        &mut self,
        percent: u8,
        rng: &mut WorkloadRng,
    ) -> WorkloadResult<u64> {
        let KeyValueRequestSettings { dialect, keys, .. } = self.questions;
        let mut deleted = 0;
        for first in (0..keys).step_by(KEY_BATCH as usize) {
            for key in first..keys.min(first + KEY_BATCH) {
                if rng.draw_below(100) < usize::from(percent) {
                    dialect.append_delete_request(key, &mut self.requests);
                    self.asked.push(PendingRequest::Deleting);
                }
            }
            self.send_written_requests()?;
            deleted += self.read_and_check_pending_answers()?;
        }
        Ok(deleted)
    }

    fn send_written_requests(&mut self) -> WorkloadResult<()> {
        let sent = self.stream.write_all(&self.requests);
        self.requests.clear();
        sent.map_err(|error| WorkloadError::Server(format!("sending to the server: {error}")))
    }
}

impl AsFd for ServerConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
