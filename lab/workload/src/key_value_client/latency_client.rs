//! Latency of a server for single requests at a fixed pace. Requests do not wait for the answers to
//! earlier ones.

use super::request_schedule::{
    AnswerLatencies, RequestSchedule, SILENCE, UndelayedAnswerLatencies,
};
use super::run_queue_waits::{RunQueueWaits, ranges_overlap};
use super::server_connection::{KeyValueRequestSettings, ServerConnection};
use crate::prelude::*;
use crate::process::{new_nanosecond_histogram, record_time};
use hdrhistogram::Histogram;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;

/// Each with one request in flight. Without a free one, due requests wait here.
const CONNECTIONS: usize = 32;

/// Keys from `questions.keys` on are inserted.
pub(super) struct LatencyClient {
    questions: KeyValueRequestSettings,
    pace: RequestSchedule,
    connections: Vec<ServerConnection>,
    free: Vec<usize>,
    /// Indexes of connections that wait for an answer, and the time at which their request was due.
    busy: Vec<(usize, Duration)>,
    rng: WorkloadRng,
    inserted: u64,
    answers: Vec<AnswerTimeRange>,
    waits: Option<RunQueueWaits>,
}

/// Time at which the request was due, and that of the answer, since the first request was due.
type AnswerTimeRange = Range<Duration>;

impl LatencyClient {
    pub(super) fn new(
        socket: &Path,
        questions: KeyValueRequestSettings,
        pace: RequestSchedule,
    ) -> WorkloadResult<Self> {
        let connections: WorkloadResult<Vec<_>, _> =
            (0..CONNECTIONS).map(|_| ServerConnection::open(socket, questions)).collect();
        let connections = connections?;
        Ok(Self {
            questions,
            pace,
            waits: RunQueueWaits::watch_peer_and_self(&connections[0]),
            connections,
            free: (0..CONNECTIONS).collect(),
            busy: Vec::new(),
            rng: WorkloadRng::new(2, 0),
            inserted: 0,
            answers: Vec::with_capacity(pace.request_count() as usize),
        })
    }

    pub(super) fn measure_latencies(mut self) -> WorkloadResult<AnswerLatencies> {
        let questions_per_s = self.pace.questions_per_s;
        let at_most = self.pace.answers_time_limit();
        let count = self.pace.request_count();
        let begun = Instant::now();
        let due =
            |question: u64| Duration::from_secs_f64(question as f64 / f64::from(questions_per_s));
        let mut asked = 0;
        while asked < count || !self.busy.is_empty() {
            let now = begun.elapsed();
            if now > at_most {
                return Err(WorkloadError::Server(format!(
                    "the server does not keep up with {questions_per_s} requests per second"
                )));
            }
            while asked < count && due(asked) <= now {
                let Some(connection) = self.free.pop() else {
                    break;
                };
                self.send_read_or_insert(connection)?;
                self.busy.push((connection, due(asked)));
                asked += 1;
            }
            let next = (asked < count && !self.free.is_empty()).then(|| due(asked));
            self.wait_for_answers(begun, next)?;
        }
        let waits = self.waits.map(|waits| waits.seen);
        summarize_latencies(&self.answers, self.inserted, waits.as_deref())
    }

    fn send_read_or_insert(&mut self, connection: usize) -> WorkloadResult<()> {
        let connection = &mut self.connections[connection];
        if self.rng.draw_below(100) < usize::from(self.pace.writes_percent) {
            self.inserted += 1;
            connection.send_store_request(self.questions.keys + self.inserted - 1)
        } else {
            connection.send_get_requests(1, &mut self.rng)
        }
    }

    /// Waits until a request is due or there are answers, and counts these.
    fn wait_for_answers(&mut self, begun: Instant, next: Option<Duration>) -> WorkloadResult<()> {
        let most = next.map_or(SILENCE, |due| due.saturating_sub(begun.elapsed()));
        let mut polled: Vec<_> = self
            .busy
            .iter()
            .map(|(at, _)| PollFd::new(self.connections[*at].as_fd(), PollFlags::POLLIN))
            .collect();
        let ready = ppoll(&mut polled, Some(TimeSpec::from_duration(most)), None);
        let ready = ready
            .map_err(std::io::Error::from)
            .map_err(WorkloadError::wrap_system_error("waiting for answers"))?;
        if ready == 0 && next.is_none() {
            let silence = SILENCE.as_secs();
            let message = format!("the server did not answer for {silence} s");
            return Err(WorkloadError::Server(message));
        }
        let answered: Vec<bool> = polled.iter().map(|one| one.any().unwrap_or(false)).collect();
        let mut waiting = Vec::with_capacity(self.busy.len());
        let mut longest = Duration::ZERO;
        for ((at, due), answered) in std::mem::take(&mut self.busy).into_iter().zip(answered) {
            if answered {
                self.connections[at].read_and_check_pending_answers()?;
                let came = begun.elapsed();
                longest = longest.max(came - due);
                self.answers.push(due..came);
                self.free.push(at);
            } else {
                waiting.push((at, due));
            }
        }
        self.busy = waiting;
        if let Some(waits) = &mut self.waits {
            waits.read_waits_if_due(begun.elapsed(), longest);
        }
        Ok(())
    }
}

fn summarize_latencies(
    answers: &[AnswerTimeRange],
    inserted: u64,
    waits: Option<&[Range<Duration>]>,
) -> WorkloadResult<AnswerLatencies> {
    let all = answer_time_histogram(answers.iter())?;
    let us = |of: &Histogram<u64>, share| of.value_at_quantile(share) as f64 / 1e3;
    let with_cores = match waits {
        None => None,
        Some(waits) => {
            let met =
                |answer: &&AnswerTimeRange| waits.iter().any(|wait| ranges_overlap(wait, answer));
            let with_cores = answer_time_histogram(answers.iter().filter(|answer| !met(answer)))?;
            Some(UndelayedAnswerLatencies {
                percent: with_cores.len() as f64 * 100.0 / answers.len().max(1) as f64,
                p999_us: us(&with_cores, 0.999),
            })
        }
    };
    Ok(AnswerLatencies {
        questions: answers.len() as u64,
        inserted,
        p50_us: us(&all, 0.5),
        p99_us: us(&all, 0.99),
        p999_us: us(&all, 0.999),
        longest_us: all.max() as f64 / 1e3,
        with_cores,
    })
}

fn answer_time_histogram<'a>(
    answers: impl Iterator<Item = &'a AnswerTimeRange>,
) -> WorkloadResult<Histogram<u64>> {
    let mut nanoseconds = new_nanosecond_histogram()?;
    for answer in answers {
        record_time(&mut nanoseconds, answer.end - answer.start)?;
    }
    Ok(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_met_a_wait_are_left_out() {
        let ms = Duration::from_millis;
        let answers: Vec<AnswerTimeRange> = (0..100)
            .map(|n| {
                // Requests that are due from 200 ms on wait until 300 ms.
                let held = if (20..30).contains(&n) { 300 } else { 0 };
                ms(10 * n)..ms((10 * n + 1).max(held))
            })
            .collect();
        let waits = ms(195)..ms(299);
        let latencies = summarize_latencies(&answers, 0, Some(&[waits])).unwrap();
        let with_cores = latencies.with_cores.unwrap();
        assert_eq!(with_cores.percent, 90.0);
        assert!(latencies.p999_us > 99e3 && with_cores.p999_us < 1.1e3, "{latencies:?}");
        let unknown = summarize_latencies(&answers, 0, None).unwrap();
        assert_eq!(unknown.with_cores, None);
    }
}
