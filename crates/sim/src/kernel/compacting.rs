//! Compaction: pages are moved together, so that a huge page becomes free.

use super::Kernel;
use super::costs::times;
use crate::memory::{FrameRun, Owner, Run, Scanned};
use std::time::Duration;

/// After failures compaction is not tried for a while (`defer_compaction`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deferral {
    /// Tries that are still to be passed over.
    skip: u32,
    /// log2 of how many the next failure costs.
    shift: u32,
}

/// `COMPACT_MAX_DEFER_SHIFT`.
const MOST_SHIFT: u32 = 6;

impl Kernel {
    /// Tries to make a free huge page; adds what it took to `time`.
    pub(crate) fn compact(&mut self, time: &mut Duration) -> bool {
        if self.deferral.skip > 0 {
            self.deferral.skip -= 1;
            return false;
        }
        let mut scanned = Scanned::default();
        let mut moved = 0;
        let mut made = false;
        // Once in full: the scanners may be on their way when it starts.
        for _ in 0..2 {
            if let Some(evacuation) = self.memory.next_evacuation(&mut scanned) {
                for run in evacuation.pages {
                    moved += self.evacuate(evacuation.block, run, &mut scanned);
                }
                made = true;
                break;
            }
        }
        *time += times(scanned.blocks, self.costs.scan_block_ns);
        *time += times(moved, self.costs.migrate_base_ns + self.costs.copy_base_ns);
        if made {
            self.deferral = Deferral::default();
        } else {
            self.deferral.skip = 1 << self.deferral.shift;
            self.deferral.shift = (self.deferral.shift + 1).min(MOST_SHIFT);
        }
        made && self.memory.has_huge()
    }

    /// Moves a run of pages out of a pageblock; returns how many.
    fn evacuate(&mut self, block: u32, run: Run, scanned: &mut Scanned) -> u64 {
        let start = FrameRun::of_block(block).first;
        let mut moved = 0;
        for place in run.first..run.first + run.count {
            let owner = Owner::unpack(run.value + u64::from(place - run.first));
            let Some((target, _)) = self.memory.next_target(scanned) else {
                break;
            };
            if self.memory.allocate_at(target, owner).is_none() {
                break;
            }
            let from = start + u32::from(place);
            match owner {
                Owner::Anonymous { family, page } => self.remap(family, page, from, target),
                Owner::Cache { page } => self.cache.moved(page, target),
                Owner::Kernel { .. } | Owner::Reserved { .. } => {}
            }
            self.memory.free(FrameRun {
                first: from,
                count: 1,
            });
            moved += 1;
        }
        moved
    }

    /// All members of a family that have a frame at this page have another one now.
    fn remap(&mut self, family: u32, page: u64, from: u32, to: u32) {
        let members = self.families.get(family as usize).into_iter().flatten();
        let (region, place) = (page >> 9, (page & 511) as u16);
        for member in members {
            let Some(space) = self.spaces.get_mut(member) else {
                continue;
            };
            let Some(found) = space.table.get_mut(region) else {
                continue;
            };
            if found.frame(place) == Some(from) {
                // A relative that has split its huge page may have moved on; this one hasn't.
                if found.huge.is_some() {
                    found.split();
                    space.huge -= 1;
                }
                found.frames.remove(place, 1);
                found.frames.insert(Run {
                    first: place,
                    count: 1,
                    value: to.into(),
                });
            }
        }
    }
}
