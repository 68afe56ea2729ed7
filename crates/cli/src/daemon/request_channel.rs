//! Passes requests from the threads that serve clients to the manager's thread.

use super::protocol::{DaemonReply, DaemonRequest, DaemonStatus};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests that may wait; further ones are refused.
const MOST_WAITING: usize = 32;
/// Requests answered between two steps at most, because managing has priority.
const MOST_AT_ONCE: usize = 8;
/// Time in which the manager must answer. Reading a large process takes long.
const PATIENCE: Duration = Duration::from_secs(10);
/// A request for the status waits at most this long if a recent status can answer it instead. With
/// thousands of processes some steps last longer.
const STATUS_PATIENCE: Duration = Duration::from_millis(50);
const RECENT_STATUS_AGE: Duration = Duration::from_secs(5);

/// Ends the manager's wait, so that it answers.
pub type WakeCallback = Arc<dyn Fn() + Send + Sync>;

type LastStatus = Arc<Mutex<Option<(Instant, Box<DaemonStatus>)>>>;

struct PendingRequest {
    request: DaemonRequest,
    /// A status that was computed at most this long ago answers it too.
    most_age: Duration,
    answer: SyncSender<DaemonReply>,
}

/// The side of the threads that serve clients.
#[derive(Clone)]
pub struct RequestSender {
    calls: SyncSender<PendingRequest>,
    wake: WakeCallback,
    patience: Duration,
    last: LastStatus,
}

/// The manager's side.
pub struct RequestReceiver {
    waiting: Receiver<PendingRequest>,
    wake: WakeCallback,
    last: LastStatus,
}

pub fn request_channel(wake: WakeCallback) -> (RequestSender, RequestReceiver) {
    let (calls, waiting) = sync_channel(MOST_WAITING);
    let requests = RequestSender {
        calls,
        wake: Arc::clone(&wake),
        patience: PATIENCE,
        last: LastStatus::default(),
    };
    let calls = RequestReceiver { waiting, wake, last: Arc::clone(&requests.last) };
    (requests, calls)
}

impl RequestSender {
    pub fn send_and_wait_for_reply(&self, request: DaemonRequest) -> DaemonReply {
        self.send(request, Duration::ZERO)
    }

    /// The status, computed at most `most_age` ago: many clients cost the manager one status.
    pub fn recent_status(&self, most_age: Duration) -> DaemonReply {
        self.send(DaemonRequest::Status, most_age)
    }

    fn send(&self, request: DaemonRequest, most_age: Duration) -> DaemonReply {
        let (answer, answered) = sync_channel(1);
        if let Err(error) = self.calls.try_send(PendingRequest { request, most_age, answer }) {
            let waiting = "too many requests are waiting for an answer; try again later";
            return DaemonReply::refused_because(match error {
                TrySendError::Full(_) => waiting,
                TrySendError::Disconnected(_) => "the daemon is shutting down",
            });
        }
        (self.wake)();
        if request == DaemonRequest::Status {
            let soon = answered.recv_timeout(STATUS_PATIENCE.min(self.patience));
            let recent = || last_status(&self.last, RECENT_STATUS_AGE);
            if let Some(reply) = soon.ok().or_else(recent) {
                return reply;
            }
        }
        let s = self.patience.as_secs();
        let late = format!("the manager did not answer within {s} s");
        let answer = answered.recv_timeout(self.patience);
        let busy = format!("{late}: it is busy or shutting down; try again");
        answer.unwrap_or_else(|_| DaemonReply::refused_because(busy))
    }
}

/// The last status, if it is not older.
fn last_status(last: &LastStatus, most_age: Duration) -> Option<DaemonReply> {
    let last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let (at, status) = last.as_ref()?;
    (at.elapsed() < most_age).then(|| DaemonReply::Status(status.clone()))
}

impl RequestReceiver {
    /// Answers some waiting requests; for more it wakes the manager. Managing has priority.
    pub fn answer_pending_requests(&self, mut answer: impl FnMut(DaemonRequest) -> DaemonReply) {
        let mut answered = 0;
        for call in self.waiting.try_iter().take(MOST_AT_ONCE) {
            let is_status = call.request == DaemonRequest::Status;
            let recent = is_status.then(|| last_status(&self.last, call.most_age)).flatten();
            let reply = recent.unwrap_or_else(|| {
                let reply = answer(call.request);
                let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                if let DaemonReply::Status(status) = &reply {
                    *last = Some((Instant::now(), status.clone()));
                } else if call.request.changes_daemon_state() {
                    // A later request must not get the status from before this change.
                    *last = None;
                }
                reply
            });
            // The client may have given up.
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

    fn quick(requests: &RequestSender) -> RequestSender {
        RequestSender { patience: Duration::from_millis(50), ..requests.clone() }
    }

    /// Asserts that a request is refused for this reason.
    fn assert_refused(requests: &RequestSender, request: DaemonRequest, reason: &str) {
        match requests.send_and_wait_for_reply(request) {
            DaemonReply::Refused { why } => assert!(why.contains(reason), "{why}"),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn a_request_to_a_manager_that_does_not_answer_times_out() {
        let (requests, calls) = request_channel(Arc::new(|| {}));
        let requests = quick(&requests);
        let assert_refused = |reason| assert_refused(&requests, DaemonRequest::Status, reason);
        for _ in 0..MOST_WAITING {
            assert_refused("did not answer");
        }
        assert_refused("too many");
        // Late answers are dropped and make room for other requests.
        calls.answer_pending_requests(|_| DaemonReply::Done { changed: false });
        assert_refused("did not answer");
        drop(calls);
        assert_refused("shutting down");
    }

    #[test]
    fn a_status_request_during_a_long_step_gets_the_last_status() {
        let (requests, calls) = request_channel(Arc::new(|| {}));
        let quick = quick(&requests);
        assert_refused(&quick, DaemonRequest::Status, "did not answer");
        let sent = DaemonStatus::default();
        calls.answer_pending_requests(|_| DaemonReply::Status(Box::new(sent.clone())));
        // The manager does not answer, so the last status does.
        let reply = requests.send_and_wait_for_reply(DaemonRequest::Status);
        assert_eq!(reply, DaemonReply::Status(Box::new(sent)));
        assert_refused(&quick, DaemonRequest::Pause, "did not answer");
        // A status from before the pause must not be sent after it.
        calls.answer_pending_requests(|_| DaemonReply::Done { changed: true });
        assert_refused(&quick, DaemonRequest::Status, "did not answer");
    }
}
