//! Derives capabilities from facts. Pure: every decision rests on a fact.

mod capabilities;

use super::KernelCheckResult;
use super::host_facts::KernelLockdown;
use super::kernel_facts::KernelFacts;
use crate::error::{LinuxError, Result};
use crate::memory::recovery_method::RecoveryMethod;
use hawkeye_policy::walk_rate::INTERCEPTED;
use serde::Serialize;
use std::time::Duration;

/// How accesses are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display, strum::EnumString)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum SamplerKind {
    /// Access bits, cleared by `MADV_COLD` and read by BPF.
    AccessBits,
    /// Estimates by DAMON.
    Damon,
    /// No accesses: population only.
    Population,
}

/// Something that the manager can or cannot do here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ManagerCapability {
    /// Its name.
    pub name: &'static str,
    /// Whether it can be used.
    pub available: bool,
    /// How that was checked.
    pub how: &'static str,
    /// The result of the check.
    pub found: String,
    /// The function that is lost without it.
    pub lost: &'static str,
    /// The change that would provide it.
    pub remedy: &'static str,
}

/// The means that will be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelDecision {
    /// Whether processes can be managed at all.
    pub can_manage: bool,
    /// The verdict in one sentence.
    pub verdict: String,
    /// How accesses are seen.
    pub sampler: SamplerKind,
    /// How bloat is recovered.
    pub recovery: RecoveryMethod,
    /// Why the profile `guard` has no effect here, as a sentence; `None`: it can give memory back.
    pub cannot_guard: Option<String>,
    /// Cost to the program of a base page's first access after a clear.
    pub first_touch_cost: Duration,
    /// Why nothing is promoted or prefaulted here, as a sentence; `None`: regions can be promoted.
    pub cannot_promote: Option<String>,
    /// Whether shared memory can be promoted, where settings ask for it.
    pub promotes_shared_memory: bool,
    /// All capabilities, in order of importance.
    pub capabilities: Vec<ManagerCapability>,
    /// Circumstances that the user should know, one sentence each.
    pub notes: Vec<String>,
}

/// Decides what to use.
pub fn decide_with_best_sampler(facts: &KernelFacts) -> KernelDecision {
    let sampler = if facts.access_bits.works() {
        SamplerKind::AccessBits
    } else if facts.damon.works() {
        SamplerKind::Damon
    } else {
        SamplerKind::Population
    };
    build_kernel_decision(facts, sampler)
}

/// Decides with a given sampler.
pub fn decide_with_sampler(sampler: SamplerKind, facts: &KernelFacts) -> Result<KernelDecision> {
    let checked = match sampler {
        SamplerKind::AccessBits => &facts.access_bits,
        SamplerKind::Damon => &facts.damon,
        // Population needs no more than promotion does.
        SamplerKind::Population => &KernelCheckResult::Works,
    };
    if checked.works() {
        return Ok(build_kernel_decision(facts, sampler));
    }
    Err(LinuxError::Sampler { asked: sampler.to_string(), why: checked.to_string() })
}

fn build_kernel_decision(facts: &KernelFacts, sampler: SamplerKind) -> KernelDecision {
    let recovery = working_recovery_method(facts);
    let cannot_guard = why_nothing_recovered(facts, recovery);
    let not_promoted = facts.host.why_nothing_promoted();
    let blocker = why_nothing_managed(facts).or_else(|| {
        // Where nothing is promoted, giving memory back is all that is left.
        let (why, cannot_guard) = (not_promoted.as_ref()?, cannot_guard.as_ref()?);
        Some(format!("Nothing is promoted here: {why}. {cannot_guard}"))
    });
    let instead = match cannot_guard {
        None => " The profile guard gives unused memory in huge pages back.",
        Some(_) => "",
    };
    let cannot_promote =
        not_promoted.map(|why| format!("Nothing is promoted here: {why}.{instead}"));
    let can = if cannot_promote.is_some() { "guarded" } else { "managed" };
    let can_manage = blocker.is_none();
    let verdict = blocker.unwrap_or_else(|| manageable_verdict_sentence(can, sampler, recovery));
    let mut notes = notes_for_user(facts);
    notes.extend(cannot_promote.clone().filter(|_| can_manage));
    notes.extend(cannot_guard.clone().filter(|why| !verdict.contains(why)));
    KernelDecision {
        can_manage,
        verdict,
        sampler,
        recovery,
        first_touch_cost: match sampler {
            SamplerKind::AccessBits => Duration::from_nanos(facts.first_touch_ns),
            SamplerKind::Damon | SamplerKind::Population => Duration::ZERO,
        },
        promotes_shared_memory: facts.shared_memory.works(),
        capabilities: capabilities::capabilities_from_facts(facts),
        notes,
        cannot_guard,
        cannot_promote,
    }
}

fn working_recovery_method(facts: &KernelFacts) -> RecoveryMethod {
    if facts.zero_page_remap.works() {
        // Each split remaps zero pages: no variant keeps a mark that this one loses.
        if facts.soft_dirty.works() && facts.write_protection.works() {
            RecoveryMethod::SplitRemaps
        } else {
            RecoveryMethod::None
        }
    } else if facts.page_out.works() {
        RecoveryMethod::SplitAndPageOut
    } else {
        RecoveryMethod::None
    }
}

/// Why huge pages cannot be given back, if they cannot.
fn why_nothing_recovered(facts: &KernelFacts, recovery: RecoveryMethod) -> Option<String> {
    if recovery != RecoveryMethod::None {
        return None;
    }
    let why = if let Some(sizes) = facts.host.unsupported_page_sizes() {
        sizes
    } else if facts.zero_page_remap.works() {
        "a split of a huge page would lose marks that other tools rely on (soft-dirty, userfaultfd)"
            .to_owned()
    } else if !facts.split.works() {
        format!("huge pages of other processes cannot be split: {}", facts.split)
    } else {
        format!(
            "a split gives no memory back (kernels before 6.12), and zero pages cannot be swapped out: {}",
            facts.page_out
        )
    };
    Some(format!("The profile guard cannot give memory back here: {why}."))
}

/// The reason why nothing can be managed, if there is one. Only promotion has no replacement.
fn why_nothing_managed(facts: &KernelFacts) -> Option<String> {
    if facts.host.thp_enabled.is_none() {
        return Some("This kernel has no transparent huge pages: nothing can be managed.".into());
    }
    if let Some(why) = facts.host.unsupported_page_sizes() {
        let remedy = match (facts.host.huge_page_bytes, facts.host.base_page_bytes >> 10) {
            (None, _) => "Make that file readable where HawkEye runs.",
            (_, 4 | 16) => "HawkEye's package has a build for this kernel, too.",
            _ => "Boot a kernel with base pages of 4 or 16 KiB, if the distribution has one.",
        };
        return Some(format!("Nothing can be managed: {why}. {remedy}"));
    }
    if facts.collapse.works() {
        return None;
    }
    if !facts.host.missing_capabilities.is_empty() {
        return Some(format!(
            "Managing the memory of other processes needs {}: run as root or with these capabilities.",
            facts.host.missing_capabilities.join(", ")
        ));
    }
    let KernelCheckResult::Fails(why) = &facts.collapse else {
        return Some("Promotion could not be tested: nothing can be managed.".into());
    };
    Some(format!("Promotion failed in a test on a child process ({why}): nothing can be managed."))
}

/// `can`: `managed` or `guarded`.
fn manageable_verdict_sentence(
    can: &str,
    sampler: SamplerKind,
    recovery: RecoveryMethod,
) -> String {
    let seen = match sampler {
        SamplerKind::AccessBits => "coverage is measured by access bits",
        SamplerKind::Damon => "coverage is estimated by DAMON",
        SamplerKind::Population => "accesses cannot be measured, only which pages are populated",
    };
    let recovered = match recovery {
        RecoveryMethod::SplitRemaps => "bloat is recovered by splitting",
        RecoveryMethod::SplitAndPageOut => "bloat is recovered by splitting and swapping",
        RecoveryMethod::None => "bloat cannot be recovered",
    };
    format!("Processes can be {can}: {seen}, {recovered}.")
}

fn notes_for_user(facts: &KernelFacts) -> Vec<String> {
    let host = &facts.host;
    let mut notes = Vec::new();
    match host.lockdown {
        KernelLockdown::Confidentiality => notes.push(
            "Kernel lockdown is in confidentiality mode: BPF cannot read kernel memory, and so not the access bits. Boot with lockdown=integrity or without lockdown."
                .into(),
        ),
        KernelLockdown::Integrity => {
            notes.push("Kernel lockdown is in integrity mode, which allows everything that HawkEye uses.".into());
        }
        KernelLockdown::None | KernelLockdown::Unknown => {}
    }
    if !host.missing_capabilities.is_empty() {
        notes.push(format!(
            "Missing privileges: {}. Run as root, or give the program these capabilities.",
            host.missing_capabilities.join(", ")
        ));
    }
    if let Some(kind) = &host.container {
        notes.push(format!(
            "This looks like a container ({kind}). In a container, only its own processes are visible, and system-wide settings are mostly read-only. Run hawkeye on the host, or with the host's pid namespace and privileges."
        ));
    }
    if host.own_thp_disabled {
        notes.push(
            "PR_SET_THP_DISABLE is set for this shell (by systemd's MemoryTHP=, a container runtime or a wrapper). Programs that `hawkeye run` starts from it inherit the flag and cannot get huge pages."
                .into(),
        );
    }
    if host.thp_enabled.as_deref() == Some("never") {
        notes.push(
            "Transparent huge pages are set to never: programs get none by themselves. The promotion check shows whether the manager can still promote."
                .into(),
        );
    }
    if u128::from(facts.first_touch_ns) >= INTERCEPTED.as_nanos() && facts.access_bits.works() {
        let (why, effect) = if facts.first_touch_faults {
            (
                "because it is a page fault: this processor does not set access bits",
                " Where such faults take much of a program's time, its overhead is estimated as \"at least\".",
            )
        } else {
            ("as under a hypervisor with shadow page tables", "")
        };
        notes.push(format!(
            "A first touch after a clear costs {} ns here, {why}. Sampling windows are spaced so that they cost a program at most 1 % of its time.{effect}",
            facts.first_touch_ns
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
