//! Compaction: pages are moved together, so that a huge page becomes free.

use super::Kernel;
use super::costs::times;
use super::space::{by_region, first_page};
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

    /// Moves a run of pages out of a pageblock, as many at a time as find room side by side; returns how many.
    fn evacuate(&mut self, block: u32, run: Run, scanned: &mut Scanned) -> u64 {
        let start = FrameRun::of_block(block).first;
        let mut moved = 0;
        while moved < run.count {
            let owner = Owner::unpack(run.value + u64::from(moved));
            let Some((target, room)) = self.memory.next_target(scanned) else {
                break;
            };
            let most = room.min(run.count - moved);
            let Some(got) = self.memory.allocate_at(target, most, owner) else {
                break;
            };
            let from = FrameRun {
                first: start + u32::from(run.first + moved),
                count: got.frames.count,
            };
            match owner {
                Owner::Anonymous { family, page } => {
                    self.remap(family, page, from, got.frames.first);
                }
                Owner::Cache { page } => {
                    for (page, to) in (page..).zip(got.frames.first..).take(from.count as usize) {
                        self.cache.moved(page, to);
                    }
                }
                Owner::Kernel { .. } | Owner::Reserved { .. } => {}
            }
            self.memory.free(from);
            moved += from.count as u16;
        }
        moved.into()
    }

    /// All members of a family that have these frames at pages from `page` on have others now, from `to` on.
    fn remap(&mut self, family: u32, page: u64, from: FrameRun, to: u32) {
        let members = self.families.get(family as usize).into_iter().flatten();
        for member in members {
            let Some(space) = self.spaces.get_mut(member) else {
                continue;
            };
            for (region, first, count) in by_region(page..page + u64::from(from.count)) {
                let Some(found) = space.table.get_mut(region) else {
                    continue;
                };
                // From a page in this region to the frame it had.
                let passed = first_page(region) + u64::from(first) - page;
                let had = |place: u16| u64::from(from.first) + passed + u64::from(place - first);
                // A relative that has split its huge page may have moved on; this one hasn't.
                if found.huge.is_some() && found.frame(first).map(u64::from) == Some(had(first)) {
                    found.split();
                    space.huge -= 1;
                }
                let runs = found.frames.within(first, count);
                let same = runs.filter(|run| run.value == had(run.first));
                for run in same.collect::<Vec<_>>() {
                    found.frames.remove(run.first, run.count);
                    found.frames.insert(Run {
                        value: run.value - u64::from(from.first) + u64::from(to),
                        ..run
                    });
                }
            }
        }
    }
}
