//! What the daemon shows of its manager: plain data, for people and programs, with units in the
//! names. [`Views`] derives it from the journal and from what was last seen of each process.

mod columns;
mod explaining;
mod status;
mod strip;

pub use status::{Views, strip};
pub use strip::{Column, Strip};

use hawkeye_manager::Pace;
use hawkeye_policy::{CoverageSource, Overhead, RegionSample, Terms};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How management stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the manager.
    pub version: String,
    /// Policy in force.
    pub policy: String,
    /// Time since management began.
    pub uptime_s: f64,
    /// Whether nothing is done to any process because somebody asked for that.
    pub paused: bool,
    /// Why nothing is promoted at the moment, as a sentence; `None`: promotion goes on.
    pub held: Option<String>,
    /// Memory, when it could last be read.
    pub memory: Option<MemoryStatus>,
    /// The manager's own CPU time over the last minute, in per cent of one core.
    pub manager_cpu_percent: f64,
    /// The longest call into another process so far.
    pub longest_call_ms: f64,
    /// Sums over everything that was done.
    pub totals: StatusTotals,
    /// What was done lately.
    #[serde(default)]
    pub pace: Pace,
    /// Processes under management.
    pub managed: usize,
    /// Of these, how many do not answer calls at the moment.
    #[serde(default)]
    pub not_answering: usize,
    /// The largest of them ([`Status::MOST_PROCESSES`] at most), by resident memory.
    pub processes: Vec<ProcessStatus>,
    /// What was decided lately ([`Status::MOST_DECISIONS`] at most), oldest first.
    #[serde(default)]
    pub latest: Vec<Decision>,
}

impl Status {
    /// Processes that a status lists at most, so that its size has a bound.
    pub const MOST_PROCESSES: usize = 256;
    /// Decisions that a status lists at most.
    pub const MOST_DECISIONS: usize = 16;
}

/// Something that was decided or done, without where in a process it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When, since management began.
    pub at_s: f64,
    /// To which process, if it was one.
    pub pid: Option<u32>,
    /// Its command name, while it is there.
    pub name: Option<String>,
    /// What and why, as a clause.
    pub text: String,
}

/// Memory in use, and the marks between which it is recovered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Allocated and not cheaply reclaimable.
    pub used_bytes: u64,
    /// The machine's memory.
    pub total_bytes: u64,
    /// Above this share in use, memory is recovered and nothing promoted.
    pub high_percent: f64,
    /// Under this share recovery ends.
    pub low_percent: f64,
    /// Whether memory is being recovered, of the machine or of a cgroup.
    pub recovering: bool,
    /// Share of the last 10 s in which some task waited for memory; `None` without PSI.
    pub pressure_percent: Option<f64>,
    /// Free memory fragmentation index (0-1), where it is known.
    pub fmfi: Option<f64>,
    /// Cgroups with a limit and a managed process.
    pub groups: Vec<GroupStatus>,
}

/// A cgroup's memory against its limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// The cgroup's path.
    pub name: String,
    /// Allocated and not cheaply reclaimable.
    pub used_bytes: u64,
    /// Its limit.
    pub total_bytes: u64,
    /// Share of the last 10 s in which some task in it waited for memory; `None` without PSI.
    pub pressure_percent: Option<f64>,
    /// Managed processes in it.
    pub processes: usize,
}

/// Sums over everything that was done, for all processes that were ever managed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusTotals {
    /// Regions promoted.
    pub promoted: u64,
    /// Huge pages split.
    pub split: u64,
    /// Memory given back by recovery.
    pub recovered_bytes: u64,
    /// Huge pages searched for zero pages.
    pub scanned: u64,
    /// Candidates passed over because their owner was freeing them.
    pub freed: u64,
    /// Candidates passed over because other processes share their pages.
    #[serde(default)]
    pub shared: u64,
    /// Samples read.
    pub samples: u64,
    /// Refusals by error name.
    pub errors: BTreeMap<String, u64>,
}

/// One process under management.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub name: String,
    /// Name of its user.
    pub user: Option<String>,
    /// Whose memory it is.
    pub uid: Option<u32>,
    /// Path of its cgroup.
    pub cgroup: Option<String>,
    /// What it runs as: a pod, a container, a unit of systemd.
    pub unit: Option<String>,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Memory under huge pages.
    pub huge_bytes: u64,
    /// What translation costs it, where that is known.
    pub overhead: Option<Overhead>,
    /// CPU time that it would save if all of it that may be promoted were huge, in per cent of what it uses, where that
    /// is known: by the last sample, less what was promoted up to some seconds ago.
    #[serde(default)]
    pub gain_percent: Option<f64>,
    /// Memory under its huge pages that was empty when they were made or last searched for zeros. It may have been
    /// used since; huge pages that the manager has neither made nor searched don't count.
    #[serde(default)]
    pub bloat_bytes: u64,
    /// CPU time it uses, in cores, at the last sample.
    pub cpu_cores: Option<f64>,
    /// Regions promoted.
    pub promoted: u64,
    /// Huge pages split.
    pub split: u64,
    /// Memory taken back.
    pub recovered_bytes: u64,
    /// What was done to it lately.
    #[serde(default)]
    pub pace: Pace,
    /// Promotions that the kernel refused.
    pub refused: u64,
    /// Why its last region was promoted or split.
    pub last_reason: Option<String>,
    /// The terms it is managed on, at the last sample.
    pub terms: Terms,
    /// For how long a call into it has waited, in seconds, where that is a second or more: it is left
    /// alone until it answers.
    #[serde(default)]
    pub not_answering_s: Option<f64>,
    /// Whether it was told `PR_SET_THP_DISABLE`.
    pub thp_disabled: bool,
    /// Memory that it keeps out by `MADV_NOHUGEPAGE`.
    pub refused_bytes: u64,
}

/// The answer to "why".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "kebab-case")]
pub enum Explanation {
    /// There is no such process under management.
    NotManaged {
        /// Which was asked about.
        pid: u32,
        /// Why not, as a sentence.
        why: String,
    },
    /// A process.
    Process(Box<ProcessExplanation>),
    /// One region of a process.
    Region(Box<RegionExplanation>),
}

/// Why a process is treated as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessExplanation {
    /// What it is, and what was done to it.
    #[serde(flatten)]
    pub process: ProcessStatus,
    /// Its last sample.
    pub sample: Option<SampleStatus>,
    /// What keeps all of it from being promoted at the moment, a clause each; empty: nothing does.
    pub kept_by: Vec<String>,
    /// What was done to it lately, oldest first.
    pub latest: Vec<EntryView>,
}

/// The last sample of a process, and how many of its regions are in which state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleStatus {
    /// How long ago it was taken.
    pub age_s: f64,
    /// Where the access figures come from.
    pub source: CoverageSource,
    /// Base pages accessed.
    pub accessed_pages: u64,
    /// Regions with anything in them.
    pub regions: u64,
    /// Of these, mapped by a huge page.
    pub huge: u64,
    /// Of these, accessed and free to be promoted.
    pub candidates: u64,
    /// Of these, refused by the kernel and left alone for a while.
    pub cooling_down: u64,
    /// Of these, left alone for a while because other processes share their pages.
    #[serde(default)]
    pub shared: u64,
    /// Of these, split by recovery and not to be promoted until they are populated and used.
    pub recovered: u64,
    /// Of these, not accessed in the last window.
    pub not_accessed: u64,
}

/// Why a region is treated as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionExplanation {
    /// Whose.
    #[serde(flatten)]
    pub process: ProcessStatus,
    /// Time since management began, for the times below.
    #[serde(default)]
    pub uptime_s: f64,
    /// First byte of the region.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// How long ago it was last sampled.
    pub age_s: Option<f64>,
    /// What was found then; `None`: nothing.
    pub sample: Option<RegionSample>,
    /// How it stands.
    pub state: RegionState,
    /// Its bucket in an access map (0-9), by the base pages accessed in the last window; `None` for a huge one, and
    /// where accesses can't be seen.
    #[serde(default)]
    pub bucket: Option<u8>,
    /// The policy's reason for promoting it when its turn comes, as a clause.
    pub waiting: Option<String>,
    /// So many regions of its process come before it.
    #[serde(default)]
    pub ahead: Option<u64>,
    /// What keeps it, or all of the process, from being promoted at the moment.
    pub kept_by: Vec<String>,
    /// What was done to the region lately, oldest first.
    pub latest: Vec<EntryView>,
    /// What was done earlier than this is not remembered: since management began.
    #[serde(default)]
    pub remembered_since_s: f64,
}

/// How a region stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum RegionState {
    /// One huge page maps it.
    Huge,
    /// It was accessed and may be promoted.
    Candidate,
    /// The kernel refused it.
    CoolingDown {
        /// It is left alone for so much longer.
        remaining_s: f64,
        /// The error's name, as far as that is remembered.
        #[serde(default)]
        errno: Option<String>,
    },
    /// Other processes share its pages, which a promotion would copy.
    Shared {
        /// Base pages that they share.
        pages: u16,
        /// It is looked at again in so much time.
        remaining_s: f64,
    },
    /// Recovery split it.
    Recovered,
    /// It was not accessed in the last window.
    NotAccessed,
    /// What is mapped there is not managed.
    Excluded {
        /// Why, as a clause.
        why: String,
    },
    /// Nothing was found there by the last sample.
    NotSampled,
}

impl fmt::Display for RegionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Huge => f.write_str("one huge page maps it"),
            Self::Candidate => f.write_str("it was accessed and may be promoted"),
            Self::CoolingDown { remaining_s, errno } => {
                f.write_str("the kernel refused to make it huge")?;
                if let Some(errno) = errno {
                    write!(f, " ({errno})")?;
                }
                write!(f, ": left alone for {remaining_s:.0} s more")
            }
            Self::Shared { pages, remaining_s } => write!(
                f,
                "other processes share {pages} of its base pages, which a promotion would copy: looked at again in {remaining_s:.0} s"
            ),
            Self::Recovered => {
                f.write_str("recovery has split it: it stays so until it is populated and used")
            }
            Self::NotAccessed => f.write_str("it was not accessed in the last window"),
            Self::Excluded { why } => write!(f, "it is not managed: {why}"),
            Self::NotSampled => f.write_str("the last sample found nothing in it"),
        }
    }
}

/// An entry of the journal, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryView {
    /// When, since management began.
    pub at_s: f64,
    /// First byte of the region concerned, if it is one.
    pub region: Option<u64>,
    /// What happened, as a clause without addresses.
    pub text: String,
}

impl Explanation {
    /// The same for those who may not know where a process has its memory: addresses would help
    /// them to attack it. `None` where nothing would be left.
    pub fn without_addresses(mut self) -> Option<Self> {
        match &mut self {
            Self::NotManaged { .. } => Some(self),
            Self::Process(process) => {
                process
                    .latest
                    .iter_mut()
                    .for_each(|entry| entry.region = None);
                Some(self)
            }
            Self::Region(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
