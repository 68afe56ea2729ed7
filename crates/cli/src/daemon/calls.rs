//! The way from the threads that serve clients to the manager's own.

use super::protocol::{Reply, Request};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Requests that wait at most; more are refused.
const MOST_WAITING: usize = 32;
/// Requests answered between two steps at most: managing goes first.
const MOST_AT_ONCE: usize = 8;
/// How long the manager may take to answer. A step lasts some tens of milliseconds, but reading a
/// large process may take longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Rings the manager's bell: it ends its wait and answers.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

struct Call {
    request: Request,
    answer: SyncSender<Reply>,
}

/// The side of those who ask.
#[derive(Clone)]
pub struct Caller {
    calls: SyncSender<Call>,
    wake: Wake,
    patience: Duration,
}

/// The side of the manager.
pub struct Calls {
    waiting: Receiver<Call>,
    wake: Wake,
}

/// Both sides.
pub fn calls(wake: Wake) -> (Caller, Calls) {
    let (calls, waiting) = sync_channel(MOST_WAITING);
    let caller = Caller {
        calls,
        wake: Arc::clone(&wake),
        patience: PATIENCE,
    };
    (caller, Calls { waiting, wake })
}

impl Caller {
    /// Asks and waits for the answer.
    pub fn ask(&self, request: Request) -> Reply {
        let (answer, answered) = sync_channel(1);
        match self.calls.try_send(Call { request, answer }) {
            Ok(()) => (self.wake)(),
            Err(TrySendError::Full(_)) => {
                return Reply::refused("too many requests wait for an answer: try again later");
            }
            Err(TrySendError::Disconnected(_)) => return Reply::refused("the daemon is ending"),
        }
        answered.recv_timeout(self.patience).unwrap_or_else(|_| {
            Reply::refused(format!(
                "the manager did not answer within {} s: it is busy, or ending",
                self.patience.as_secs()
            ))
        })
    }
}

impl Calls {
    /// Answers what waits, but no more at once than is good for managing: then the bell rings again.
    pub fn answer(&self, mut answer: impl FnMut(Request) -> Reply) {
        let mut answered = 0;
        for call in self.waiting.try_iter().take(MOST_AT_ONCE) {
            // Whoever asked may have lost patience.
            let _ = call.answer.try_send(answer(call.request));
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
            other => panic!("not refused but {other:?}"),
        }
    }

    #[test]
    fn a_manager_that_does_not_answer_holds_nobody_up_for_ever() {
        let (caller, calls) = calls(Arc::new(|| {}));
        let caller = quick(&caller);
        assert!(why(caller.ask(Request::Status)).contains("did not answer"));
        for _ in 1..MOST_WAITING {
            assert!(why(caller.ask(Request::Status)).contains("did not answer"));
        }
        assert!(why(caller.ask(Request::Status)).contains("too many"));
        // Late answers go nowhere, and room is made for others.
        calls.answer(|_| Reply::Done { changed: false });
        assert!(why(caller.ask(Request::Status)).contains("did not answer"));
        drop(calls);
        assert!(why(caller.ask(Request::Status)).contains("ending"));
    }
}
