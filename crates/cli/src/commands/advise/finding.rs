//! The types of findings; no logic.

use super::facts::{ProcessForecast, RunningHawkeye, TranslationCost, TranslationNotMeasured};
use hawkeye_linux::processes::program_text::{TextMapping, TextSupport};
use hawkeye_linux::processes::shared_mappings::SharedMapping;
use hawkeye_policy::{MemoryUse, ProcessSettings};
use serde::Serialize;

/// Savings worth acting on, in per cent of a process's CPU time; the same as in the policies.
pub const WORTH_PERCENT: f64 = ProcessSettings::MIN_OVERHEAD_PERCENT;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceVerdict {
    Gains,
    /// The estimate is below the limit, but a gain can't be ruled out.
    MayGain,
    GainsNothing,
    /// It already has the huge pages that it gains from.
    HasThem,
    Unknown,
}

/// A finding. Shares are in per cent of the process's CPU time unless the field says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum Finding {
    Costs {
        #[serde(flatten)]
        cost: TranslationCost,
    },
    NotMeasured(TranslationNotMeasured),
    /// CPU time saved if all of its memory were huge.
    WouldSave {
        percent: f64,
        low_percent: f64,
        high_percent: f64,
        /// Factor by which it would be faster if it did nothing but compute.
        speedup: f64,
        regions: u64,
    },
    /// Regions of which contiguous page-table entries map most.
    Contiguous {
        regions: u64,
        of_regions: u64,
    },
    /// The hottest regions, and the share of the saving that they account for.
    FirstRegions {
        regions: u64,
        share_percent: f64,
        added_bytes: u64,
    },
    /// A mapping that accounts for part of the saving.
    At {
        start: u64,
        end: u64,
        /// What is mapped there: its name.
        what: String,
        share_percent: f64,
        base_bytes: u64,
    },
    /// Memory that huge pages would add.
    WouldAdd {
        /// The amount, in bytes, if everything became huge.
        bytes: u64,
        /// Memory of the process under base pages now, in bytes.
        of_bytes: u64,
    },
    /// Memory that `enabled=always` would add.
    Forecast(ProcessForecast),
    Wastes {
        searched: u64,
        huge_regions: u64,
        /// Share of their base pages that are filled with zeros, in per cent.
        zero_percent: f64,
        /// Waste in all of its huge pages, extrapolated from that share, in bytes.
        bytes: u64,
        /// The part that recovery gives back under pressure at its default threshold, in bytes.
        recoverable_bytes: u64,
    },
    /// A manager runs at the same time, and may read the same access bits.
    ManagerRuns(RunningHawkeye),
    ThpDisabled,
    NoHugePage {
        bytes: u64,
    },
    KernelSaysNever,
    /// The kernel's setting is `madvise`, and the program does not advise this memory.
    KernelSaysMadvise {
        bytes: u64,
        /// Memory that the program does advise, in bytes.
        advised_bytes: u64,
    },
    /// The kernel's setting is `always`, and this memory is under base pages nevertheless.
    KernelSaysAlways {
        bytes: u64,
        /// Time that khugepaged needs for it at its pace, in seconds, where that is known.
        khugepaged_s: Option<f64>,
    },
    /// Shared memory, which only other means can make huge.
    Shared {
        bytes: u64,
        shmem_enabled: Option<String>,
    },
    /// Shared memory that no means can make huge while the program runs.
    SharedBlocked {
        #[serde(flatten)]
        mapping: SharedMapping,
        mapped_bytes: u64,
        /// What keeps it from huge pages, as a clause.
        because: String,
        /// What would change that from the next start on, as a clause.
        remedy: Option<String>,
    },
    /// Program text, and which windows of 2 MiB of it could be huge.
    Text {
        #[serde(flatten)]
        mapping: TextMapping,
        /// Whether address and file offset are congruent modulo 2 MiB.
        aligned: bool,
        /// Windows that could be huge where they are mapped.
        windows: u64,
        /// Those that it would have if it were linked for huge pages.
        windows_if_aligned: u64,
        support: TextSupport,
    },
    /// Memory is short: nothing should be promoted.
    MemoryShort {
        /// Path of the cgroup; `None`: the machine.
        cgroup: Option<String>,
        usage: MemoryUse,
        /// Above this nothing is promoted, in per cent.
        high_percent: f64,
    },
    /// The memory that huge pages would add does not fit under a limit.
    LimitNear {
        cgroup: Option<String>,
        /// Memory left below the high watermark, in bytes.
        room_bytes: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemedyEffectTime {
    /// In the running process.
    AtOnce,
    AtNextStart,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// What it does and what it affects, as a clause.
    pub does: String,
    pub takes: RemedyEffectTime,
    /// The command, or the text and the file to put it in.
    pub command: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    pub verdict: AdviceVerdict,
    pub findings: Vec<Finding>,
    /// Remedies, the most direct one first; none where there is nothing to gain.
    pub remedies: Vec<Remedy>,
}
