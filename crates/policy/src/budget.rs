//! Limits on the work done: promotions, scans, and the manager's own CPU time.
//!
//! `promotions` uses the token bucket in `rate`; `cpu` counts seconds of CPU time by itself.

mod cpu;
mod promotions;
mod rate;

pub use cpu::CpuBudget;
pub use promotions::{PromotionBudget, PromotionBudgetExhausted};
pub(crate) use rate::TokenReserve;
pub use rate::{Rate, TokenBucket};
