//! Limits on the work done: promotions, scans, and the manager's own CPU time.
//!
//! `promotions` and `returns` use the token buckets of `rate`; `cpu` counts seconds of CPU time by
//! itself.

mod cpu;
mod promotions;
mod rate;
mod returns;

pub use cpu::CpuBudget;
pub use promotions::{PromotionBudget, PromotionBudgetExhausted};
pub use rate::{Rate, TokenBucket};
pub use returns::{ReturnBudget, ReturnDecision, ReturnShare};
