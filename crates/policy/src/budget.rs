//! Limits on the work done: promotions, scans, and the manager's own CPU time.
//!
//! `promotion_count_budget` and `savings_budget` use the token buckets of `token_bucket`;
//! `cpu_budget` counts CPU time by the second, in the ring of `cpu_minute`.
//!
//! ```text
//!  a promotion --> promotion_count_budget --> savings_budget: do savings pay?
//!                                               | too little
//!  a sample -------------------------------------+--> cpu_budget
//! ```
//!
//! Read [`TokenBucket`] first, then [`SavingsBudget`]: a promotion is charged to it where savings
//! pay for it, and to [`CpuBudget`], like sampling, where they do not. The manager asks all of them
//! in `crates/manager/src/manager/work_limits.rs`.

mod cpu_budget;
mod cpu_minute;
mod promotion_count_budget;
mod savings_budget;
mod token_bucket;

pub use cpu_budget::CpuBudget;
pub use cpu_minute::CpuMinute;
pub use promotion_count_budget::{PromotionBudgetExhausted, PromotionCountBudget};
pub use savings_budget::{SavingsBudget, SavingsDecision, SavingsShare};
pub use token_bucket::{RatePerSecond, TokenBucket};
