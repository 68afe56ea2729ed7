//! What to do with huge pages: every policy and every limit, as pure code.
//!
//! Nothing in here does I/O, reads a clock, starts a thread or is unsafe. So the same code manages
//! live processes and simulated ones. The caller always passes the time, on any monotonic clock
//! that is the same in every call.
//!
//! ```text
//!  samples --> walk_rate: Overhead --> Observation --> Policy (policies::*) --> Promotion, Reason
//!                                         |                                        |
//!                                         |       budget, refusal_cooldown, huge_limits, watermarks
//!                                         v                                        v
//!                                  watermarks: MemoryShortage --> recovery  the manager applies it
//! ```
//!
//! Read in this order:
//!
//! 1. [`page`], [`observation`], [`promotion`] and [`reason`]: inputs and outputs.
//! 2. [`policy`]: the trait. [`policies`]: one file for each implementation.
//! 3. [`budget`], [`refusal_cooldown`], [`call_batch_backoff`], [`huge_limits`], [`watermarks`],
//!    [`shared_regions`], [`reserve_planner`]: limits that the manager applies to every policy's
//!    proposals.
//! 4. [`bloat_recovery`]: where unused memory is recovered. [`prefault`]: what is prefaulted.
//!    [`size_choice`]: which page size. [`prezeroing`]: how fast free memory is zeroed.
//! 5. [`walk_rate`]: overhead estimated from access bits.
//! 6. [`rules`], [`process_rules`], [`process_selection`]: which processes are managed, and how.
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
pub mod bloat_recovery;
pub mod budget;
pub mod call_batch_backoff;
pub mod coverage_average;
pub mod errno;
pub mod event;
pub mod expected_gain;
pub mod huge_limits;
pub mod machine_shape;
pub mod observation;
pub mod overhead;
pub mod page;
pub mod policies;
pub mod policy;
pub mod prefault;
pub mod prezeroing;
pub mod process_identity;
pub mod process_rules;
pub mod process_selection;
mod process_states;
pub mod profile;
pub mod promotion;
pub mod reason;
pub mod recovered_regions;
pub mod refusal_cooldown;
pub mod region_promotion_limits;
pub mod reserve_planner;
pub mod rules;
pub mod sampling_pace;
pub mod saturating_cast;
pub mod setting_error;
pub mod shared_regions;
pub mod size_choice;
pub mod slot_ranking;
#[cfg(test)]
mod test_support;
pub mod walk_rate;
pub mod watermarks;

pub use access_map::AccessMap;
pub use bloat_recovery::{BloatThreshold, RecoveryPlanner};
pub use budget::{
    CpuBudget, PromotionBudget, PromotionBudgetExhausted, Rate, SavingsBudget, SavingsDecision,
    SavingsShare, TokenBucket,
};
pub use call_batch_backoff::{BatchDecision, CallBatchBackoff};
pub use coverage_average::CoverageAverage;
pub use errno::Errno;
pub use event::{Event, PromotionEffect};
pub use expected_gain::expected_gain_percent;
pub use machine_shape::MachineShape;
pub use observation::{
    CoverageSource, GroupMemory, MemoryState, MemoryUse, Observation, OutsideRegions, ProcessId,
    ProcessSample, RegionSample,
};
pub use overhead::{Overhead, OverheadSource};
pub use page::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, PageOrders, RegionAddr,
};
pub use policy::{ExplainPolicy, Policy, SampleKinds};
pub use process_identity::{Pod, ProcessIdentity, QosClass};
pub use process_rules::ProcessRules;
pub use process_selection::ProcessSelection;
pub use profile::Profile;
pub use promotion::{FaultSizes, Promotion, PromotionCost};
pub use reason::Reason;
pub use region_promotion_limits::RegionPromotionLimits;
pub use reserve_planner::{
    HugePageSupply, ReserveInput, ReserveLimit, ReservePlanner, ReserveState, ReserveTarget,
};
pub use rules::{
    GlobPattern, Rule, RuleAction, RuleConditions, RuleVerdict, Rules, UnmatchedAction,
};
pub use sampling_pace::{SamplingDelayReason, SamplingPace, SamplingSlowdownBudget};
pub use setting_error::SettingError;
pub use shared_regions::MAX_SHARED_PAGES;
pub use slot_ranking::{CpuUse, SlotCandidate};
pub use watermarks::{MemoryGuard, MemoryScope, PromotionBlock, WatermarkTable, Watermarks};
