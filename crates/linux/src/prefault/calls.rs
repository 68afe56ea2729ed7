//! The calls of one thread into the processes that it fills, made by a helper process.

use crate::error::Result;
use crate::processes::scheduled::Scheduled;
use crate::promote::target_call::TargetCalls;
use std::time::Duration;

/// A fill that takes longer, because memory must be compacted for it, comes too late for its stream.
/// Tests are about what is filled, on whatever machine.
const WAIT: Duration = Duration::from_millis(if cfg!(test) { 3_000 } else { 250 });

/// The calls, and how their helpers are scheduled: a fill takes their time, not the thread's.
pub(super) struct FillCalls {
    calls: TargetCalls,
    /// The helper of the last call, and what the scheduler had counted of it by then.
    helper: Option<(u32, Scheduled)>,
    /// Of all helpers.
    helpers: Scheduled,
}

impl Default for FillCalls {
    fn default() -> Self {
        Self {
            calls: TargetCalls::waiting(WAIT),
            helper: None,
            helpers: Scheduled::default(),
        }
    }
}

impl FillCalls {
    /// With a helper that the first call does not have to wait for.
    ///
    /// # Errors
    /// No process can be started.
    pub(super) fn start() -> Result<Self> {
        let mut new = Self::default();
        new.calls.prepare()?;
        Ok(new)
    }

    /// For the next call; a process that has answered its last one gets calls again.
    pub(super) fn next(&mut self) -> &mut TargetCalls {
        // The stream of a region that is filled late has ended.
        self.calls.finished();
        &mut self.calls
    }

    /// CPU time that the helpers have used.
    pub(super) fn cpu(&self) -> Duration {
        self.calls.cpu()
    }

    /// Of the calling thread and its helpers together; `None` where the kernel doesn't keep it.
    pub(super) fn scheduled(&mut self) -> Option<Scheduled> {
        let own = Scheduled::now()?;
        let helper = self.calls.idle_helper();
        if let Some((helper, now)) = helper.and_then(|it| Some((it, Scheduled::of(it)?))) {
            let before = self.helper.filter(|(last, _)| *last == helper);
            if let Some((_, before)) = before {
                self.helpers = self.helpers + (now - before);
            }
            self.helper = Some((helper, now));
        }
        Some(own + self.helpers)
    }
}
