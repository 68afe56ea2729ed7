//! Splits huge pages to give memory back: zero pages, or the part that the process gave back.

use super::LinuxMachine;
use crate::error::LinuxError;
use crate::memory::recovery_method::RecoveryMethod;
use crate::promote::target_call::{CallHelperPool, SERIES_TIME};
use crate::sample::partly_mapped::{count_present, find_partly_mapped_huge_page};
use crate::sample::sampler::{SampledProcess, Sampler, is_huge_page_with_memory};
use hawkeye_manager::machine::CallResult;
use hawkeye_manager::{MachineError, RecoveryResult};
use hawkeye_policy::{
    BASE_PAGE_BYTES, Errno, PAGES_PER_REGION, ProcessId, RegionAddr, RegionSample,
};
use std::time::{Duration, Instant};

/// Attempts to split a huge page that something else references: compaction, a debugger that reads
/// it, DAMON. All of them release it within microseconds.
const SPLIT_TRIES: u32 = 3;

/// A call that splits several huge pages is to end within this time. The loop waits 20 ms for it.
const SHARED_SPLIT_TIME: Duration = Duration::from_millis(8);

/// Huge pages that one call came to.
struct SharedSplit {
    regions: Vec<RegionAddr>,
    call: Duration,
    /// Time of each page: a part of the call, and of what came before it.
    own_share: Duration,
}

/// How many huge pages may be split in one call, by the time that the last split took.
fn splits_that_fit(last_split: Option<Duration>) -> usize {
    let fit = last_split.map(|took| SHARED_SPLIT_TIME.as_nanos() / took.as_nanos().max(1));
    fit.map_or(1, |fit| usize::try_from(fit).unwrap_or(usize::MAX))
}

impl LinuxMachine {
    /// Splits huge pages that are mapped whole, and gives their zero pages back.
    pub(super) fn free_zero_pages(
        &mut self,
        process: ProcessId,
        regions: &[RegionAddr],
    ) -> Vec<CallResult<RecoveryResult>> {
        let deadline = Instant::now() + SERIES_TIME;
        // A split of each by itself shows the errors.
        let shared = self.split_in_one_call(process, regions).ok().flatten();
        let mut free = |region: &RegionAddr| {
            let shared = shared.as_ref().filter(|it| it.regions.contains(region));
            let done = shared.and_then(|it| self.result_of_shared_split(process, *region, it));
            done.unwrap_or_else(|| {
                let before = shared.map_or(Duration::ZERO, |it| it.own_share);
                let split = self.free_zero_pages_of_region(process, *region, deadline);
                split.map(|it| RecoveryResult { took: it.took + before, ..it })
            })
        };
        regions.iter().map(&mut free).collect()
    }

    /// Splits those of `regions` in one call that share a mapping with the first. A look-up of the
    /// mapping and a call of a helper take together nearly as long as a split.
    fn split_in_one_call(
        &mut self,
        process: ProcessId,
        regions: &[RegionAddr],
    ) -> CallResult<Option<SharedSplit>> {
        let most = splits_that_fit(self.last_split);
        if self.recovery != RecoveryMethod::SplitRemaps || regions.len().min(most) < 2 {
            return Ok(None);
        }
        let begun = Instant::now();
        let member = self.members.get_mut(process)?;
        let mut regions = regions.to_vec();
        regions.retain(|region| member.lost_huge_pages.is_known_huge(*region));
        let Some(first) = regions.first() else { return Ok(None) };
        let failed = |error: LinuxError| error.into_machine_error(process);
        let eligible = self.sampler.eligible_range_around(member, *first, None, &mut self.calls);
        let Some(eligible) = eligible.map_err(failed)? else { return Ok(None) };
        regions.retain(|it| eligible.start <= it.start() && it.end() <= eligible.end);
        regions.truncate(most);
        // One that is not answered in time is followed by single ones.
        self.last_split = None;
        let (done, call) = self.calls.split_huge_pages(&member.handle, &regions).map_err(failed)?;
        regions.truncate(done);
        let pages = u32::try_from(done).unwrap_or(u32::MAX).max(1);
        if done > 0 {
            self.last_split = Some(call / pages);
        }
        Ok(Some(SharedSplit { regions, call, own_share: begun.elapsed() / pages }))
    }

    /// What a shared split did to a region; `None` if it left the huge page whole.
    fn result_of_shared_split(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        split: &SharedSplit,
    ) -> Option<CallResult<RecoveryResult>> {
        let begun = Instant::now();
        let member = self.members.get_mut(process).ok()?;
        let left = match self.sampler.read_region(member, region, &mut self.calls) {
            Ok(left) => left,
            Err(error) => return Some(Err(error.into_machine_error(process))),
        };
        if left.is_some_and(|left| self.recovery.split_was_skipped(&left)) {
            return None;
        }
        let took = split.own_share + begun.elapsed();
        Some(Ok(self.record_split(process, region, left, took, split.call)))
    }

    fn free_zero_pages_of_region(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        deadline: Instant,
    ) -> CallResult<RecoveryResult> {
        let member = self.members.get_mut(process)?;
        let failed = |error: LinuxError| error.into_machine_error(process);
        let refused = |errno: Errno| {
            let call = match errno {
                Errno::EAGAIN => "splitting a huge page that is gone",
                Errno::EPERM => "splitting a huge page that is no longer eligible",
                _ => "splitting a huge page",
            };
            MachineError::Refused { call, process, errno }
        };
        let begun = Instant::now();
        if !member.lost_huge_pages.is_known_huge(region) {
            let found =
                self.sampler.read_region(member, region, &mut self.calls).map_err(failed)?;
            if !found.as_ref().is_some_and(is_huge_page_with_memory) {
                // Something else split it, or its memory is gone: no memory would come from us.
                return Err(refused(Errno::EAGAIN));
            }
        }
        let method = self.recovery;
        let (left, longest_call) =
            self.split_with_retry(process, region, deadline, refused, |member, sampler, calls| {
                let took = method.split_and_give_back_zero_pages(&member.handle, region, calls)?;
                let left = sampler.read_region(member, region, calls).map_err(failed)?;
                let is_whole = left.is_some_and(|left| method.split_was_skipped(&left));
                Ok((took, (!is_whole).then_some(left)))
            })?;
        self.last_split = Some(longest_call);
        Ok(self.record_split(process, region, left, begun.elapsed(), longest_call))
    }

    /// Records that a huge page was split, and what is `left` of its memory.
    fn record_split(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        left: Option<RegionSample>,
        took: Duration,
        longest_call: Duration,
    ) -> RecoveryResult {
        if let Ok(member) = self.members.get_mut(process) {
            member.huge_bytes.forget();
            member.lost_huge_pages.record_split(region);
        }
        self.update_profile(process, |seen| seen.split += 1);
        let left_present = left.map_or(0, |r| r.present);
        let freed = PAGES_PER_REGION - left_present.min(PAGES_PER_REGION);
        let bytes = u64::from(freed) * BASE_PAGE_BYTES;
        RecoveryResult { bytes, left_present, took, longest_call }
    }

    /// Splits a huge page that is mapped in part, which frees the rest of it. Refused where the
    /// region has none, or another process maps it.
    pub(super) fn free_unmapped_part(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> CallResult<RecoveryResult> {
        let begun = Instant::now();
        let deadline = begun + SERIES_TIME;
        let refused = |errno| {
            let call = "splitting a huge page that is mapped in part";
            MachineError::Refused { call, process, errno }
        };
        let found = self.find_partly_mapped(process, region)?;
        let (before, part) = found.ok_or(refused(Errno::EAGAIN))?;
        let failed = |error: LinuxError| error.into_machine_error(process);
        let mut mapped_page = part.mapped_page;
        let (left, longest_call) =
            self.split_with_retry(process, region, deadline, refused, |member, _, calls| {
                let page = region.start() + u64::from(mapped_page) * BASE_PAGE_BYTES;
                let took = calls.split_at_page(&member.handle, page, None).map_err(failed)?;
                let left = calls.read_pagemap_of_region(process, region).map_err(failed)?;
                let Some(whole) = find_partly_mapped_huge_page(&left).map_err(failed)? else {
                    return Ok((took, Some(left)));
                };
                mapped_page = whole.mapped_page;
                Ok((took, None))
            })?;
        if let Ok(member) = self.members.get_mut(process) {
            member.lost_huge_pages.clear_suspicion(region);
        }
        self.update_profile(process, |seen| seen.split += 1);
        let left_present = count_present(region, &left);
        // The split may have found zero-filled pages as well.
        let zero_pages = before.present.saturating_sub(left_present);
        Ok(RecoveryResult {
            bytes: u64::from(part.freed + zero_pages) * BASE_PAGE_BYTES,
            left_present,
            took: begun.elapsed(),
            longest_call,
        })
    }

    /// Calls `split` again where it leaves the huge page whole, as long as the region is eligible
    /// and until `deadline`.
    /// `split` returns the duration of its call, and what it left or `None`. Returns what is left,
    /// and the duration of the longest call.
    fn split_with_retry<T>(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        deadline: Instant,
        refused: impl Fn(Errno) -> MachineError,
        mut split: impl FnMut(
            &SampledProcess,
            &mut dyn Sampler,
            &mut CallHelperPool,
        ) -> CallResult<(Duration, Option<T>)>,
    ) -> CallResult<(T, Duration)> {
        let member: &SampledProcess = self.members.get_mut(process)?;
        let mut longest_call = Duration::ZERO;
        for _ in 0..SPLIT_TRIES {
            let eligible =
                self.sampler.eligible_range_around(member, region, None, &mut self.calls);
            if eligible.map_err(|error| error.into_machine_error(process))?.is_none() {
                return Err(refused(Errno::EPERM));
            }
            let (took, left) = split(member, &mut *self.sampler, &mut self.calls)?;
            longest_call = longest_call.max(took);
            if let Some(left) = left {
                return Ok((left, longest_call));
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(refused(Errno::EBUSY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_splits_are_the_more_fit_into_a_call() {
        let ms = Duration::from_millis;
        assert_eq!(splits_that_fit(None), 1);
        assert_eq!(
            [ms(1), ms(3), ms(8), ms(30)].map(|took| splits_that_fit(Some(took))),
            [8, 2, 1, 0]
        );
        assert!(splits_that_fit(Some(Duration::ZERO)) > 8);
    }
}
