//! What can happen. State outside a policy changes by these events and by observations alone.

use crate::errno::Errno;
use crate::observation::{CoverageSource, ProcessId};
use crate::pacing::StretchedBy;
use crate::page::{PageOrder, PageOrders, RegionAddr};
use crate::reason::Reason;
use crate::watermarks::Hold;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// Something that happened.
///
/// Fields that are skipped in JSON are for those who keep account. So are the kinds of events that
/// the journal only counts ([`Event::is_kept`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A process was sampled.
    Sampled {
        /// Which.
        process: ProcessId,
        /// Where access figures come from.
        source: CoverageSource,
        /// Regions with anything in them.
        regions: usize,
        /// Of these, huge.
        huge: usize,
        /// Base pages accessed.
        accessed_pages: u64,
    },
    /// Windows are further apart than asked for.
    Stretched {
        /// Why.
        because: StretchedBy,
    },
    /// A region became huge.
    Promoted {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
        /// Into pages of which size.
        order: PageOrder,
        /// Why this one.
        reason: Reason,
        /// How long the call took.
        #[serde(rename = "took_s", serialize_with = "as_seconds")]
        took: Duration,
        /// What it changed.
        #[serde(skip)]
        effect: PromotionEffect,
    },
    /// The kernel refused a promotion; it will be tried again, after a cool-down as a rule.
    Refused {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
        /// The kernel's error number.
        errno: Errno,
        /// Whether it is tried again without a cool-down: memory was short just then.
        #[serde(skip)]
        again_soon: bool,
    },
    /// A candidate was passed over because its owner has freed some of it.
    Freed {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
    },
    /// A candidate was passed over because other processes map too many of its pages too.
    Shared {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
        /// Base pages that others map.
        pages: u16,
    },
    /// A huge page was searched for zero pages.
    Searched {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
        /// Zero-filled base pages that were found.
        zero_pages: u16,
    },
    /// The kernel refused to split a huge page.
    NotSplit {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
    },
    /// The kernel refused a call that is no promotion.
    CallRefused {
        /// The kernel's error number.
        errno: Errno,
    },
    /// The memory of a process was looked at.
    Measured {
        /// Whose.
        process: ProcessId,
        /// Resident, in bytes.
        rss_bytes: u64,
        /// Under huge pages, in bytes.
        huge_bytes: u64,
    },
    /// A huge page was split and its zero pages given back.
    Recovered {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
        /// Why.
        reason: Reason,
        /// Memory given back.
        bytes: u64,
        /// How long the calls took together.
        #[serde(rename = "took_s", serialize_with = "as_seconds")]
        took: Duration,
        /// How long the search before took.
        #[serde(skip)]
        searched_for: Duration,
    },
    /// Memory that a process touches for the first time is given pages of other sizes from now on.
    FaultSizes {
        /// Whose.
        process: ProcessId,
        /// The sizes; none: base pages.
        orders: PageOrders,
        /// Why, where the policy chose them; `None`: as the machine does by itself, or memory is short.
        reason: Option<Reason>,
    },
    /// Promotion was held back, or goes on (`None`).
    Held {
        /// Why.
        hold: Option<Hold>,
    },
    /// A call into a process has waited for a second: it is left alone until it answers.
    NotAnswering {
        /// Which.
        process: ProcessId,
        /// What was tried.
        call: &'static str,
    },
    /// A process that did not answer does again, or has ended.
    Answering {
        /// Which.
        process: ProcessId,
        /// How long the call had waited when it was last looked at.
        #[serde(rename = "waited_s", serialize_with = "as_seconds")]
        waited: Duration,
    },
    /// Somebody asked that nothing be done to any process for a while.
    Paused,
    /// Management goes on after a pause.
    Resumed,
    /// The configuration was read again.
    Reloaded {
        /// Why it was refused and the old one kept, if it was.
        refused: Option<String>,
    },
    /// Something went wrong that is nobody's region.
    Trouble {
        /// What.
        message: String,
    },
}

/// What a promotion changed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromotionEffect {
    /// Memory that it took at the most, copies of shared pages included, in bytes.
    pub taken_bytes: u64,
    /// Base pages of the region that were not there before, at the most.
    pub added_pages: u16,
    /// What it saves, in microseconds per second, where the policy says so.
    pub saved_us_per_s: Option<f64>,
}

impl Event {
    /// Whether the journal keeps it, and does not only count it: these come by the thousand.
    pub fn is_kept(&self) -> bool {
        !matches!(
            self,
            Self::Searched { .. }
                | Self::NotSplit { .. }
                | Self::CallRefused { .. }
                | Self::Measured { .. }
        )
    }

    /// What kind of event it is, as in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sampled { .. } => "sampled",
            Self::Stretched { .. } => "stretched",
            Self::Promoted { .. } => "promoted",
            Self::Refused { .. } => "refused",
            Self::Freed { .. } => "freed",
            Self::Shared { .. } => "shared",
            Self::Searched { .. } => "searched",
            Self::NotSplit { .. } => "not-split",
            Self::CallRefused { .. } => "call-refused",
            Self::Measured { .. } => "measured",
            Self::Recovered { .. } => "recovered",
            Self::FaultSizes { .. } => "fault-sizes",
            Self::Held { .. } => "held",
            Self::NotAnswering { .. } => "not-answering",
            Self::Answering { .. } => "answering",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Reloaded { .. } => "reloaded",
            Self::Trouble { .. } => "trouble",
        }
    }

    /// The process concerned, if it is one.
    pub fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Sampled { process, .. }
            | Self::Promoted { process, .. }
            | Self::Refused { process, .. }
            | Self::Freed { process, .. }
            | Self::Shared { process, .. }
            | Self::Searched { process, .. }
            | Self::NotSplit { process, .. }
            | Self::Measured { process, .. }
            | Self::Recovered { process, .. }
            | Self::FaultSizes { process, .. }
            | Self::NotAnswering { process, .. }
            | Self::Answering { process, .. } => Some(*process),
            Self::Stretched { .. }
            | Self::CallRefused { .. }
            | Self::Held { .. }
            | Self::Paused
            | Self::Resumed
            | Self::Reloaded { .. }
            | Self::Trouble { .. } => None,
        }
    }

    /// The region concerned, if it is one.
    pub fn region(&self) -> Option<RegionAddr> {
        match self {
            Self::Promoted { region, .. }
            | Self::Refused { region, .. }
            | Self::Freed { region, .. }
            | Self::Shared { region, .. }
            | Self::Searched { region, .. }
            | Self::NotSplit { region, .. }
            | Self::Recovered { region, .. } => Some(*region),
            _ => None,
        }
    }
}

/// What happened, without whose and where.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |took: &Duration| took.as_secs_f64() * 1e3;
        match self {
            Self::Sampled {
                regions,
                huge,
                accessed_pages,
                ..
            } => write!(
                f,
                "sampled: {regions} regions, {huge} huge, {accessed_pages} base pages accessed"
            ),
            Self::Stretched { because } => write!(f, "windows further apart: {because}"),
            Self::Promoted { reason, took, .. } => {
                write!(f, "promoted in {:.1} ms: {reason}", ms(took))
            }
            Self::Refused { errno, .. } => write!(f, "the kernel refused: {errno}"),
            Self::Freed { .. } => f.write_str("passed over: its owner was freeing it"),
            Self::Shared { pages, .. } => write!(
                f,
                "passed over: other processes share {pages} of its base pages, which a promotion would copy"
            ),
            Self::Searched { zero_pages, .. } => {
                write!(f, "searched: {zero_pages} zero pages or more")
            }
            Self::NotSplit { .. } => f.write_str("the kernel refused to split it"),
            Self::CallRefused { errno } => write!(f, "the kernel refused a call: {errno}"),
            Self::Measured {
                rss_bytes,
                huge_bytes,
                ..
            } => write!(
                f,
                "{} MiB resident, {} MiB of it huge",
                rss_bytes >> 20,
                huge_bytes >> 20
            ),
            Self::Recovered {
                reason,
                bytes,
                took,
                ..
            } => write!(
                f,
                "split, {} KiB recovered in {:.1} ms: {reason}",
                bytes >> 10,
                ms(took)
            ),
            Self::FaultSizes {
                orders,
                reason: Some(reason),
                ..
            } => write!(f, "sizes at first touches: {orders}: {reason}"),
            Self::FaultSizes { orders, .. } => write!(f, "sizes at first touches: {orders}"),
            Self::Held { hold: Some(hold) } => write!(f, "promotion held: {hold}"),
            Self::Held { hold: None } => f.write_str("promotion goes on"),
            Self::NotAnswering { call, .. } => write!(
                f,
                "does not answer: {call} waits for a lock that it holds; left alone until it answers"
            ),
            Self::Answering { waited, .. } => write!(
                f,
                "answers again after {:.1} s, or has ended",
                waited.as_secs_f64()
            ),
            Self::Paused => f.write_str("paused"),
            Self::Resumed => f.write_str("resumed"),
            Self::Reloaded { refused: None } => f.write_str("configuration read again"),
            Self::Reloaded { refused: Some(why) } => {
                write!(f, "new configuration refused, the old one kept: {why}")
            }
            Self::Trouble { message } => f.write_str(message),
        }
    }
}

/// A time as a number of seconds.
///
/// # Errors
/// Those of the serializer.
pub fn as_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
