//! Passes requests from the threads that serve clients to the manager's thread.

use super::protocol::{DaemonStatus, Reply, Request};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests that may wait; further ones are refused.
const MOST_WAITING: usize = 32;
/// Requests answered between two steps at most, because managing has priority.
const MOST_AT_ONCE: usize = 8;
/// Time in which the manager must answer. A step lasts some tens of milliseconds, but reading a
/// large process may take longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A request for the status waits at most this long if a recent status can answer it instead. With
/// thousands of processes some steps last longer.
const STATUS_PATIENCE: Duration = Duration::from_millis(50);
/// Age up to which a status is recent.
const RECENT: Duration = Duration::from_secs(5);

/// Ends the manager's wait, so that it answers.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The last status that was sent, and its time.
type LastStatus = Arc<Mutex<Option<(Instant, Box<DaemonStatus>)>>>;

struct Call {
    request: Request,
    answer: SyncSender<Reply>,
}

/// The side of the threads that serve clients.
#[derive(Clone)]
pub struct Caller {
    calls: SyncSender<Call>,
    wake: Wake,
    patience: Duration,
    last: LastStatus,
}

/// The manager's side.
pub struct Calls {
    waiting: Receiver<Call>,
    wake: Wake,
    last: LastStatus,
}

/// Creates both sides.
pub fn calls(wake: Wake) -> (Caller, Calls) {
    let (calls, waiting) = sync_channel(MOST_WAITING);
    let caller = Caller {
        calls,
        wake: Arc::clone(&wake),
        patience: PATIENCE,
        last: LastStatus::default(),
    };
    let calls = Calls {
        waiting,
        wake,
        last: Arc::clone(&caller.last),
    };
    (caller, calls)
}

impl Caller {
    /// Sends a request and waits for the reply.
    pub fn ask(&self, request: Request) -> Reply {
        let (answer, answered) = sync_channel(1);
        match self.calls.try_send(Call { request, answer }) {
            Ok(()) => (self.wake)(),
            Err(TrySendError::Full(_)) => {
                return Reply::refused(
                    "too many requests are waiting for an answer; try again later",
                );
            }
            Err(TrySendError::Disconnected(_)) => {
                return Reply::refused("the daemon is shutting down");
            }
        }
        if request == Request::Status {
            let recent = || Some(Reply::Status(self.recent()?));
            let soon = answered
                .recv_timeout(STATUS_PATIENCE.min(self.patience))
                .ok();
            if let Some(reply) = soon.or_else(recent) {
                return reply;
            }
        }
        answered.recv_timeout(self.patience).unwrap_or_else(|_| {
            Reply::refused(format!(
                "the manager did not answer within {} s: it is busy or shutting down; try again",
                self.patience.as_secs()
            ))
        })
    }

    /// The last status, if it is recent.
    fn recent(&self) -> Option<Box<DaemonStatus>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, status) = last.as_ref()?;
        (at.elapsed() < RECENT).then(|| status.clone())
    }
}

impl Calls {
    /// Answers waiting requests. Their number per call is limited for the sake of managing; if more
    /// wait, the manager is woken again.
    pub fn answer(&self, mut answer: impl FnMut(Request) -> Reply) {
        let mut answered = 0;
        for call in self.waiting.try_iter().take(MOST_AT_ONCE) {
            let reply = answer(call.request);
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Reply::Status(status) = &reply {
                *last = Some((Instant::now(), status.clone()));
            } else if call.request.changes() {
                // A later request must not get the status from before this change.
                *last = None;
            }
            drop(last);
            // The caller may have given up.
            let _ = call.answer.try_send(reply);
            answered += 1;
        }
        if answered == MOST_AT_ONCE {
            (self.wake)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(caller: &Caller) -> Caller {
        Caller {
            patience: Duration::from_millis(50),
            ..caller.clone()
        }
    }

    fn why(reply: Reply) -> String {
        match reply {
            Reply::Refused { why } => why,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn a_request_to_a_manager_that_does_not_answer_times_out() {
        let (caller, calls) = calls(Arc::new(|| {}));
        let caller = quick(&caller);
        assert!(why(caller.ask(Request::Status)).contains("did not answer"));
        for _ in 1..MOST_WAITING {
            assert!(why(caller.ask(Request::Status)).contains("did not answer"));
        }
        assert!(why(caller.ask(Request::Status)).contains("too many"));
        // Late answers are dropped and make room for other requests.
        calls.answer(|_| Reply::Done { changed: false });
        assert!(why(caller.ask(Request::Status)).contains("did not answer"));
        drop(calls);
        assert!(why(caller.ask(Request::Status)).contains("shutting down"));
    }

    #[test]
    fn a_status_request_during_a_long_step_gets_the_last_status() {
        let (caller, calls) = calls(Arc::new(|| {}));
        let quick = quick(&caller);
        assert!(why(quick.ask(Request::Status)).contains("did not answer"));
        let sent = DaemonStatus::default();
        calls.answer(|_| Reply::Status(Box::new(sent.clone())));
        // The manager does not answer, so the last status does.
        let reply = caller.ask(Request::Status);
        assert_eq!(reply, Reply::Status(Box::new(sent)));
        assert!(why(quick.ask(Request::Pause)).contains("did not answer"));
        // A status from before the pause must not be sent after it.
        calls.answer(|_| Reply::Done { changed: true });
        assert!(why(quick.ask(Request::Status)).contains("did not answer"));
    }
}
