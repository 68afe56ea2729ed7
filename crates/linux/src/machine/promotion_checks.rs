//! Checks of a region just before its promotion: its memory may have changed since its sample.

use super::LinuxMachine;
use crate::error::LinuxError;
use crate::promote::target_call::CallHelperPool;
use crate::sample::shared_pages;
use hawkeye_manager::PromotionResult;
use hawkeye_manager::machine::CallResult;
use hawkeye_policy::walk_rate::PageBitmap;
use hawkeye_policy::{
    FileRegion, MAX_FILE_HOLES, PAGES_PER_REGION, ProcessId, Promotion, RegionSample,
};
use std::time::{Duration, Instant};

/// With more swapped pages than this, a promotion would mostly wait for the disk (tcmalloc's
/// limit).
const MAX_SWAPPED: u16 = 128;
/// Time after which no further process is listed for one promotion.
const LISTING_TIME: Duration = Duration::from_millis(10);
/// Time after which the search for a file region's pages goes on in no third process.
const FILE_PAGES_TIME: Duration = Duration::from_millis(10);
/// For this long a file region that lacks pages is not searched again, through whichever process.
const SPARSE_FILE_PAUSE: Duration = Duration::from_secs(20);

impl LinuxMachine {
    /// Checks whether a region should not be promoted as it is now. Returns the outcome in that
    /// case.
    pub(super) fn check_before_promotion(
        &mut self,
        promotion: &Promotion,
    ) -> CallResult<Option<PromotionResult>> {
        let Promotion { process, region, expected_present, file: expected_file, .. } = *promotion;
        let failed = |error: LinuxError| error.into_machine_error(process);
        let member = self.members.get_mut(process)?;
        // Rules may have changed since it was proposed.
        if !member.terms_in_force().promotes {
            return Ok(Some(PromotionResult::NotCandidate));
        }
        let found = self.sampler.read_region(member, region, &mut self.calls);
        let Some(found) = found.map_err(failed)? else {
            return Ok(Some(PromotionResult::Freed));
        };
        // Watermarks were checked for the expected kind of memory.
        if found.is_huge() || found.swapped >= MAX_SWAPPED || found.file != expected_file {
            return Ok(Some(PromotionResult::NotCandidate));
        }
        // A small change is normal. A larger one means that the owner frees the region.
        if found.present < expected_present - expected_present / 16 {
            return Ok(Some(PromotionResult::Freed));
        }
        if let Some(file) = found.file {
            if self.sparse_files.contains_key(&file) || self.is_protected(file) {
                return Ok(Some(PromotionResult::NotCandidate));
            }
            let pages = PAGES_PER_REGION - self.count_mapped_file_pages(file, &found);
            if pages > MAX_FILE_HOLES {
                self.sparse_files.insert(file, Instant::now());
                return Ok(Some(PromotionResult::FileHoles { pages }));
            }
        }
        let (member, calls) = (self.members.get_mut(process)?, &mut self.calls);
        if let Some(pages) = shared_pages::shared_page_count_above_limit(calls, process, &found) {
            return Ok(Some(PromotionResult::Shared { pages }));
        }
        let eligible = self.sampler.eligible_range_around(member, region, found.file, calls);
        Ok(eligible.map_err(failed)?.is_none().then_some(PromotionResult::NotCandidate))
    }

    /// Lets file regions be searched again that lacked pages a while ago.
    pub(super) fn forget_old_sparse_files(&mut self) {
        self.sparse_files.retain(|_, seen| seen.elapsed() < SPARSE_FILE_PAUSE);
    }

    /// Whether some managed process protects a file region, by its last listing. It counts as
    /// protected while a process could not be listed.
    fn is_protected(&mut self, file: FileRegion) -> bool {
        if !self.list_unlisted_processes() {
            return true;
        }
        let processes = self.members.processes_in_join_order().iter();
        let mut members = processes.filter_map(|process| self.members.get(*process));
        members.any(|it| it.eligible.protects_file_region(file) && it.handle.is_alive())
    }

    /// Lists the mappings of the processes that were not sampled yet. Returns whether all have a
    /// listing now.
    fn list_unlisted_processes(&mut self) -> bool {
        let begun = Instant::now();
        let processes = self.members.processes_in_join_order().iter().copied();
        let is_listed = |process| self.members.get(process).is_none_or(|it| it.is_listed);
        let unlisted: Vec<ProcessId> = processes.filter(|process| !is_listed(*process)).collect();
        unlisted.into_iter().all(|process| {
            // One that has ended protects nothing.
            let Ok(member) = self.members.get_mut(process) else { return true };
            if begun.elapsed() >= LISTING_TIME {
                return false;
            }
            let managed = self.sampler.managed_memory(member);
            let listed = self.sampler.list_mappings(member, &mut self.calls);
            listed.map(|mappings| member.set_mappings(&mappings, managed)).is_ok()
        })
    }

    /// Base pages that a file region has for certain: those that its managed processes map. `found`
    /// is the region in one of them; the others are read only where that is too little.
    ///
    /// The file may have further pages that no managed process maps. To look for those, it would
    /// have to be opened, which its other users can see.
    fn count_mapped_file_pages(&mut self, file: FileRegion, found: &RegionSample) -> u16 {
        const ENOUGH: u16 = PAGES_PER_REGION - MAX_FILE_HOLES;
        // Most files have two processes, which a slow machine must get to, too.
        const ALWAYS_READ: u32 = 2;
        let begun = Instant::now();
        let mut read = 0;
        let (mut mapped, mut most) = (PageBitmap::default(), found.present);
        for process in self.members.processes_in_join_order().to_vec() {
            if most >= ENOUGH || read >= ALWAYS_READ && begun.elapsed() >= FILE_PAGES_TIME {
                break;
            }
            let Ok(member) = self.members.get_mut(process) else { continue };
            let Some(region) = member.eligible.region_of_file(file) else { continue };
            read += 1;
            let (sampler, calls) = (&mut self.sampler, &mut self.calls);
            let mut maps_file = |calls: &mut CallHelperPool| {
                let same = sampler.eligible_range_around(member, region, Some(file), calls);
                same.is_ok_and(|same| same.is_some())
            };
            // Checked before and afterwards: the pages are those of this file.
            if !maps_file(calls) {
                continue;
            }
            let Ok(pages) = calls.find_mapped_pages_of_region(process, region) else { continue };
            if maps_file(calls) {
                let mapped_here = (0..PAGES_PER_REGION).filter(|page| pages.contains(*page));
                mapped_here.for_each(|page| mapped.insert(page));
                most = most.max(mapped.count());
            }
        }
        most
    }
}
