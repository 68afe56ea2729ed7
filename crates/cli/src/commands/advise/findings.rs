//! Derives findings and remedies from facts. Pure.

use super::facts::{AdviceFacts, BaseRegionFacts, TranslationNotMeasured};
use super::finding::{Advice, AdviceVerdict, Finding, WORTH_PERCENT};
use super::remedies::remedies_for_findings;
use hawkeye_linux::processes::huge_page_context::{HugePageAdvice, MappingGroup};
use hawkeye_linux::processes::program_text::{TextMapping, TextSupport};
use hawkeye_linux::processes::shared_mappings::SharedMapping;
use hawkeye_policy::{HUGE_PAGE_BYTES, TranslationOverhead, Watermarks};
use std::cmp::Reverse;

pub fn advice_from_facts(facts: &AdviceFacts) -> Advice {
    let mut findings = Vec::new();
    let verdict = judge_gain_and_add_findings(facts, &mut findings);
    findings.extend(facts.manager.clone().map(Finding::ManagerRuns));
    add_added_and_wasted_memory(facts, verdict, &mut findings);
    if facts.surroundings.settings.enabled.as_deref() != Some("always") {
        findings.extend(facts.forecast.clone().map(Finding::Forecast));
    }
    if facts.regions.iter().any(|region| region.present > 0) {
        add_reasons_for_base_pages(facts, &mut findings);
    }
    add_shared_memory(facts, &mut findings);
    add_blocked_shared_memory(facts, &mut findings);
    add_program_text(facts, &mut findings);
    if matches!(verdict, AdviceVerdict::Gains | AdviceVerdict::MayGain) {
        add_memory_shortage(facts, &mut findings);
    }
    Advice { remedies: remedies_for_findings(facts, verdict, &findings), verdict, findings }
}

fn judge_gain_and_add_findings(facts: &AdviceFacts, findings: &mut Vec<Finding>) -> AdviceVerdict {
    let cost = match &facts.cost {
        Ok(cost) => cost,
        Err(why) => {
            findings.push(Finding::NotMeasured(why.clone()));
            return match why {
                TranslationNotMeasured::TooSmall => AdviceVerdict::GainsNothing,
                // It may gain once it works.
                TranslationNotMeasured::Idle => AdviceVerdict::Unknown,
                TranslationNotMeasured::Unseen => AdviceVerdict::Unknown,
            };
        }
    };
    findings.push(Finding::Costs { cost: cost.clone() });
    let TranslationOverhead { percent, low_percent, high_percent, at_least, .. } = cost.overhead;
    let saved = |percent: f64| (percent - cost.huge_percent).clamp(0.0, 99.0);
    let regions = facts.regions.len() as u64;
    if regions == 0 {
        return match facts.huge_regions {
            0 => AdviceVerdict::GainsNothing,
            _ => AdviceVerdict::HasThem,
        };
    }
    findings.push(Finding::WouldSave {
        percent: saved(percent),
        low_percent: saved(low_percent),
        high_percent: saved(high_percent),
        speedup: 1.0 / (1.0 - saved(percent) / 100.0),
        regions,
    });
    let contiguous = facts.regions.iter().filter(|region| region.contiguous).count() as u64;
    if contiguous > 0 {
        findings.push(Finding::Contiguous { regions: contiguous, of_regions: regions });
    }
    let verdict = if saved(percent) >= WORTH_PERCENT {
        AdviceVerdict::Gains
    } else if saved(high_percent) >= WORTH_PERCENT || at_least {
        AdviceVerdict::MayGain
    } else if facts.huge_regions > regions {
        AdviceVerdict::HasThem
    } else {
        AdviceVerdict::GainsNothing
    };
    if matches!(verdict, AdviceVerdict::Gains | AdviceVerdict::MayGain) {
        add_hottest_region_shares(&facts.regions, findings);
        add_mapping_group_shares(facts, findings);
    }
    verdict
}

/// Share of the gain in the hottest regions: how many regions make up half of it, and nine tenths.
///
/// Ranked regions stand for all. In a large process too few are ranked, and nothing is reported.
fn add_hottest_region_shares(all: &[BaseRegionFacts], findings: &mut Vec<Finding>) {
    let regions: Vec<&BaseRegionFacts> = all.iter().filter(|region| region.ranked).collect();
    let total: f64 = regions.iter().map(|region| region.share).sum();
    if regions.len() * 2 < all.len() || total <= 0.0 {
        return;
    }
    let for_all = |part: u64| (part as f64 * all.len() as f64 / regions.len() as f64) as u64;
    let mut told = 0;
    for wanted in [0.5, 0.9] {
        let mut share = 0.0;
        let enough = regions.iter().position(|region| {
            share += region.share / total;
            share >= wanted
        });
        let Some(last) = enough.filter(|last| *last + 1 > told) else { continue };
        told = last + 1;
        let first = &regions[..told];
        findings.push(Finding::FirstRegions {
            regions: for_all(told as u64),
            share_percent: share * 100.0,
            added_bytes: for_all(first.iter().map(|region| region.added_bytes_if_huge()).sum()),
        });
    }
}

const MOST_MAPPINGS_LISTED: usize = 5;

fn add_mapping_group_shares(facts: &AdviceFacts, findings: &mut Vec<Finding>) {
    let percent =
        |place| facts.regions_in_mapping_group(place).map(|region| region.share * 100.0).sum();
    let shares = facts.surroundings.places.iter().map(|place| (percent(place), place));
    let mut shares: Vec<(f64, &MappingGroup)> = shares.filter(|(share, _)| *share >= 1.0).collect();
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (share_percent, place) in shares.into_iter().take(MOST_MAPPINGS_LISTED) {
        findings.push(Finding::At {
            start: place.start,
            end: place.end,
            what: place.what.clone(),
            share_percent,
            base_bytes: bytes_under_base_pages(place),
        });
    }
}

fn bytes_under_base_pages(place: &MappingGroup) -> u64 {
    place.resident_bytes.saturating_sub(place.huge_bytes)
}

fn add_added_and_wasted_memory(
    facts: &AdviceFacts,
    verdict: AdviceVerdict,
    findings: &mut Vec<Finding>,
) {
    let bytes = facts.regions.iter().map(BaseRegionFacts::added_bytes_if_huge).sum();
    let present: u64 = facts.regions.iter().map(|r| u64::from(r.present)).sum();
    use AdviceVerdict::{GainsNothing, HasThem};
    let no_gain = matches!(verdict, GainsNothing | HasThem);
    if !no_gain && present > 0 {
        let of_bytes = present * hawkeye_policy::BASE_PAGE_BYTES;
        findings.push(Finding::WouldAdd { bytes, of_bytes });
    }
    let zeros = facts.zeros;
    if zeros.searched > 0 {
        let all = zeros.searched * u64::from(hawkeye_policy::PAGES_PER_REGION);
        let share = zeros.zero_pages as f64 / all as f64;
        let huge_bytes = (facts.huge_regions * HUGE_PAGE_BYTES) as f64;
        let bloated = zeros.bloated as f64 / zeros.searched as f64;
        let bytes = (huge_bytes * share) as u64;
        findings.push(Finding::Wastes {
            searched: zeros.searched,
            huge_regions: facts.huge_regions,
            zero_percent: share * 100.0,
            bytes,
            recoverable_bytes: match facts.recovery_possible {
                true => bytes.min((huge_bytes * bloated) as u64),
                false => 0,
            },
        });
    }
}

fn add_reasons_for_base_pages(facts: &AdviceFacts, findings: &mut Vec<Finding>) {
    let around = &facts.surroundings;
    if around.thp_disabled {
        findings.push(Finding::ThpDisabled);
    }
    let could = around
        .places
        .iter()
        .filter(|place| place.ineligible.is_none() && place.end - place.start >= HUGE_PAGE_BYTES);
    let base = |advice: HugePageAdvice| -> u64 {
        could.clone().filter(|place| place.advice == advice).map(bytes_under_base_pages).sum()
    };
    let refused = base(HugePageAdvice::NoHuge);
    if refused >= HUGE_PAGE_BYTES {
        findings.push(Finding::NoHugePage { bytes: refused });
    }
    let (silent, advised) = (base(HugePageAdvice::None), base(HugePageAdvice::Huge));
    match around.settings.enabled.as_deref() {
        Some("never") | None => findings.push(Finding::KernelSaysNever),
        Some("madvise") if silent >= HUGE_PAGE_BYTES => {
            findings.push(Finding::KernelSaysMadvise { bytes: silent, advised_bytes: advised });
        }
        Some("always") if silent + advised >= HUGE_PAGE_BYTES && !around.thp_disabled => {
            findings.push(Finding::KernelSaysAlways {
                bytes: silent + advised,
                khugepaged_s: khugepaged_scan_s(facts, silent + advised),
            });
        }
        _ => {}
    }
}

/// Time that khugepaged needs to scan `bytes` if it does nothing else, in seconds.
fn khugepaged_scan_s(facts: &AdviceFacts, bytes: u64) -> Option<f64> {
    let settings = &facts.surroundings.settings;
    let number = |text: &Option<String>| text.as_ref()?.parse::<f64>().ok();
    let sleep_s = number(&settings.khugepaged_scan_sleep_ms)? / 1e3;
    let pages = number(&settings.khugepaged_pages_to_scan)?;
    let scans = bytes as f64 / hawkeye_policy::BASE_PAGE_BYTES as f64 / pages.max(1.0);
    Some(scans * sleep_s)
}

fn add_shared_memory(facts: &AdviceFacts, findings: &mut Vec<Finding>) {
    let around = &facts.surroundings;
    let base = |shared: &SharedMapping| shared.resident_bytes.saturating_sub(shared.huge_bytes);
    let bytes: u64 = around.shared_memory.iter().map(base).sum();
    let all: u64 = around.places.iter().map(|place| place.resident_bytes).sum();
    // Every program has a little of it.
    if bytes >= 64 << 20 && bytes * 10 >= all {
        let shmem_enabled = around.settings.shmem_enabled.clone();
        findings.push(Finding::Shared { bytes, shmem_enabled });
    }
}

/// The largest mappings of shared memory that cannot become huge. Those without 2 MiB of memory are
/// left out: every program has some.
fn add_blocked_shared_memory(facts: &AdviceFacts, findings: &mut Vec<Finding>) {
    let around = &facts.surroundings;
    let shmem_enabled = around.settings.shmem_enabled.as_deref();
    let large = around.shared_memory.iter().filter(|m| m.mapped_bytes() >= HUGE_PAGE_BYTES);
    let blocked = large.filter(|m| m.obstacle.is_some_and(|what| !what.is_huge_already()));
    let mut blocked: Vec<&SharedMapping> = blocked.collect();
    blocked.sort_by_key(|mapping| (Reverse(mapping.mapped_bytes()), mapping.start));
    for mapping in blocked.into_iter().take(MOST_MAPPINGS_LISTED) {
        findings.push(Finding::SharedBlocked {
            mapping: mapping.clone(),
            mapped_bytes: mapping.mapped_bytes(),
            because: mapping.obstacle.map(|what| what.to_string()).unwrap_or_default(),
            remedy: mapping.remedy(shmem_enabled),
        });
    }
}

/// The largest pieces of program text. Those of less than 2 MiB in memory are left out.
fn add_program_text(facts: &AdviceFacts, findings: &mut Vec<Finding>) {
    let around = &facts.surroundings;
    let mut pieces: Vec<&TextMapping> =
        around.text.iter().filter(|text| text.resident_bytes >= HUGE_PAGE_BYTES).collect();
    pieces.sort_by_key(|text| (Reverse(text.resident_bytes), text.start));
    findings.extend(pieces.into_iter().take(MOST_MAPPINGS_LISTED).map(|text| Finding::Text {
        mapping: text.clone(),
        aligned: text.is_aligned(),
        windows: text.windows(),
        windows_if_aligned: text.windows_if_aligned(),
        support: TextSupport::of_file_system(text.file_system.as_deref(), around.text_rule),
    }));
}

fn add_memory_shortage(facts: &AdviceFacts, findings: &mut Vec<Finding>) {
    let high_percent = Watermarks::default().high_percent();
    let added: u64 = facts.regions.iter().map(BaseRegionFacts::added_bytes_if_huge).sum();
    let group = facts.cgroup.as_ref();
    let group = group.map(|group| (Some(group.name.clone()), group.usage));
    for (cgroup, usage) in [Some((None, facts.memory)), group].into_iter().flatten() {
        let high_bytes = (usage.total_bytes as f64 * high_percent / 100.0) as u64;
        let room_bytes = high_bytes.saturating_sub(usage.used_bytes);
        if room_bytes == 0 {
            findings.push(Finding::MemoryShort { cgroup, usage, high_percent });
        } else if room_bytes < added {
            findings.push(Finding::LimitNear { cgroup, room_bytes });
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
