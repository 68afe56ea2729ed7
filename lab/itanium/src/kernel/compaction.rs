//! The daemon that moves pages together, so that larger blocks of memory are free.

use super::ItaniumMachine;
use crate::error::Result;
use crate::mmu::Pte;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(super) struct CompactionDemand {
    failures: BTreeMap<u8, u64>,
    faults: u32,
}

/// Owner of a frame that can be moved.
#[derive(Clone, Copy)]
enum MovableFrameOwner {
    /// A page of a process: process number and page.
    Page(u32, u64),
    /// Memory that no simulated process owns.
    Other,
}

impl ItaniumMachine {
    /// Records that there was no memory for a page of this order.
    pub(super) fn record_failed_request(&mut self, order: u8) {
        self.statistics.failed.increment_order(order);
        *self.demand.failures.entry(order).or_default() += 1;
    }

    /// Frees blocks after a page fault, if a pass is due. It moves base pages that one process
    /// owns, and other memory that can be moved.
    pub(super) fn run_compaction_if_due(&mut self) -> Result {
        let Some(daemon) = self.page_size_policy().compaction_daemon_settings() else {
            return Ok(());
        };
        self.demand.faults += 1;
        if self.demand.faults < daemon.every_faults {
            return Ok(());
        }
        let failures = std::mem::take(&mut self.demand).failures;
        // Larger blocks first: memory freed for them serves smaller ones, too.
        for (order, failed) in failures.into_iter().rev() {
            let free = self.buddy.free_blocks().filter(|(_, free)| *free >= order);
            let wanted = failed.saturating_sub(free.count() as u64);
            let most = daemon.most_moves_per_block(failed, 1 << order);
            let owners = self.owners_of_movable_frames();
            for block in self.blocks_with_fewest_moves(order, wanted, most, &owners) {
                self.evacuate_block(block, order, &owners)?;
            }
        }
        Ok(())
    }

    fn owners_of_movable_frames(&self) -> BTreeMap<u32, MovableFrameOwner> {
        let mut owners = BTreeMap::new();
        for (space, process) in self.spaces.iter().zip(0..) {
            for (page, entry) in space.iter().flat_map(|space| space.table.entries()) {
                let own =
                    !self.shared.contains_key(&entry.frame) && !self.is_pool_frame(entry.frame);
                if entry.present && entry.order == 0 && own {
                    owners.insert(entry.frame, MovableFrameOwner::Page(process, page));
                }
            }
        }
        owners.extend(self.movable.iter().map(|frame| (*frame, MovableFrameOwner::Other)));
        owners
    }

    /// At most `wanted` blocks that need at most `most` moves each, the fewest moves first.
    fn blocks_with_fewest_moves(
        &self,
        order: u8,
        wanted: u64,
        most: u64,
        owners: &BTreeMap<u32, MovableFrameOwner>,
    ) -> Vec<u32> {
        if wanted == 0 || most == 0 {
            return Vec::new();
        }
        let mut usable: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (block, size) in self.buddy.free_blocks().filter(|(_, size)| *size < order) {
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

    /// Its content moves outside of blocks of that size, if there are enough free frames.
    fn evacuate_block(
        &mut self,
        block: u32,
        order: u8,
        owners: &BTreeMap<u32, MovableFrameOwner>,
    ) -> Result {
        let frames = block..block + (1 << order);
        let (taken, used): (Vec<u32>, Vec<u32>) =
            frames.partition(|at| self.buddy.take_frame_if_free(*at));
        let small = self.buddy.free_blocks().filter(|(_, size)| *size < order);
        let room: usize = small.map(|(_, size)| 1usize << size).sum();
        let moved = used.iter().map_while(|frame| {
            let owner = *owners.get(frame)?;
            self.is_still_owned(*frame, owner).then_some((*frame, owner))
        });
        let moved: Vec<(u32, MovableFrameOwner)> = moved.collect();
        if room < used.len() || moved.len() < used.len() {
            for frame in taken {
                self.buddy.free_range(frame, 1);
            }
            return Ok(());
        }
        let places = moved.iter().filter_map(|_| self.buddy.allocate_block(0));
        let places: Vec<u32> = places.collect();
        for ((frame, owner), to) in moved.into_iter().zip(places) {
            match owner {
                MovableFrameOwner::Page(process, page) => {
                    let table = &mut self.process_space_mut(process)?.table;
                    table.update_entries(page, 1, |entry| Pte { frame: to, ..entry });
                    let purge = self.purge_range_covering(process, page, 1, false)?;
                    self.purge_translations(purge)?;
                }
                MovableFrameOwner::Other => {
                    self.movable.remove(&frame);
                    self.movable.insert(to);
                }
            }
            self.counters.copied_bytes += self.base_page_size().bytes();
            self.counters.remaps += 1;
            self.statistics.moved += 1;
        }
        self.buddy.free_range(block, 1 << order);
        Ok(())
    }

    /// Freeing an earlier block may have used the frame as a new place.
    fn is_still_owned(&self, frame: u32, owner: MovableFrameOwner) -> bool {
        match owner {
            MovableFrameOwner::Page(process, page) => {
                self.process_space(process).is_ok_and(|space| {
                    let entry = space.table.entry_or_empty(page);
                    entry.present && entry.frame == frame
                })
            }
            MovableFrameOwner::Other => self.movable.contains(&frame),
        }
    }
}
