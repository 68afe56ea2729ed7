//! A client that asks a server for random keys, many at a time.

use super::cores::Cores;
use super::dialect::Dialect;
use crate::live::BenchError;
use crate::workload::Rng;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
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
    /// Wait after every round of questions.
    pub pause: Duration,
}

/// Connections, all served by one thread.
const CONNECTIONS: usize = 16;
/// Questions in flight on each.
const PIPELINE: usize = 16;
/// A server that says nothing for so long is stuck.
const SILENCE: Duration = Duration::from_secs(20);
/// Values stored at a time.
const FILL_BATCH: u64 = 64;

/// A thread that asks while it is told to.
pub(super) struct Client {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), BenchError>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    answers: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Pausing,
    Asking,
    Over,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A plain value is right whoever panicked meanwhile.
        self.state.lock().unwrap_or_else(|lock| lock.into_inner())
    }

    fn set(&self, state: State) {
        *self.state() = state;
        self.changed.notify_all();
    }

    /// Waits while pausing; whether to ask again.
    fn goes_on(&self) -> bool {
        let mut state = self.state();
        while *state == State::Pausing {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(|lock| lock.into_inner());
        }
        *state == State::Asking
    }
}

impl Client {
    /// Connects to the server and stores all the values; it asks nothing yet.
    pub(super) fn connect(
        socket: &Path,
        questions: Questions,
        cores: Option<Cores>,
    ) -> Result<Self, BenchError> {
        let connections: Result<Vec<_>, _> =
            (0..CONNECTIONS).map(|_| Connection::open(socket)).collect();
        let mut connections = connections?;
        connections[0].fill(questions)?;
        let shared = Arc::new(Shared::default());
        let asking = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let _on_its_core = cores.map(|cores| cores.client.stay());
            let mut rng = Rng::new(1, 0);
            let mut answered = 0;
            while asking.goes_on() {
                // The server always has the questions of the other connections to work on.
                for connection in &mut connections {
                    answered += connection.read_answers(questions)?;
                    connection.ask(questions, &mut rng)?;
                }
                asking.answers.store(answered, Ordering::Relaxed);
                std::thread::sleep(questions.pause);
            }
            Ok(())
        });
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Has it ask from now on.
    pub(super) fn go(&self) {
        self.shared.set(State::Asking);
    }

    /// Has it pause after the round that it is in.
    pub(super) fn stop(&self) {
        self.shared.set(State::Pausing);
    }

    /// Answers so far.
    ///
    /// # Errors
    /// It has ended, because of what the server said or did not say.
    pub(super) fn answers(&mut self) -> Result<u64, BenchError> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            let panicked = || BenchError::Impossible("the client's thread panicked".into());
            thread.join().map_err(|_| panicked())??;
        }
        if self.thread.is_none() {
            return Err(BenchError::Impossible("the client has ended".into()));
        }
        Ok(self.shared.answers.load(Ordering::Relaxed))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.set(State::Over);
        if let Some(thread) = self.thread.take() {
            // What went wrong at the very end changes no figure.
            let _ = thread.join();
        }
    }
}

struct Connection {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
    requests: Vec<u8>,
    asked: Vec<u64>,
}

impl Connection {
    fn open(socket: &Path) -> Result<Self, BenchError> {
        let open = || {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(SILENCE))?;
            stream.set_write_timeout(Some(SILENCE))?;
            let answers = BufReader::with_capacity(1 << 17, stream.try_clone()?);
            Ok((stream, answers))
        };
        let (stream, answers) = open().map_err(|error: std::io::Error| {
            let socket = socket.display();
            BenchError::Impossible(format!("connecting to {socket}: {error}"))
        })?;
        Ok(Self {
            stream,
            answers,
            requests: Vec::new(),
            asked: Vec::new(),
        })
    }

    fn ask(&mut self, questions: Questions, rng: &mut Rng) -> Result<(), BenchError> {
        for _ in 0..PIPELINE {
            let key = rng.below(questions.keys as usize) as u64;
            questions.dialect.get(key, &mut self.requests);
            self.asked.push(key);
        }
        self.send()
    }

    /// Reads the answers to all that was asked; how many there were.
    fn read_answers(&mut self, questions: Questions) -> Result<u64, BenchError> {
        let Questions {
            dialect,
            value_bytes,
            ..
        } = questions;
        for &key in &self.asked {
            dialect.expect_value(key, value_bytes, &mut self.answers)?;
        }
        let answered = self.asked.len() as u64;
        self.asked.clear();
        Ok(answered)
    }

    fn fill(&mut self, questions: Questions) -> Result<(), BenchError> {
        let Questions { dialect, keys, .. } = questions;
        let value = vec![b'x'; questions.value_bytes];
        for first in (0..keys).step_by(FILL_BATCH as usize) {
            let batch = first..keys.min(first + FILL_BATCH);
            for key in batch.clone() {
                dialect.set(key, &value, &mut self.requests);
            }
            self.send()?;
            batch
                .into_iter()
                .try_for_each(|_| dialect.expect_stored(&mut self.answers))?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), BenchError> {
        let sent = self.stream.write_all(&self.requests);
        self.requests.clear();
        sent.map_err(|error| BenchError::Impossible(format!("the server takes nothing: {error}")))
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
