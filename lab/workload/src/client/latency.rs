//! How long a server takes to answer single questions that come at a fixed pace, whether it has answered the last
//! one or not.

use super::connection::{Connection, Questions, SILENCE};
use super::waits::{Wait, Waits};
use crate::Rng;
use crate::error::WorkloadError;
use hdrhistogram::Histogram;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// When questions come, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// For how long they come; to the millisecond.
    pub length: Duration,
    /// So many come per second, at equal distances. The server must be able to answer more.
    pub questions_per_s: u32,
    /// So many of them insert a new key, 0-100 %; the others ask for one that is there.
    pub writes_percent: u8,
}

impl Pace {
    /// Questions in all.
    fn count(&self) -> u64 {
        (self.length.as_secs_f64() * f64::from(self.questions_per_s)) as u64
    }

    /// After so long a server that has not answered all can't keep the pace, and is given up.
    pub fn at_most(&self) -> Duration {
        self.length * LATEST + SILENCE
    }
}

/// How long answers took from when their question was due: what waits behind a slow one counts as slow, too.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Questions asked; each was answered.
    pub questions: u64,
    /// Of them, keys inserted.
    pub inserted: u64,
    /// Half of the answers took no longer, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
    /// 999 of 1000 took no longer.
    pub p999_us: f64,
    /// The longest.
    pub longest_us: f64,
    /// Those in whose time nobody waited for a core, where the kernel tells.
    pub with_cores: Option<WithCores>,
}

/// Answers in whose time neither the server nor its client waited for a core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithCores {
    /// So many of all, in per cent.
    pub percent: f64,
    /// 999 of 1000 of them took no longer, in microseconds.
    pub p999_us: f64,
}

/// Connections, each with one question in flight: what is due while none is free waits here.
const CONNECTIONS: usize = 32;
/// Significant digits of latencies.
const DIGITS: u8 = 3;
/// A server that has not answered all after this many times the length, and [`SILENCE`] more, can't keep the pace.
const LATEST: u32 = 3;

/// Asks a server and waits for all answers; keys from `questions.keys` on are inserted.
///
/// # Errors
/// It can't keep the pace, or answers something else.
pub(super) fn latencies(
    socket: &Path,
    questions: Questions,
    pace: Pace,
) -> Result<Latencies, WorkloadError> {
    Asker::new(socket, questions, pace)?.run()
}

struct Asker {
    questions: Questions,
    pace: Pace,
    connections: Vec<Connection>,
    /// Which of them have nothing to do.
    free: Vec<usize>,
    /// Which of them wait for an answer, and since when it is due.
    busy: Vec<(usize, Duration)>,
    rng: Rng,
    inserted: u64,
    answers: Vec<Answer>,
    waits: Option<Waits>,
}

/// Times since the first question was due.
#[derive(Clone, Copy, Debug)]
struct Answer {
    due: Duration,
    came: Duration,
}

impl Answer {
    fn took(&self) -> Duration {
        self.came - self.due
    }
}

impl Asker {
    fn new(socket: &Path, questions: Questions, pace: Pace) -> Result<Self, WorkloadError> {
        let connections: Result<Vec<_>, _> = (0..CONNECTIONS)
            .map(|_| Connection::open(socket, questions))
            .collect();
        let connections = connections?;
        Ok(Self {
            questions,
            pace,
            waits: Waits::of_peer(&connections[0]),
            connections,
            free: (0..CONNECTIONS).collect(),
            busy: Vec::new(),
            rng: Rng::new(2, 0),
            inserted: 0,
            answers: Vec::with_capacity(pace.count() as usize),
        })
    }

    fn run(mut self) -> Result<Latencies, WorkloadError> {
        let questions_per_s = self.pace.questions_per_s;
        let at_most = self.pace.at_most();
        let count = self.pace.count();
        let begun = Instant::now();
        let due =
            |question: u64| Duration::from_secs_f64(question as f64 / f64::from(questions_per_s));
        let mut asked = 0;
        while asked < count || !self.busy.is_empty() {
            let now = begun.elapsed();
            if now > at_most {
                return Err(WorkloadError::Server(format!(
                    "the server does not keep up with {questions_per_s} questions per second"
                )));
            }
            while asked < count && due(asked) <= now {
                let Some(connection) = self.free.pop() else {
                    break;
                };
                self.ask(connection)?;
                self.busy.push((connection, due(asked)));
                asked += 1;
            }
            let next = (asked < count && !self.free.is_empty()).then(|| due(asked));
            self.wait(begun, next)?;
        }
        let waits = self.waits.map(Waits::into_seen);
        latencies_of(&self.answers, self.inserted, waits.as_deref())
    }

    fn ask(&mut self, connection: usize) -> Result<(), WorkloadError> {
        let connection = &mut self.connections[connection];
        if self.rng.below(100) < usize::from(self.pace.writes_percent) {
            self.inserted += 1;
            connection.store(self.questions.keys + self.inserted - 1)
        } else {
            connection.ask(1, &mut self.rng)
        }
    }

    /// Waits until a question is due or there are answers, which are counted.
    fn wait(&mut self, begun: Instant, next: Option<Duration>) -> Result<(), WorkloadError> {
        let most = next.map_or(SILENCE, |due| due.saturating_sub(begun.elapsed()));
        let mut polled: Vec<_> = self
            .busy
            .iter()
            .map(|(at, _)| PollFd::new(self.connections[*at].as_fd(), PollFlags::POLLIN))
            .collect();
        let ready = ppoll(&mut polled, Some(TimeSpec::from_duration(most)), None);
        let ready = ready
            .map_err(std::io::Error::from)
            .map_err(WorkloadError::system("waiting for answers"))?;
        if ready == 0 && next.is_none() {
            let silence = SILENCE.as_secs();
            let message = format!("the server said nothing for {silence} s");
            return Err(WorkloadError::Server(message));
        }
        let answered: Vec<bool> = polled
            .iter()
            .map(|one| one.any().unwrap_or(false))
            .collect();
        let mut waiting = Vec::with_capacity(self.busy.len());
        let mut longest = Duration::ZERO;
        for ((at, due), answered) in std::mem::take(&mut self.busy).into_iter().zip(answered) {
            if answered {
                self.connections[at].read_answers()?;
                let came = begun.elapsed();
                let answer = Answer { due, came };
                longest = longest.max(answer.took());
                self.answers.push(answer);
                self.free.push(at);
            } else {
                waiting.push((at, due));
            }
        }
        self.busy = waiting;
        if let Some(waits) = &mut self.waits {
            waits.look(begun.elapsed(), longest);
        }
        Ok(())
    }
}

fn latencies_of(
    answers: &[Answer],
    inserted: u64,
    waits: Option<&[Wait]>,
) -> Result<Latencies, WorkloadError> {
    let all = histogram(answers.iter())?;
    let us = |of: &Histogram<u64>, share| of.value_at_quantile(share) as f64 / 1e3;
    let with_cores = match waits {
        None => None,
        Some(waits) => {
            let met =
                |answer: &&Answer| waits.iter().any(|wait| wait.meets(answer.due, answer.came));
            let with_cores = histogram(answers.iter().filter(|answer| !met(answer)))?;
            Some(WithCores {
                percent: with_cores.len() as f64 * 100.0 / answers.len().max(1) as f64,
                p999_us: us(&with_cores, 0.999),
            })
        }
    };
    Ok(Latencies {
        questions: answers.len() as u64,
        inserted,
        p50_us: us(&all, 0.5),
        p99_us: us(&all, 0.99),
        p999_us: us(&all, 0.999),
        longest_us: all.max() as f64 / 1e3,
        with_cores,
    })
}

/// In nanoseconds.
fn histogram<'a>(
    answers: impl Iterator<Item = &'a Answer>,
) -> Result<Histogram<u64>, WorkloadError> {
    let mut nanoseconds = Histogram::new(DIGITS).map_err(uncountable)?;
    for answer in answers {
        let took = answer.took().as_nanos() as u64;
        nanoseconds.record(took).map_err(uncountable)?;
    }
    Ok(nanoseconds)
}

fn uncountable(error: impl std::fmt::Display) -> WorkloadError {
    WorkloadError::Server(format!("latencies can't be counted: {error}"))
}

#[cfg(test)]
#[path = "latency_tests.rs"]
mod tests;
