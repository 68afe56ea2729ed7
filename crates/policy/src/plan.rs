//! What a policy asks for, and what came of it.

use crate::observation::ProcessId;
use crate::overhead::Overhead;
use crate::page::{PageOrder, PageOrders, RegionAddr};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why an action was chosen, with the numbers that decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum Reason {
    /// HawkEye-G: taken from this bucket of the access map.
    Bucket {
        /// Bucket index, 0-9.
        bucket: u8,
        /// Averaged coverage, base pages.
        coverage: u16,
    },
    /// HawkEye-PMU: the process's overhead is among the highest, and this is its best region.
    MeasuredOverhead {
        /// What translation costs the process, as last measured.
        overhead: Overhead,
        /// Bucket index in its access map, 0-9.
        bucket: u8,
        /// Averaged coverage, base pages.
        coverage: u16,
    },
    /// Ingens: enough of the region is in use, and its process is furthest behind its share.
    Utilisation {
        /// Base pages present.
        present: u16,
        /// Free memory fragmentation index (0-1), which decides how many are enough; `None` where
        /// it isn't known.
        fmfi: Option<f64>,
        /// The process's promotion metric: memory it holds over memory under its huge pages, idle
        /// ones weighing more (over 0).
        importance: f64,
    },
    /// HawkEye: what the promotion is expected to save, against what it costs.
    Saving {
        /// The overhead of the process.
        overhead: Overhead,
        /// The size of the pages that are to map it.
        order: PageOrder,
        /// Page walks of the region that those spare, per second of CPU time.
        walks_per_s: u32,
        /// CPU time that its promotion is expected to save, in microseconds a second.
        saved_us_per_s: f64,
        /// What a promotion costs, as last seen, in microseconds.
        cost_us: f64,
        /// After how long it has paid for itself, in seconds.
        pays_after_s: f64,
    },
    /// The size at first touches: what it saves, against the memory that it takes.
    FaultSize {
        /// Of the pages that are to be mapped.
        order: PageOrder,
        /// Share of page faults that it spares, in per cent.
        faults_percent: f64,
        /// CPU time that it is expected to save in page walks, in microseconds a second.
        saved_us_per_s: f64,
        /// Memory that it takes beyond what is used, in bytes.
        added_bytes: u64,
    },
    /// The sizes at first touches that suited the same program before.
    Learned {
        /// In how many of its starts, one after the other.
        starts: u32,
    },
    /// khugepaged's order: next populated region in first-come, address order.
    AddressOrder {
        /// Base pages present.
        present: u16,
    },
    /// Bloat: memory is over the mark at which it is recovered, and the huge page holds this many zero
    /// base pages.
    Bloat {
        /// Zero-filled base pages found.
        zero_pages: u16,
        /// Split at or above this many.
        threshold: u16,
        /// Memory in use, per cent, of what is short of it.
        used_percent: f64,
        /// The share above which recovery started, per cent: the high watermark, or less while use
        /// grows fast.
        start_percent: f64,
        /// How fast use grows, bytes per second.
        growth_bytes_per_s: u64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket { bucket, coverage } => {
                write!(f, "bucket {bucket}: {coverage} of 512 base pages accessed")
            }
            Self::Saving {
                overhead,
                order,
                walks_per_s,
                saved_us_per_s,
                cost_us,
                pays_after_s,
            } => write!(
                f,
                "overhead {overhead}, {walks_per_s} page walks/s here: {order} saves {saved_us_per_s:.0} us/s, costs {cost_us:.0} us, pays after {pays_after_s:.1} s"
            ),
            Self::MeasuredOverhead {
                overhead,
                bucket,
                coverage,
            } => write!(
                f,
                "overhead {overhead}, bucket {bucket}: {coverage} of 512 base pages accessed"
            ),
            Self::Utilisation {
                present,
                fmfi,
                importance,
            } => {
                write!(f, "{present} of 512 base pages present with ")?;
                match fmfi {
                    Some(fmfi) => write!(f, "a fragmentation of {fmfi:.2}")?,
                    None => write!(f, "unknown fragmentation")?,
                }
                write!(f, ", importance {importance:.2}")
            }
            Self::FaultSize {
                order,
                faults_percent,
                saved_us_per_s,
                added_bytes,
            } => write!(
                f,
                "{order} at first touches spares {faults_percent:.0} % of the faults, saves {saved_us_per_s:.0} us/s of page walks, takes {} KiB more",
                added_bytes >> 10
            ),
            Self::Learned { starts } => {
                write!(
                    f,
                    "best for this program in the last {starts} of its starts"
                )
            }
            Self::AddressOrder { present } => {
                write!(f, "next in address order, {present} base pages present")
            }
            Self::Bloat {
                zero_pages,
                threshold,
                used_percent,
                start_percent,
                growth_bytes_per_s,
            } => write!(
                f,
                "{zero_pages} zero base pages (threshold {threshold}) with {used_percent:.0} % of memory in use, growing by {} MB/s (recovered from {start_percent:.0} % on)",
                growth_bytes_per_s / 1_000_000
            ),
        }
    }
}

/// Page sizes that a process's memory should be given at first touches from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultSizes {
    /// Sizes under that of a huge page: the largest one that fits is given, or the next one that memory is there for.
    pub orders: PageOrders,
    /// Why.
    pub reason: Reason,
}

/// A region that a policy wants promoted next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promotion {
    /// Whose region.
    pub process: ProcessId,
    /// Which: the first one, where the page is larger than a region.
    pub region: RegionAddr,
    /// By pages of which size. Smaller ones than a region replace what is present in it, block by aligned block; what has
    /// nothing present stays empty.
    pub order: PageOrder,
    /// Base pages present in the region when it was chosen; a machine refuses if the owner has freed some since.
    pub expected_present: u16,
    /// Why.
    pub reason: Reason,
}
