//! What can happen. State outside a policy changes only through these events and observations.

use crate::errno::Errno;
use crate::file_region::FileRegion;
use crate::observation::{CoverageSource, ProcessId};
use crate::page::{PageOrder, PageOrderSet, RegionAddr};
use crate::reason::Reason;
use crate::sampling_cost_limits::SamplingDelayReason;
use crate::watermarks::PromotionBlockReason;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// Something that happened.
///
/// Fields that are skipped in JSON are for code that keeps totals. So are the kinds of events that
/// the journal only counts ([`Event::is_kept_in_journal`]).
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[expect(missing_docs, reason = "processes, regions, reasons and errors need no words")]
pub enum Event {
    /// A process was sampled.
    Sampled {
        process: ProcessId,
        /// Source of the access figures.
        source: CoverageSource,
        /// Regions that are not empty.
        regions: usize,
        /// How many of these are huge.
        huge: usize,
        /// Base pages accessed.
        accessed_pages: u64,
        /// Whether it is worth promotions, and not all of it was seen.
        #[serde(skip)]
        worth_sampling_again: bool,
    },
    /// Sampling windows are further apart than the settings ask for.
    Stretched { because: SamplingDelayReason },
    /// A promotion was tried. The event of its result follows, if it has one.
    PromotionTried {
        process: ProcessId,
        /// Whether the region became huge.
        done: bool,
        /// CPU time of management for it.
        cpu: Duration,
        /// Whether the savings of promotions pay for it. Otherwise the CPU budget does.
        paid_by_savings: bool,
        /// Whether the reserve gave a huge page for it.
        from_reserve: bool,
    },
    /// A region became huge.
    Promoted {
        process: ProcessId,
        region: RegionAddr,
        /// Size of the new pages.
        order: PageOrder,
        /// Why the policy chose this region.
        reason: Reason,
        /// Of shared memory: which part of which file became huge, for all processes that map it.
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<FileRegion>,
        /// How long the call took.
        #[serde(rename = "took_s", serialize_with = "serialize_as_seconds")]
        took: Duration,
        /// What it changed.
        #[serde(skip)]
        effect: PromotionEffect,
    },
    /// The kernel refused a promotion. It is tried again, usually after a cool-down.
    Refused {
        process: ProcessId,
        region: RegionAddr,
        errno: Errno,
        /// Whether it is tried again without a cool-down, because memory was short only briefly.
        #[serde(skip)]
        again_soon: bool,
    },
    /// A candidate was passed over because its process has freed some of it.
    Freed { process: ProcessId, region: RegionAddr },
    /// A candidate was passed over because other processes also map too many of its pages.
    Shared {
        process: ProcessId,
        region: RegionAddr,
        /// Base pages that other processes map.
        pages: u16,
    },
    /// A candidate in shared memory was passed over because its file may lack too many base pages.
    FileHoles {
        process: ProcessId,
        region: RegionAddr,
        /// Base pages that no managed process maps there.
        pages: u16,
    },
    /// A huge page was searched for zero pages.
    Searched {
        process: ProcessId,
        region: RegionAddr,
        /// Zero-filled base pages found.
        zero_pages: u16,
    },
    /// The kernel refused to split a huge page.
    NotSplit { process: ProcessId, region: RegionAddr },
    /// The kernel refused a call other than a promotion.
    CallRefused { errno: Errno },
    /// The memory of a process was measured.
    Measured {
        process: ProcessId,
        /// Resident memory, in bytes.
        rss_bytes: u64,
        /// Memory under huge pages, in bytes.
        huge_bytes: u64,
    },
    /// A huge page was split and its zero pages given back.
    Recovered {
        process: ProcessId,
        region: RegionAddr,
        reason: Reason,
        /// Memory given back, in bytes.
        bytes: u64,
        /// Total duration of the calls.
        #[serde(rename = "took_s", serialize_with = "serialize_as_seconds")]
        took: Duration,
        /// Duration of the search before them.
        #[serde(skip)]
        searched_for: Duration,
    },
    /// From now on, memory that a process touches for the first time gets pages of other sizes.
    FaultSizes {
        process: ProcessId,
        /// The sizes; empty means base pages.
        orders: PageOrderSet,
        /// Why the policy chose them. `None`: the machine's own default applies, or memory is
        /// short.
        reason: Option<Reason>,
    },
    /// Promotion was held back, or goes on again (`None`).
    Held { hold: Option<PromotionBlockReason> },
    /// A call into a process has waited for one second. The process is left alone until it answers.
    NotAnswering {
        process: ProcessId,
        /// The call that was tried.
        call: &'static str,
    },
    /// A process that did not answer answers again, or has ended.
    Answering {
        process: ProcessId,
        /// How long the call had waited at the last check.
        #[serde(rename = "waited_s", serialize_with = "serialize_as_seconds")]
        waited: Duration,
    },
    /// A user paused the management of all processes.
    Paused,
    /// Management goes on after a pause.
    Resumed,
    /// The configuration was read again.
    Reloaded {
        /// Why it was refused and the old one kept; `None` when it was accepted.
        refused: Option<String>,
    },
    /// An error that belongs to no region.
    Trouble { message: String },
}

/// What a promotion changed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromotionEffect {
    /// Upper limit of the memory that it took, including copies of shared pages, in bytes.
    pub taken_bytes: u64,
    /// Upper limit of the base pages of the region that it added.
    pub added_pages: u16,
    /// Expected saving in microseconds per second; `None` where the policy gives none.
    pub saved_us_per_s: Option<f64>,
}

impl Event {
    /// Whether the journal keeps the event. It only counts events that come by the thousand.
    pub fn is_kept_in_journal(&self) -> bool {
        !matches!(
            self,
            Self::PromotionTried { .. }
                | Self::Searched { .. }
                | Self::NotSplit { .. }
                | Self::CallRefused { .. }
                | Self::Measured { .. }
        )
    }

    /// The kind of event, as in JSON.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// The process concerned, if there is one.
    pub fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Sampled { process, .. }
            | Self::PromotionTried { process, .. }
            | Self::Promoted { process, .. }
            | Self::Refused { process, .. }
            | Self::Freed { process, .. }
            | Self::Shared { process, .. }
            | Self::FileHoles { process, .. }
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

    /// The region concerned, if there is one.
    pub fn region(&self) -> Option<RegionAddr> {
        match self {
            Self::Promoted { region, .. }
            | Self::Refused { region, .. }
            | Self::Freed { region, .. }
            | Self::Shared { region, .. }
            | Self::FileHoles { region, .. }
            | Self::Searched { region, .. }
            | Self::NotSplit { region, .. }
            | Self::Recovered { region, .. } => Some(*region),
            _ => None,
        }
    }
}

/// Text of the event without its process and region.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |took: &Duration| took.as_secs_f64() * 1e3;
        match self {
            Self::Sampled { regions, huge, accessed_pages, .. } => write!(
                f,
                "sampled: {regions} regions, {huge} huge, {accessed_pages} base pages accessed"
            ),
            Self::Stretched { because } => write!(f, "windows further apart: {because}"),
            Self::Promoted { reason, took, file, .. } => {
                let kind = if file.is_some() { " as shared memory" } else { "" };
                write!(f, "promoted{kind} in {:.1} ms: {reason}", ms(took))
            }
            Self::Refused { errno, .. } => write!(f, "the kernel refused: {errno}"),
            Self::Freed { .. } => f.write_str("not promoted: the process was freeing it"),
            Self::Shared { pages, .. } => write!(
                f,
                "not promoted: other processes share {pages} of its base pages, which a promotion would copy"
            ),
            Self::FileHoles { pages, .. } => write!(
                f,
                "not promoted: no managed process maps {pages} of its base pages, which a promotion may add for good"
            ),
            Self::Recovered { reason, bytes, took, .. } => {
                write!(f, "split, {} KiB recovered in {:.1} ms: {reason}", bytes >> 10, ms(took))
            }
            Self::FaultSizes { orders, reason: Some(reason), .. } => {
                write!(f, "page sizes at first touches: {orders}: {reason}")
            }
            Self::FaultSizes { orders, .. } => write!(f, "page sizes at first touches: {orders}"),
            Self::Held { hold: Some(hold) } => write!(f, "promotion held: {hold}"),
            Self::Held { hold: None } => f.write_str("promotion resumed"),
            Self::NotAnswering { call, .. } => write!(
                f,
                "does not answer: {call} waits for a lock that the process holds; left alone until it answers"
            ),
            Self::Answering { waited, .. } => {
                write!(f, "answers again after {:.1} s, or has ended", waited.as_secs_f64())
            }
            Self::Paused => f.write_str("paused"),
            Self::Resumed => f.write_str("resumed"),
            Self::Reloaded { refused: None } => f.write_str("configuration reloaded"),
            Self::Reloaded { refused: Some(why) } => {
                write!(f, "new configuration rejected, the old one stays in force: {why}")
            }
            Self::Trouble { message } => f.write_str(message),
            // The journal counts these and does not show them.
            Self::PromotionTried { .. }
            | Self::Searched { .. }
            | Self::NotSplit { .. }
            | Self::CallRefused { .. }
            | Self::Measured { .. } => f.write_str(self.kind()),
        }
    }
}

/// A time as a number of seconds.
pub fn serialize_as_seconds<S: Serializer>(
    time: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
