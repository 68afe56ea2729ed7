//! What this kernel lets a manager do: facts first, then a decision, then the reasons.
//!
//! ```text
//!  functions try_... (tried) ---------+
//!  host_facts, prezeroing (read) -----+--> KernelFacts --kernel_decision--> KernelDecision
//!                                          (kernel_facts)    (pure)            |
//!                                     set_up_chosen_methods, for the manager <-+
//!                                     `hawkeye doctor`, for people <-----------'
//! ```
//!
//! Read [`kernel_facts`] first, then [`kernel_decision`]. A fact is read, or tried on a throw-away
//! child. A capability has how it was checked, what is lost without it, and what would provide it.

pub mod userfaultfd_handle;

pub mod host_facts;
pub(crate) mod kernel_checks;
pub mod kernel_decision;
pub mod kernel_facts;
pub mod mthp_sizes;
pub mod prezeroing;
pub(crate) mod probe_child;

pub use host_facts::{
    HostFacts, UnmanagedPageSizes, base_page_bytes_of_kernel, format_page_size, read_host_facts,
};
pub use kernel_decision::{KernelDecision, ManagerCapability, decide_with_best_sampler};
pub use kernel_facts::{KernelFacts, ProbeExtent, ProbedKernel, gather_kernel_facts};

use crate::error::{LinuxError, Result};
use crate::memory::recovery_method::RecoveryMethod;
use crate::sample::counters::{CountableWalkEvents, EventCodeOverrides};
use crate::sample::page_table_reader::PageTableReader;
use crate::sample::sampler::{AccessBitBackend, SamplerBackend};
use crate::sample::walk_costs::CurrentWalkCosts;
use crate::test_costs;
use kernel_decision::SamplerKind;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The result of trying something. Unknown is not false.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum KernelCheckResult {
    /// Seen to work.
    Works,
    /// As good as working: this kernel has nothing that could fail, for this reason.
    NotNeeded(String),
    /// Tried, and this happened instead.
    Fails(String),
    /// Not tried, for this reason.
    NotTried(String),
}

impl KernelCheckResult {
    /// Whether it was seen to work, or to be needless.
    pub fn works(&self) -> bool {
        matches!(self, Self::Works | Self::NotNeeded(_))
    }
}

impl fmt::Display for KernelCheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            Self::NotNeeded(why) => write!(f, "not needed: {why}"),
            Self::Fails(why) => f.write_str(why),
            Self::NotTried(why) => write!(f, "not tried: {why}"),
        }
    }
}

/// The decision, with the sampler that `HAWKEYE_SAMPLER` names, if set: `access-bits`, `damon` or
/// `population`. For tests.
///
/// # Errors
/// - `HAWKEYE_SAMPLER` names none of them, or one that was not seen to work.
/// - `HAWKEYE_TEST_COSTS` does not name a file of costs.
pub fn decide_kernel_methods(facts: &KernelFacts) -> Result<KernelDecision> {
    let mut decision = match requested_sampler_name() {
        None => decide_with_best_sampler(facts),
        Some(asked) => match asked.parse() {
            Ok(kind) => kernel_decision::decide_with_sampler(kind, facts)?,
            Err(_) => {
                let why = "the value must be access-bits, damon or population".into();
                return Err(LinuxError::Sampler { asked, why });
            }
        },
    };
    let given = test_costs::configured_test_costs()?.and_then(|costs| costs.first_touch_ns);
    if let (Some(ns), SamplerKind::AccessBits) = (given, decision.sampler) {
        decision.first_touch_cost = Duration::from_nanos(ns);
    }
    Ok(decision)
}

fn requested_sampler_name() -> Option<String> {
    let asked = std::env::var_os("HAWKEYE_SAMPLER")?;
    Some(asked.to_string_lossy().into_owned())
}

/// The findings of the probe that managing needs.
pub struct ChosenKernelMethods {
    /// How accesses are sampled.
    pub sampler: SamplerBackend,
    /// How bloat is recovered.
    pub recovery: RecoveryMethod,
    /// Cost to the program of a base page's first access after a clear.
    pub first_touch_cost: Duration,
}

impl ChosenKernelMethods {
    /// Prepares the estimate of overhead: by hardware counters where the processor has them, and by
    /// the `costs` of page walks. `events` names the counters' events if the table does not.
    pub fn enable_overhead_estimate(
        &mut self,
        costs: CurrentWalkCosts,
        events: EventCodeOverrides,
    ) {
        if let SamplerBackend::AccessBits(bits) = &mut self.sampler {
            let counters = CountableWalkEvents::find(events).inspect_err(|none| {
                tracing::info!("overhead is estimated by walk-rate sampling: {none}");
            });
            bits.counters = counters.ok();
            bits.walk_costs = Some(costs);
        }
    }
}

/// Sets up what the decision chose. `page_tables`: the probe's BPF programs; without them they are
/// loaded if the decision needs them.
pub fn set_up_chosen_methods(
    decision: &KernelDecision,
    page_tables: Option<PageTableReader>,
) -> Result<ChosenKernelMethods> {
    Ok(ChosenKernelMethods {
        sampler: match decision.sampler {
            SamplerKind::AccessBits => SamplerBackend::AccessBits(Box::new(AccessBitBackend {
                tables: page_tables.map_or_else(PageTableReader::load_bpf_programs, Ok)?,
                walk_costs: None,
                counters: None,
                first_touch_cost: decision.first_touch_cost,
                shared_memory: decision.promotes_shared_memory,
            })),
            SamplerKind::Damon => SamplerBackend::Damon,
            SamplerKind::Population => SamplerBackend::Population,
        },
        recovery: decision.recovery,
        first_touch_cost: decision.first_touch_cost,
    })
}
