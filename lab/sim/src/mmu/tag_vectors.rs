//! Tags of a set in order of use, in vectors of four, as every x86-64 and 64-bit Arm has.

use bytemuck::Pod;
use wide::{i32x4, u32x4};

/// Tag of an empty way: real tags have at most 31 bits.
pub(super) const EMPTY: u32 = u32::MAX;

pub(super) const LANES: usize = 4;

pub(super) fn flat_lanes(vectors: &[u32x4]) -> &[u32] {
    bytemuck::cast_slice(vectors)
}

#[inline]
pub(super) fn flat_lanes_mut(vectors: &mut [u32x4]) -> &mut [u32] {
    bytemuck::cast_slice_mut(vectors)
}

pub(super) const fn empty<const VECTORS: usize>() -> [u32x4; VECTORS] {
    [u32x4::new([EMPTY; LANES]); VECTORS]
}

/// Lanes of a vector that stay (those after the tag); the others move on by one. The index has a
/// bit for each lane with the tag, and bit 4 if an earlier vector had it.
const STAYS: [u32x4; 32] = {
    let mut stays = [u32x4::new([u32::MAX; LANES]); 32];
    let mut same = 0;
    while same < 16 {
        let mut lanes = [0; LANES];
        let mut lane = 1;
        while lane < LANES {
            if same & ((1 << lane) - 1) != 0 {
                lanes[lane] = u32::MAX;
            }
            lane += 1;
        }
        stays[same] = u32x4::new(lanes);
        same += 1;
    }
    stays
};

/// Uses a tag, which is first afterwards; true if it was there, else it evicts the last.
#[inline(always)]
pub(super) fn access_or_insert<const VECTORS: usize>(
    ways: &mut [u32x4; VECTORS],
    tag: u32,
) -> bool {
    let before = *ways;
    let wanted = u32x4::splat(tag);
    let same = before.map(|ways| ways.cmp_eq(wanted));
    if VECTORS > 1 {
        // With more than one vector, the branch saves more than it costs.
        let any = same.into_iter().fold(u32x4::ZERO, |any, same| any | same);
        if lanes_set(any) == 0 {
            let ways = flat_lanes_mut(ways);
            ways.copy_within(..LANES * VECTORS - 1, 1);
            ways[0] = tag;
            return false;
        }
    }
    let (mut found, mut moved) = (0, tag);
    for (ways, (before, same)) in ways.iter_mut().zip(before.into_iter().zip(same)) {
        let stays = STAYS[found | lanes_set(same)];
        let next;
        (next, moved) = shift_in(before, moved);
        *ways = stays.blend(before, next);
        found |= usize::from(lanes_set(same) != 0) << LANES;
    }
    found != 0
}

/// The same for one vector, where the next use depends on this one: it avoids a path through
/// memory. Nothing changes unless it `counts`. Returns nonzero if it does and the tag was there.
#[inline(always)]
pub(super) fn access_or_insert_if_counted(ways: &mut u32x4, tag: u32, counts: bool) -> u8 {
    let before = *ways;
    let same = before.cmp_eq(u32x4::splat(tag));
    let uncounted = u32::from(counts).wrapping_sub(1);
    let [a, b, c, _] = same.to_array();
    let stays = (u32x4::new([0, a, b, c]) | u32x4::new([0, 0, a, b]))
        | (u32x4::new([0, 0, 0, a]) | u32x4::splat(uncounted));
    *ways = stays.blend(before, shift_in(before, tag).0);
    lanes_set(same) as u8 & !uncounted as u8
}

/// The true lanes of a comparison, a bit each.
#[inline(always)]
fn lanes_set(same: u32x4) -> usize {
    let same: i32x4 = bytemuck::cast(same);
    same.move_mask() as usize & 0xf
}

/// A vector moved on by one lane, with `first` in front; and the lane that fell out.
#[inline(always)]
fn shift_in(ways: u32x4, first: u32) -> (u32x4, u32) {
    let [a, b, c, last] = ways.to_array();
    (u32x4::new([first, a, b, c]), last)
}

pub(super) type SetAndTag = (u32, u32);

/// Uses the items' tags in order, moves missed items to the front, returns their number.
#[inline(always)]
pub(super) fn retain_missed<const VECTORS: usize, T: Copy>(
    sets: &mut [u32x4],
    items: &mut [T],
    place: impl Fn(T) -> SetAndTag,
) -> usize
where
    [u32x4; VECTORS]: Pod,
{
    let sets: &mut [[u32x4; VECTORS]] = bytemuck::cast_slice_mut(sets);
    // Without a branch, because the result is unpredictable.
    let mut missed = 0;
    for index in 0..items.len() {
        let item = items[index];
        let (set, tag) = place(item);
        let here = access_or_insert(&mut sets[set as usize], tag);
        items[missed] = item;
        missed += usize::from(!here);
    }
    missed
}
