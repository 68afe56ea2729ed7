//! The pace of single requests, and the latency of their answers.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A server that is silent for this time is stuck.
pub(super) const SILENCE: Duration = Duration::from_secs(20);
/// Within this multiple of the length, and [`SILENCE`] more, a server must answer all requests.
const LATEST: u32 = 3;

/// Schedule and kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSchedule {
    /// Duration of the requests; to the millisecond.
    pub length: Duration,
    /// Requests per second, at equal distances. The server must be able to answer more.
    pub questions_per_s: u32,
    /// Share of the requests that insert a new key, 0-100 %; the others request a stored key.
    pub writes_percent: u8,
}

impl RequestSchedule {
    /// Number of requests in the whole length.
    pub fn request_count(&self) -> u64 {
        (self.length.as_secs_f64() * f64::from(self.questions_per_s)) as u64
    }

    /// Time limit for all answers. A server that exceeds it can't keep the pace.
    pub fn answers_time_limit(&self) -> Duration {
        self.length * LATEST + SILENCE
    }
}

/// Latency of answers, from the time at which their request was due. A request that waits behind a
/// slow one therefore counts as slow, too.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerLatencies {
    /// Number of requests; each was answered.
    pub questions: u64,
    /// Number of inserted keys among them.
    pub inserted: u64,
    /// Half of the answers took at most this time, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 took at most this time, in microseconds.
    pub p99_us: f64,
    /// 999 of 1000 took at most this time, in microseconds.
    pub p999_us: f64,
    /// The longest time, in microseconds.
    pub longest_us: f64,
    /// Answers during which no thread waited for a core, if the kernel reports such waits.
    pub with_cores: Option<UndelayedAnswerLatencies>,
}

impl AnswerLatencies {
    /// The answers during which no thread waited for a core. These are all of them if the kernel
    /// does not report such waits.
    pub fn counted(&self) -> UndelayedAnswerLatencies {
        let all = UndelayedAnswerLatencies { percent: 100.0, p999_us: self.p999_us };
        self.with_cores.unwrap_or(all)
    }
}

/// Answers during which neither the server nor its client waited for a core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UndelayedAnswerLatencies {
    /// Share of all answers, in per cent.
    pub percent: f64,
    /// 999 of 1000 of them took at most this time, in microseconds.
    pub p999_us: f64,
}
