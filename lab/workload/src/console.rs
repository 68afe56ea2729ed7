//! A workload's end of the conversation: events out, requests in.

use crate::error::WorkloadError;
use crate::protocol::{BadRequest, Event, Request};
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

/// What came in on standard input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A request.
    Request(Request),
    /// A line that is none.
    Bad(BadRequest),
    /// The end: whoever started the workload is gone or wants no more of it.
    End,
}

/// The workload's end of the conversation.
#[derive(Debug, Default)]
pub(crate) struct Console {
    input: Option<Receiver<Input>>,
}

impl Console {
    /// A console that has not read anything yet: reading starts with the first wait for input.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Prints an event.
    pub(crate) fn emit(&mut self, event: &Event) -> Result<(), WorkloadError> {
        let mut line = serde_json::to_string(event)
            .map_err(|error| WorkloadError::Output(io::Error::other(error)))?;
        line.push('\n');
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes())
            .and_then(|()| out.flush())
            .map_err(WorkloadError::Output)
    }

    /// Answers a request that this workload does not carry out.
    pub(crate) fn refuse(&mut self, request: Request) -> Result<(), WorkloadError> {
        self.emit(&Event::Error {
            message: format!("this workload cannot {request}"),
        })
    }

    /// Answers a line that is no request.
    pub(crate) fn correct(&mut self, bad: &BadRequest) -> Result<(), WorkloadError> {
        self.emit(&Event::Error {
            message: bad.to_string(),
        })
    }

    /// What has come in, if anything.
    pub(crate) fn poll(&mut self) -> Option<Input> {
        match self.input().try_recv() {
            Ok(input) => Some(input),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Input::End),
        }
    }

    /// Waits for input, at most so long.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Option<Input> {
        match self.input().recv_timeout(at_most) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Input::End),
        }
    }

    /// Waits for input, however long.
    pub(crate) fn next(&mut self) -> Input {
        self.input().recv().unwrap_or(Input::End)
    }

    fn input(&mut self) -> &Receiver<Input> {
        self.input.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel();
            std::thread::spawn(move || {
                for line in io::stdin().lock().lines().map_while(Result::ok) {
                    let input = line.parse().map_or_else(Input::Bad, Input::Request);
                    if sender.send(input).is_err() {
                        break;
                    }
                }
            });
            receiver
        })
    }
}
