//! What to do with huge pages: every policy and every limit, as pure code.
//!
//! Nothing in here does I/O, reads a clock, starts a thread or is unsafe. So the same code manages
//! live processes and simulated ones. The caller always passes the time, on any monotonic clock
//! that is the same in every call.
//!
//! ```text
//!  samples --> run_rate: Overhead --> Observation --> Policy (policies::*) --> Promotion, Reason
//!                                         |                                        |
//!                                         |               budget, cooldown, huge_limit, watermarks
//!                                         v                                        v
//!                                  watermarks: Shortage --> recovery        the manager applies it
//! ```
//!
//! Read in this order:
//!
//! 1. [`page`], [`observation`], [`requests`] and [`reason`]: inputs and outputs.
//! 2. [`policy`]: the trait. [`policies`]: one file for each implementation.
//! 3. [`budget`], [`cooldown`], [`backoff`], [`huge_limit`], [`watermarks`], [`shared_regions`],
//!    [`reserve`]: limits that the manager applies to every policy's proposals.
//! 4. [`bloat_recovery`]: where unused memory is recovered. [`prefault`]: what is prefaulted.
//!    [`size_choice`]: which page size. [`prezeroing`]: how fast free memory is zeroed.
//! 5. [`run_rate`]: overhead estimated from access bits.
//! 6. [`rules`], [`process_rules`], [`selection`]: which processes are managed, and how.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod access_map;
pub mod average;
pub mod backoff;
pub mod bloat_recovery;
pub mod budget;
pub mod cooldown;
pub mod errno;
pub mod error;
pub mod event;
pub mod gain;
pub mod huge_limit;
pub mod identity;
pub mod limits;
pub mod machine_shape;
pub mod observation;
pub mod overhead;
pub mod page;
pub mod policies;
pub mod policy;
pub mod prefault;
pub mod prezeroing;
pub mod process_rules;
mod process_states;
pub mod profile;
pub mod ranking;
pub mod reason;
pub mod recovered_regions;
pub mod requests;
pub mod reserve;
pub mod rules;
pub mod run_rate;
pub mod sampling_pace;
pub mod saturating_cast;
pub mod selection;
pub mod shared_regions;
pub mod size_choice;
#[cfg(test)]
mod testing;
pub mod watermarks;

pub use access_map::{AccessMap, WaitingMapRegion};
pub use average::CoverageAverage;
pub use backoff::{BatchDecision, CallBatchBackoff};
pub use bloat_recovery::{BloatThreshold, RecoveryPlanner};
pub use budget::{
    CpuBudget, PromotionBudget, PromotionBudgetExhausted, Rate, ReturnBudget, ReturnDecision,
    ReturnShare, TokenBucket,
};
pub use cooldown::RefusalCooldown;
pub use errno::Errno;
pub use error::SettingError;
pub use event::{Event, PromotionEffect};
pub use gain::expected_gain_percent;
pub use huge_limit::HugeLimits;
pub use identity::{Pod, ProcessIdentity, QosClass};
pub use limits::RegionPromotionLimits;
pub use machine_shape::MachineShape;
pub use observation::{
    CoverageSource, GroupMemory, MemoryState, MemoryUse, Observation, OutsideRegions, ProcessId,
    ProcessSample, RegionSample,
};
pub use overhead::{Overhead, OverheadSource};
pub use page::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, PageOrders, RegionAddr,
};
pub use policies::{PolicySettings, UnknownPolicy};
pub use policy::{ExplainPolicy, Policy, SampleKinds, WaitingRegion};
pub use process_rules::ProcessRules;
pub use profile::Profile;
pub use ranking::{CpuUse, SlotCandidate};
pub use reason::Reason;
pub use recovered_regions::RecoveredRegions;
pub use requests::{FaultSizes, Promotion, PromotionCost};
pub use reserve::{
    HugePageSupply, ReserveInput, ReserveLimit, ReservePlanner, ReserveState, ReserveTarget,
};
pub use rules::{
    GlobPattern, Rule, RuleAction, RuleConditions, RuleVerdict, Rules, UnmatchedAction,
};
pub use sampling_pace::{SamplingPace, SamplingSlowdownBudget, StretchReason};
pub use selection::ProcessSelection;
pub use shared_regions::{MAX_SHARED_PAGES, SharedRegions};
pub use watermarks::{
    MemoryGuard, MemoryScope, MemoryShortage, PromotionBlock, WatermarkTable, Watermarks,
};
