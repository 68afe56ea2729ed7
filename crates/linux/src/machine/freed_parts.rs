//! Finds parts of huge pages that processes gave back.

use super::LinuxMachine;
use crate::error::LinuxError;
use crate::memory::recovery_method::RecoveryMethod;
use crate::sample::partly_mapped::{
    LostHugePages, PartlyMappedHugePage, find_partly_mapped_huge_page, sample_of_partly_mapped,
};
use hawkeye_manager::MachineError;
use hawkeye_manager::machine::CallResult;
use hawkeye_policy::{ProcessId, RegionAddr, RegionSample};
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
            self.lost_huge_pages(process)?.skip_search();
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

    /// Searches at least one region, so that a slow machine comes to all of them, too.
    fn search_partly_mapped(&mut self, process: ProcessId, deadline: Instant) -> CallResult<()> {
        for region in self.lost_huge_pages(process)?.suspects_to_search() {
            match self.find_partly_mapped(process, region) {
                Ok(found) => {
                    let sample = found.map(|(sample, _)| sample);
                    self.lost_huge_pages(process)?.record_search(region, sample);
                }
                Err(error @ (MachineError::NotAnswering(_) | MachineError::Gone(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!("freed parts of huge pages pid={process} at={region}: {error}");
                    self.lost_huge_pages(process)?.record_failed_search(region);
                }
            }
            if Instant::now() >= deadline {
                break;
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
}
