//! What this kernel lets a manager do: facts first, then a decision, then the reasons.
//!
//! [`facts`] tries every primitive on a throw-away child. [`mod@decide`] is pure and turns facts
//! into capabilities. Each capability has how it was checked, what is lost without it, and what
//! would provide it. [`kernel_backend`] sets up what was chosen.
//!
//! Read `facts.rs` first, then `decide.rs`. `check_result.rs` is the result of every try: seen to
//! work, seen to fail, or not tried.

pub mod userfaultfd;

pub mod checked;
pub mod decide;
pub mod facts;
pub mod host;
pub mod prezeroing;
pub mod small_pages;
mod throw_away;
pub mod touch_costs;

pub use checked::Checked;
pub use decide::{Capability, Decision, decide};
pub use facts::{Extent, Facts, PageMark, gather};

use crate::error::{LinuxError, Result};
use crate::live::Means;
use crate::sample::page_tables::PageTables;
use crate::sample::sampler::{AccessBits, Seeing};
use crate::test_costs;
use decide::SamplerKind;
use std::time::Duration;

/// The decision, with the sampler that `HAWKEYE_SAMPLER` names, if set: `access-bits`, `damon` or
/// `population`. For tests.
///
/// # Errors
/// - `HAWKEYE_SAMPLER` names none of them, or one that was not seen to work.
/// - `HAWKEYE_TEST_COSTS` does not name a file of costs.
pub fn choose(facts: &Facts) -> Result<Decision> {
    let mut decision = by_sampler(facts)?;
    let given = test_costs::given()?.and_then(|costs| costs.first_touch_ns);
    if let (Some(ns), SamplerKind::AccessBits) = (given, decision.sampler) {
        decision.first_touch_cost = Duration::from_nanos(ns);
    }
    Ok(decision)
}

fn by_sampler(facts: &Facts) -> Result<Decision> {
    let Some(asked) = asked_sampler() else {
        return Ok(decide(facts));
    };
    match SamplerKind::by_name(&asked) {
        Some(kind) => decide::decide_with(kind, facts),
        None => Err(LinuxError::Sampler {
            asked,
            why: "the value must be access-bits, damon or population".into(),
        }),
    }
}

fn asked_sampler() -> Option<String> {
    let asked = std::env::var_os("HAWKEYE_SAMPLER")?;
    Some(asked.to_string_lossy().into_owned())
}

/// Sets up what the decision chose.
///
/// # Errors
/// A primitive that worked when it was tried fails now.
pub fn means(decision: &Decision) -> Result<Means> {
    Ok(Means {
        sampler: match decision.sampler {
            SamplerKind::AccessBits => Seeing::AccessBits(Box::new(AccessBits {
                tables: PageTables::load()?,
                walk_costs: None,
                counters: None,
                first_touch_cost: decision.first_touch_cost,
            })),
            SamplerKind::Damon => Seeing::Damon,
            SamplerKind::Population => Seeing::Population,
        },
        recovery: decision.recovery,
        first_touch_cost: decision.first_touch_cost,
    })
}
