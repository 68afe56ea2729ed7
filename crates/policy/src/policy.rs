//! The contract of every policy.

use crate::bloat_recovery::RecoveryOrder;
use crate::huge_page_reserve_planner::HugePageReadiness;
use crate::observation::{Observation, ProcessId};
use crate::page::RegionAddr;
use crate::promotion::{FaultSizes, MeasuredPromotionCost, Promotion};
use crate::reason::Reason;
use crate::sample_kinds::SampleKinds;
use std::collections::HashSet;
use std::time::Duration;

/// How a policy works with its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyProperties {
    /// The policy paces itself. The manager's limit of promotions per second is then not applied.
    pub limits_own_rate: bool,
    /// The order in which the manager splits bloated huge pages.
    pub recovery_order: RecoveryOrder,
    /// Recovery is its whole purpose, so it must not manage where nothing can be recovered.
    pub only_recovers: bool,
}

impl PolicyProperties {
    /// Those of most policies: promotion as fast as the manager allows, and recovery in the order
    /// of the HawkEye paper.
    pub const USUAL: Self = Self {
        limits_own_rate: false,
        recovery_order: RecoveryOrder::LowestOverheadFirst,
        only_recovers: false,
    };
}

/// A region that waits for its promotion.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingRegion {
    /// The reason that its proposal would have if its turn came now.
    pub reason: Reason,
    /// Number of regions of the process that come before it.
    pub ahead: u64,
    /// Why it would not be proposed even then, as a clause of a sentence.
    pub passed_over: Option<String>,
}

/// Decides which region becomes huge next. Pure: its only inputs are the arguments of its methods.
/// `now` has any monotonic origin, the same in every call.
///
/// The manager applies the limits that hold for every policy (budgets, watermarks, cool-downs). It
/// drops a proposal that they forbid. A dropped or refused region comes back through a later
/// observation.
pub trait Policy: ExplainPolicy + Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The kinds of samples that it needs.
    fn sample_kinds(&self) -> SampleKinds;

    /// How it works with its manager.
    fn properties(&self) -> PolicyProperties {
        PolicyProperties::USUAL
    }

    /// Takes in one round of samples. A process is gone when it is missing from the round and is
    /// not among the unread ones.
    fn observe(&mut self, observation: &Observation);

    /// The next promotion, which leaves the waiting list. `None` when nothing should be promoted
    /// now. `supply`: how the kernel will get its huge page. `held`: processes of which nothing may
    /// be promoted now. They are skipped, and what waits in them goes on waiting.
    fn pop_next_promotion(
        &mut self,
        now: Duration,
        supply: HugePageReadiness,
        held: &HashSet<ProcessId>,
    ) -> Option<Promotion>;

    /// Page sizes for the process's memory at first touches, where the machine allows a choice
    /// ([`MachinePageProperties::at_faults`](crate::MachinePageProperties::at_faults)). `None`: the
    /// machine's own default applies.
    fn fault_sizes(&self, _process: ProcessId) -> Option<FaultSizes> {
        None
    }

    /// Reports that one of its proposals was carried out, and what that cost, or that it was not
    /// (`None`). Policies that pace themselves count only the first kind.
    fn on_promotion_result(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        cost: Option<MeasuredPromotionCost>,
    );
}

/// Explains what a policy has not proposed. A policy without explanations implements it empty.
pub trait ExplainPolicy {
    /// How this region waits for its turn. `None` where it does not wait, or the policy keeps no
    /// such list.
    fn explain_waiting_region(
        &self,
        _process: ProcessId,
        _region: RegionAddr,
    ) -> Option<WaitingRegion> {
        None
    }

    /// Why the policy proposes no region of this process at present, as a clause of a sentence.
    fn why_process_not_promoted(&self, _process: ProcessId) -> Option<String> {
        None
    }
}
