//! Index of pages in a TLB. The hardware compares with all entries at once; this index uses short
//! hash chains.

const BUCKETS: usize = 512;
const SLOTS: usize = 256;
/// End of a chain: TLBs have at most 255 slots.
const END: u8 = u8::MAX;

#[derive(Clone, Debug)]
pub(super) struct SlotIndex {
    first: [u8; BUCKETS],
    next: [u8; SLOTS],
}

impl SlotIndex {
    pub(super) fn new() -> Self {
        Self {
            first: [END; BUCKETS],
            next: [END; SLOTS],
        }
    }

    #[inline]
    pub(super) fn find(
        &self,
        rid: u32,
        page: u64,
        shift: u32,
        same: impl Fn(u8) -> bool,
    ) -> Option<u8> {
        let mut slot = self.first[bucket(rid, page, shift)];
        while slot != END {
            if same(slot) {
                return Some(slot);
            }
            slot = self.next[usize::from(slot)];
        }
        None
    }

    pub(super) fn add(&mut self, rid: u32, page: u64, shift: u32, slot: u8) {
        let first = &mut self.first[bucket(rid, page, shift)];
        self.next[usize::from(slot)] = *first;
        *first = slot;
    }

    pub(super) fn remove(&mut self, rid: u32, page: u64, shift: u32, slot: u8) {
        let after = self.next[usize::from(slot)];
        let mut link = &mut self.first[bucket(rid, page, shift)];
        while *link != slot && *link != END {
            link = &mut self.next[usize::from(*link)];
        }
        if *link == slot {
            *link = after;
        }
    }
}

#[inline]
fn bucket(rid: u32, page: u64, shift: u32) -> usize {
    let key = page ^ u64::from(rid) << 40 ^ u64::from(shift) << 34;
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BUCKETS.ilog2())) as usize
}
