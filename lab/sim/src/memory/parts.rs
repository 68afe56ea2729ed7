//! A pageblock that is neither free nor allocated as a whole: its free frames, their free blocks of
//! the buddy system, and the owners of the other frames.

use super::run_map::{Run, RunMap};
use super::{Content, PART_ORDERS};
use crate::bits::PageBits;
use hawkeye_policy::PAGES_PER_REGION;

/// First frames of free blocks of orders 0 to 8 in a pageblock, as bits: 512 of order 0, 256 of
/// order 1 ...
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heads([u64; 16]);

impl Heads {
    /// Index of the bit of the block of this order at `offset`.
    fn bit(order: u8, offset: u16) -> usize {
        let before = 1024 - (1024 >> order);
        before + usize::from(offset >> order)
    }

    /// Words and, in the last of them, bits of an order.
    fn words(order: u8) -> (usize, usize, u64) {
        let bits = 512usize >> order;
        let first = Self::bit(order, 0);
        let mask = if bits < 64 {
            ((1u64 << bits) - 1) << (first % 64)
        } else {
            u64::MAX
        };
        (first / 64, bits.div_ceil(64), mask)
    }

    fn set(&mut self, order: u8, offset: u16, there: bool) {
        let bit = Self::bit(order, offset);
        let word = &mut self.0[bit / 64];
        *word = *word & !(1 << (bit % 64)) | u64::from(there) << (bit % 64);
    }

    fn contains(&self, order: u8, offset: u16) -> bool {
        let bit = Self::bit(order, offset);
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }

    fn count(&self, order: u8) -> u64 {
        let (first, words, mask) = Self::words(order);
        let words = &self.0[first..first + words];
        words
            .iter()
            .map(|w| u64::from((w & mask).count_ones()))
            .sum()
    }

    /// Offset of the lowest block of an order.
    fn first(&self, order: u8) -> Option<u16> {
        let (first, words, mask) = Self::words(order);
        let words = self.0[first..first + words].iter().enumerate();
        words
            .map(|(i, word)| (i, word & mask))
            .find(|(_, word)| *word != 0)
            .map(|(i, word)| {
                let bit = (first + i) * 64 + word.trailing_zeros() as usize;
                ((bit - Self::bit(order, 0)) << order) as u16
            })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// Heads of free blocks, by content.
    heads: [Heads; 2],
    /// Frames without an owner.
    free: PageBits,
    zero: PageBits,
    /// Owners of the other frames, packed.
    owners: RunMap,
}

/// A free block of the buddy system in a pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// In frames from the pageblock's start.
    pub(crate) offset: u16,
    pub(crate) order: u8,
    pub(crate) content: Content,
}

impl Parts {
    /// A pageblock that is all free, with no heads yet; `zero` are its zeroed frames.
    pub(crate) fn all_free(zero: PageBits) -> Self {
        Self {
            heads: [Heads([0; 16]), Heads([0; 16])],
            free: PageBits::FULL,
            zero,
            owners: RunMap::default(),
        }
    }

    /// A pageblock that was allocated as one.
    pub(crate) fn all_owned(owner: u64) -> Self {
        Self {
            free: PageBits::EMPTY,
            owners: RunMap::of(Run::new(0, PAGES_PER_REGION, owner)),
            ..Self::all_free(PageBits::EMPTY)
        }
    }

    pub(crate) fn free(&self) -> PageBits {
        self.free
    }

    pub(crate) fn zero(&self) -> PageBits {
        self.zero
    }

    pub(crate) fn owners(&self) -> &RunMap {
        &self.owners
    }

    /// What the kernel knows of these frames.
    pub(crate) fn content(&self, offset: u16, order: u8) -> Content {
        let frames = PageBits::range(offset, 1 << order);
        Content::zeroed_if(frames.within(self.zero))
    }

    /// Whether these frames are all zeroed or all dirty.
    pub(crate) fn is_uniform(&self, part: Part) -> bool {
        let frames = PageBits::range(part.offset, 1 << part.order);
        part.content == Content::Zeroed || frames.and(self.zero).is_empty()
    }

    pub(crate) fn any(&self, order: u8, content: Content) -> bool {
        self.heads[content.index()].first(order).is_some()
    }

    pub(crate) fn count(&self, order: u8, content: Content) -> u64 {
        self.heads[content.index()].count(order)
    }

    pub(crate) fn first(&self, order: u8, content: Content) -> Option<Part> {
        let offset = self.heads[content.index()].first(order)?;
        Some(Part {
            offset,
            order,
            content,
        })
    }

    pub(crate) fn part_at(&self, order: u8, offset: u16) -> Option<Part> {
        let content = Content::BOTH
            .into_iter()
            .find(|content| self.heads[content.index()].contains(order, offset))?;
        Some(Part {
            offset,
            order,
            content,
        })
    }

    pub(crate) fn part_with(&self, frame: u16) -> Option<Part> {
        (0..PART_ORDERS).find_map(|order| self.part_at(order, frame >> order << order))
    }

    /// The only free block that starts at a frame.
    pub(crate) fn part_at_start(&self, frame: u16) -> Option<Part> {
        let aligned = (0..PART_ORDERS).filter(|order| frame.trailing_zeros() >= u32::from(*order));
        let mut parts = aligned.filter_map(|order| self.part_at(order, frame));
        parts.next().filter(|_| parts.next().is_none())
    }

    pub(crate) fn set_head(&mut self, part: Part, there: bool) {
        self.heads[part.content.index()].set(part.order, part.offset, there);
    }

    pub(crate) fn own(&mut self, first: u16, count: u16, owner: u64) {
        let frames = PageBits::range(first, count);
        debug_assert!(frames.within(self.free));
        self.free = self.free.minus(frames);
        self.zero = self.zero.minus(frames);
        self.owners.insert(Run::new(first, count, owner));
    }

    pub(crate) fn hand_over(&mut self, first: u16, count: u16, owner: u64) {
        self.owners.remove(first, count);
        self.owners.insert(Run::new(first, count, owner));
    }

    pub(crate) fn disown(&mut self, first: u16, count: u16) {
        let frames = PageBits::range(first, count);
        debug_assert!(frames.and(self.free).is_empty());
        self.free = self.free.or(frames);
        self.owners.remove(first, count);
    }

    pub(crate) fn set_zero(&mut self, frames: PageBits) {
        debug_assert!(frames.within(self.free));
        self.zero = self.zero.or(frames);
    }
}

/// Frames `first..first + count` of a pageblock as the largest aligned blocks.
pub(crate) fn aligned_pieces(first: u16, count: u16) -> impl Iterator<Item = (u16, u8)> {
    let end = first + count;
    let mut from = first;
    std::iter::from_fn(move || {
        let left = end - from;
        let fits = left.checked_ilog2()?;
        let order = from.trailing_zeros().min(fits) as u8;
        let piece = (from, order);
        from += 1 << order;
        Some(piece)
    })
}
