//! The kernel's threads: kswapd, the zeroing thread, same-page merging.

use super::SimulatedKernel;
use super::address_space::RegionId;
use super::kernel_costs::time_of_operations;
use crate::kernel::frame_supply::RECLAIM_BATCH;
use hawkeye_policy::BASE_PAGE_BYTES;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// CPU time of each of the kernel's threads so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelThreadTimes {
    /// kswapd: reclaims when memory runs low.
    pub kswapd: Duration,
    /// Zeroes free memory.
    pub zeroing: Duration,
    /// Merges pages of zeros.
    pub merging: Duration,
}

/// Settings of the thread that zeroes free memory in advance (paper, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZeroingSpec {
    /// Base pages per second, at most: 10,000 in the paper's practice.
    pub pages_per_s: u64,
    /// Whether its stores bypass the caches.
    pub non_temporal: bool,
}

impl Default for ZeroingSpec {
    fn default() -> Self {
        Self { pages_per_s: 10_000, non_temporal: true }
    }
}

/// Settings of same-page merging (`/sys/kernel/mm/ksm/`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamePageMergingSpec {
    /// Pages scanned per second; KSM's defaults, 100 pages every 20 ms, make 5,000.
    pub pages_per_s: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct KernelThreadState {
    zeroing: Option<ZeroingSpec>,
    merging: Option<SamePageMergingSpec>,
    pub(crate) merging_at: RegionId,
    /// Unused part of earlier steps that were too short for a page, in pages times nanoseconds.
    zeroing_credit: u128,
    merging_credit: u128,
    pub(crate) times: KernelThreadTimes,
}

/// The work of the kernel's threads in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelThreadWork {
    /// Frames that kswapd freed.
    pub reclaimed: u64,
    /// CPU time of kswapd.
    pub reclaiming: Duration,
    /// Frames that were zeroed.
    pub zeroed: u64,
    /// CPU time of the zeroing thread.
    pub zeroing: Duration,
    /// Bytes that the zeroing thread wrote to memory, a traffic that all programs share.
    pub written_bytes: u64,
    /// The part of these bytes that went through the caches and evicted other data.
    pub cached_bytes: u64,
    /// Pages that same-page merging scanned.
    pub merge_scanned: u64,
    /// Pages that were merged with the zero page.
    pub merged: u64,
    /// CPU time of same-page merging.
    pub merging: Duration,
}

const NS_PER_S: u128 = 1_000_000_000;

/// Whole pages that a rate allows; keeps the rest as credit.
fn take_pages_by_rate(credit: &mut u128, pages_per_s: u64, step: Duration) -> u64 {
    *credit += u128::from(pages_per_s) * step.as_nanos();
    let pages = *credit / NS_PER_S;
    *credit %= NS_PER_S;
    u64::try_from(pages).unwrap_or(u64::MAX)
}

impl SimulatedKernel {
    /// Starts or stops the thread that zeroes free memory.
    pub fn set_zeroing(&mut self, spec: Option<ZeroingSpec>) {
        self.threads.zeroing = spec;
    }

    /// Zeroes all free memory, as the thread does on a long-idle machine. Charges no thread.
    pub fn zero_all_free_memory(&mut self) {
        self.memory.zero_free_frames(u64::MAX);
        self.assert_consistent_in_debug();
    }

    /// Starts or stops same-page merging.
    pub fn set_merging(&mut self, spec: Option<SamePageMergingSpec>) {
        self.threads.merging = spec;
    }

    /// Runs the kernel's threads for `step`, each on a core of its own.
    pub fn run_kernel_threads_for_step(&mut self, step: Duration) -> KernelThreadWork {
        let mut done = KernelThreadWork::default();
        self.enlist_touched_regions();
        self.reclaim_state.swap.advance_time(step);
        self.run_kswapd_for_step(step, &mut done);
        self.run_zeroing_for_step(step, &mut done);
        self.run_merging_for_step(step, &mut done);
        self.assert_consistent_in_debug();
        done
    }

    fn run_kswapd_for_step(&mut self, step: Duration, done: &mut KernelThreadWork) {
        let marks = self.reclaim_state.watermarks;
        if self.memory.count_free_frames() >= marks.low {
            return;
        }
        while self.memory.count_free_frames() < marks.high && done.reclaiming < step {
            let freed = self.reclaim(RECLAIM_BATCH, &mut done.reclaiming);
            done.reclaimed += freed;
            if freed == 0 {
                break;
            }
        }
        self.threads.times.kswapd += done.reclaiming;
    }

    fn run_zeroing_for_step(&mut self, step: Duration, done: &mut KernelThreadWork) {
        let Some(spec) = self.threads.zeroing else {
            return;
        };
        let each = if spec.non_temporal {
            self.costs.zero_base_non_temporal_ns
        } else {
            self.costs.zero_base_ns
        };
        let rate = take_pages_by_rate(&mut self.threads.zeroing_credit, spec.pages_per_s, step);
        // A core limits what it can zero.
        let core = step.as_nanos() / u128::from(each.max(1));
        let most = rate.min(u64::try_from(core).unwrap_or(u64::MAX));
        done.zeroed = self.memory.zero_free_frames(most).frames;
        done.zeroing = time_of_operations(done.zeroed, each);
        done.written_bytes = done.zeroed * BASE_PAGE_BYTES;
        done.cached_bytes = if spec.non_temporal { 0 } else { done.written_bytes };
        self.threads.times.zeroing += done.zeroing;
    }

    fn run_merging_for_step(&mut self, step: Duration, done: &mut KernelThreadWork) {
        let Some(spec) = self.threads.merging else {
            return;
        };
        let most = take_pages_by_rate(&mut self.threads.merging_credit, spec.pages_per_s, step);
        (done.merge_scanned, done.merged) = self.merge_zero_pages(most, &mut done.merging);
        self.threads.times.merging += done.merging;
    }
}
