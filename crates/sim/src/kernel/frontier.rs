//! Where programs touch memory for the first time: what fault-ahead is fed with, as the live manager is by its BPF program
//! (`crates/linux/src/bpf/frontier.bpf.c`), with the same rules.

use super::{Kernel, SpaceId};
use hawkeye_policy::RegionAddr;
use hawkeye_policy::fault_ahead::Advance;
use std::collections::BTreeMap;

/// Places that are followed in one address space.
const TRACKS: usize = 8;
/// Largest distance between two regions of one stream, in regions.
const LARGEST_STEP: i64 = 64;
/// Regions in a step at the most where some between were filled ahead.
const LARGEST_WINDOW: i64 = 64;
/// First touches in a region that make it dense.
const DENSE_TOUCHES: u64 = 64;
/// Steps after which a stream is reported.
const PROVEN: u32 = 2;

/// One place.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    region: i64,
    step: i64,
    touches: u64,
    advances: u32,
}

impl Track {
    /// Whether a distance leads it on: one step, or some of them where the regions between were filled.
    fn leads_on(&self, distance: i64) -> bool {
        if self.step == 0 || (distance < 0) != (self.step < 0) {
            return false;
        }
        let (far, step) = (distance.abs(), self.step.abs());
        far == step || self.advances >= PROVEN && far <= LARGEST_WINDOW * step && far % step == 0
    }
}

#[derive(Clone, Debug, Default)]
struct Watched {
    tracks: Vec<Track>,
    turn: usize,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frontier {
    watched: BTreeMap<SpaceId, Watched>,
    advances: Vec<(SpaceId, Advance)>,
}

impl Frontier {
    pub(crate) fn forget(&mut self, space: SpaceId) {
        self.watched.remove(&space);
    }

    /// A program touched so many pages of a region for the first time.
    pub(crate) fn first_touches(&mut self, space: SpaceId, region: u64, pages: u16) {
        let Some(watched) = self.watched.get_mut(&space) else {
            return;
        };
        let region = region as i64;
        let pages = u64::from(pages);
        if let Some(track) = watched.tracks.iter_mut().find(|t| t.region == region) {
            track.touches += pages;
            return;
        }
        let mut tracks = watched.tracks.iter_mut();
        if let Some(track) = tracks.find(|t| t.leads_on(region - t.region)) {
            let dense = track.touches >= DENSE_TOUCHES;
            (track.region, track.touches) = (region, pages);
            track.advances += 1;
            if track.advances >= PROVEN {
                let advance = Advance {
                    region: RegionAddr::containing((region as u64) << 21),
                    step: track.step as i32,
                    dense,
                };
                self.advances.push((space, advance));
            }
            return;
        }
        let near =
            |t: &&mut Track| t.advances < PROVEN && (region - t.region).abs() <= LARGEST_STEP;
        if let Some(track) = watched.tracks.iter_mut().find(near) {
            *track = Track {
                region,
                step: region - track.region,
                touches: pages,
                advances: 1,
            };
            return;
        }
        let track = Track {
            region,
            step: 0,
            touches: pages,
            advances: 0,
        };
        if watched.tracks.len() < TRACKS {
            watched.tracks.push(track);
        } else if let Some(oldest) = watched.tracks.get_mut(watched.turn % TRACKS) {
            *oldest = track;
            watched.turn += 1;
        }
    }
}

impl Kernel {
    /// Watches where an address space is touched for the first time.
    pub fn watch_first_touches(&mut self, space: SpaceId) {
        self.frontier.watched.entry(space).or_default();
    }

    /// Who advanced from region to region since this was last asked.
    pub fn take_advances(&mut self) -> Vec<(SpaceId, Advance)> {
        std::mem::take(&mut self.frontier.advances)
    }
}
