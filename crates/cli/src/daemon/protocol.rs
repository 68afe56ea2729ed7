//! The protocol of the socket: a request is one line of JSON, and so is its reply.
//!
//! A request names the protocol's version and the kind of request:
//! `{"protocol":3,"request":"why","pid":4711,"address":140102385123328}`. Its reply names the
//! version and the kind of reply: `status`, `explanation`, `strip`, `done` or `refused`. Field
//! names carry units.

use crate::view::{AddressStrip, Explanation, ManagerStatus};
use hawkeye_linux::page_sizes::ObservedPageSizes;
use hawkeye_linux::processes::profile_requests::PodAnnotationStatus;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Version of the protocol. It changes when a program could no longer understand an older or a
/// newer one.
pub const VERSION: u32 = 3;
pub const MOST_REQUEST_BYTES: u64 = 4096;
/// Longest reply, in bytes: 256 processes and all cgroups fit many times.
pub const MOST_REPLY_BYTES: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum DaemonRequest {
    Status,
    /// Why the daemon treats a process, or the region at an address of it, as it does.
    Why {
        pid: u32,
        /// Any address in the region.
        address: Option<u64>,
    },
    Strip {
        pid: u32,
        columns: u16,
    },
    Pause,
    Resume,
}

impl DaemonRequest {
    /// Whether it changes anything; only root may send such a request.
    pub fn changes_daemon_state(self) -> bool {
        match self {
            Self::Status | Self::Why { .. } | Self::Strip { .. } => false,
            Self::Pause | Self::Resume => true,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum DaemonReply {
    Status(Box<DaemonStatus>),
    Explanation(Explanation),
    Strip(AddressStrip),
    /// To a request that changes something.
    Done {
        changed: bool,
    },
    Refused {
        why: String,
    },
}

impl DaemonReply {
    pub fn refused_because(why: impl Into<String>) -> Self {
        Self::Refused { why: why.into() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    #[serde(flatten)]
    pub manager: ManagerStatus,
    /// Process id of the daemon.
    pub pid: u32,
    /// The configuration file in force; `None`: there is none.
    pub config_file: Option<PathBuf>,
    /// State of prefault; `None` where nothing is prefaulted.
    pub fill: Option<PrefaultStatus>,
    /// Free memory that the kernel zeroes in advance; `None` on kernels that can't.
    pub prezeroing: Option<PrezeroingStatus>,
    /// Pages by size in managed processes; `None` where all have 4 KiB or 2 MiB.
    pub page_sizes: Option<ObservedPageSizes>,
    /// The profiles that pods ask for by annotation; `None`: they are not read.
    pub pod_annotations: Option<PodAnnotationStatus>,
    /// Which rules leave processes alone that get huge pages all the same, under the profile
    /// `guard`, as a clause; `None`: none do.
    pub unguarded_rules: Option<String>,
    /// Calls into other processes that took longer than 30 ms; after one the manager backs off.
    pub slow_calls: u64,
    pub metrics: Option<SocketAddr>,
    /// The error because of which metrics can't be served at the moment.
    pub metrics_error: Option<String>,
    pub journal: Option<JournalFileStatus>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrefaultStatus {
    /// Regions of 2 MiB that were filled before their first touch.
    pub filled: u64,
    pub refused: u64,
    /// Upper bound of the regions filled ahead that their programs have not reached yet.
    pub ahead: u64,
    /// Upper bound of the regions filled ahead for programs that then stopped growing.
    pub unused: u64,
    pub cpu_s: f64,
    pub longest_ms: f64,
}

/// The kernel's zeroing of free memory. Base pages, counted since the machine was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrezeroingStatus {
    /// Whether a module zeroes memory.
    pub active: bool,
    pub zeroed_pages: u64,
    /// Zeroed pages handed out to allocations that needed zeros.
    pub served_pages: u64,
    /// Zeroed pages handed out to allocations that did not.
    pub passed_over_pages: u64,
    /// Pages no longer known to be zero: merged with others, for example.
    pub lost_pages: u64,
    pub free_zeroed_bytes: u64,
    pub free_bytes: u64,
    /// Pages zeroed per second at most; 0: no limit; `None`: unknown.
    pub pages_per_s: Option<u32>,
    /// Reason for this rate, as a clause.
    pub pace: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalFileStatus {
    pub path: PathBuf,
    pub lost_entries: u64,
    /// The error because of which entries can't be written at the moment.
    #[serde(rename = "trouble")]
    pub last_error: Option<String>,
}

#[derive(Serialize)]
struct VersionedMessage<'a, T> {
    protocol: u32,
    #[serde(flatten)]
    body: &'a T,
}

#[derive(Deserialize)]
struct ProtocolVersion {
    protocol: u32,
}

/// One line, with its line break.
pub fn encode_message_line<T: Serialize>(body: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(&VersionedMessage { protocol: VERSION, body })?;
    line.push(b'\n');
    Ok(line)
}

/// Parses a line from [`encode_message_line()`].
///
/// # Errors
/// The reason, as a clause that follows "invalid request: ". The line is not JSON, has another
/// version, or is not of the expected form.
pub fn decode_message_line<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Result<T, String> {
    let ProtocolVersion { protocol } = serde_json::from_slice(line)
        .map_err(|error| format!("not a line of HawkEye's protocol: {error}"))?;
    if protocol != VERSION {
        return Err(format!(
            "protocol version {protocol}, but version {VERSION} is needed; use the same version of `hawkeye` and the daemon"
        ));
    }
    serde_json::from_slice(line).map_err(|error| format!("not a valid message: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{AddressStripColumn, RegionExplanation, RegionPromotionState};

    fn round_trip(reply: DaemonReply) {
        let line = encode_message_line(&reply).expect("the message serializes");
        assert_eq!(decode_message_line::<DaemonReply>(&line), Ok(reply));
    }

    #[test]
    fn requests_are_plain_json() {
        let why = |address| DaemonRequest::Why { pid: 7, address };
        let long = why(Some(2 << 20));
        let said = encode_message_line(&long).expect("the message serializes");
        let begin = format!(r#"{{"protocol":{VERSION},"request":"why","pid":7"#);
        let json = format!("{begin},\"address\":2097152}}\n");
        assert_eq!(String::from_utf8_lossy(&said), json);
        assert_eq!(decode_message_line(&said), Ok(long));
        let short = format!("{begin}}}");
        assert_eq!(decode_message_line(short.as_bytes()), Ok(why(None)));
    }

    #[test]
    fn every_reply_is_parsed_as_it_was_sent() {
        round_trip(DaemonReply::Status(Box::default()));
        round_trip(DaemonReply::Done { changed: true });
        round_trip(DaemonReply::Strip(AddressStrip {
            columns: vec![AddressStripColumn::default()],
            ..AddressStrip::default()
        }));
        round_trip(DaemonReply::refused_because("no"));
        let (pid, why) = (1, "gone".into());
        round_trip(DaemonReply::Explanation(Explanation::NotManaged { pid, why }));
        round_trip(DaemonReply::Explanation(Explanation::Process(Box::default())));
        let region = RegionExplanation {
            uptime_s: 9.0,
            start: 1 << 46,
            end: (1 << 46) + (2 << 20),
            age_s: Some(0.5),
            state: RegionPromotionState::CoolingDown {
                remaining_s: 3.5,
                errno: Some("EAGAIN".into()),
            },
            bucket: Some(3),
            ahead: Some(7),
            kept_by: vec!["a hold".into()],
            remembered_since_s: 1.0,
            ..RegionExplanation::default()
        };
        round_trip(DaemonReply::Explanation(Explanation::Region(Box::new(region))));
    }
}
