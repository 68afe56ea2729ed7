//! The daemon that moves pages together, so that larger blocks of memory are free.

use super::{Kernel, Purge};
use crate::ItaniumError;
use crate::mmu::{Counters, Pte};
use std::collections::BTreeMap;

/// Requests since the daemon's last pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    /// Requests that failed, by order.
    failures: BTreeMap<u8, u64>,
    /// Page faults.
    faults: u32,
}

/// Owner of a frame that can be moved.
#[derive(Clone, Copy)]
enum Owner {
    /// A page of a process: process number and page.
    Page(u32, u64),
    /// Memory that no simulated process owns.
    Other,
}

impl Kernel {
    /// Records that there was no memory for a page of this order.
    pub(super) fn fail(&mut self, order: u8) {
        self.statistics.failed.add(order);
        *self.demand.failures.entry(order).or_default() += 1;
    }

    /// Frees blocks after a page fault, if a pass is due. It moves base pages that one process
    /// owns, and other memory that can be moved.
    pub(super) fn coalesce(
        &mut self,
        purges: &mut Vec<Purge>,
        work: &mut Counters,
    ) -> Result<(), ItaniumError> {
        let Some(daemon) = self.settings.policy.rules().coalescing() else {
            return Ok(());
        };
        self.demand.faults += 1;
        if self.demand.faults < daemon.every_faults {
            return Ok(());
        }
        let failures = std::mem::take(&mut self.demand).failures;
        // Larger blocks first: memory freed for them serves smaller ones, too.
        for (order, failed) in failures.into_iter().rev() {
            let free = self.buddy.blocks().filter(|(_, free)| *free >= order);
            let wanted = failed.saturating_sub(free.count() as u64);
            let most = daemon.most_moved(failed, 1 << order);
            let owners = self.owners();
            for block in self.cheapest(order, wanted, most, &owners) {
                self.free_block(block, order, &owners, purges, work)?;
            }
        }
        Ok(())
    }

    /// The owner of each frame that can be moved.
    fn owners(&self) -> BTreeMap<u32, Owner> {
        let mut owners = BTreeMap::new();
        for (space, process) in self.spaces.iter().zip(0..) {
            for (page, entry) in space.iter().flat_map(|space| space.table.entries()) {
                let own = !self.shared.contains_key(&entry.frame) && !self.in_pool(entry.frame);
                if entry.present && entry.order == 0 && own {
                    owners.insert(entry.frame, Owner::Page(process, page));
                }
            }
        }
        owners.extend(self.movable.iter().map(|frame| (*frame, Owner::Other)));
        owners
    }

    /// At most `wanted` blocks that can be freed by moving at most `most` frames each, those with
    /// the fewest frames first.
    fn cheapest(
        &self,
        order: u8,
        wanted: u64,
        most: u64,
        owners: &BTreeMap<u32, Owner>,
    ) -> Vec<u32> {
        if wanted == 0 || most == 0 {
            return Vec::new();
        }
        let mut usable: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (block, size) in self.buddy.blocks().filter(|(_, size)| *size < order) {
            usable.entry(block >> order).or_default().0 += 1 << size;
        }
        for frame in owners.keys() {
            if let Some((_, moved)) = usable.get_mut(&(frame >> order)) {
                *moved += 1;
            }
        }
        let whole = usable
            .into_iter()
            .filter(|(_, (free, moved))| free + moved == 1 << order && *moved <= most);
        let mut blocks: Vec<(u64, u32)> = whole.map(|(block, (_, moved))| (moved, block)).collect();
        blocks.sort_unstable();
        let cheapest = blocks.into_iter().take(wanted as usize);
        cheapest.map(|(_, block)| block << order).collect()
    }

    /// Frees a block. Its content moves to free frames outside of blocks of that size, if there are
    /// enough.
    fn free_block(
        &mut self,
        block: u32,
        order: u8,
        owners: &BTreeMap<u32, Owner>,
        purges: &mut Vec<Purge>,
        work: &mut Counters,
    ) -> Result<(), ItaniumError> {
        let frames = block..block + (1 << order);
        let (mut taken, mut used) = (Vec::new(), Vec::new());
        for frame in frames.clone() {
            if self.buddy.take(frame) {
                taken.push(frame);
            } else {
                used.push(frame);
            }
        }
        let small = self.buddy.blocks().filter(|(_, size)| *size < order);
        let room: usize = small.map(|(_, size)| 1usize << size).sum();
        let known = used
            .iter()
            .all(|frame| self.is_still(*frame, owners.get(frame)));
        if room < used.len() || !known {
            taken
                .into_iter()
                .for_each(|frame| self.buddy.free(frame, 1));
            return Ok(());
        }
        let places: Vec<u32> = used.iter().filter_map(|_| self.buddy.allocate(0)).collect();
        for (frame, to) in used.into_iter().zip(places) {
            self.move_frame(frame, to, owners.get(&frame), purges)?;
            work.copied_bytes += self.settings.base.bytes();
            work.remaps += 1;
            self.statistics.moved += 1;
        }
        self.buddy.free(block, 1 << order);
        Ok(())
    }

    /// Whether a frame still has this owner. Freeing an earlier block may have used the frame as a
    /// new place.
    fn is_still(&self, frame: u32, owner: Option<&Owner>) -> bool {
        match owner {
            Some(Owner::Page(process, page)) => {
                let space = self.space(*process).ok();
                let entry = space.and_then(|space| space.table.get(*page));
                entry.is_some_and(|entry| entry.present && entry.frame == frame)
            }
            Some(Owner::Other) => self.movable.contains(&frame),
            None => false,
        }
    }

    fn move_frame(
        &mut self,
        from: u32,
        to: u32,
        owner: Option<&Owner>,
        purges: &mut Vec<Purge>,
    ) -> Result<(), ItaniumError> {
        match owner {
            Some(Owner::Page(process, page)) => {
                let table = &mut self.space_mut(*process)?.table;
                let entry = table.get(*page).map(|entry| Pte { frame: to, ..entry });
                table.set(*page, entry);
                purges.push(self.purge(*process, *page, 1, false)?);
            }
            Some(Owner::Other) | None => {
                self.movable.remove(&from);
                self.movable.insert(to);
            }
        }
        Ok(())
    }
}
