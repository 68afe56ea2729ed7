//! Finds and frees parts of huge pages that processes gave back.

use super::{LinuxMachine, SPLIT_TRIES};
use crate::error::LinuxError;
use crate::memory::recovery_method::RecoveryMethod;
use crate::promote::target_call::SERIES_TIME;
use crate::sample::partly_mapped::{
    self, LostHugePages, PartlyMappedHugePage, find_partly_mapped_huge_page,
    sample_of_partly_mapped,
};
use hawkeye_manager::machine::CallResult;
use hawkeye_manager::{MachineError, RecoveryResult};
use hawkeye_policy::{BASE_PAGE_BYTES, Errno, ProcessId, RegionAddr, RegionSample};
use std::time::{Duration, Instant};

/// Time for the search in one listing.
const AT_ONCE: Duration = Duration::from_millis(4);

impl LinuxMachine {
    fn lost_huge_pages(&mut self, process: ProcessId) -> CallResult<&mut LostHugePages> {
        Ok(&mut self.members.get_mut(process)?.lost_huge_pages)
    }

    /// Marks the regions of a process that lost their huge page and in which base pages still map a
    /// part of it. Adds those that are missing. The search ends at `until`; the next one goes on.
    pub(super) fn mark_partly_mapped(
        &mut self,
        process: ProcessId,
        regions: &mut Vec<RegionSample>,
        until: Duration,
    ) -> CallResult<()> {
        if self.recovery == RecoveryMethod::None {
            self.lost_huge_pages(process)?.begin_search();
            return Ok(());
        }
        let begun = Instant::now();
        if self.lost_huge_pages(process)?.may_search(begun) {
            let deadline = (self.began + until).min(begun + AT_ONCE);
            self.search_partly_mapped(process, deadline)?;
            self.lost_huge_pages(process)?.end_search(begun);
        }
        for found in self.lost_huge_pages(process)?.found() {
            match regions.binary_search_by_key(&found.region, |it| it.region) {
                Ok(at) => regions[at].freed = found.freed,
                Err(at) => regions.insert(at, *found),
            }
        }
        Ok(())
    }

    fn search_partly_mapped(&mut self, process: ProcessId, deadline: Instant) -> CallResult<()> {
        for region in self.lost_huge_pages(process)?.begin_search() {
            if Instant::now() >= deadline {
                self.lost_huge_pages(process)?.break_search_before(region);
                break;
            }
            match self.find_partly_mapped(process, region) {
                Ok(Some((sample, _))) => {
                    self.lost_huge_pages(process)?.record_found(sample);
                }
                Ok(None) => {}
                Err(error @ (MachineError::NotAnswering(_) | MachineError::Gone(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!("freed parts of huge pages pid={process} at={region}: {error}");
                }
            }
        }
        Ok(())
    }

    /// The huge page of which base pages map a part in a region that lost its own. `None` also
    /// while another process maps it, as after a fork.
    pub(super) fn find_partly_mapped(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> CallResult<Option<(RegionSample, PartlyMappedHugePage)>> {
        let failed = |error: LinuxError| error.into_machine_error(process);
        let member = self.members.get_mut(process)?;
        if !member.lost_huge_pages.is_suspect(region) || member.eligible.is_region_locked(region) {
            return Ok(None);
        }
        let present = self.sampler.read_region(member, region, &mut self.calls).map_err(failed)?;
        let part = match present {
            Some(present) if !present.is_huge() => {
                let entries = self.calls.read_pagemap_of_region(process, region).map_err(failed)?;
                let part = find_partly_mapped_huge_page(&entries).map_err(failed)?;
                part.and_then(|part| Some((sample_of_partly_mapped(region, &entries, part)?, part)))
            }
            _ => None,
        };
        if part.is_none() {
            member.lost_huge_pages.clear_suspicion(region);
        }
        Ok(part.filter(|(_, part)| !part.is_shared))
    }

    /// Splits a huge page that is mapped in part, which frees the rest of it. Refused where the
    /// region has none, or another process maps it.
    pub(super) fn free_unmapped_part(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> CallResult<RecoveryResult> {
        let begun = Instant::now();
        let refused = |errno| {
            let call = "splitting a huge page that is mapped in part";
            MachineError::Refused { call, process, errno }
        };
        let found = self.find_partly_mapped(process, region)?;
        let (before, part) = found.ok_or(refused(Errno::EAGAIN))?;
        let member = self.members.get_mut(process)?;
        let failed = |error: LinuxError| error.into_machine_error(process);
        let mut longest_call = Duration::ZERO;
        let mut mapped_page = part.mapped_page;
        let mut tries = 0;
        let left = loop {
            let eligible =
                self.sampler.is_region_still_eligible(member, region, None, &mut self.calls);
            if !eligible.map_err(failed)? {
                return Err(refused(Errno::EPERM));
            }
            let page = region.start() + u64::from(mapped_page) * BASE_PAGE_BYTES;
            let call = self.calls.split_at_page(&member.handle, page, None).map_err(failed)?;
            longest_call = longest_call.max(call);
            let left = self.calls.read_pagemap_of_region(process, region).map_err(failed)?;
            let Some(not_split) = find_partly_mapped_huge_page(&left).map_err(failed)? else {
                break left;
            };
            tries += 1;
            if tries == SPLIT_TRIES || begun.elapsed() >= SERIES_TIME {
                return Err(refused(Errno::EBUSY));
            }
            mapped_page = not_split.mapped_page;
        };
        member.lost_huge_pages.clear_suspicion(region);
        self.update_profile(process, |seen| seen.split += 1);
        let left_present = partly_mapped::count_present(region, &left);
        // The split may have found zero-filled pages as well.
        let zero_pages = before.present.saturating_sub(left_present);
        Ok(RecoveryResult {
            bytes: u64::from(part.freed + zero_pages) * BASE_PAGE_BYTES,
            left_present,
            took: begun.elapsed(),
            longest_call,
        })
    }
}
