//! The lines that a workload and its starter exchange.

use crate::client::{Latencies, Pace};
use crate::stalls::FaultTimes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// What a workload says: one JSON object per line of its standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Its memory is mapped and touched.
    Ready(Ready),
    /// How fast it reads.
    Rate {
        /// Since the first read.
        elapsed_s: f64,
        /// Reads since the start.
        accesses: u64,
        /// Reads per second since the last event of this kind.
        accesses_per_s: f64,
    },
    /// It has made the accesses it was started for, or was told to quit.
    Finished {
        /// Since the first read.
        elapsed_s: f64,
        /// Reads since the start.
        accesses: u64,
    },
    /// Answer to `verify`: every byte was checked.
    Verified {
        /// Bytes checked.
        checked_bytes: u64,
        /// Bytes that were not what they should be.
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
        /// Resident memory of the process.
        rss_bytes: u64,
        /// Of it, mapped by huge pages.
        huge_bytes: u64,
    },
    /// How far torture, or a storm, has come.
    Progress {
        /// Since it was ready.
        elapsed_s: f64,
        /// Operations, threads or children so far.
        operations: u64,
    },
    /// New memory was touched.
    Touched {
        /// All of it took this long.
        elapsed_s: f64,
        /// A touch took on average; 0 where they were not timed.
        mean_ns: f64,
        /// 99 of 100 took no longer than this.
        p99_ns: f64,
        /// The longest one.
        longest_ns: u64,
    },
    /// Free memory is fragmented now.
    Fragmented {
        /// Share of free memory in blocks smaller than a huge page (0-1), before.
        fmfi_before: f64,
        /// The same now.
        fmfi: f64,
        /// Memory that is held for it.
        held_bytes: u64,
        /// Whether compaction can't move that.
        pinned: bool,
    },
    /// Answer to `longest`: the longest calls since the last one.
    Longest {
        /// `mmap`, in microseconds.
        map_us: f64,
        /// `munmap`, in microseconds.
        unmap_us: f64,
        /// The first write to a page, in microseconds.
        fault_us: f64,
        /// Calls of all kinds in that time.
        calls: u64,
    },
    /// Answer to `faults`.
    Faults(FaultTimes),
    /// Answer to `latencies`.
    Answered(Latencies),
    /// Memory that does not hold what was written into it.
    Wrong(WrongWord),
    /// Torture, or a storm, is over.
    Done(TortureTotals),
    /// A request could not be carried out, or the workload ends with this error.
    Error {
        /// One sentence.
        message: String,
    },
}

/// Where a workload's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The process.
    pub pid: u32,
    /// First byte of its memory; 0 where it has many mappings.
    pub start: u64,
    /// Length of its memory.
    pub bytes: u64,
    /// First byte of the hot part, which reaches to the end; the end where nothing is hot.
    pub hot_start: u64,
    /// Bytes of the process that huge pages map now.
    pub huge_bytes: u64,
    /// How often it has executed itself.
    pub execs: u32,
}

/// A word that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongWord {
    /// Its address.
    pub address: u64,
    /// What was written.
    pub expected: u64,
    /// What is there.
    pub found: u64,
    /// What was there when it was read again: the same, unless the error was passing.
    pub found_again: u64,
    /// The thread that owns the memory.
    pub thread: usize,
    /// What that thread was doing.
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
            if self.in_child {
                ", in a forked child"
            } else {
                ""
            }
        )
    }
}

/// What torture, or a storm, has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TortureTotals {
    /// Since it was ready.
    pub elapsed_s: f64,
    /// Operations of every kind; of a storm, threads or children.
    pub operations: u64,
    /// Bytes compared with what they should be, children included.
    pub verified_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Children forked.
    pub forks: u64,
    /// Mappings made.
    pub maps: u64,
    /// Whole or partial unmappings.
    pub unmaps: u64,
    /// Mappings moved or resized.
    pub remaps: u64,
    /// Ranges given back with `MADV_DONTNEED`.
    pub discards: u64,
    /// Ranges whose protection was changed and restored.
    pub protections: u64,
    /// Operations that the kernel refused for lack of something; nothing was changed.
    pub refused: u64,
}

/// What a workload can be told: one line of its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// `go`: start or go on reading.
    Go,
    /// `stop`: pause reading.
    Stop,
    /// `verify`: check every byte.
    Verify,
    /// `rss`: say how much memory is resident.
    Rss,
    /// `longest`: say how long the longest calls took since this was last asked.
    Longest,
    /// `faults`: say how long page faults took since this was last asked.
    Faults,
    /// `refill N`: write the pattern into N pages of each region.
    Refill(usize),
    /// `dontneed PERCENT`: give back that part of the pages of each region.
    DontNeed(u8),
    /// `free N`: give back the last N whole regions, keeping them mapped.
    Free(usize),
    /// `unmap N`: unmap the last N regions.
    Unmap(usize),
    /// `latencies MS PER_S PERCENT`: ask so many single questions per second for so many milliseconds, so many of which insert
    /// a new key, and say how long answers took.
    Latencies(Pace),
    /// `quit`: end.
    Quit,
}

/// A line that is no request.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("not a request: {0:?}")]
pub struct BadRequest(String);

impl FromStr for Request {
    type Err = BadRequest;

    fn from_str(line: &str) -> Result<Self, BadRequest> {
        let bad = || BadRequest(line.to_owned());
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse::<usize>().map_err(|_| bad());
        Ok(match words[..] {
            ["go"] => Self::Go,
            ["stop"] => Self::Stop,
            ["verify"] => Self::Verify,
            ["rss"] => Self::Rss,
            ["longest"] => Self::Longest,
            ["faults"] => Self::Faults,
            ["quit"] => Self::Quit,
            ["refill", pages] => Self::Refill(number(pages)?),
            ["free", regions] => Self::Free(number(regions)?),
            ["unmap", regions] => Self::Unmap(number(regions)?),
            ["dontneed", percent] => match percent.parse() {
                Ok(percent) if percent <= 100 => Self::DontNeed(percent),
                _ => return Err(bad()),
            },
            ["latencies", length_ms, questions_per_s, writes_percent] => {
                let pace = Pace {
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

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Go => write!(f, "go"),
            Self::Stop => write!(f, "stop"),
            Self::Verify => write!(f, "verify"),
            Self::Rss => write!(f, "rss"),
            Self::Longest => write!(f, "longest"),
            Self::Faults => write!(f, "faults"),
            Self::Refill(pages) => write!(f, "refill {pages}"),
            Self::DontNeed(percent) => write!(f, "dontneed {percent}"),
            Self::Free(regions) => write!(f, "free {regions}"),
            Self::Unmap(regions) => write!(f, "unmap {regions}"),
            Self::Latencies(Pace {
                length,
                questions_per_s,
                writes_percent,
            }) => {
                let length_ms = length.as_millis();
                write!(
                    f,
                    "latencies {length_ms} {questions_per_s} {writes_percent}"
                )
            }
            Self::Quit => write!(f, "quit"),
        }
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
