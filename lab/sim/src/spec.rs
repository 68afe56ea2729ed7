//! What to simulate, as data.

use crate::costs::Costs;
use crate::error::SimError;
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr, Terms};
use std::time::Duration;

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineSpec {
    /// Its memory, in bytes.
    pub total_bytes: u64,
    /// What things cost on it.
    pub costs: Costs,
    /// Chooses the pages that happen to be accessed in a window.
    pub seed: u64,
}

impl Default for MachineSpec {
    /// 16 GiB.
    fn default() -> Self {
        Self {
            total_bytes: 16 << 30,
            costs: Costs::default(),
            seed: 1,
        }
    }
}

/// How a part of an address space is mapped when its process starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// By base pages: only pages in use are present.
    #[default]
    Base,
    /// By huge pages: all pages are present, and those not in use are zero.
    Huge,
}

/// A part of an address space: neighbouring regions that are used alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Its first region.
    pub start: RegionAddr,
    /// How many regions it has (at least 1).
    pub regions: u32,
    /// Its share of the process's accesses is its weight over the sum of all (at least 0).
    pub weight: f64,
    /// Base pages in use in each region, written and accessed, spread evenly (0-512).
    pub used_pages: u16,
    /// How it is mapped at first.
    pub backing: Backing,
}

impl Default for Part {
    /// One region at 2 MiB, fully used, under base pages.
    fn default() -> Self {
        Self {
            start: RegionAddr::containing(HUGE_PAGE_BYTES),
            regions: 1,
            weight: 1.0,
            used_pages: PAGES_PER_REGION,
            backing: Backing::Base,
        }
    }
}

/// When a process ends by itself: whatever comes first, or never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// When it has done so many accesses: its work.
    pub after_accesses: Option<u64>,
    /// At this time on the machine's clock.
    pub at: Option<Duration>,
}

/// A process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSpec {
    /// Its address space.
    pub parts: Vec<Part>,
    /// Share of its accesses to base pages that need a page walk (0-1). Those cost
    /// [`Costs::base_access_ns`]; the others cost no more than under huge pages.
    pub walk_share: f64,
    /// When it starts, on the machine's clock.
    pub arrives: Duration,
    /// When it ends.
    pub ends: Ends,
    /// The cgroup it is in.
    pub group: Option<String>,
    /// What the machine's rules say about it.
    pub terms: Terms,
}

impl Default for ProcessSpec {
    /// There from the start and for ever, in no cgroup, its address space empty; every access to
    /// a base page needs a walk, as where much memory is accessed at random.
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            walk_share: 1.0,
            terms: Terms::default(),
            arrives: Duration::ZERO,
            ends: Ends::default(),
            group: None,
        }
    }
}

pub(crate) fn check_pages(pages: u16) -> Result<(), SimError> {
    if pages <= PAGES_PER_REGION {
        Ok(())
    } else {
        Err(SimError::Pages(pages))
    }
}

pub(crate) fn check_weight(weight: f64) -> Result<(), SimError> {
    if weight.is_finite() && weight >= 0.0 {
        Ok(())
    } else {
        Err(SimError::Weight(weight))
    }
}

impl Part {
    /// First byte after it, if it fits into an address space.
    pub(crate) fn end(&self) -> Option<u64> {
        let bytes = u64::from(self.regions) * HUGE_PAGE_BYTES;
        self.start.start().checked_add(bytes)
    }

    /// Memory that it holds at first, in base pages.
    pub(crate) fn present_pages(&self) -> u64 {
        let present = match self.backing {
            Backing::Base => self.used_pages,
            Backing::Huge => PAGES_PER_REGION,
        };
        u64::from(self.regions) * u64::from(present)
    }

    fn check(&self) -> Result<(), SimError> {
        check_pages(self.used_pages)?;
        check_weight(self.weight)?;
        if self.regions == 0 || self.end().is_none() {
            return Err(SimError::Size {
                start: self.start,
                regions: self.regions,
            });
        }
        Ok(())
    }
}

impl ProcessSpec {
    pub(crate) fn check(&self) -> Result<(), SimError> {
        for part in &self.parts {
            part.check()?;
        }
        if !(0.0..=1.0).contains(&self.walk_share) {
            return Err(SimError::WalkShare(self.walk_share));
        }
        let mut parts: Vec<&Part> = self.parts.iter().collect();
        parts.sort_by_key(|part| part.start);
        for (low, high) in parts.iter().zip(parts.iter().skip(1)) {
            if low.end() > Some(high.start.start()) {
                return Err(SimError::Overlap(high.start));
            }
        }
        Ok(())
    }
}
