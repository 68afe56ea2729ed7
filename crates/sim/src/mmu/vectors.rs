//! Tags of a set in order of use, four at a time in vectors that every x86-64 and 64-bit Arm processor has.

use super::lru::EMPTY;
use wide::u32x4;

/// Tags of a vector.
pub(super) const LANES: usize = 4;

/// The tags of vectors.
pub(super) fn lanes(vectors: &[u32x4]) -> &[u32] {
    bytemuck::cast_slice(vectors)
}

/// The same, to be changed.
#[inline]
pub(super) fn lanes_mut(vectors: &mut [u32x4]) -> &mut [u32] {
    bytemuck::cast_slice_mut(vectors)
}

/// A set without tags.
pub(super) const fn empty<const VECTORS: usize>() -> [u32x4; VECTORS] {
    [u32x4::new([EMPTY; LANES]); VECTORS]
}

/// Uses a tag; true if it was there. It is the first afterwards; if it was not there, the last has made room.
#[inline(always)]
pub(super) fn touch<const VECTORS: usize>(ways: &mut [u32x4; VECTORS], tag: u32) -> bool {
    let before = *ways;
    let wanted = u32x4::splat(tag);
    let same = before.map(|ways| ways.cmp_eq(wanted));
    if VECTORS > 1 {
        // So many that what a branch spares outweighs it.
        let any = same.into_iter().fold(u32x4::ZERO, |any, same| any | same);
        if any.none() {
            let mut moved = tag;
            for (ways, before) in ways.iter_mut().zip(before) {
                (*ways, moved) = shifted(before, moved);
            }
            return false;
        }
    }
    let (mut found, mut moved) = (u32x4::ZERO, tag);
    for (ways, (before, same)) in ways.iter_mut().zip(before.into_iter().zip(same)) {
        // A way stays if the tag was in one before it.
        let [a, b, c, _] = same.to_array();
        let one = u32x4::new([0, a, b, c]);
        let [_, d, e, _] = one.to_array();
        let two = one | u32x4::new([0, 0, d, e]);
        let stays = found | two | u32x4::new([0, 0, 0, d]);
        let next;
        (next, moved) = shifted(before, moved);
        *ways = stays.blend(before, next);
        if VECTORS > 1 {
            found = u32x4::splat((stays | same).to_array()[LANES - 1]);
        } else {
            found = same;
        }
    }
    found.any()
}

/// A vector moved on by one lane, with `first` in front; and what fell out at its end.
#[inline(always)]
fn shifted(ways: u32x4, first: u32) -> (u32x4, u32) {
    let [a, b, c, last] = ways.to_array();
    (u32x4::new([first, a, b, c]), last)
}

/// A set and a tag in it.
pub(super) type Place = (u32, u32);

/// Uses tags of sets one after the other, and says which were there.
#[inline(always)]
pub(super) fn touch_each<const VECTORS: usize>(
    sets: &mut [u32x4],
    places: &[Place],
    here: &mut [bool],
) {
    for ((set, tag), here) in places.iter().zip(here) {
        let first = *set as usize * VECTORS;
        let ways = sets.get_mut(first..first + VECTORS);
        let ways = ways.and_then(|ways| <&mut [u32x4; VECTORS]>::try_from(ways).ok());
        *here = ways.is_some_and(|ways| touch(ways, *tag));
    }
}
