//! Limits on the work done: promotions, scans, and the manager's own CPU time.
//!
//! `promotion_count_budget` and `savings_budget` use the token buckets of `token_bucket`;
//! `cpu_budget` counts seconds of CPU time by itself.
//!
//! Read [`TokenBucket`] first, then [`SavingsBudget`]: a promotion is charged to it where savings
//! pay for it, and to [`CpuBudget`], like sampling, where they do not. The manager asks all of them
//! in `crates/manager/src/manager/work_limits.rs`.

mod cpu_budget;
mod promotion_count_budget;
mod savings_budget;
mod token_bucket;

pub use cpu_budget::CpuBudget;
pub use promotion_count_budget::{PromotionBudgetExhausted, PromotionCountBudget};
pub use savings_budget::{SavingsBudget, SavingsDecision, SavingsShare};
pub use token_bucket::{RatePerSecond, TokenBucket};
