//! A client of a server of keys and values: asks for random keys, many at a time, and says how many answers it gets.
//!
//! It is no thread of whoever measures, as its CPU time is not theirs: a manager in the same process would count it as its own.

mod connection;
mod dialect;
mod hot;
mod latency;
mod waits;

pub use dialect::Dialect;
pub use hot::Hot;
pub use latency::{Latencies, Pace, WithCores};

use crate::Rng;
use crate::console::{Console, Input};
use crate::error::WorkloadError;
use crate::process::ready;
use crate::protocol::{Event, Request};
use connection::{Connection, Questions};
use nix::sys::prctl::set_timerslack;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of `ask`.
#[derive(Clone, Debug, clap::Args)]
pub struct AskArgs {
    /// Unix socket that the server listens on.
    #[arg(long)]
    pub socket: PathBuf,
    /// The server's language.
    #[arg(long, value_enum)]
    pub dialect: Dialect,
    /// Keys to store, and to ask for.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Size of each value, in bytes.
    #[arg(long, default_value_t = 1024)]
    pub value_bytes: usize,
    /// So many of the keys are hot, in ten places of the order in which they are stored, in per cent.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub hot_keys_percent: u8,
    /// So many of the questions are about them, in per cent.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub hot_questions_percent: u8,
    /// Wait so long after every round of questions, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub pause_ms: u64,
}

/// Connections, all served by one thread.
const CONNECTIONS: usize = 16;
/// Questions in flight on each.
const PIPELINE: usize = 16;
/// Answers are counted aloud so often.
const REPORT: Duration = Duration::from_millis(20);

/// Stores all values, then asks while it is told to.
pub(super) fn ask(args: &AskArgs, console: &mut Console) -> Result<(), WorkloadError> {
    // It may wake as precisely as it can.
    set_timerslack(1)
        .map_err(std::io::Error::from)
        .map_err(WorkloadError::system("PR_SET_TIMERSLACK"))?;
    let mut client = Client::connect(args)?;
    console.emit(&Event::Ready(ready(0, 0, 0)))?;
    loop {
        let input = if client.asking {
            console.poll()
        } else {
            Some(console.next())
        };
        match input {
            None => client.round(console)?,
            Some(Input::Request(Request::Go)) => client.go(),
            Some(Input::Request(Request::Stop)) => client.asking = false,
            Some(Input::Request(Request::Latencies(pace))) => {
                console.emit(&Event::Answered(client.latencies(pace)?))?;
            }
            Some(Input::Request(Request::Quit) | Input::End) => return Ok(()),
            Some(Input::Request(other)) => console.refuse(other)?,
            Some(Input::Bad(bad)) => console.correct(&bad)?,
        }
    }
}

struct Client {
    socket: PathBuf,
    questions: Questions,
    pause: Duration,
    connections: Vec<Connection>,
    rng: Rng,
    asking: bool,
    begun: Instant,
    answers: u64,
    /// Begin of the current reporting interval, and the answers before it.
    interval: (Instant, u64),
}

impl Client {
    /// Connects to the server and stores all values.
    fn connect(args: &AskArgs) -> Result<Self, WorkloadError> {
        let questions = Questions {
            dialect: args.dialect,
            keys: args.keys,
            value_bytes: args.value_bytes,
            hot: Hot {
                keys_percent: args.hot_keys_percent,
                questions_percent: args.hot_questions_percent,
            },
        };
        let connections: Result<Vec<_>, _> = (0..CONNECTIONS)
            .map(|_| Connection::open(&args.socket, questions))
            .collect();
        let mut connections = connections?;
        connections[0].fill()?;
        let now = Instant::now();
        Ok(Self {
            socket: args.socket.clone(),
            questions,
            pause: Duration::from_millis(args.pause_ms),
            connections,
            rng: Rng::new(1, 0),
            asking: false,
            begun: now,
            answers: 0,
            interval: (now, 0),
        })
    }

    fn go(&mut self) {
        self.asking = true;
        self.interval = (Instant::now(), self.answers);
    }

    /// Asks on each connection what it has read the last answers of: the server always has the questions of the others to
    /// work on.
    fn round(&mut self, console: &mut Console) -> Result<(), WorkloadError> {
        for connection in &mut self.connections {
            self.answers += connection.read_answers()?;
            connection.ask(PIPELINE, &mut self.rng)?;
        }
        // In the middle of the pause: whoever looks at the server's CPU time when it hears of a rate finds it idle.
        std::thread::sleep(self.pause / 2);
        let now = Instant::now();
        let interval = now - self.interval.0;
        if interval >= REPORT {
            let new = self.answers - self.interval.1;
            self.interval = (now, self.answers);
            console.emit(&Event::Rate {
                elapsed_s: (now - self.begun).as_secs_f64(),
                accesses: self.answers,
                accesses_per_s: new as f64 / interval.as_secs_f64(),
            })?;
        }
        std::thread::sleep(self.pause / 2);
        Ok(())
    }

    /// What is inserted is stored from then on.
    fn latencies(&mut self, pace: Pace) -> Result<Latencies, WorkloadError> {
        let latencies = latency::latencies(&self.socket, self.questions, pace)?;
        self.questions.keys += latencies.inserted;
        Ok(latencies)
    }
}
