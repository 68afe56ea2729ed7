//! The times to read, to report and to end.

use super::{BATCH, ReadWorkloadArgs};
use crate::prelude::*;

/// Counts reads and listens to requests between them.
pub(super) struct ReadLoopControl {
    report: Option<Duration>,
    end_after: Option<Duration>,
    end_at: Option<u64>,
    running: bool,
    begun: Option<Instant>,
    /// Reads so far, including the current batch.
    accesses: u64,
    /// Start of the current reporting interval, and the reads before it.
    interval: (Instant, u64),
}

impl ReadLoopControl {
    pub(super) fn new(args: &ReadWorkloadArgs) -> Self {
        Self {
            report: (!args.report.quiet).then(|| Duration::from_millis(args.report.report_ms)),
            end_after: args.seconds.map(|s| Duration::try_from_secs_f64(s).unwrap_or_default()),
            end_at: args.accesses,
            running: !args.report.wait,
            begun: None,
            accesses: 0,
            interval: (Instant::now(), 0),
        }
    }

    /// Called between batches of reads. Returns the number of reads to make before the next call;
    /// `None` at the end.
    pub(super) fn serve_and_next_batch_size(
        &mut self,
        console: &mut Console,
    ) -> WorkloadResult<Option<usize>> {
        let ends_by_itself = self.end_after.is_some() || self.end_at.is_some();
        while let Some(input) =
            if self.running { console.poll_input() } else { Some(console.wait_for_input()) }
        {
            match input {
                ConsoleInput::Request(WorkloadRequest::Go) if self.running => {}
                ConsoleInput::Request(WorkloadRequest::Go) => {
                    self.running = true;
                    self.interval = (Instant::now(), self.accesses);
                }
                ConsoleInput::Request(WorkloadRequest::Stop) => self.running = false,
                ConsoleInput::Request(WorkloadRequest::Quit) => {
                    return self.report_finished(console);
                }
                ConsoleInput::End if self.running && ends_by_itself => break,
                ConsoleInput::End => return self.report_finished(console),
                other => console.refuse_input(other)?,
            }
        }
        let now = Instant::now();
        let elapsed = now - *self.begun.get_or_insert(now);
        let left = self.end_at.map_or(u64::MAX, |end| end.saturating_sub(self.accesses));
        if left == 0 || self.end_after.is_some_and(|end| elapsed >= end) {
            return self.report_finished(console);
        }
        let interval = now - self.interval.0;
        if self.report.is_some_and(|report| interval >= report) {
            let accesses_per_s = (self.accesses - self.interval.1) as f64 / interval.as_secs_f64();
            let (elapsed_s, accesses) = (elapsed.as_secs_f64(), self.accesses);
            console.emit_event(&WorkloadEvent::Rate { elapsed_s, accesses, accesses_per_s })?;
            self.interval = (now, self.accesses);
        }
        let count = left.min(BATCH as u64);
        self.accesses += count;
        Ok(Some(count as usize))
    }

    fn report_finished(&self, console: &mut Console) -> WorkloadResult<Option<usize>> {
        let elapsed_s = self.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        console.emit_event(&WorkloadEvent::Finished { elapsed_s, accesses: self.accesses })?;
        Ok(None)
    }
}
