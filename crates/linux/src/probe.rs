//! What this kernel lets a manager do: facts first, then a decision, then the reasons.
//!
//! [`facts`] tries every primitive on a throw-away child. [`mod@decide`] is pure and turns facts
//! into capabilities. Each capability has how it was checked, what is lost without it, and what
//! would provide it. [`kernel_backend`] sets up what was chosen.
//!
//! Read `facts.rs` first, then `decide.rs`.

pub mod userfaultfd;

pub mod decide;
pub mod facts;
pub mod host;
pub mod mthp_sizes;
pub mod prezeroing;
mod probe_child;

pub use decide::{Capability, KernelDecision, decide};
pub use facts::{KernelFacts, PageMarkAfterSplit, ProbeExtent, gather_kernel_facts};

use crate::error::{LinuxError, Result};
use crate::machine::KernelBackend;
use crate::sample::page_tables::PageTableReader;
use crate::sample::sampler::{AccessBitBackend, SamplerBackend};
use crate::test_costs;
use decide::SamplerKind;
use serde::Serialize;
use std::time::Duration;

/// The result of trying something. Unknown is not false.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum KernelCheckResult {
    /// Seen to work.
    Works,
    /// Tried, and this happened instead.
    Fails(String),
    /// Not tried, for this reason.
    NotTried(String),
}

impl KernelCheckResult {
    /// Whether it was seen to work.
    pub fn works(&self) -> bool {
        *self == Self::Works
    }
}

/// The decision, with the sampler that `HAWKEYE_SAMPLER` names, if set: `access-bits`, `damon` or
/// `population`. For tests.
///
/// # Errors
/// - `HAWKEYE_SAMPLER` names none of them, or one that was not seen to work.
/// - `HAWKEYE_TEST_COSTS` does not name a file of costs.
pub fn decide_kernel_methods(facts: &KernelFacts) -> Result<KernelDecision> {
    let mut decision = decide_by_requested_sampler(facts)?;
    let given = test_costs::configured()?.and_then(|costs| costs.first_touch_ns);
    if let (Some(ns), SamplerKind::AccessBits) = (given, decision.sampler) {
        decision.first_touch_cost = Duration::from_nanos(ns);
    }
    Ok(decision)
}

fn decide_by_requested_sampler(facts: &KernelFacts) -> Result<KernelDecision> {
    let Some(asked) = requested_sampler() else {
        return Ok(decide(facts));
    };
    match asked.parse() {
        Ok(kind) => decide::decide_with_sampler(kind, facts),
        Err(_) => Err(LinuxError::Sampler {
            asked,
            why: "the value must be access-bits, damon or population".into(),
        }),
    }
}

fn requested_sampler() -> Option<String> {
    let asked = std::env::var_os("HAWKEYE_SAMPLER")?;
    Some(asked.to_string_lossy().into_owned())
}

/// Sets up what the decision chose.
pub fn kernel_backend(decision: &KernelDecision) -> Result<KernelBackend> {
    Ok(KernelBackend {
        sampler: match decision.sampler {
            SamplerKind::AccessBits => SamplerBackend::AccessBits(Box::new(AccessBitBackend {
                tables: PageTableReader::load()?,
                walk_costs: None,
                counters: None,
                first_touch_cost: decision.first_touch_cost,
            })),
            SamplerKind::Damon => SamplerBackend::Damon,
            SamplerKind::Population => SamplerBackend::Population,
        },
        recovery: decision.recovery,
        first_touch_cost: decision.first_touch_cost,
    })
}
