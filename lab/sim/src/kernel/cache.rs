//! The page cache: memory that holds pages of files, and that the kernel frees when a program needs
//! it.

use super::Kernel;
use super::costs::times;
use crate::memory::{FrameRun, Owner, Run, RunMap};
use crate::rng::Rng;
use hawkeye_policy::PAGES_PER_REGION;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(crate) struct PageCache {
    /// Pages of the cache in blocks of 512, with their frames.
    frames: BTreeMap<u64, RunMap>,
    next: u64,
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
            chunk.insert(Run::new(first, count as u16, frame.into()));
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
            dropped.push(FrameRun::new(run.value as u32, count as u32));
            left -= count;
            self.pages -= count;
        }
        dropped
    }

    pub(crate) fn moved(&mut self, page: u64, to: u32) {
        if let Some(chunk) = self.frames.get_mut(&(page / PER_CHUNK)) {
            let first = (page % PER_CHUNK) as u16;
            chunk.remove(first, 1);
            chunk.insert(Run::new(first, 1, to.into()));
        }
    }

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

    /// Breaks up free memory by pages of files (paper, section 4). Takes one random frame in each
    /// of the free huge pages, one after the other at random. Stops when the fragmentation index is
    /// at least `fmfi` (0-1) or no free huge page is left. Returns the number of frames taken. The
    /// same seed takes the same frames.
    pub fn fragment(&mut self, fmfi: f64, seed: u64) -> u64 {
        let mut rng = Rng::new(seed, 0);
        let mut taken = 0;
        while self.memory.fmfi() < fmfi {
            let Some(frame) = self.memory.spoilable_frame(&mut rng) else {
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
        self.debug_check();
        taken
    }
}
