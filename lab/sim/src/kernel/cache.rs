//! The page cache: memory that is filled by reading files, and given up when somebody needs it.

use super::Kernel;
use super::costs::times;
use crate::memory::{Content, Fragmenter, FrameRun, MigrateType, Owner, Run, RunMap};
use crate::rng::Rng;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use std::collections::BTreeMap;
use std::time::Duration;

/// Cached pages by the order in which they were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageCache {
    /// Frames of 512 pages each.
    frames: BTreeMap<u64, RunMap>,
    /// The next page to be read.
    next: u64,
    /// Pages in it.
    pub(crate) pages: u64,
}

const PER_CHUNK: u64 = PAGES_PER_REGION as u64;

impl PageCache {
    fn add(&mut self, frames: FrameRun) {
        let mut frame = frames.first;
        let end = frames.first + frames.count;
        while frame < end {
            let first = (self.next % PER_CHUNK) as u16;
            let count = (end - frame).min(u32::from(PAGES_PER_REGION - first));
            let chunk = self.frames.entry(self.next / PER_CHUNK).or_default();
            chunk.insert(Run {
                first,
                count: count as u16,
                value: frame.into(),
            });
            self.next += u64::from(count);
            self.pages += u64::from(count);
            frame += count;
        }
    }

    /// Removes up to `most` of the oldest pages; returns their frames.
    fn drop_oldest(&mut self, most: u64) -> Vec<FrameRun> {
        let mut dropped = Vec::new();
        let mut left = most;
        while left > 0 {
            let Some(mut chunk) = self.frames.first_entry() else {
                break;
            };
            let Some(run) = chunk.get().iter().next() else {
                chunk.remove();
                continue;
            };
            let count = u64::from(run.count).min(left);
            chunk.get_mut().remove(run.first, count as u16);
            dropped.push(FrameRun {
                first: run.value as u32,
                count: count as u32,
            });
            left -= count;
            self.pages -= count;
        }
        dropped
    }

    /// A page was moved to another frame.
    pub(crate) fn moved(&mut self, page: u64, to: u32) {
        if let Some(chunk) = self.frames.get_mut(&(page / PER_CHUNK)) {
            let first = (page % PER_CHUNK) as u16;
            chunk.remove(first, 1);
            chunk.insert(Run {
                first,
                count: 1,
                value: to.into(),
            });
        }
    }

    /// All pages with their frames.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.frames.iter().flat_map(|(chunk, runs)| {
            runs.iter().flat_map(move |run| {
                (0..u64::from(run.count)).map(move |i| {
                    let page = chunk * PER_CHUNK + u64::from(run.first) + i;
                    (page, (run.value + i) as u32)
                })
            })
        })
    }
}

impl Kernel {
    /// Reads so much of new files, in whole pages. Where memory would fall under the low watermark the oldest pages make
    /// room; returns how many bytes were cached in the end.
    pub fn read_files(&mut self, bytes: u64) -> u64 {
        let mut left = bytes / BASE_PAGE_BYTES;
        while left > 0 {
            let spare = self
                .memory
                .free_frames()
                .saturating_sub(self.reclaim_state.watermarks.low);
            if spare == 0 {
                let mut nothing = Duration::ZERO;
                if self.drop_cache(left.min(PER_CHUNK), &mut nothing) == 0 {
                    break;
                }
                continue;
            }
            let owner = Owner::Cache {
                page: self.reclaim_state.cache.next,
            };
            let most = left.min(spare).min(PER_CHUNK) as u16;
            // Whatever it held is overwritten: dirty memory is as good (paper, section 3.1).
            let got = self
                .memory
                .allocate_run(most, MigrateType::Movable, Content::Dirty, owner);
            let Some(got) = got else {
                break;
            };
            self.reclaim_state.cache.add(got.frames);
            left -= u64::from(got.frames.count);
        }
        self.debug_check();
        bytes / BASE_PAGE_BYTES * BASE_PAGE_BYTES - left * BASE_PAGE_BYTES
    }

    /// Forgets the page cache (`/proc/sys/vm/drop_caches`).
    pub fn drop_caches(&mut self) {
        let mut nothing = Duration::ZERO;
        self.drop_cache(u64::MAX, &mut nothing);
        self.debug_check();
    }

    /// Drops up to `want` of the oldest cached pages; returns how many.
    pub(crate) fn drop_cache(&mut self, want: u64, time: &mut Duration) -> u64 {
        let dropped = self.reclaim_state.cache.drop_oldest(want);
        let pages = dropped.iter().map(|run| u64::from(run.count)).sum();
        for run in dropped {
            self.memory.free(run);
        }
        *time += times(pages, self.costs.drop_cache_ns);
        pages
    }

    /// Breaks up free memory, one frame in one free huge page after the other at random, until its fragmentation index is
    /// at least `fmfi` (0-1) or no free huge page is left; returns how many frames that took. The same seed takes the
    /// same frames.
    pub fn fragment(&mut self, fmfi: f64, by: Fragmenter, seed: u64) -> u64 {
        let mut rng = Rng::new(seed, 0);
        let taken = match by {
            Fragmenter::Kernel => self.memory.pin_until(fmfi, &mut rng),
            Fragmenter::PageCache => self.cache_until(fmfi, &mut rng),
        };
        self.debug_check();
        taken
    }

    fn cache_until(&mut self, fmfi: f64, rng: &mut Rng) -> u64 {
        let mut taken = 0;
        while self.memory.fmfi() < fmfi {
            let Some(frame) = self.memory.spoilable_frame(rng) else {
                break;
            };
            let owner = Owner::Cache {
                page: self.reclaim_state.cache.next,
            };
            let Some(got) = self.memory.allocate_at(frame, 1, owner) else {
                break;
            };
            self.reclaim_state.cache.add(got.frames);
            taken += 1;
        }
        taken
    }
}
