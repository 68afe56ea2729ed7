//! The workload's side of the protocol: it writes events and reads requests.

use crate::error::{WorkloadError, WorkloadResult};
use crate::line_reader_thread::spawn_line_reader_thread;
use crate::protocol::{InvalidRequestLine, WorkloadEvent, WorkloadRequest};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

/// Time between two checks for the end.
const IDLE: Duration = Duration::from_millis(20);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConsoleInput {
    Request(WorkloadRequest),
    Bad(InvalidRequestLine),
    /// The end: the starter of the workload has ended, or has closed standard input.
    End,
}

#[derive(Debug, Default)]
pub(crate) struct Console {
    /// Reading starts with the first wait for input.
    input: Option<Receiver<ConsoleInput>>,
}

impl Console {
    pub(crate) fn emit_event(&mut self, event: &WorkloadEvent) -> WorkloadResult<()> {
        let mut line = serde_json::to_string(event)
            .map_err(|error| WorkloadError::Output(io::Error::other(error)))?;
        line.push('\n');
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(WorkloadError::Output)
    }

    /// Answers a request that this workload does not carry out, or an invalid line.
    pub(crate) fn refuse_input(&mut self, input: ConsoleInput) -> WorkloadResult<()> {
        let message = match input {
            ConsoleInput::Request(request) => format!("this workload cannot {request}"),
            ConsoleInput::Bad(bad) => bad.to_string(),
            ConsoleInput::End => return Ok(()),
        };
        self.emit_event(&WorkloadEvent::Error { message })
    }

    /// Answers requests until the work is over or there is a reason to end. It refuses requests
    /// without an answer.
    pub(crate) fn answer_requests_until_over(
        &mut self,
        over: &AtomicBool,
        answer: impl Fn(WorkloadRequest) -> Option<WorkloadEvent>,
    ) -> WorkloadResult<()> {
        while !over.load(Ordering::Relaxed) {
            match self.wait_for_input_within(IDLE) {
                None => {}
                Some(ConsoleInput::End | ConsoleInput::Request(WorkloadRequest::Quit)) => break,
                Some(ConsoleInput::Request(request)) => match answer(request) {
                    Some(event) => self.emit_event(&event)?,
                    None => self.refuse_input(ConsoleInput::Request(request))?,
                },
                Some(bad) => self.refuse_input(bad)?,
            }
        }
        Ok(())
    }

    pub(crate) fn poll_input(&mut self) -> Option<ConsoleInput> {
        match self.input_receiver().try_recv() {
            Ok(input) => Some(input),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(ConsoleInput::End),
        }
    }

    pub(crate) fn wait_for_input_within(&mut self, at_most: Duration) -> Option<ConsoleInput> {
        match self.input_receiver().recv_timeout(at_most) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(ConsoleInput::End),
        }
    }

    pub(crate) fn wait_for_input(&mut self) -> ConsoleInput {
        self.input_receiver().recv().unwrap_or(ConsoleInput::End)
    }

    fn input_receiver(&mut self) -> &Receiver<ConsoleInput> {
        self.input.get_or_insert_with(|| {
            spawn_line_reader_thread(io::stdin(), |line| {
                let request = line.parse();
                Some(request.map_or_else(ConsoleInput::Bad, ConsoleInput::Request))
            })
        })
    }
}
