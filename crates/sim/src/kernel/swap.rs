//! Swap: where to, how fast, and which pages go.

use super::costs::times;
use super::space::first_page;
use super::{Kernel, SpaceId};
use crate::bits::PageBits;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A device to swap to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapSpec {
    /// Its size.
    pub bytes: u64,
    /// What reading a page takes: whoever faults waits for it.
    pub read_ns: u64,
    /// What writing a page takes of the device, in a stream.
    pub write_ns: u64,
}

impl SwapSpec {
    /// A SATA SSD, as in the paper (96 GB): about 100 us to read a page at random, 500 MB/s to write.
    pub const fn ssd(bytes: u64) -> Self {
        Self {
            bytes,
            read_ns: 100_000,
            write_ns: 8_000,
        }
    }
}

/// Where the search for pages goes on.
#[derive(Clone, Copy, Debug)]
struct Hand {
    space: SpaceId,
    region: u64,
    page: u16,
}

/// The device and the clock.
#[derive(Clone, Debug)]
pub(crate) struct Swap {
    spec: Option<SwapSpec>,
    /// Pages in it.
    pub(crate) used: u64,
    hand: Hand,
}

const START: Hand = Hand {
    space: SpaceId(0),
    region: 0,
    page: 0,
};

impl Swap {
    pub(crate) fn new(spec: Option<SwapSpec>) -> Self {
        Self {
            spec,
            used: 0,
            hand: START,
        }
    }

    /// Whether there is any.
    pub(crate) fn is_there(&self) -> bool {
        self.spec.is_some()
    }

    /// Pages that still fit.
    pub(crate) fn room(&self) -> u64 {
        let pages = self.spec.map_or(0, |spec| spec.bytes / BASE_PAGE_BYTES);
        pages.saturating_sub(self.used)
    }

    pub(crate) fn read(&self, pages: u64) -> Duration {
        times(pages, self.spec.map_or(0, |spec| spec.read_ns))
    }

    fn write(&self, pages: u64) -> Duration {
        times(pages, self.spec.map_or(0, |spec| spec.write_ns))
    }
}

impl Kernel {
    /// Swaps pages out that were not accessed since the clock's hand last came by; returns how many. Huge pages are
    /// split first. Pages that relatives share stay.
    pub(crate) fn swap_out(&mut self, want: u64, time: &mut Duration) -> u64 {
        let want = want.min(self.swap.room());
        let mut done = 0;
        // The first time round clears access bits; after the second there is nothing that can go.
        let mut rounds = 0;
        while done < want && rounds <= 2 {
            let hand = self.swap.hand;
            match self.region_at(hand) {
                Some(at) => done += self.swap_out_of(at, want - done, time),
                None => {
                    self.swap.hand = START;
                    rounds += 1;
                }
            }
        }
        done
    }

    /// The hand's place, or the next region after it.
    fn region_at(&self, hand: Hand) -> Option<Hand> {
        self.spaces.range(hand.space..).find_map(|(id, space)| {
            let from = if *id == hand.space { hand.region } else { 0 };
            let region = space.table.next(from)?;
            let same = (*id, region) == (hand.space, hand.region);
            Some(Hand {
                space: *id,
                region,
                page: if same { hand.page } else { 0 },
            })
        })
    }

    fn swap_out_of(&mut self, at: Hand, want: u64, time: &mut Duration) -> u64 {
        self.swap.hand = Hand {
            region: at.region + 1,
            page: 0,
            ..at
        };
        let Some(space) = self.spaces.get_mut(&at.space) else {
            return 0;
        };
        let family = space.family;
        let Some(found) = space.table.get_mut(at.region) else {
            return 0;
        };
        let looked_at = PageBits::range(at.page, PAGES_PER_REGION);
        if found.huge.is_some() && !found.accessed.is_empty() {
            found.accessed = PageBits::EMPTY;
            return 0;
        }
        let mut old = found.present.minus(found.accessed).and(looked_at);
        let shared = found.shared;
        found.accessed = found.accessed.minus(looked_at);
        if self.has_relatives(family) {
            old = old.minus(shared);
        }
        if old.is_empty() {
            return 0;
        }
        if self
            .split_huge(at.space, at.region)
            .is_ok_and(|was_huge| was_huge)
        {
            *time += times(1, self.costs.split_ns);
        }
        let mut left = want;
        for (first, count) in old.each_run() {
            let count = u64::from(count).min(left) as u16;
            left -= u64::from(count);
            self.swap_out_run(at, first, count);
            if left == 0 {
                let page = first + count;
                self.swap.hand = Hand { page, ..at };
                break;
            }
        }
        let pages = want - left;
        self.remapped.note(at.space, at.region);
        *time += times(pages, self.costs.swap_base_ns) + self.swap.write(pages);
        pages
    }

    fn swap_out_run(&mut self, at: Hand, first: u16, count: u16) {
        let Some(space) = self.spaces.get_mut(&at.space) else {
            return;
        };
        let Some(found) = space.table.get_mut(at.region) else {
            return;
        };
        let runs: Vec<_> = found.frames.within(first, count).collect();
        found.unmap(first, count);
        found.swapped = found.swapped.or(PageBits::range(first, count));
        space.resident -= u64::from(count);
        space.swapped += u64::from(count);
        self.swap.used += u64::from(count);
        for run in runs {
            let page = first_page(at.region) + u64::from(run.first);
            self.release(at.space, page, run);
        }
        self.leave_reservation(at.space, at.region);
    }
}
