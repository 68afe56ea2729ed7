//! The loop between a [`Machine`] and a policy.
//!
//! ```text
//!  machine    what a machine can do, as traits
//!     ^  |
//!     |  v
//!  manager    run_due_work_and_wait:
//!             refresh, sample, recover, promote --Event--> the parts that keep state
//!                                                              |
//!  journal    what was done, why, and what it cost  <----------+
//! ```
//!
//! Read [`machine`], then [`manager::Manager::run_due_work_and_wait`]. [`settings`] contains what
//! users can set, and [`budget_wait`] names work that waits.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod budget_wait;
pub mod journal;
pub mod machine;
pub mod manager;
pub mod settings;

pub use budget_wait::{BudgetWait, BudgetWaits, ExhaustedBudget, WaitingWork};
pub use hawkeye_policy::Event;
pub use journal::{
    FootprintAtTime, Journal, JournalEntry, JournalTotals, ProcessTotals, PromotionAndRecoveryRates,
};
pub use machine::{
    Explain, FaultPageSizes, HugePageReserveControl, LearnedFaultSizes, LoopWakeReason, Machine,
    MachineError, ManagementCosts, Prefault, ProcessDescription, ProcessFootprint, PromotionResult,
    RecoveryResult, Sampling, SliceProgress, TimedOutCallResults, TimedOutPromotionResult,
    UnresponsiveProcess, ZeroScanResult,
};
pub use manager::{LastSample, LastSamples, Manager, SampledFigures};
pub use settings::Settings;
