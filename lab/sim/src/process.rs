//! A simulated process: its address space and its life.

use crate::bits::PageBits;
use crate::error::BrokenInvariant;
use crate::marks::Marks;
use crate::region::Region;
use crate::rng::Rng;
use crate::spec::{Ends, Part, ProcessSpec};
use hawkeye_policy::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, ProcessId, RegionAddr, RegionSample, Terms,
};
use std::time::Duration;

/// Why a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, or by a scheduled exit.
    Exited,
    /// There was no memory left for it.
    OutOfMemory,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When, on the machine's clock.
    pub at: Duration,
    /// Why.
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    ToCome,
    Alive,
    Ended(Ended),
}

/// Regions that are used alike.
#[derive(Clone, Debug)]
pub(crate) struct PartState {
    pub(crate) spec: Part,
    pub(crate) used: PageBits,
    /// In address order; empty while the process isn't there.
    pub(crate) regions: Vec<Region>,
    /// How many of them are huge.
    pub(crate) huge: u32,
    pub(crate) marks: Marks,
}

/// A process on a simulated machine.
#[derive(Clone, Debug)]
pub struct SimProcess {
    pub(crate) id: ProcessId,
    pub(crate) arrives: Duration,
    pub(crate) ends: Ends,
    pub(crate) group: Option<String>,
    pub(crate) terms: Terms,
    pub(crate) life: Life,
    /// In address order.
    pub(crate) parts: Vec<PartState>,
    pub(crate) walk_share: f64,
    /// For each part of the specification, where it is in `parts`.
    places: Vec<usize>,
    pub(crate) accesses: f64,
    pub(crate) present_pages: u64,
    /// Time that it owes for page faults, in nanoseconds.
    pub(crate) stalled_ns: f64,
    /// Whether its access bits were ever cleared.
    pub(crate) cleared: bool,
    pub(crate) rng: Rng,
}

impl SimProcess {
    pub(crate) fn new(id: ProcessId, spec: ProcessSpec, seed: u64) -> Self {
        let mut order: Vec<usize> = (0..spec.parts.len()).collect();
        order.sort_by_key(|index| spec.parts.get(*index).map(|part| part.start));
        let mut places = vec![0; order.len()];
        for (place, index) in order.iter().enumerate() {
            if let Some(slot) = places.get_mut(*index) {
                *slot = place;
            }
        }
        let parts = order.iter().filter_map(|index| spec.parts.get(*index));
        Self {
            id,
            arrives: spec.arrives,
            ends: spec.ends,
            group: spec.group,
            terms: spec.terms,
            life: Life::ToCome,
            parts: parts
                .map(|part| PartState {
                    spec: *part,
                    used: PageBits::spread(part.used_pages),
                    regions: Vec::new(),
                    huge: 0,
                    marks: Marks::default(),
                })
                .collect(),
            walk_share: spec.walk_share,
            places,
            accesses: 0.0,
            present_pages: 0,
            stalled_ns: 0.0,
            cleared: false,
            rng: Rng::new(seed, u64::from(id.pid)),
        }
    }

    /// Which process it is.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// When it starts, on the machine's clock.
    pub fn arrives(&self) -> Duration {
        self.arrives
    }

    /// Whether it is there: started, and not ended.
    pub fn is_alive(&self) -> bool {
        self.life == Life::Alive
    }

    /// Its end, once it has ended.
    pub fn ended(&self) -> Option<Ended> {
        match self.life {
            Life::Ended(ended) => Some(ended),
            Life::ToCome | Life::Alive => None,
        }
    }

    /// How many accesses it has done.
    pub fn accesses_done(&self) -> u64 {
        self.accesses as u64
    }

    /// Resident memory, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        self.present_pages * BASE_PAGE_BYTES
    }

    /// Memory under huge pages, in bytes.
    pub fn huge_bytes(&self) -> u64 {
        self.parts.iter().map(|p| u64::from(p.huge)).sum::<u64>() * HUGE_PAGE_BYTES
    }

    /// Memory in use by the program: pages that hold something other than zeros, in bytes.
    pub fn used_bytes(&self) -> u64 {
        let regions = self.parts.iter().flat_map(|part| &part.regions);
        let pages: u64 = regions.map(|r| u64::from(r.nonzero.count())).sum();
        pages * BASE_PAGE_BYTES
    }

    /// All regions with anything in them, in address order, as they are now; every present page
    /// counts as accessed.
    pub fn regions(&self) -> Vec<RegionSample> {
        self.walk(false)
    }

    pub(crate) fn walk(&self, bits: bool) -> Vec<RegionSample> {
        let parts = self.parts.iter();
        parts
            .flat_map(|part| part.addressed())
            .filter_map(|(address, region)| region.sample(address, bits))
            .collect()
    }

    pub(crate) fn parts(&self) -> usize {
        self.places.len()
    }

    /// Memory that it holds as it starts, in base pages.
    pub(crate) fn first_pages(&self) -> u64 {
        self.parts.iter().map(|p| p.spec.present_pages()).sum()
    }

    pub(crate) fn arrive(&mut self) {
        for part in &mut self.parts {
            let region = Region::new(part.spec.backing, part.used);
            part.regions = vec![region; part.spec.regions as usize];
            part.huge = if region.huge { part.spec.regions } else { 0 };
        }
        self.present_pages = self.first_pages();
        self.life = Life::Alive;
    }

    pub(crate) fn end(&mut self, at: Duration, end: End) {
        if self.is_alive() || self.life == Life::ToCome {
            self.life = Life::Ended(Ended { at, end });
            self.present_pages = 0;
            for part in &mut self.parts {
                part.regions = Vec::new();
                part.huge = 0;
            }
        }
    }

    /// The region at an address, if it is mapped.
    pub(crate) fn region(&self, address: RegionAddr) -> Option<&Region> {
        let parts = self.parts.iter();
        parts
            .filter_map(|p| p.regions.get(p.index(address)?))
            .next()
    }

    /// Changes one region, if it is mapped: `change` returns how its number of present pages changes.
    pub(crate) fn change_region(
        &mut self,
        address: RegionAddr,
        change: impl FnOnce(&mut Region) -> i32,
    ) {
        let found = self.parts.iter_mut().find_map(|part| {
            let index = part.index(address).filter(|i| *i < part.regions.len());
            Some((index?, part))
        });
        if let Some((index, part)) = found {
            let pages = part.change(index, part.used, &mut self.rng, change);
            self.present_pages = self.present_pages.saturating_add_signed(i64::from(pages));
        }
    }

    pub(crate) fn weigh(&mut self, part: usize, weight: f64) {
        let place = self.places.get(part).copied();
        if let Some(part) = place.and_then(|place| self.parts.get_mut(place)) {
            part.spec.weight = weight;
        }
    }

    /// How many base pages more it would hold if it used `pages` of each region of a part.
    pub(crate) fn pages_needed(&self, part: usize, pages: u16) -> u64 {
        let used = PageBits::spread(pages);
        let part = self.places.get(part).and_then(|p| self.parts.get(*p));
        let regions = part.map_or(&[][..], |part| &part.regions);
        let missing = regions.iter().map(|r| used.minus(r.present).count());
        missing.map(u64::from).sum()
    }

    /// Uses `pages` base pages of each region of a part from now on; returns how many it faulted in.
    pub(crate) fn use_pages(&mut self, part: usize, pages: u16) -> u64 {
        let used = PageBits::spread(pages);
        let place = self.places.get(part).copied();
        let Some(part) = place.and_then(|place| self.parts.get_mut(place)) else {
            return 0;
        };
        let freed = part.used.minus(used);
        let (mut faults, mut released) = (0u64, 0u64);
        for index in 0..part.regions.len() {
            part.change(index, used, &mut self.rng, |region| {
                faults += u64::from(region.write(used));
                released += u64::from(region.free(freed));
                0
            });
        }
        part.used = used;
        self.present_pages = self.present_pages + faults - released;
        faults
    }

    pub(crate) fn check(&self) -> Result<(), BrokenInvariant> {
        let mut pages = 0;
        for (region, state) in self.parts.iter().flat_map(|part| part.addressed()) {
            pages += u64::from(state.present.count());
            if let Some(rule) = state.broken() {
                return Err(BrokenInvariant::Region {
                    process: self.id,
                    region,
                    rule,
                });
            }
        }
        if pages == self.present_pages {
            Ok(())
        } else {
            Err(BrokenInvariant::Resident {
                process: self.id,
                pages,
                counted: self.present_pages,
            })
        }
    }
}

impl PartState {
    fn addressed(&self) -> impl Iterator<Item = (RegionAddr, &Region)> {
        let starts = (self.spec.start.start()..).step_by(HUGE_PAGE_BYTES as usize);
        starts.map(RegionAddr::containing).zip(&self.regions)
    }

    fn index(&self, address: RegionAddr) -> Option<usize> {
        let offset = address.start().checked_sub(self.spec.start.start())?;
        usize::try_from(offset / HUGE_PAGE_BYTES).ok()
    }
}
