//! The starter's side of the protocol.

use crate::line_reader_thread::spawn_line_reader_thread;
use crate::protocol::{WorkloadEvent, WorkloadReady, WorkloadRequest};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Errors that a workload's starter gets.
#[derive(Debug, Error)]
pub enum WorkloadProcessError {
    /// The workload could not be started.
    #[error("starting the workload {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The workload no longer reads its standard input.
    #[error("sending the request \"{request}\" to the workload: {source}")]
    Send {
        /// The request that it should have carried out.
        request: WorkloadRequest,
        /// The kernel's error.
        source: io::Error,
    },
    /// The workload printed a line that is not an event.
    #[error("unexpected output of the workload: {0:?}")]
    Protocol(String),
    /// The workload was silent for too long.
    #[error("the workload reported nothing for {0:?}")]
    Timeout(Duration),
    /// The workload has ended, or closed its standard output.
    #[error("the workload has ended")]
    Ended,
    /// The workload reported an error, or wrong memory contents.
    #[error("the workload failed: {0}")]
    Failed(String),
    /// The workload's status could not be read.
    #[error("waiting for the workload: {0}")]
    Wait(io::Error),
}

/// A workload in a child process. Dropping it kills the child.
#[derive(Debug)]
pub struct WorkloadProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    pending: VecDeque<WorkloadEvent>,
}

/// Time limit for a workload to touch its memory.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest silence of a workload that reports its rate.
const RATE_TIMEOUT: Duration = Duration::from_secs(30);

impl WorkloadProcess {
    /// Starts `program` with `args`, which are all of its arguments. For the program `hawkeye` they
    /// are, for instance, `["workload", "hot-spot"]`.
    pub fn spawn<S: AsRef<OsStr>>(
        program: impl AsRef<Path>,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Self, WorkloadProcessError> {
        let mut command = Command::new(program.as_ref());
        command.args(args);
        Self::spawn_command(command)
    }

    /// Starts a command that runs a workload, perhaps through another program that passes standard
    /// input and output on. Its standard error stays as the command has it.
    pub fn spawn_command(mut command: Command) -> Result<Self, WorkloadProcessError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |source| WorkloadProcessError::Spawn { program, source };
        let mut child = command.spawn().map_err(failed)?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let lines = output.map_or_else(
            || mpsc::channel().1,
            |output| spawn_line_reader_thread(output, |line| Some(line.to_owned())),
        );
        Ok(Self { child, input, lines, pending: VecDeque::new() })
    }

    /// Process id of the child. That of the workload itself is in [`WorkloadReady`].
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the workload's memory is mapped and touched, at most two minutes.
    pub fn wait_ready(&mut self) -> Result<WorkloadReady, WorkloadProcessError> {
        self.wait_for_event(READY_TIMEOUT, |event| match event {
            WorkloadEvent::Ready(ready) => Some(*ready),
            _ => None,
        })
    }

    /// Sends a request. The answer, if there is one, is among the next events.
    pub fn send_request(&mut self, request: WorkloadRequest) -> Result<(), WorkloadProcessError> {
        let closed = || Err(io::Error::from(io::ErrorKind::BrokenPipe));
        let send = |input: &mut ChildStdin| writeln!(input, "{request}");
        let sent = self.input.as_mut().map_or_else(closed, send);
        sent.map_err(|source| WorkloadProcessError::Send { request, source })
    }

    /// Sends a request and waits for the answer. Skips rates and progress.
    pub fn request_and_wait(
        &mut self,
        request: WorkloadRequest,
        timeout: Duration,
    ) -> Result<WorkloadEvent, WorkloadProcessError> {
        self.send_request(request)?;
        self.wait_for_event(timeout, |event| match event {
            WorkloadEvent::Rate { .. } | WorkloadEvent::Progress { .. } => None,
            answer => Some(answer.clone()),
        })
    }

    /// As [`Self::request_and_wait`]. `choose` extracts a value from the expected answer; any other
    /// answer is an error.
    pub fn request_value<T>(
        &mut self,
        request: WorkloadRequest,
        timeout: Duration,
        choose: impl FnOnce(WorkloadEvent) -> Option<T>,
    ) -> Result<T, WorkloadProcessError> {
        let answer = self.request_and_wait(request, timeout)?;
        let said = format!("{answer:?}");
        choose(answer).ok_or(WorkloadProcessError::Protocol(said))
    }

    /// Has the workload check every byte of its memory. Returns the number of wrong bytes.
    pub fn count_wrong_bytes(&mut self, timeout: Duration) -> Result<u64, WorkloadProcessError> {
        self.request_value(WorkloadRequest::Verify, timeout, |event| match event {
            WorkloadEvent::Verified { bad_bytes, .. } => Some(bad_bytes),
            _ => None,
        })
    }

    /// The next event.
    pub fn next_event(&mut self, timeout: Duration) -> Result<WorkloadEvent, WorkloadProcessError> {
        if let Some(event) = self.pending.pop_front() {
            return Ok(event);
        }
        self.receive_event(timeout)
    }

    /// Reads per second over the next `period`, from the first report after now. The workload must
    /// report its rate. Other events are kept for [`Self::next_event`].
    pub fn measure_rate(&mut self, period: Duration) -> Result<f64, WorkloadProcessError> {
        self.measure_rate_marked(period, &mut || ())
    }

    /// As [`Self::measure_rate`]; calls `mark` at the beginning and at the end of the measurement.
    pub fn measure_rate_marked(
        &mut self,
        period: Duration,
        mark: &mut dyn FnMut(),
    ) -> Result<f64, WorkloadProcessError> {
        self.pending.retain(|event| !matches!(event, WorkloadEvent::Rate { .. }));
        while let Ok(line) = self.lines.try_recv() {
            self.rate_or_queue_event(parse_event(&line)?)?;
        }
        let mut first = None;
        loop {
            let event = self.receive_event(RATE_TIMEOUT)?;
            let Some((elapsed_s, accesses)) = self.rate_or_queue_event(event)? else {
                continue;
            };
            let (begin_s, before) = *first.get_or_insert_with(|| {
                mark();
                (elapsed_s, accesses)
            });
            if elapsed_s > begin_s && elapsed_s - begin_s >= period.as_secs_f64() {
                mark();
                return Ok((accesses - before) as f64 / (elapsed_s - begin_s));
            }
        }
    }

    /// Time and reads of an event that reports the rate; other events are kept.
    fn rate_or_queue_event(
        &mut self,
        event: WorkloadEvent,
    ) -> Result<Option<(f64, u64)>, WorkloadProcessError> {
        if let WorkloadEvent::Rate { elapsed_s, accesses, .. } = event {
            return Ok(Some((elapsed_s, accesses)));
        }
        let failed = reported_failure(&event);
        self.pending.push_back(event);
        failed.map_or(Ok(None), Err)
    }

    /// Closes the workload's standard input, which ends most workloads, and waits for its end.
    pub fn close_input_and_wait(mut self) -> Result<ExitStatus, WorkloadProcessError> {
        drop(self.input.take());
        self.child.wait().map_err(WorkloadProcessError::Wait)
    }

    /// The workload's exit status, if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, WorkloadProcessError> {
        self.child.try_wait().map_err(WorkloadProcessError::Wait)
    }

    /// An event that reports an error ends the wait.
    fn wait_for_event<T>(
        &mut self,
        timeout: Duration,
        choose: impl Fn(&WorkloadEvent) -> Option<T>,
    ) -> Result<T, WorkloadProcessError> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = self.receive_event(left).map_err(|error| match error {
                WorkloadProcessError::Timeout(_) => WorkloadProcessError::Timeout(timeout),
                other => other,
            })?;
            if let Some(error) = reported_failure(&event) {
                return Err(error);
            }
            if let Some(chosen) = choose(&event) {
                return Ok(chosen);
            }
            if !matches!(event, WorkloadEvent::Rate { .. } | WorkloadEvent::Progress { .. }) {
                self.pending.push_back(event);
            }
        }
    }

    fn receive_event(&mut self, timeout: Duration) -> Result<WorkloadEvent, WorkloadProcessError> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => parse_event(&line),
            Err(RecvTimeoutError::Timeout) => Err(WorkloadProcessError::Timeout(timeout)),
            Err(RecvTimeoutError::Disconnected) => Err(WorkloadProcessError::Ended),
        }
    }
}

impl Drop for WorkloadProcess {
    fn drop(&mut self) {
        // If it has ended already, there is nothing to kill, and the wait returns at once.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse_event(line: &str) -> Result<WorkloadEvent, WorkloadProcessError> {
    serde_json::from_str(line).map_err(|_| WorkloadProcessError::Protocol(line.to_owned()))
}

fn reported_failure(event: &WorkloadEvent) -> Option<WorkloadProcessError> {
    match event {
        WorkloadEvent::Error { message } => Some(WorkloadProcessError::Failed(message.clone())),
        WorkloadEvent::Wrong(wrong) => Some(WorkloadProcessError::Failed(wrong.to_string())),
        _ => None,
    }
}
