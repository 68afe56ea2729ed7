//! What to do with huge pages: every policy and every limit, as pure code.
//!
//! Nothing in here does I/O, reads a clock, starts a thread or is unsafe. So the same code manages
//! live processes and simulated ones. The caller always passes the time, on any monotonic clock
//! that is the same in every call.
//!
//! ```text
//!  samples --> walk_rate: TranslationOverhead --> Observation --> policies --> Promotion, Reason
//!                                                     |                            |
//!                                                     |  budget, refusal_cooldown, |
//!                                                     |  memory limits, watermarks |
//!                                                     v                            v
//!                   watermarks: MemoryShortage --> bloat_recovery     the manager applies it
//! ```
//!
//! Read in this order:
//!
//! 1. [`page`], [`observation`], [`promotion`] and [`reason`]: inputs and outputs.
//! 2. [`policy`]: the trait. [`policies`]: one file for each implementation.
//! 3. [`budget`], [`refusal_cooldown`], [`call_batch_backoff`], [`rule_huge_memory_limits`],
//!    [`watermarks`], [`shared_regions`], [`huge_page_reserve_planner`]: limits that the manager
//!    applies to every policy's proposals.
//! 4. [`bloat_recovery`]: where unused memory is recovered. [`prefault`]: what is prefaulted.
//!    [`page_size_choice`]: which page size. [`prezeroing`]: how fast free memory is zeroed.
//! 5. [`walk_rate`]: overhead estimated from access bits. [`huge_page_forecast`]: memory that huge
//!    pages for every program would add.
//! 6. [`file_region`], [`shared_memory_count`]: shared memory, by file. [`text_trial`]: whether
//!    huge program text pays.
//! 7. [`rules`], [`process_settings`], [`workload_profile`], [`process_selection_settings`]: which
//!    processes are managed, and how. [`process_scan_schedule`]: when new ones are looked for.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod access_map;
pub mod bloat_recovery;
pub mod budget;
pub mod call_batch_backoff;
pub mod coverage_averaging;
pub mod errno;
pub mod event;
pub mod file_region;
pub mod gain_if_all_huge;
pub mod huge_page_forecast;
pub mod huge_page_reserve_planner;
pub mod machine_page_properties;
pub mod management_slot_ranking;
pub mod observation;
pub mod page;
pub mod page_size_choice;
pub mod policies;
pub mod policy;
pub mod prefault;
pub mod prezeroing;
pub mod process_attributes;
pub mod process_scan_schedule;
pub mod process_selection_settings;
pub mod process_settings;
mod process_states;
pub mod promotion;
pub mod reason;
pub mod recovered_regions;
pub mod refusal_cooldown;
pub mod region_promotion_limits;
pub mod rule_huge_memory_limits;
pub mod rules;
pub mod sample_kinds;
pub mod sampling_cost_limits;
pub mod saturating_cast;
pub mod setting_error;
pub mod settings_profile;
pub mod shared_memory_count;
pub mod shared_regions;
pub mod statistics;
#[cfg(test)]
mod test_support;
pub mod text_trial;
pub mod translation_overhead;
pub mod walk_rate;
pub mod watermarks;
pub mod workload_profile;

pub use access_map::AccessMap;
pub use bloat_recovery::{
    BloatKind, BloatThreshold, BloatTotals, HeldState, HugePageBloat, MAY_BE_REFILLED,
    RecoveryOrder, RecoveryPlanner, RecoveryTarget, RegionHold,
};
pub use budget::{
    CpuBudget, CpuMinute, PromotionBudgetExhausted, PromotionCountBudget, RatePerSecond,
    SavingsBudget, SavingsDecision, SavingsShare, TokenBucket,
};
pub use call_batch_backoff::{BatchDecision, CallBatchBackoff};
pub use coverage_averaging::CoverageAveraging;
pub use errno::Errno;
pub use event::{Event, PromotionEffect};
pub use file_region::{FileRegion, MAX_FILE_BYTES, MAX_FILE_HOLES};
pub use gain_if_all_huge::gain_percent_if_all_huge;
pub use huge_page_forecast::{
    CgroupForecast, CgroupPopulation, HugePageGrowth, ZeroFilledSample, forecast_cgroups,
};
pub use huge_page_reserve_planner::{
    HugePageReadiness, HugePageReservePlanner, ReserveInput, ReserveLimit, ReserveState,
    ReserveTarget,
};
pub use machine_page_properties::MachinePageProperties;
pub use management_slot_ranking::{CpuUseAverages, ManagementSlotCandidate};
pub use observation::{
    CgroupMemory, CoverageSource, MemoryOutsideRegions, MemoryState, MemoryUse, Observation,
    ProcessId, ProcessSample, RegionSample,
};
pub use page::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, PageOrderSet, RegionAddr,
};
pub use policy::{ExplainPolicy, Policy, PolicyProperties};
pub use process_attributes::{Pod, ProcessAttributes, QosClass};
pub use process_scan_schedule::ProcessScanSchedule;
pub use process_selection_settings::ProcessSelectionSettings;
pub use process_settings::ProcessSettings;
pub use promotion::{FaultSizes, MeasuredPromotionCost, Promotion};
pub use reason::Reason;
pub use region_promotion_limits::RegionPromotionLimits;
pub use rules::{
    GlobPattern, Rule, RuleAction, RuleConditions, RuleVerdict, Rules, UnmatchedAction,
};
pub use sample_kinds::SampleKinds;
pub use sampling_cost_limits::{SamplingCostLimits, SamplingDelayReason, SamplingSlowdownBudget};
pub use setting_error::{Setting, SettingError};
pub use settings_profile::SettingsProfile;
pub use shared_memory_count::{SampledFile, SampledMemory, SharedMemoryCount, SharedMemoryTotals};
pub use shared_regions::MAX_SHARED_PAGES;
pub use translation_overhead::{TranslationOverhead, TranslationOverheadSource};
pub use watermarks::{
    MemoryGuard, MemoryScope, PromotionBlockReason, UrgentWorkPayers, WatermarkTable, Watermarks,
};
pub use workload_profile::{ProfileRequest, ProfileRequestSource, WorkloadProfile};
