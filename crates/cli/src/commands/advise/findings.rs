//! From facts to findings, and what could be done about them. Pure.

use super::facts::{Cost, Facts, NotMeasured, Region};
use super::remedies::{Remedy, remedies};
use hawkeye_linux::surroundings::{Advice as Said, Place};
use hawkeye_policy::policies::HawkeyePmu;
use hawkeye_policy::{HUGE_PAGE_BYTES, MemoryUse, Overhead, Watermarks};
use serde::Serialize;

/// Less than this is not worth anybody's time, in per cent of a process's CPU time: as the policies have it.
pub const WORTH_PERCENT: f64 = HawkeyePmu::MIN_OVERHEAD_PERCENT;

/// What huge pages are to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// More of them would make it faster.
    Gains,
    /// The estimate is under what is worth anything, but it can't be ruled out.
    MayGain,
    /// They would bring nothing.
    GainsNothing,
    /// What there is to gain, it has already.
    HasThem,
    /// It can't be told.
    Unknown,
}

/// One thing that was found, with its figures. Shares are in per cent of the process's CPU time unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum Finding {
    /// What translation costs.
    Costs {
        /// What, and how that was found out.
        #[serde(flatten)]
        cost: Cost,
    },
    /// It can't be told what translation costs.
    NotMeasured(NotMeasured),
    /// What would be saved if all of it were huge.
    WouldSave {
        /// Best estimate.
        percent: f64,
        /// Hardly less.
        low_percent: f64,
        /// Hardly more.
        high_percent: f64,
        /// So many times as fast would it be, where it does nothing but compute.
        speedup: f64,
        /// Regions under base pages.
        regions: u64,
    },
    /// So many regions, the hottest, have so much of it.
    FirstRegions {
        /// How many.
        regions: u64,
        /// Of the saving, in per cent.
        share_percent: f64,
        /// Memory that would be added for them.
        added_bytes: u64,
    },
    /// Where that is.
    At {
        /// First byte of the mapping.
        start: u64,
        /// First byte after it.
        end: u64,
        /// What is mapped there.
        what: String,
        /// Of the saving, in per cent.
        share_percent: f64,
        /// Of its memory, under base pages.
        base_bytes: u64,
    },
    /// Memory that huge pages would add.
    WouldAdd {
        /// How much, if everything became huge.
        bytes: u64,
        /// Its memory under base pages now.
        of_bytes: u64,
    },
    /// What the huge pages that it has waste.
    Wastes {
        /// Huge pages searched for zeros.
        searched: u64,
        /// All that it has.
        huge_regions: u64,
        /// Base pages of them that hold nothing but zeros, in per cent.
        zero_percent: f64,
        /// The same in all of its huge pages, by that share.
        bytes: u64,
        /// What of it recovery would give back, under pressure, by its usual threshold.
        recoverable_bytes: u64,
    },
    /// It was told to have no huge pages.
    ThpDisabled,
    /// Its owner keeps memory out.
    NoHugePage {
        /// How much.
        bytes: u64,
    },
    /// The kernel gives huge pages to nobody.
    KernelSaysNever,
    /// The kernel gives huge pages to who asks, and it does not ask for this much.
    KernelSaysMadvise {
        /// How much.
        bytes: u64,
        /// How much it does ask for.
        advised_bytes: u64,
    },
    /// The kernel gives huge pages to everybody, and yet this much is under base pages.
    KernelSaysAlways {
        /// How much.
        bytes: u64,
        /// How long khugepaged takes for it at its pace, in seconds, where that is known.
        khugepaged_s: Option<f64>,
    },
    /// Memory that could be huge by other means only.
    Shared {
        /// How much.
        bytes: u64,
        /// The kernel's `shmem_enabled`.
        shmem_enabled: Option<String>,
    },
    /// Memory is short: nothing should become huge.
    MemoryShort {
        /// A cgroup's path; `None`: the machine.
        cgroup: Option<String>,
        /// In use.
        usage: MemoryUse,
        /// From here on nothing is promoted, in per cent.
        high_percent: f64,
    },
    /// What would be added does not fit under a limit.
    LimitNear {
        /// A cgroup's path; `None`: the machine.
        cgroup: Option<String>,
        /// Memory that is left up to the high watermark.
        room_bytes: u64,
    },
}

/// What to make of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// In a word.
    pub verdict: Verdict,
    /// In detail.
    pub findings: Vec<Finding>,
    /// What would change it, the nearest first; none where nothing is to be gained.
    pub remedies: Vec<Remedy>,
}

/// Judges the facts.
pub fn advise(facts: &Facts) -> Advice {
    let mut findings = Vec::new();
    let verdict = gain(facts, &mut findings);
    waste(facts, verdict, &mut findings);
    if facts.regions.iter().any(|region| region.present > 0) {
        settings(facts, &mut findings);
    }
    shared(facts, &mut findings);
    if matches!(verdict, Verdict::Gains | Verdict::MayGain) {
        limits(facts, &mut findings);
    }
    Advice {
        remedies: remedies(facts, verdict, &findings),
        verdict,
        findings,
    }
}

fn gain(facts: &Facts, findings: &mut Vec<Finding>) -> Verdict {
    let cost = match &facts.cost {
        Ok(cost) => cost,
        Err(why) => {
            findings.push(Finding::NotMeasured(why.clone()));
            return match why {
                NotMeasured::Idle | NotMeasured::TooSmall => Verdict::GainsNothing,
                NotMeasured::Unseen => Verdict::Unknown,
            };
        }
    };
    findings.push(Finding::Costs { cost: cost.clone() });
    let Overhead {
        percent,
        low_percent,
        high_percent,
        at_least,
        ..
    } = cost.overhead;
    let saved = |percent: f64| (percent - cost.huge_percent).clamp(0.0, 99.0);
    let regions = facts.regions.len() as u64;
    if regions == 0 {
        return if facts.huge_regions > 0 {
            Verdict::HasThem
        } else {
            Verdict::GainsNothing
        };
    }
    findings.push(Finding::WouldSave {
        percent: saved(percent),
        low_percent: saved(low_percent),
        high_percent: saved(high_percent),
        speedup: 1.0 / (1.0 - saved(percent) / 100.0),
        regions,
    });
    let verdict = if saved(percent) >= WORTH_PERCENT {
        Verdict::Gains
    } else if saved(high_percent) >= WORTH_PERCENT || at_least {
        Verdict::MayGain
    } else if facts.huge_regions > regions {
        Verdict::HasThem
    } else {
        Verdict::GainsNothing
    };
    if matches!(verdict, Verdict::Gains | Verdict::MayGain) {
        concentration(&facts.regions, findings);
        places(facts, findings);
    }
    verdict
}

/// How much of the gain the first few regions have: as many as half of it takes, and nine tenths.
fn concentration(regions: &[Region], findings: &mut Vec<Finding>) {
    let mut told = 0;
    for wanted in [0.5, 0.9] {
        let mut share = 0.0;
        let enough = regions.iter().position(|region| {
            share += region.share;
            share >= wanted
        });
        let Some(last) = enough.filter(|last| *last + 1 > told) else {
            continue;
        };
        told = last + 1;
        let first = &regions[..told];
        findings.push(Finding::FirstRegions {
            regions: told as u64,
            share_percent: share * 100.0,
            added_bytes: first.iter().map(Region::added_bytes).sum(),
        });
    }
}

/// Mappings listed at most.
const MOST_PLACES: usize = 5;

fn places(facts: &Facts, findings: &mut Vec<Finding>) {
    let inside = |place: &Place, region: &&Region| (place.start..place.end).contains(&region.start);
    let mut shares: Vec<(f64, &Place)> = facts
        .surroundings
        .places
        .iter()
        .map(|place| {
            let regions = facts.regions.iter().filter(|region| inside(place, region));
            (regions.map(|region| region.share * 100.0).sum(), place)
        })
        .filter(|(share, _)| *share >= 1.0)
        .collect();
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (share_percent, place) in shares.into_iter().take(MOST_PLACES) {
        findings.push(Finding::At {
            start: place.start,
            end: place.end,
            what: place.what.clone(),
            share_percent,
            base_bytes: place.resident_bytes.saturating_sub(place.huge_bytes),
        });
    }
}

fn waste(facts: &Facts, verdict: Verdict, findings: &mut Vec<Finding>) {
    let bytes = facts.regions.iter().map(Region::added_bytes).sum();
    let present = facts
        .regions
        .iter()
        .map(|r| u64::from(r.present))
        .sum::<u64>();
    if matches!(
        verdict,
        Verdict::Gains | Verdict::MayGain | Verdict::Unknown
    ) && present > 0
    {
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
            recoverable_bytes: bytes.min((huge_bytes * bloated) as u64),
        });
    }
}

/// What keeps memory that could be huge from it.
fn settings(facts: &Facts, findings: &mut Vec<Finding>) {
    let around = &facts.surroundings;
    if around.thp_disabled {
        findings.push(Finding::ThpDisabled);
    }
    let could = around
        .places
        .iter()
        .filter(|place| place.ineligible.is_none() && place.end - place.start >= HUGE_PAGE_BYTES);
    let base = |said: Said| -> u64 {
        let of = could.clone().filter(|place| place.advice == said);
        of.map(|place| place.resident_bytes.saturating_sub(place.huge_bytes))
            .sum()
    };
    let refused = base(Said::NoHuge);
    if refused >= HUGE_PAGE_BYTES {
        findings.push(Finding::NoHugePage { bytes: refused });
    }
    let (silent, advised) = (base(Said::None), base(Said::Huge));
    match around.settings.enabled.as_deref() {
        Some("never") | None => findings.push(Finding::KernelSaysNever),
        Some("madvise") if silent >= HUGE_PAGE_BYTES => {
            findings.push(Finding::KernelSaysMadvise {
                bytes: silent,
                advised_bytes: advised,
            });
        }
        Some("always") if silent + advised >= HUGE_PAGE_BYTES && !around.thp_disabled => {
            findings.push(Finding::KernelSaysAlways {
                bytes: silent + advised,
                khugepaged_s: khugepaged_s(facts, silent + advised),
            });
        }
        _ => {}
    }
}

/// How long khugepaged takes to scan so much, when it has nothing else to do.
fn khugepaged_s(facts: &Facts, bytes: u64) -> Option<f64> {
    let settings = &facts.surroundings.settings;
    let number = |text: &Option<String>| text.as_ref()?.parse::<f64>().ok();
    let sleep_s = number(&settings.khugepaged_scan_sleep_ms)? / 1e3;
    let pages = number(&settings.khugepaged_pages_to_scan)?;
    let scans = bytes as f64 / hawkeye_policy::BASE_PAGE_BYTES as f64 / pages.max(1.0);
    Some(scans * sleep_s)
}

fn shared(facts: &Facts, findings: &mut Vec<Finding>) {
    let shared = facts
        .surroundings
        .places
        .iter()
        .filter(|place| place.shared_memory);
    let bytes: u64 = shared
        .map(|place| place.resident_bytes.saturating_sub(place.huge_bytes))
        .sum();
    let all: u64 = facts
        .surroundings
        .places
        .iter()
        .map(|place| place.resident_bytes)
        .sum();
    // A little of it every program has.
    if bytes >= 64 << 20 && bytes * 10 >= all {
        findings.push(Finding::Shared {
            bytes,
            shmem_enabled: facts.surroundings.settings.shmem_enabled.clone(),
        });
    }
}

fn limits(facts: &Facts, findings: &mut Vec<Finding>) {
    let high_percent = Watermarks::default().high_percent();
    let added: u64 = facts.regions.iter().map(Region::added_bytes).sum();
    let group = facts.cgroup.as_ref();
    let group = group.map(|group| (Some(group.name.clone()), group.usage));
    for (cgroup, usage) in [Some((None, facts.memory)), group].into_iter().flatten() {
        let high_bytes = (usage.total_bytes as f64 * high_percent / 100.0) as u64;
        let room_bytes = high_bytes.saturating_sub(usage.used_bytes);
        if room_bytes == 0 {
            findings.push(Finding::MemoryShort {
                cgroup,
                usage,
                high_percent,
            });
        } else if room_bytes < added {
            findings.push(Finding::LimitNear { cgroup, room_bytes });
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
