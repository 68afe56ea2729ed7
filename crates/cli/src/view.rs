//! The daemon's view of its manager for people and programs: plain data with units in the names.
//!
//! ```text
//!  Manager --+--> manager_view   ManagerStatus: memory, budgets, processes, latest decisions
//!  (journal, |--> explanation    Explanation: why a process or a region is treated as it is
//!   samples) `--> address_strip  AddressStrip: the regions of a process in columns
//!                    all of them --> daemon::protocol --> status, top, why
//! ```
//!
//! [`ManagerView`] derives the first two: decisions and totals from the journal, the state of
//! regions from the last samples of each process, memory, limits and budgets from the manager. All
//! three use `region_state`. Read the types in this file first, then `manager_view`. Programs read
//! the same types as JSON, so a field that is renamed changes their input. `without_addresses` is
//! for clients that may not know addresses.

mod address_strip;
mod explanation;
mod manager_view;
mod region_state;

pub use address_strip::{AddressStrip, AddressStripColumn, address_strip_of_process};
pub use manager_view::{ManagerStatus, ManagerView};

use crate::text_format::format_short_duration;
use hawkeye_manager::{BudgetWait, PromotionAndRecoveryRates, WaitingWork};
use hawkeye_policy::{
    BloatTotals, CoverageSource, FileRegion, ProcessSettings, RegionSample, TranslationOverhead,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Work that a budget holds back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetWaitStatus {
    pub work: WaitingWork,
    /// The budget that is used up, as a clause.
    pub budget: String,
    /// When the work continues at the latest; `None`: it does not continue.
    pub continues_in_s: Option<f64>,
}

impl BudgetWaitStatus {
    pub fn new(wait: &BudgetWait, now: Duration) -> Self {
        let left_s = |until: Duration| until.saturating_sub(now).as_secs_f64();
        Self {
            work: wait.budget.work(),
            budget: wait.budget.to_string(),
            continues_in_s: wait.until.map(left_s),
        }
    }
}

impl fmt::Display for BudgetWaitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (work, budget) = (self.work, &self.budget);
        match self.continues_in_s.map(format_short_duration) {
            Some(left) => write!(f, "{budget}; {work} continues in {left}"),
            None => write!(f, "{budget}; {work} does not continue"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HugePageReserveStatus {
    pub held_bytes: u64,
    pub filled: u64,
    /// Fills for which the kernel had no huge page.
    pub failed: u64,
    pub served: u64,
    /// CPU time of fills, at idle priority.
    pub fill_cpu_s: f64,
    /// Whether it pays here; `None` until that was measured.
    pub pays: Option<bool>,
}

/// A decision or an action, without the address of the region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DecisionView {
    /// Time since management began.
    pub at_s: f64,
    pub pid: Option<u32>,
    /// Command name of the process, while it exists.
    pub name: Option<String>,
    /// What was done and why, as a clause.
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Memory that is allocated and not cheaply reclaimable.
    pub used_bytes: u64,
    pub total_bytes: u64,
    /// High watermark: above this share memory is recovered and nothing is promoted.
    pub high_percent: f64,
    /// Low watermark: below this share recovery ends.
    pub low_percent: f64,
    /// Whether recovery is running, for the machine or for a cgroup.
    pub recovering: bool,
    /// Share of the last 10 s in which a task waited for memory; `None` without PSI.
    pub pressure_percent: Option<f64>,
    /// Free memory fragmentation index (0-1), where it is known.
    pub fmfi: Option<f64>,
    pub growth_bytes_per_s: u64,
    /// That of all managed processes.
    #[serde(flatten)]
    pub bloat: BloatTotals,
    /// Cgroups with a limit and a managed process, the fullest first.
    pub groups: Vec<CgroupMemoryStatus>,
}

/// A cgroup's memory against its limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CgroupMemoryStatus {
    pub name: String,
    pub used_bytes: u64,
    /// Its limit.
    pub total_bytes: u64,
    pub pressure_percent: Option<f64>,
    pub processes: usize,
    pub growth_bytes_per_s: u64,
    /// That of its processes.
    #[serde(flatten)]
    pub bloat: BloatTotals,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    pub pid: u32,
    pub name: String,
    pub user: Option<String>,
    /// User id of its memory's owner.
    pub uid: Option<u32>,
    pub cgroup: Option<String>,
    /// The pod, container or systemd unit that it belongs to.
    pub unit: Option<String>,
    pub rss_bytes: u64,
    pub huge_bytes: u64,
    /// Shared memory that is managed, as of its last sample. Other processes may map it as well.
    pub shared_bytes: u64,
    /// The part of it under huge pages.
    pub shared_huge_bytes: u64,
    pub overhead: Option<TranslationOverhead>,
    /// CPU time that it would save if all of its memory that may be promoted were huge. In per cent
    /// of the CPU time that it uses; `None`: unknown. Based on the last sample, less what was
    /// promoted up to some seconds ago.
    pub gain_percent: Option<f64>,
    /// Memory under its huge pages that was empty when they were made or last searched for zeros,
    /// within the last hour. It may have been used since. Huge pages that the manager has neither
    /// made nor searched don't count.
    pub bloat_bytes: u64,
    /// Its huge pages that were not accessed in any sample since a window first cleared their
    /// access bit. Zero-filled parts of them count in `bloat_bytes`, too.
    pub never_accessed_huge_bytes: u64,
    /// Memory of its huge pages that it gave back and that stays allocated. It is not in
    /// `bloat_bytes`.
    pub freed_part_bytes: u64,
    pub cpu_cores: Option<f64>,
    pub promoted: u64,
    pub split: u64,
    pub recovered_bytes: u64,
    pub pace: PromotionAndRecoveryRates,
    pub refused: u64,
    pub last_reason: Option<String>,
    /// The rules that apply to it, as of the last sample.
    pub terms: ProcessSettings,
    /// Name of the rule that includes it; `None`: no rule matches it.
    pub rule_name: Option<String>,
    /// The profile that its workload asks for and what comes of that, as a clause.
    pub profile_request: Option<String>,
    /// How long a call into it has been waiting, in seconds, if at least one second.
    pub not_answering_s: Option<f64>,
    /// Whether huge pages are disabled for it (`PR_SET_THP_DISABLE`).
    pub thp_disabled: bool,
    /// Memory that it excludes by `MADV_NOHUGEPAGE`.
    pub refused_bytes: u64,
}

impl ProcessStatus {
    /// What address translation costs it, without a full stop.
    pub fn translation_cost_text(&self) -> String {
        let Some(overhead) = &self.overhead else {
            return "The cost of address translation is unknown so far".to_owned();
        };
        let cost = format!("Address translation costs it {overhead} of its CPU time");
        let Some(gain) = self.gain_percent else { return cost };
        format!("{cost}; promoting all that may be promoted would save {gain:.1} %")
    }
}

/// The answer to `why`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "kebab-case")]
pub enum Explanation {
    NotManaged { pid: u32, why: String },
    Process(Box<ProcessExplanation>),
    Region(Box<RegionExplanation>),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessExplanation {
    #[serde(flatten)]
    pub process: ProcessStatus,
    pub sample: Option<LastSampleSummary>,
    /// What prevents all promotions in it at the moment, a clause each; empty: nothing does.
    pub kept_by: Vec<String>,
    /// Budgets that hold other work back, a clause each.
    pub waits: Vec<String>,
    /// The latest actions on it, oldest first.
    pub latest: Vec<JournalEntryView>,
}

/// The last sample of a process, with counts of its regions by state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastSampleSummary {
    pub age_s: f64,
    pub source: CoverageSource,
    pub accessed_pages: u64,
    /// Regions with at least one present page.
    pub regions: u64,
    pub huge: u64,
    /// Of these, regions that were accessed and may be promoted.
    pub candidates: u64,
    /// Of these, regions that the kernel refused and that are left alone for a while.
    pub cooling_down: u64,
    /// Of these, regions left alone for a while because other processes share their pages.
    pub shared: u64,
    /// Of these, regions that recovery split: not promoted until they are populated and used.
    pub recovered: u64,
    pub not_accessed: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegionExplanation {
    #[serde(flatten)]
    pub process: ProcessStatus,
    /// Time since management began, to compare the times below with.
    pub uptime_s: f64,
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    pub age_s: Option<f64>,
    /// What that sample found; `None`: nothing.
    pub sample: Option<RegionSample>,
    /// Where that sample found shared memory.
    pub shared_memory: Option<SharedMemoryExplanation>,
    pub state: RegionPromotionState,
    /// Its bucket in an access map (0-9), by the base pages accessed in the last window. `None` for
    /// a huge page, and where accesses can't be seen.
    pub bucket: Option<u8>,
    /// The policy's reason for promoting it in its turn, as a clause.
    pub waiting: Option<String>,
    /// Number of regions of its process that come before it.
    pub ahead: Option<u64>,
    /// What prevents its promotion at the moment, or all promotions in the process.
    pub kept_by: Vec<String>,
    /// Budgets that hold other work back, a clause each.
    pub waits: Vec<String>,
    /// What recovery knows of it, a clause each.
    pub recovery: Vec<String>,
    /// The latest actions on the region, oldest first.
    pub latest: Vec<JournalEntryView>,
    /// Actions before this time are no longer in the journal: seconds since management began.
    pub remembered_since_s: f64,
}

/// Part of a file of shared memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedMemoryExplanation {
    #[serde(flatten)]
    pub file: FileRegion,
    /// Name of the file in `/proc/PID/maps`, which the client reads; `None` where it can't.
    pub file_name: Option<String>,
    /// Managed processes that had pages of it in their page tables at their last samples: some of
    /// them, itself among them.
    pub mappers: Vec<FileMapperView>,
    /// How many such processes there are in all.
    pub mapper_count: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileMapperView {
    pub pid: u32,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum RegionPromotionState {
    Huge,
    Candidate,
    CoolingDown {
        remaining_s: f64,
        /// Name of the error, if the journal still has it.
        errno: Option<String>,
    },
    Shared {
        /// Number of shared base pages.
        pages: u16,
        /// Time until it is checked again.
        remaining_s: f64,
    },
    Recovered,
    NotAccessed,
    Excluded {
        why: String,
    },
    #[default]
    NotSampled,
}

impl fmt::Display for RegionPromotionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Huge => f.write_str("one huge page maps it"),
            Self::Candidate => f.write_str("it was accessed and may be promoted"),
            Self::CoolingDown { remaining_s, errno } => {
                match errno {
                    Some(errno) => write!(f, "the kernel refused to make it huge ({errno})")?,
                    None => f.write_str("its promotion was refused")?,
                }
                write!(f, ": left alone for {remaining_s:.0} s more")
            }
            Self::Shared { pages, remaining_s } => write!(
                f,
                "other processes share {pages} of its base pages, which a promotion would copy: checked again in {remaining_s:.0} s"
            ),
            Self::Recovered => {
                f.write_str("recovery has split it: it stays split until it is populated and used")
            }
            Self::NotAccessed => f.write_str("it was not accessed in the last window"),
            Self::Excluded { why } => write!(f, "it is not managed: {why}"),
            Self::NotSampled => f.write_str("there is no sample of it"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalEntryView {
    pub at_s: f64,
    pub region: Option<u64>,
    /// What happened, as a clause without addresses.
    pub text: String,
}

impl Explanation {
    pub fn is_managed(&self) -> bool {
        !matches!(self, Self::NotManaged { .. })
    }

    /// The same without addresses, for clients that may not know them: addresses help to attack a
    /// process. `None` where nothing would be left.
    pub fn without_addresses(mut self) -> Option<Self> {
        match &mut self {
            Self::NotManaged { .. } => Some(self),
            Self::Process(process) => {
                process.latest.iter_mut().for_each(|entry| entry.region = None);
                Some(self)
            }
            Self::Region(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
