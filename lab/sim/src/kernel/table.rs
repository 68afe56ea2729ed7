//! A sparse page table: regions by number, kept in blocks of 1 GiB.

use super::region::Region;
use std::collections::BTreeMap;

const PER_BLOCK: u64 = 512;
type Block = Vec<Option<Box<Region>>>;

/// Regions by number (address over 2 MiB).
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionTable {
    blocks: BTreeMap<u64, Block>,
    /// Regions that were touched for the first time and not reported yet.
    created: Vec<u64>,
}

impl RegionTable {
    pub(crate) fn get(&self, region: u64) -> Option<&Region> {
        let slot = self.blocks.get(&(region / PER_BLOCK))?;
        slot.get((region % PER_BLOCK) as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, region: u64) -> Option<&mut Region> {
        let slot = self.blocks.get_mut(&(region / PER_BLOCK))?;
        slot.get_mut((region % PER_BLOCK) as usize)?.as_deref_mut()
    }

    /// The region; creates an untouched one if there was none.
    pub(crate) fn touch(&mut self, region: u64) -> &mut Region {
        let block = self.blocks.entry(region / PER_BLOCK);
        let block = block.or_insert_with(|| vec![None; PER_BLOCK as usize]);
        let created = &mut self.created;
        block[(region % PER_BLOCK) as usize].get_or_insert_with(|| {
            created.push(region);
            Box::new(Region::new())
        })
    }

    /// Regions that were touched for the first time since the last call, in that order; some may be
    /// gone.
    pub(crate) fn take_created(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.created)
    }

    pub(crate) fn remove(&mut self, region: u64) {
        let Some(block) = self.blocks.get_mut(&(region / PER_BLOCK)) else {
            return;
        };
        block[(region % PER_BLOCK) as usize] = None;
        if block.iter().all(Option::is_none) {
            self.blocks.remove(&(region / PER_BLOCK));
        }
    }

    /// All regions, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Region)> {
        self.from(0)
    }

    /// The number of the first region at or after `from`.
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        self.from(from).next().map(|(region, _)| region)
    }

    fn from(&self, from: u64) -> impl Iterator<Item = (u64, &Region)> {
        let blocks = self.blocks.range(from / PER_BLOCK..);
        let regions = blocks.flat_map(|(block, slots)| {
            let numbers = block * PER_BLOCK..;
            let regions = numbers.zip(slots);
            regions.filter_map(|(number, slot)| Some((number, slot.as_deref()?)))
        });
        regions.skip_while(move |(number, _)| *number < from)
    }
}
