//! What can be found: types, and nothing else.

use super::facts::{Cost, NotMeasured, RunningManager};
use hawkeye_policy::MemoryUse;
use hawkeye_policy::policies::HawkeyePmu;
use serde::Serialize;

/// Less than this is not worth anybody's time, in per cent of a process's CPU time: as the policies have it.
pub const WORTH_PERCENT: f64 = HawkeyePmu::MIN_OVERHEAD_PERCENT;

/// What huge pages are to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// More of them would make it faster.
    Gains,
    /// The estimate is under what is worth anything, but it can't be ruled out.
    MayGain,
    /// They would bring nothing.
    GainsNothing,
    /// What there is to gain, it has already.
    HasThem,
    /// It can't be told.
    Unknown,
}

/// One thing that was found, with its figures. Shares are in per cent of the process's CPU time unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum Finding {
    /// What translation costs.
    Costs {
        /// What, and how that was found out.
        #[serde(flatten)]
        cost: Cost,
    },
    /// It can't be told what translation costs.
    NotMeasured(NotMeasured),
    /// What would be saved if all of it were huge.
    WouldSave {
        /// Best estimate.
        percent: f64,
        /// Hardly less.
        low_percent: f64,
        /// Hardly more.
        high_percent: f64,
        /// So many times as fast would it be, where it does nothing but compute.
        speedup: f64,
        /// Regions under base pages.
        regions: u64,
    },
    /// So many regions, the hottest, have so much of it.
    FirstRegions {
        /// How many.
        regions: u64,
        /// Of the saving, in per cent.
        share_percent: f64,
        /// Memory that would be added for them.
        added_bytes: u64,
    },
    /// Where that is.
    At {
        /// First byte of the mapping.
        start: u64,
        /// First byte after it.
        end: u64,
        /// What is mapped there.
        what: String,
        /// Of the saving, in per cent.
        share_percent: f64,
        /// Of its memory, under base pages.
        base_bytes: u64,
    },
    /// Memory that huge pages would add.
    WouldAdd {
        /// How much, if everything became huge.
        bytes: u64,
        /// Its memory under base pages now.
        of_bytes: u64,
    },
    /// What the huge pages that it has waste.
    Wastes {
        /// Huge pages searched for zeros.
        searched: u64,
        /// All that it has.
        huge_regions: u64,
        /// Base pages of them that hold nothing but zeros, in per cent.
        zero_percent: f64,
        /// The same in all of its huge pages, by that share.
        bytes: u64,
        /// What of it recovery would give back, under pressure, by its usual threshold.
        recoverable_bytes: u64,
    },
    /// A manager runs, and may look at the same access bits.
    ManagerRuns(RunningManager),
    /// It was told to have no huge pages.
    ThpDisabled,
    /// Its owner keeps memory out.
    NoHugePage {
        /// How much.
        bytes: u64,
    },
    /// The kernel gives huge pages to nobody.
    KernelSaysNever,
    /// The kernel gives huge pages to who asks, and it does not ask for this much.
    KernelSaysMadvise {
        /// How much.
        bytes: u64,
        /// How much it does ask for.
        advised_bytes: u64,
    },
    /// The kernel gives huge pages to everybody, and yet this much is under base pages.
    KernelSaysAlways {
        /// How much.
        bytes: u64,
        /// How long khugepaged takes for it at its pace, in seconds, where that is known.
        khugepaged_s: Option<f64>,
    },
    /// Memory that could be huge by other means only.
    Shared {
        /// How much.
        bytes: u64,
        /// The kernel's `shmem_enabled`.
        shmem_enabled: Option<String>,
    },
    /// Memory is short: nothing should become huge.
    MemoryShort {
        /// A cgroup's path; `None`: the machine.
        cgroup: Option<String>,
        /// In use.
        usage: MemoryUse,
        /// From here on nothing is promoted, in per cent.
        high_percent: f64,
    },
    /// What would be added does not fit under a limit.
    LimitNear {
        /// A cgroup's path; `None`: the machine.
        cgroup: Option<String>,
        /// Memory that is left up to the high watermark.
        room_bytes: u64,
    },
}

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takes {
    /// In the process that runs.
    AtOnce,
    /// From its next start on.
    AtNextStart,
}

/// Something that can be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// What it does, and to whom, as a clause.
    pub does: String,
    /// When.
    pub takes: Takes,
    /// What to type, or to write where.
    pub command: String,
}

/// What to make of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// In a word.
    pub verdict: Verdict,
    /// In detail.
    pub findings: Vec<Finding>,
    /// What would change it, the nearest first; none where nothing is to be gained.
    pub remedies: Vec<Remedy>,
}
