//! Region registers (region ids and preferred page sizes), and entries of page tables.

use crate::address::region_of_address;

/// A process's eight region registers. Equal ids, of any processes and regions, show the same
/// memory: the TLB does not compare the region's number (thesis, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionRegisters {
    /// Ids by region, of 24 bits.
    pub rids: [u32; 8],
    /// Page sizes that the hardware's walker uses, by region, as orders over the base page.
    preferred: [u8; 8],
}

impl RegionRegisters {
    /// Number of contexts for which there are region ids.
    pub const CONTEXTS: u32 = 1 << 21;

    /// The registers of an address space: eight ids for each context number (`ia64_rid`,
    /// `asm-ia64/mmu_context.h`). They are redistributed so that processes with the same layout
    /// don't meet in the hash table (thesis, section 3.4.1).
    ///
    /// The redistribution is chosen: the lowest 16 bits are reversed. The patches for the long
    /// format (`redistribute_rid`, I. Wienand on linux-mm, 2 May 2006) exchange the two lowest
    /// bytes. Together with the hash function of section 3.4, this makes all pages of processes 32
    /// contexts apart collide. In figure 4.5, however, the long format does well with 64 processes.
    /// The formula is therefore not the whole of the hardware's function.
    pub fn from_context(context: u32) -> Self {
        let mut rids = [0; 8];
        for (rid, region) in rids.iter_mut().zip(0..) {
            *rid = redistribute_rid(context << 3 | region);
        }
        Self { rids, preferred: [0; 8] }
    }

    /// The same registers with another preferred page size for a region (0 to 7).
    #[must_use]
    pub fn with_preferred_order_in(mut self, region: usize, order: u8) -> Self {
        self.preferred[region] = order;
        self
    }

    /// The preferred page size of the region of an address, as an order over the base page.
    #[inline]
    pub fn preferred_order_at(&self, address: u64) -> u8 {
        self.preferred[region_of_address(address)]
    }

    /// The id of the region of an address.
    pub fn region_id_at(&self, address: u64) -> u32 {
        self.rids[region_of_address(address)]
    }
}

fn redistribute_rid(rid: u32) -> u32 {
    rid & !0xffff | u32::from((rid as u16).reverse_bits())
}

/// A page-table entry: the short format of 8 bytes, with the page size in the bits that the
/// hardware ignores (thesis, section 5.2.2). Every base page has one. The entries of a large page
/// differ only in their frame (section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pte {
    /// Number of the frame, in base pages; 0 without a frame.
    pub frame: u32,
    /// The page has 2^order base pages.
    pub order: u8,
    /// Backed by memory.
    pub present: bool,
    /// Writable without a fault.
    pub writable: bool,
}

impl Pte {
    /// An entry for a page of this size without memory.
    pub const fn new_without_memory(order: u8) -> Self {
        Self { frame: 0, order, present: false, writable: false }
    }

    /// The entry of the first page of a page with memory.
    pub const fn new_present(frame: u32, order: u8, writable: bool) -> Self {
        Self { frame, order, present: true, writable }
    }

    /// Whether the short format's walker takes the entry in a region of this preferred page size.
    /// The kernel keeps entries of all other pages invalid for the walker, which would insert them
    /// with that size (section 5.4.1).
    pub const fn is_valid_for_walker(self, preferred: u8) -> bool {
        self.present && self.order == preferred
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_regions_have_the_same_id() {
        let contexts = (0..1 << 14).chain([RegionRegisters::CONTEXTS - 1]);
        let all: Vec<u32> =
            contexts.flat_map(|context| RegionRegisters::from_context(context).rids).collect();
        let different: BTreeSet<u32> = all.iter().copied().collect();
        assert_eq!(all.len(), different.len());
        assert!(all.iter().all(|rid| *rid < 1 << 24));
    }

    #[test]
    fn neighbouring_contexts_do_not_collide_in_the_hash_table() {
        // The thesis' example: without it, page 0x1000 under 0x100 and page 0x1001 under 0x101
        // share an entry.
        let of = |context| RegionRegisters::from_context(context).region_id_at(0);
        assert_ne!(0x1000 ^ of(0x20), 0x1001 ^ of(0x21));
        // No two of 63 processes share an entry for any of 100 pages.
        let entries = (1..64).flat_map(|context| (0..100).map(move |page| page ^ of(context)));
        let all: Vec<u32> = entries.collect();
        let different: BTreeSet<u32> = all.iter().copied().collect();
        assert_eq!(all.len(), different.len());
    }
}
