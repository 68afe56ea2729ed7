//! A client of a key-value server. It requests random keys, many at a time, and reports the number
//! of answers.
//!
//! ```text
//!  hot_key_shares: which keys --> server_connection --server_protocol--> Redis or memcached
//!                                    ^
//!  request_schedule --> latency_client: single requests at a fixed pace --> AnswerLatencies
//!                         `-- run_queue_waits: when a core was waited for
//! ```
//!
//! Read [`run_key_value_client`] first, then `server_connection`. The client is a process and not a
//! thread of the measuring program: a manager in that program's process would count the client's
//! CPU time as its own.

mod hot_key_shares;
mod latency_client;
pub mod request_schedule;
mod run_queue_waits;
mod server_connection;
mod server_protocol;

pub use hot_key_shares::HotKeyShares;
pub use request_schedule::{AnswerLatencies, RequestSchedule};

use crate::prelude::*;
use latency_client::LatencyClient;
use nix::sys::prctl::set_timerslack;
use server_connection::{KeyValueRequestSettings, ServerConnection};
use server_protocol::ServerProtocol;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct KeyValueClientArgs {
    /// Unix socket that the server listens on.
    #[arg(long)]
    pub socket: PathBuf,
    /// The server's language.
    #[arg(long, value_enum)]
    pub dialect: ServerProtocol,
    /// Keys to store, and to ask for.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Size of each value, in bytes.
    #[arg(long, default_value_t = 1024)]
    pub value_bytes: usize,
    /// Share of the keys that are hot, in ten places of the order in which they are stored, in per
    /// cent.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub hot_keys_percent: u8,
    /// Share of the questions that are about hot keys, in per cent.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub hot_questions_percent: u8,
    /// Milliseconds to wait after every round of questions.
    #[arg(long, default_value_t = 0)]
    pub pause_ms: u64,
}

/// Number of connections, all served by one thread.
const CONNECTIONS: usize = 16;
/// Requests in flight on each connection.
const PIPELINE: usize = 16;
/// Time between two reports of the number of answers.
const REPORT: Duration = Duration::from_millis(20);

/// Stores all values, then sends requests until it is stopped.
pub(super) fn run_key_value_client(
    args: &KeyValueClientArgs,
    console: &mut Console,
) -> WorkloadResult<()> {
    // Timers should be as precise as possible.
    set_timerslack(1)
        .map_err(std::io::Error::from)
        .map_err(WorkloadError::wrap_system_error("PR_SET_TIMERSLACK"))?;
    let mut client = KeyValueClient::connect_and_store_keys(args)?;
    console.emit_event(&WorkloadEvent::Ready(ready_report(0, 0, 0)))?;
    loop {
        let input =
            if client.asking { console.poll_input() } else { Some(console.wait_for_input()) };
        match input {
            None => client.run_request_round(console)?,
            Some(ConsoleInput::Request(WorkloadRequest::Go)) => client.resume_requests(),
            Some(ConsoleInput::Request(WorkloadRequest::Stop)) => client.asking = false,
            Some(ConsoleInput::Request(WorkloadRequest::Latencies(pace))) => {
                console.emit_event(&WorkloadEvent::Answered(client.measure_latencies(pace)?))?;
            }
            Some(ConsoleInput::Request(WorkloadRequest::Delete(percent))) => {
                let keys = client.stop_and_delete_keys(percent)?;
                console.emit_event(&WorkloadEvent::Deleted { keys })?;
            }
            Some(ConsoleInput::Request(WorkloadRequest::Quit) | ConsoleInput::End) => return Ok(()),
            Some(other) => console.refuse_input(other)?,
        }
    }
}

struct KeyValueClient {
    socket: PathBuf,
    questions: KeyValueRequestSettings,
    pause: Duration,
    connections: Vec<ServerConnection>,
    rng: WorkloadRng,
    asking: bool,
    begun: Instant,
    answers: u64,
    /// Start of the current reporting interval, and the answers before it.
    interval: (Instant, u64),
}

impl KeyValueClient {
    fn connect_and_store_keys(args: &KeyValueClientArgs) -> WorkloadResult<Self> {
        let questions = KeyValueRequestSettings {
            dialect: args.dialect,
            keys: args.keys,
            value_bytes: args.value_bytes,
            hot: HotKeyShares {
                keys_percent: args.hot_keys_percent,
                questions_percent: args.hot_questions_percent,
            },
        };
        let connections: WorkloadResult<Vec<_>, _> =
            (0..CONNECTIONS).map(|_| ServerConnection::open(&args.socket, questions)).collect();
        let mut connections = connections?;
        connections[0].store_all_keys()?;
        let now = Instant::now();
        Ok(Self {
            socket: args.socket.clone(),
            questions,
            pause: Duration::from_millis(args.pause_ms),
            connections,
            rng: WorkloadRng::new(1, 0),
            asking: false,
            begun: now,
            answers: 0,
            interval: (now, 0),
        })
    }

    fn resume_requests(&mut self) {
        self.asking = true;
        self.interval = (Instant::now(), self.answers);
    }

    /// The server always has the requests of the other connections to work on.
    fn run_request_round(&mut self, console: &mut Console) -> WorkloadResult<()> {
        for connection in &mut self.connections {
            self.answers += connection.read_and_check_pending_answers()?;
            connection.send_get_requests(PIPELINE, &mut self.rng)?;
        }
        // The report is in the middle of the pause. A program that reads the server's CPU time at
        // the report of a rate therefore finds the server idle.
        std::thread::sleep(self.pause / 2);
        let now = Instant::now();
        let interval = now - self.interval.0;
        if interval >= REPORT {
            let new = self.answers - self.interval.1;
            self.interval = (now, self.answers);
            console.emit_event(&WorkloadEvent::Rate {
                elapsed_s: (now - self.begun).as_secs_f64(),
                accesses: self.answers,
                accesses_per_s: new as f64 / interval.as_secs_f64(),
            })?;
        }
        std::thread::sleep(self.pause / 2);
        Ok(())
    }

    fn stop_and_delete_keys(&mut self, percent: u8) -> WorkloadResult<u64> {
        self.asking = false;
        let [first, others @ ..] = self.connections.as_mut_slice() else {
            return Ok(0);
        };
        // Answers to questions about keys that still exist.
        for connection in others {
            self.answers += connection.read_and_check_pending_answers()?;
        }
        self.answers += first.read_and_check_pending_answers()?;
        first.delete_percent_of_keys(percent, &mut self.rng)
    }

    fn measure_latencies(&mut self, pace: RequestSchedule) -> WorkloadResult<AnswerLatencies> {
        let latencies =
            LatencyClient::new(&self.socket, self.questions, pace)?.measure_latencies()?;
        self.questions.keys += latencies.inserted;
        Ok(latencies)
    }
}
