//! Lines that a workload and its starter exchange.

use crate::key_value_client::request_schedule::{AnswerLatencies, RequestSchedule};
use crate::page_fault_stalls::page_fault_times::PageFaultTimes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// An event of a workload: one JSON object per line of its standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum WorkloadEvent {
    /// Its memory is mapped and touched.
    Ready(WorkloadReady),
    /// Rate of reads.
    Rate {
        /// Seconds since the first read.
        elapsed_s: f64,
        /// Reads since the start.
        accesses: u64,
        /// Reads per second since the last event of this kind.
        accesses_per_s: f64,
    },
    /// The workload has made the requested accesses, or got `quit`.
    Finished {
        /// Seconds since the first read.
        elapsed_s: f64,
        /// Reads since the start.
        accesses: u64,
    },
    /// Answer to `verify`: every byte was checked.
    Verified {
        /// Bytes checked.
        checked_bytes: u64,
        /// Number of wrong bytes.
        bad_bytes: u64,
        /// Address of the word with the first bad byte.
        first_bad: Option<u64>,
    },
    /// Answer to `refill`.
    Refilled {
        /// Pages written in each region.
        pages_per_region: usize,
    },
    /// Answer to `dontneed`, `free` and `unmap`.
    Freed {
        /// Bytes given back by this request, present or not.
        freed_bytes: u64,
    },
    /// Answer to `rss`.
    Rss {
        /// Resident memory of the process, in bytes.
        rss_bytes: u64,
        /// The part of it that huge pages map, in bytes.
        huge_bytes: u64,
    },
    /// Progress of torture, or of a storm.
    Progress {
        /// Seconds since it was ready.
        elapsed_s: f64,
        /// Operations, threads or children so far.
        operations: u64,
    },
    /// New memory was touched.
    Touched {
        /// Seconds for all of it.
        elapsed_s: f64,
        /// Average nanoseconds of a touch; 0 if touches were not timed.
        mean_ns: f64,
        /// 99 of 100 took at most this time, in nanoseconds.
        p99_ns: f64,
        /// The longest one, in nanoseconds.
        longest_ns: u64,
    },
    /// Free memory is fragmented now.
    Fragmented {
        /// Share of free memory in blocks smaller than a huge page (0-1), before.
        fmfi_before: f64,
        /// The same share now.
        fmfi: f64,
        /// Bytes of memory held for that.
        held_bytes: u64,
        /// Whether compaction can't move that memory.
        pinned: bool,
    },
    /// Answer to `longest`: the longest calls since the last answer.
    Longest {
        /// Longest `mmap`, in microseconds.
        map_us: f64,
        /// Longest `munmap`, in microseconds.
        unmap_us: f64,
        /// Longest first write to a page, in microseconds.
        fault_us: f64,
        /// Calls of all kinds in that time.
        calls: u64,
    },
    /// Answer to `faults`.
    Faults(PageFaultTimes),
    /// Answer to `latencies`.
    Answered(AnswerLatencies),
    /// Answer to `delete`.
    Deleted {
        /// Keys that the server has deleted.
        keys: u64,
    },
    /// Memory that does not hold the written value.
    Wrong(WrongWord),
    /// Torture, or a storm, is over.
    Done(OperationTotals),
    /// A request could not be carried out, or the workload ends with this error.
    Error {
        /// One sentence.
        message: String,
    },
}

/// Place of a workload's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadReady {
    /// Process id.
    pub pid: u32,
    /// First byte of its memory; 0 where it has many mappings.
    pub start: u64,
    /// Length of its memory, in bytes.
    pub bytes: u64,
    /// First byte of the hot part, which extends to the end; equal to the end if nothing is hot.
    pub hot_start: u64,
    /// Bytes of the process that huge pages map now.
    pub huge_bytes: u64,
    /// Number of times that the process has executed itself.
    pub execs: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongWord {
    pub address: u64,
    pub expected: u64,
    pub found: u64,
    /// The value of a second read. It is the same, unless the error was transient.
    pub found_again: u64,
    pub thread: usize,
    /// The operation of that thread.
    pub during: String,
    /// Whether a forked child found it in its snapshot.
    pub in_child: bool,
}

impl fmt::Display for WrongWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:#x} holds {:#018x} instead of {:#018x} (thread {}, {}{})",
            self.address,
            self.found,
            self.expected,
            self.thread,
            self.during,
            if self.in_child { ", in a forked child" } else { "" }
        )
    }
}

/// Totals of torture, or of a storm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationTotals {
    /// Seconds since it was ready.
    pub elapsed_s: f64,
    /// Operations of every kind; of a storm, threads or children.
    pub operations: u64,
    /// Bytes compared with their expected values, children included.
    pub verified_bytes: u64,
    pub written_bytes: u64,
    pub forks: u64,
    pub maps: u64,
    /// Whole or partial unmappings.
    pub unmaps: u64,
    /// Mappings moved or resized.
    pub remaps: u64,
    /// Ranges given back with `MADV_DONTNEED`.
    pub discards: u64,
    /// Ranges with a protection that was changed and restored.
    pub protections: u64,
    /// Operations that the kernel refused for lack of a resource; they changed nothing.
    pub refused: u64,
}

/// A request to a workload: one line of its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadRequest {
    /// `go`: start or go on reading, or fork a child.
    Go,
    /// `stop`: pause reading, or end the child.
    Stop,
    /// `verify`: check every byte.
    Verify,
    /// `rss`: report the resident memory.
    Rss,
    /// `longest`: report the longest calls since the last such request.
    Longest,
    /// `faults`: report the times of page faults since the last such request.
    Faults,
    /// `refill N`: write the pattern into N pages of each region.
    Refill(usize),
    /// `dontneed PERCENT`: give back that part of the pages of each region.
    DontNeed(u8),
    /// `free N`: give back the last N whole regions, keeping them mapped.
    Free(usize),
    /// `unmap N`: unmap the last N regions.
    Unmap(usize),
    /// `latencies MS PER_S PERCENT`: send PER_S single requests per second for MS milliseconds.
    /// PERCENT of them insert a new key. Report the times of the answers.
    Latencies(RequestSchedule),
    /// `delete PERCENT`: delete that part of the keys, chosen at random. No questions can follow.
    Delete(u8),
    /// `quit`: end.
    Quit,
}

/// Requests of one word.
const WORDS: [(&str, WorkloadRequest); 7] = [
    ("go", WorkloadRequest::Go),
    ("stop", WorkloadRequest::Stop),
    ("verify", WorkloadRequest::Verify),
    ("rss", WorkloadRequest::Rss),
    ("longest", WorkloadRequest::Longest),
    ("faults", WorkloadRequest::Faults),
    ("quit", WorkloadRequest::Quit),
];

/// A line that is not a request.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("not a request: {0:?}")]
pub struct InvalidRequestLine(String);

impl FromStr for WorkloadRequest {
    type Err = InvalidRequestLine;

    fn from_str(line: &str) -> Result<Self, InvalidRequestLine> {
        let bad = || InvalidRequestLine(line.to_owned());
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse::<usize>().map_err(|_| bad());
        let percent = |text: &str| match text.parse() {
            Ok(percent) if percent <= 100 => Ok(percent),
            _ => Err(bad()),
        };
        if let Some((_, request)) = WORDS.iter().find(|(word, _)| words == [*word]) {
            return Ok(*request);
        }
        Ok(match words[..] {
            ["refill", pages] => Self::Refill(number(pages)?),
            ["free", regions] => Self::Free(number(regions)?),
            ["unmap", regions] => Self::Unmap(number(regions)?),
            ["dontneed", part] => Self::DontNeed(percent(part)?),
            ["delete", part] => Self::Delete(percent(part)?),
            ["latencies", length_ms, questions_per_s, writes_percent] => {
                let pace = RequestSchedule {
                    length: Duration::from_millis(length_ms.parse().map_err(|_| bad())?),
                    questions_per_s: questions_per_s.parse().map_err(|_| bad())?,
                    writes_percent: writes_percent.parse().map_err(|_| bad())?,
                };
                if pace.questions_per_s == 0 || pace.writes_percent > 100 {
                    return Err(bad());
                }
                Self::Latencies(pace)
            }
            _ => return Err(bad()),
        })
    }
}

impl fmt::Display for WorkloadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refill(pages) => write!(f, "refill {pages}"),
            Self::DontNeed(percent) => write!(f, "dontneed {percent}"),
            Self::Delete(percent) => write!(f, "delete {percent}"),
            Self::Free(regions) => write!(f, "free {regions}"),
            Self::Unmap(regions) => write!(f, "unmap {regions}"),
            Self::Latencies(pace) => write!(
                f,
                "latencies {} {} {}",
                pace.length.as_millis(),
                pace.questions_per_s,
                pace.writes_percent
            ),
            _ => {
                let word = WORDS.iter().find(|(_, request)| request == self);
                f.write_str(word.map_or("", |(word, _)| word))
            }
        }
    }
}

#[cfg(test)]
mod tests;
