//! What is said over the socket: a request is one line of JSON, its reply another.
//!
//! A request names the protocol's version and what is wanted:
//! `{"protocol":1,"request":"why","pid":4711,"address":140102385123328}`. Its reply names the
//! version and what it is: `status`, `explanation`, `strip`, `done` or `refused`. Field names carry units.

use crate::view::{Explanation, Status, Strip};
use hawkeye_linux::page_sizes::SizesSeen;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Version of the protocol: changed when an old program could no longer understand a new one.
pub const VERSION: u32 = 1;
/// A request is no longer than this, in bytes.
pub const MOST_REQUEST_BYTES: u64 = 4096;
/// A reply is no longer than this, in bytes: 256 processes and all cgroups fit many times.
pub const MOST_REPLY_BYTES: u64 = 16 << 20;

/// What can be asked of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// How management stands.
    Status,
    /// Why a process, or the region at an address of it, is treated as it is.
    Why {
        /// Which process.
        pid: u32,
        /// Any address in the region.
        #[serde(default)]
        address: Option<u64>,
    },
    /// The address space of a process.
    Strip {
        /// Which process.
        pid: u32,
        /// In how many columns at the most.
        columns: u16,
    },
    /// Leave every process alone.
    Pause,
    /// Go on.
    Resume,
}

impl Request {
    /// Whether it changes anything: then only root may ask for it.
    pub fn changes(self) -> bool {
        match self {
            Self::Status | Self::Why { .. } | Self::Strip { .. } => false,
            Self::Pause | Self::Resume => true,
        }
    }
}

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Status`].
    Status(Box<DaemonStatus>),
    /// To [`Request::Why`].
    Explanation(Explanation),
    /// To [`Request::Strip`].
    Strip(Strip),
    /// To what changes something.
    Done {
        /// Whether anything is different now.
        changed: bool,
    },
    /// Not to be had.
    Refused {
        /// Why, as a sentence.
        why: String,
    },
}

impl Reply {
    /// Not to be had, and why.
    pub fn refused(why: impl Into<String>) -> Self {
        Self::Refused { why: why.into() }
    }
}

/// How management stands, and the daemon around it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// How management stands.
    #[serde(flatten)]
    pub manager: Status,
    /// What is filled ahead of programs; `None` where nothing is.
    pub fill: Option<FillStatus>,
    /// Free memory that the kernel zeroes in advance; `None` on kernels that don't.
    #[serde(default)]
    pub prezeroing: Option<PrezeroingStatus>,
    /// Pages by size in managed processes; `None` where nobody is given other sizes than 4 KiB and 2 MiB.
    #[serde(default)]
    pub page_sizes: Option<SizesSeen>,
    /// Calls into other processes that took longer than 30 ms, after which the manager backs off.
    #[serde(default)]
    pub slow_calls: u64,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Where the journal is written to.
    pub journal: Option<JournalStatus>,
}

/// How fault-ahead stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FillStatus {
    /// Regions of 2 MiB that were filled before they were touched.
    pub filled: u64,
    /// Regions that could not be.
    pub refused: u64,
    /// Regions filled ahead of programs that were not there yet, at the most.
    pub ahead: u64,
    /// Regions filled ahead of programs that then stopped growing, at the most.
    pub unused: u64,
    /// CPU time it took, in seconds.
    pub cpu_s: f64,
    /// The longest fill, in milliseconds.
    pub longest_ms: f64,
}

/// How the kernel's own zeroing of free memory stands. Pages are base pages, counted since the machine was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrezeroingStatus {
    /// Whether something zeroes.
    pub active: bool,
    /// Zeroed in advance.
    pub zeroed_pages: u64,
    /// Handed out to who wanted zeros.
    pub served_pages: u64,
    /// Handed out to who did not.
    pub passed_over_pages: u64,
    /// No longer known to be zero: merged with others, say.
    pub lost_pages: u64,
    /// Free and zeroed now.
    pub free_zeroed_bytes: u64,
    /// Free now.
    pub free_bytes: u64,
    /// Zeroed per second at the most; 0: no limit; `None`: nobody can tell.
    pub pages_per_s: Option<u32>,
    /// Why so many, as a clause.
    pub pace: String,
}

/// How the journal's file stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Which file.
    pub path: PathBuf,
    /// Entries that could not be written.
    pub lost_entries: u64,
    /// Why entries can't be written at the moment.
    pub trouble: Option<String>,
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    protocol: u32,
    #[serde(flatten)]
    body: &'a T,
}

#[derive(Deserialize)]
struct Version {
    protocol: u32,
}

/// One line, with its end.
///
/// # Errors
/// A value that JSON can't hold.
pub fn line<T: Serialize>(body: &T) -> Result<Vec<u8>, serde_json::Error> {
    let protocol = VERSION;
    let mut line = serde_json::to_vec(&Outgoing { protocol, body })?;
    line.push(b'\n');
    Ok(line)
}

/// Reads what [`line()`] made.
///
/// # Errors
/// A sentence for the other side: it is no JSON, of another version, or not what is expected.
pub fn parse<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Result<T, String> {
    let Version { protocol } = serde_json::from_slice(line)
        .map_err(|error| format!("not a line of HawkEye's protocol: {error}"))?;
    if protocol != VERSION {
        return Err(format!(
            "protocol {protocol} was spoken and {VERSION} is understood: are `hawkeye` and the daemon of the same version?"
        ));
    }
    serde_json::from_slice(line).map_err(|error| format!("not understood: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Column, ProcessExplanation, RegionExplanation, RegionState};

    fn there_and_back(reply: Reply) {
        let line = line(&reply).expect("is JSON");
        assert_eq!(parse::<Reply>(&line), Ok(reply));
    }

    #[test]
    fn requests_are_plain_json() {
        let why = Request::Why {
            pid: 7,
            address: Some(2 << 20),
        };
        let line = line(&why).expect("is JSON");
        assert_eq!(
            String::from_utf8_lossy(&line),
            "{\"protocol\":1,\"request\":\"why\",\"pid\":7,\"address\":2097152}\n"
        );
        assert_eq!(parse(&line), Ok(why));
        let short = br#"{"protocol":1,"request":"why","pid":7}"#;
        let address = None;
        assert_eq!(parse(short), Ok(Request::Why { pid: 7, address }));
    }

    #[test]
    fn every_reply_survives_the_way() {
        there_and_back(Reply::Status(Box::default()));
        there_and_back(Reply::Done { changed: true });
        there_and_back(Reply::Strip(Strip {
            columns: vec![Column::default()],
            ..Strip::default()
        }));
        there_and_back(Reply::refused("no"));
        there_and_back(Reply::Explanation(Explanation::NotManaged {
            pid: 1,
            why: "gone".into(),
        }));
        there_and_back(Reply::Explanation(Explanation::Process(Box::default())));
        let process = ProcessExplanation::default().process;
        let region = RegionExplanation {
            process,
            uptime_s: 9.0,
            start: 1 << 46,
            end: (1 << 46) + (2 << 20),
            age_s: Some(0.5),
            sample: None,
            state: RegionState::CoolingDown {
                remaining_s: 3.5,
                errno: Some("EAGAIN".into()),
            },
            bucket: Some(3),
            waiting: None,
            ahead: Some(7),
            kept_by: vec!["a hold".into()],
            latest: Vec::new(),
            remembered_since_s: 1.0,
        };
        there_and_back(Reply::Explanation(Explanation::Region(Box::new(region))));
    }

    #[test]
    fn a_status_of_an_older_daemon_is_understood() {
        let older = br#"{"protocol":1,"reply":"status","version":"0.1.0","policy":"hawkeye","uptime_s":3.0,
            "paused":false,"held":null,"memory":null,"manager_cpu_percent":0.1,"longest_call_ms":1.0,
            "totals":{"promoted":1,"split":0,"recovered_bytes":0,"scanned":0,"freed":0,"samples":2,"errors":{}},
            "managed":0,"processes":[],"fill":null,"metrics":null,"journal":null}"#;
        let Ok(Reply::Status(status)) = parse::<Reply>(older) else {
            panic!("not understood");
        };
        assert_eq!(status.manager.totals.promoted, 1);
        assert!(status.manager.latest.is_empty());
    }

    #[test]
    fn what_is_no_request_is_answered_with_what_is_wrong() {
        let refuse = |line: &str| parse::<Request>(line.as_bytes()).expect_err("is refused");
        assert!(refuse("hello").contains("protocol"));
        assert!(refuse("").contains("protocol"));
        assert!(refuse(r#"{"protocol":2,"request":"status"}"#).contains("same version"));
        assert!(refuse(r#"{"protocol":1,"request":"stop"}"#).contains("stop"));
        assert!(refuse(r#"{"protocol":1,"request":"why","pid":-1}"#).contains("not understood"));
    }
}
