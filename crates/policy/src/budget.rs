//! Limits on the work done: promotions, scans, and the manager's own CPU time.
//!
//! `promotions` and `returns` use the token buckets of `rate`; `cpu` counts seconds of CPU time by
//! itself.

mod cpu_budget;
mod promotion_budget;
mod savings_budget;
mod token_bucket;

pub use cpu_budget::CpuBudget;
pub use promotion_budget::{PromotionBudget, PromotionBudgetExhausted};
pub use savings_budget::{SavingsBudget, SavingsDecision, SavingsShare};
pub use token_bucket::{Rate, TokenBucket};
