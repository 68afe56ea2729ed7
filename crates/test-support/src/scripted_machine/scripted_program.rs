//! A program of the scripted machine.

use super::{costs, pages_to_bytes};
use hawkeye_policy::{
    HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, ProcessId, ProcessSettings, RegionAddr,
    RegionSample,
};
use std::time::Duration;

/// Neighbouring regions that are used alike.
#[derive(Clone, Copy, Debug)]
pub struct ProgramPart {
    /// The first region.
    pub start: RegionAddr,
    /// Number of regions.
    pub regions: u32,
    /// Its share of the program's accesses is its weight over the sum of all.
    pub weight: f64,
    /// Base pages in use in each region (0-512).
    pub used_pages: u16,
    /// Whether it is mapped by huge pages at first. If so, all pages are present, and those not in
    /// use are zero.
    pub huge: bool,
}

impl Default for ProgramPart {
    /// One fully used region at 2 MiB, under base pages.
    fn default() -> Self {
        Self {
            start: RegionAddr::containing(HUGE_PAGE_BYTES),
            regions: 1,
            weight: 1.0,
            used_pages: PAGES_PER_REGION,
            huge: false,
        }
    }
}

/// A program.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// Its address space, in address order.
    pub parts: Vec<ProgramPart>,
    /// Share of its accesses to base pages that need a page walk (0-1).
    pub walk_share: f64,
    /// Time of its start.
    pub arrives: Duration,
    /// It ends after this many accesses, if not before.
    pub ends_after: Option<u64>,
    /// It ends at this time, if not before.
    pub ends_at: Option<Duration>,
    /// The cgroup it is in.
    pub group: Option<String>,
    /// The rules under which it is managed.
    pub terms: ProcessSettings,
}

impl Default for ProgramSpec {
    /// Runs from the start for ever, in no cgroup; every access to a base page needs a walk.
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            walk_share: 1.0,
            arrives: Duration::ZERO,
            ends_after: None,
            ends_at: None,
            group: None,
            terms: ProcessSettings::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramState {
    ToCome,
    Alive,
    Ended,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptedRegion {
    pub(super) present: u16,
    pub(super) zero_mapped: u16,
    pub(super) huge: bool,
    /// A collapse maps all pages as accessed.
    accessed: bool,
}

#[derive(Clone, Debug)]
struct PartState {
    spec: ProgramPart,
    regions: Vec<ScriptedRegion>,
    /// Accesses to each of its regions since their bits were cleared.
    exposure: f64,
}

/// A program on the scripted machine.
#[derive(Clone, Debug)]
pub struct ScriptedProgram {
    pub(super) id: ProcessId,
    pub(super) spec: ProgramSpec,
    life: ProgramState,
    parts: Vec<PartState>,
    pub(super) accesses: f64,
    /// Time still to be spent on first touches, in nanoseconds.
    stalled_ns: f64,
    pub(super) cleared: bool,
}

impl ScriptedProgram {
    pub(super) fn new(id: ProcessId, spec: ProgramSpec) -> Self {
        Self {
            id,
            spec,
            life: ProgramState::ToCome,
            parts: Vec::new(),
            accesses: 0.0,
            stalled_ns: 0.0,
            cleared: false,
        }
    }

    /// Whether it is running.
    pub fn is_alive(&self) -> bool {
        self.life == ProgramState::Alive
    }

    pub(super) fn has_ended(&self) -> bool {
        self.life == ProgramState::Ended
    }

    pub(super) fn is_in_group(&self, group: &str) -> bool {
        self.spec.group.as_deref() == Some(group)
    }

    /// Resident memory, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        pages_to_bytes(self.regions().map(|(_, r)| u64::from(r.present)).sum())
    }

    /// Memory under huge pages, in bytes.
    pub fn huge_bytes(&self) -> u64 {
        self.regions().filter(|(_, r)| r.huge).count() as u64 * HUGE_PAGE_BYTES
    }

    /// Accesses per second with its current mapping; 0 where it accesses nothing.
    pub fn accesses_per_s(&self) -> f64 {
        self.mean_access_ns().map_or(0.0, |ns| 1e9 / ns)
    }

    /// The share of its time that page walks take, in per cent; `None` where it accesses nothing.
    pub fn overhead_percent(&self) -> Option<f64> {
        let mean = self.mean_access_ns()?;
        Some((1.0 - costs::HUGE_ACCESS_NS / mean) * 100.0)
    }

    fn total_weight(&self) -> f64 {
        self.parts.iter().map(|part| part.spec.weight).sum()
    }

    fn mean_access_ns(&self) -> Option<f64> {
        let total = self.total_weight();
        let walk_ns = self.spec.walk_share * (costs::BASE_ACCESS_NS - costs::HUGE_ACCESS_NS);
        let of = |part: &PartState| {
            let base = part.regions.iter().filter(|r| !r.huge).count() as f64;
            let base = base / part.regions.len() as f64;
            part.spec.weight * (costs::HUGE_ACCESS_NS + base * walk_ns)
        };
        (total > 0.0).then(|| self.parts.iter().map(of).sum::<f64>() / total)
    }

    pub(super) fn start_or_end_if_due(&mut self, now: Duration) {
        let done = |work: u64| self.accesses + 0.5 >= work as f64;
        let (at, work) = (self.spec.ends_at, self.spec.ends_after);
        if self.life == ProgramState::ToCome && self.spec.arrives <= now {
            self.life = ProgramState::Alive;
            let parts = self.spec.parts.iter();
            self.parts = parts.map(|part| PartState::new(*part)).collect();
        }
        if self.life == ProgramState::Alive
            && (at.is_some_and(|at| at <= now) || work.is_some_and(done))
        {
            self.end_program();
        }
    }

    pub(super) fn end_program(&mut self) {
        self.life = ProgramState::Ended;
        self.parts = Vec::new();
    }

    /// Time of its start or end if nothing changes.
    pub(super) fn next_start_or_end_time(&self, now: Duration) -> Option<Duration> {
        match self.life {
            ProgramState::ToCome => Some(self.spec.arrives),
            ProgramState::Ended => None,
            ProgramState::Alive => {
                let work = self.spec.ends_after;
                let worked = work.zip(self.mean_access_ns()).map(|(work, mean)| {
                    let left_ns = (work as f64 - self.accesses).max(0.0) * mean;
                    now + Duration::from_secs_f64((self.stalled_ns + left_ns) / 1e9)
                });
                worked.into_iter().chain(self.spec.ends_at).min()
            }
        }
    }

    /// Runs for `elapsed`: does as many accesses as fit in, and adds the time of first touches to
    /// what is still to be spent.
    pub(super) fn run_for(&mut self, elapsed: Duration) {
        let elapsed_ns = elapsed.as_secs_f64() * 1e9;
        let stalled = self.stalled_ns.min(elapsed_ns);
        self.stalled_ns -= stalled;
        let Some(mean) = self.mean_access_ns() else {
            return;
        };
        let accesses = (elapsed_ns - stalled) / mean;
        self.accesses += accesses;
        let total = self.total_weight();
        let mut touched = 0.0;
        for part in &mut self.parts {
            let before = part.expected_first_touches();
            part.exposure += accesses * part.spec.weight / total / part.regions.len() as f64;
            touched += part.expected_first_touches() - before;
        }
        if self.cleared {
            self.stalled_ns += touched * costs::FIRST_TOUCH.as_secs_f64() * 1e9;
        }
    }

    pub(super) fn clear_access_bits(&mut self) {
        self.cleared = true;
        for part in &mut self.parts {
            part.exposure = 0.0;
            part.regions.iter_mut().for_each(|r| r.accessed = false);
        }
    }

    /// Samples of all regions that are not empty.
    pub(super) fn list_region_samples(&self) -> Vec<RegionSample> {
        let parts = self.parts.iter();
        let all = parts.flat_map(|part| {
            let regions = part.regions.iter().zip(0u64..);
            regions.map(|(region, index)| part.region_sample(region, index, self.cleared))
        });
        all.filter(|sample| sample.present > 0 || sample.zero_mapped > 0).collect()
    }

    fn regions(&self) -> impl Iterator<Item = (&PartState, &ScriptedRegion)> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.regions.iter().map(move |region| (part, region)))
    }

    pub(super) fn region_and_used_pages_mut(
        &mut self,
        address: RegionAddr,
    ) -> Option<(&mut ScriptedRegion, u16)> {
        self.parts.iter_mut().find_map(|part| {
            let offset = address.start().checked_sub(part.spec.start.start())?;
            let index = usize::try_from(offset / HUGE_PAGE_BYTES).ok()?;
            let used = part.spec.used_pages;
            Some((part.regions.get_mut(index)?, used))
        })
    }

    pub(super) fn set_used_pages(&mut self, part: usize, pages: u16) {
        let Some(part) = self.parts.get_mut(part) else {
            return;
        };
        let used = std::mem::replace(&mut part.spec.used_pages, pages);
        for region in &mut part.regions {
            if pages < used {
                region.huge = false;
                region.present -= used - pages;
            } else if !region.huge {
                let added = pages - used;
                region.present += added;
                region.zero_mapped = region.zero_mapped.saturating_sub(added);
            }
        }
    }
}

impl PartState {
    fn new(spec: ProgramPart) -> Self {
        let huge = spec.huge;
        let region = ScriptedRegion {
            present: if huge { PAGES_PER_REGION } else { spec.used_pages },
            zero_mapped: 0,
            huge,
            accessed: false,
        };
        Self { spec, regions: vec![region; spec.regions as usize], exposure: 0.0 }
    }

    /// Expected number of a region's base pages that the accesses so far have reached.
    fn expected_reached_pages(&self) -> f64 {
        let used = f64::from(self.spec.used_pages);
        if used == 0.0 { 0.0 } else { used * (1.0 - (-self.exposure / used).exp()) }
    }

    /// First touches since bits were cleared: one for each base page, one for a huge page.
    fn expected_first_touches(&self) -> f64 {
        let huge = self.regions.iter().filter(|r| r.huge).count() as f64;
        let base = self.regions.len() as f64 - huge;
        base * self.expected_reached_pages() + huge * self.exposure.min(1.0)
    }

    fn region_sample(&self, region: &ScriptedRegion, index: u64, cleared: bool) -> RegionSample {
        // Rounded: 0 to 512.
        let reached = self.expected_reached_pages().round() as u16;
        let accessed = match region {
            _ if !cleared => region.present,
            ScriptedRegion { accessed: true, .. } => region.present,
            ScriptedRegion { huge: true, .. } if self.exposure >= 0.5 => PAGES_PER_REGION,
            ScriptedRegion { huge: true, .. } => 0,
            _ => reached.min(region.present),
        };
        let start = self.spec.start.start() + index * HUGE_PAGE_BYTES;
        RegionSample {
            present: region.present,
            accessed,
            runs: u16::from(accessed > 0),
            zero_mapped: region.zero_mapped,
            order: PageOrder::base_or_huge(region.huge),
            ..RegionSample::new_full_and_untouched(RegionAddr::containing(start))
        }
    }
}

impl ScriptedRegion {
    pub(super) fn collapse(&mut self) {
        self.present = PAGES_PER_REGION;
        self.zero_mapped = 0;
        self.huge = true;
        self.accessed = true;
    }

    /// Splits the huge page and gives back unused base pages; returns their number.
    pub(super) fn split_and_free_unused(&mut self, used: u16) -> u16 {
        if !self.huge {
            return 0;
        }
        self.huge = false;
        self.present = used;
        self.zero_mapped = PAGES_PER_REGION - used;
        self.zero_mapped
    }
}
