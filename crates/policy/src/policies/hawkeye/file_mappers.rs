//! Shared memory that several processes map: promoted once, for the benefit of all of them.

use super::hawkeye_process::{HawkeyeProcess, PromotionCandidate};
use super::promotion_costs::PromotionCosts;
use crate::file_region::FileRegion;
use crate::observation::ProcessId;
use crate::process_states::ProcessStates;
use std::collections::{HashMap, HashSet};

/// Adds to each file region that waits in several processes what its promotion saves in the others.
/// They get the huge page at their next access.
pub(super) fn add_savings_of_other_mappers(
    members: &mut ProcessStates<HawkeyeProcess>,
    costs: &PromotionCosts,
) {
    let mut savings: HashMap<FileRegion, f64> = HashMap::new();
    for member in members.iter() {
        for candidate in &member.waiting {
            if let Some(file) = candidate.file {
                *savings.entry(file).or_default() += member.cores_saved_by_weight(candidate.weight);
            }
        }
    }
    if savings.is_empty() {
        return;
    }
    for (_, member) in members.iter_mut() {
        let mut waiting = std::mem::take(&mut member.waiting);
        for candidate in &mut waiting {
            let all = candidate.file.and_then(|file| savings.get(&file));
            let own = member.cores_saved_by_weight(candidate.weight);
            candidate.saved_in_others = all.map_or(0.0, |all| (all - own).max(0.0));
        }
        let saving_per_cost = |candidate: &PromotionCandidate| {
            let cost_s = costs.expected_cost(candidate.order).as_secs_f64();
            member.cores_saved_by(candidate) / cost_s
        };
        waiting.sort_by(|a, b| {
            let by_saving = saving_per_cost(a).total_cmp(&saving_per_cost(b));
            by_saving.then_with(|| b.region.cmp(&a.region))
        });
        member.waiting = waiting;
    }
}

/// The process in which the next promotion of `process` is made. Of shared memory, that is the one
/// that gains most itself, if it is next there too and the process is not `held`. What all
/// processes save is credited to that one, and counts as at most the CPU time that it uses
/// ([`SavingsBudget`](crate::SavingsBudget)).
pub(super) fn process_that_gains_most(
    members: &mut ProcessStates<HawkeyeProcess>,
    process: ProcessId,
    costs: &PromotionCosts,
    held: &HashSet<ProcessId>,
) -> Option<ProcessId> {
    let member = members.get(process)?;
    let candidate = *member.waiting.last()?;
    if candidate.file.is_none() {
        return Some(process);
    }
    let own_saving = |member: &HawkeyeProcess| {
        member.best_saving_per_cost(costs)?;
        let next = member.waiting.last().filter(|next| next.file == candidate.file)?;
        Some(member.cores_saved_by_weight(next.weight))
    };
    let first = (process, own_saving(member)?);
    let free = members.iter_mut_of_free(held);
    let savings = free.filter_map(|(id, member)| Some((id, own_saving(member)?)));
    Some(savings.fold(first, |most, next| if next.1 > most.1 { next } else { most }).0)
}

impl HawkeyeProcess {
    /// Drops the best candidates for as long as another process got them promoted.
    pub(super) fn drop_promoted_file_regions(&mut self, promoted: &HashSet<FileRegion>) {
        while let Some(candidate) = self.waiting.last().copied() {
            if !candidate.file.is_some_and(|file| promoted.contains(&file)) {
                return;
            }
            self.waiting.pop();
            self.left_percent -= self.percent_saved_by_promotion(&candidate);
            self.record_saving(&candidate);
        }
    }
}
