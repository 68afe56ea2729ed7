//! A client that asks a server for random keys, many at a time.

use super::connection::{Connection, Questions};
use super::cores::Cores;
use crate::live::BenchError;
use crate::workload::Rng;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Connections, all served by one thread.
const CONNECTIONS: usize = 16;
/// Questions in flight on each.
const PIPELINE: usize = 16;

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
        let connections: Result<Vec<_>, _> = (0..CONNECTIONS)
            .map(|_| Connection::open(socket, questions))
            .collect();
        let mut connections = connections?;
        connections[0].fill()?;
        let shared = Arc::new(Shared::default());
        let asking = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let _on_its_core = cores.map(|cores| cores.client.stay());
            let mut rng = Rng::new(1, 0);
            let mut answered = 0;
            while asking.goes_on() {
                // The server always has the questions of the other connections to work on.
                for connection in &mut connections {
                    answered += connection.read_answers()?;
                    connection.ask(PIPELINE, &mut rng)?;
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

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
