//! What this kernel lets a manager do: facts first, then a decision, then the reasons.
//!
//! [`facts`] tries every primitive on a throw-away child; [`decide`] is pure and turns facts into
//! capabilities, each with how it was checked, what is lost without it and what would bring it;
//! [`means`] sets up what was chosen.

pub mod decide;
pub mod facts;
pub mod host;
mod throw_away;

pub use decide::{Capability, Decision, decide};
pub use facts::{Checked, Extent, Facts, gather};

use crate::error::LinuxError;
use crate::live::Means;
use crate::page_tables::PageTables;
use crate::sampler::Sampler;
use decide::SamplerKind;

/// Sets up what the decision chose.
///
/// # Errors
/// What worked a moment ago when it was tried does not any more.
pub fn means(decision: &Decision) -> Result<Means, LinuxError> {
    Ok(Means {
        sampler: match decision.sampler {
            SamplerKind::AccessBits => Sampler::AccessBits(Box::new(PageTables::load()?)),
            SamplerKind::Damon | SamplerKind::Population => Sampler::Population,
        },
        recovery: decision.recovery,
        first_touch_cost: decision.first_touch_cost,
    })
}
