//! Shared memory that several processes map: promoted once, for the benefit of all of them.

use super::hawkeye_process::{HawkeyeProcess, PromotionCandidate};
use super::promotion_costs::PromotionCosts;
use crate::file_region::FileRegion;
use crate::observation::ProcessId;
use crate::process_states::ProcessStates;
use std::collections::HashMap;

/// What the promotion of a file region saves.
struct FileRegionSaving {
    /// In all processes that wait for it, in cores.
    all: f64,
    /// The process in which it saves most, and how much.
    most: (ProcessId, f64),
}

/// Leaves each file region that waits in several processes to the one in which its promotion saves
/// most. The others get the huge page at their next access. That candidate counts what all of them
/// save.
pub(super) fn leave_file_regions_to_one_mapper(
    members: &mut ProcessStates<HawkeyeProcess>,
    costs: &PromotionCosts,
) {
    let savings = savings_by_file_region(members);
    if savings.is_empty() {
        return;
    }
    for (process, member) in members.iter_mut() {
        let mut waiting = std::mem::take(&mut member.waiting);
        let mut shared = false;
        waiting.retain_mut(|candidate| {
            let Some(saving) = candidate.file.and_then(|file| savings.get(&file)) else {
                return true;
            };
            shared = true;
            candidate.saved_in_others = saving.all - saving.most.1;
            saving.most.0 == process
        });
        if shared {
            let pays = |candidate: &PromotionCandidate| {
                let cost_s = costs.expected_cost(candidate.order).as_secs_f64();
                member.cores_saved_by(candidate) / cost_s
            };
            waiting.sort_by(|a, b| {
                let by_saving = pays(a).total_cmp(&pays(b));
                by_saving.then_with(|| b.region.cmp(&a.region))
            });
        }
        member.waiting = waiting;
    }
}

fn savings_by_file_region(
    members: &mut ProcessStates<HawkeyeProcess>,
) -> HashMap<FileRegion, FileRegionSaving> {
    let mut savings: HashMap<FileRegion, FileRegionSaving> = HashMap::new();
    // The call goes to a process in which promotion is allowed.
    for (process, member) in members.iter_mut().filter(|(_, member)| member.terms.promotes) {
        for candidate in &member.waiting {
            let Some(file) = candidate.file else { continue };
            let saved = member.cores_saved_by_weight(candidate.weight);
            let known = savings
                .entry(file)
                .or_insert(FileRegionSaving { all: 0.0, most: (process, saved) });
            known.all += saved;
            if saved > known.most.1 {
                known.most = (process, saved);
            }
        }
    }
    savings
}
