//! Makes program text huge from outside, and gives it base pages again.
//!
//! `docs/design/program-text.md` has what the kernel does: which file systems it allows, refusals
//! of fresh files, which end after a moment, and that a promotion is final where several processes
//! map the file.

use crate::error::{LinuxError, Result};
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::CallHelperPool;
use crate::sample::pagemap::region_sample_from_entries;
use hawkeye_policy::{CallBatchBackoff, RegionAddr};
use nix::errno::Errno;
use procfs::process::Process;
use std::time::{Duration, Instant};

/// Time for one call. A promotion reads what is missing from a disk, and first waits until every
/// processor has emptied its lists of pages (`lru_add_drain_all`). In QEMU, 2 s were too short.
const CALL_TIME: Duration = Duration::from_secs(20);
/// Time for which refusals are tried again, and the time between two tries of all of them.
const RETRY_TIME: Duration = Duration::from_secs(3);
const BETWEEN_TRIES: Duration = Duration::from_millis(100);
/// Time for tries to split, and the pause between them. The kernel takes the page out of the page
/// tables first, and does not split it if it is accessed before the end. A thread that runs the
/// text on another CPU does that at most tries.
const SPLIT_TIME: Duration = Duration::from_secs(3);
const BETWEEN_SPLITS: Duration = Duration::from_millis(1);
/// Most threads that are looked at before each try.
const MOST_THREADS: usize = 256;

/// What a process has of one region of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPages {
    /// Nothing is mapped.
    Absent,
    /// Base pages, all of them mapped once on the machine.
    Base,
    /// Base pages, some of them mapped twice or more, by this process or by others.
    BaseShared,
    /// A huge page.
    Huge,
}

/// What became of some regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPromotionResult {
    /// Those that are huge now.
    pub promoted: Vec<RegionAddr>,
    /// Those that are not, with the kernel's last answer.
    pub refused: Vec<(RegionAddr, Errno)>,
}

/// Promotes and splits the text of one process.
#[derive(Debug)]
pub struct TextPromoter {
    process: ProcessHandle,
    calls: CallHelperPool,
    pauses: CallBatchBackoff,
    began: Instant,
}

impl TextPromoter {
    /// For a process. Nothing is called yet.
    pub fn new(process: ProcessHandle) -> Self {
        Self {
            process,
            calls: CallHelperPool::with_time_limit(CALL_TIME),
            pauses: CallBatchBackoff::default(),
            began: Instant::now(),
        }
    }

    /// The process.
    pub fn process(&self) -> &ProcessHandle {
        &self.process
    }

    /// Reads what the process has of a region.
    pub fn read_region(&mut self, region: RegionAddr) -> Result<TextPages> {
        let entries = self.calls.read_pagemap_of_region(self.process.id, region)?;
        Ok(match region_sample_from_entries(region, &entries) {
            Some(sample) if sample.is_huge() => TextPages::Huge,
            Some(sample) if sample.maybe_shared > 0 => TextPages::BaseShared,
            Some(sample) if sample.present > 0 => TextPages::Base,
            _ => TextPages::Absent,
        })
    }

    /// As [`Self::read_region`]; maps a page before, where nothing is mapped. After a split nothing
    /// is, whether or not it succeeded.
    fn read_mapped_region(&mut self, region: RegionAddr) -> Result<TextPages> {
        let pages = self.read_region(region)?;
        if pages != TextPages::Absent {
            return Ok(pages);
        }
        match self.calls.map_page_by_reading(&self.process, region.start(), false) {
            Err(error @ LinuxError::NotAnswering(_)) => return Err(error),
            Err(error) if error.is_process_gone() => return Err(error),
            // The text was unmapped.
            Err(_) => return Ok(TextPages::Absent),
            Ok(()) => {}
        }
        self.read_region(region)
    }

    /// Makes regions huge. Refusals that may end are tried again for 3 s. `wait` waits between
    /// calls, and returns whether to go on; the regions that are left then count as refused. After
    /// an error some regions may be huge.
    pub fn promote(
        &mut self,
        regions: &[RegionAddr],
        mut wait: impl FnMut(Duration) -> bool,
    ) -> Result<TextPromotionResult> {
        let mut result = TextPromotionResult::default();
        let mut waiting = regions.to_vec();
        let mut deadline = None;
        let mut goes_on = true;
        while goes_on {
            let mut again = Vec::new();
            for region in waiting {
                // One that is left counts as tried again in vain.
                let answer = if goes_on { self.collapse(region)? } else { Err(Errno::EAGAIN) };
                match answer {
                    Ok(()) => result.promoted.push(region),
                    Err(errno @ (Errno::EINVAL | Errno::EAGAIN)) => again.push((region, errno)),
                    Err(errno) => result.refused.push((region, errno)),
                }
                goes_on = goes_on && self.pause_after_call(&mut wait);
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + RETRY_TIME);
            goes_on =
                goes_on && !again.is_empty() && Instant::now() < deadline && wait(BETWEEN_TRIES);
            if !goes_on {
                result.refused.extend(again);
                break;
            }
            waiting = again.into_iter().map(|(region, _)| region).collect();
        }
        result.refused.sort_by_key(|(region, _)| *region);
        Ok(result)
    }

    /// One promotion. The inner error is the kernel's refusal.
    fn collapse(&mut self, region: RegionAddr) -> Result<Result<(), Errno>> {
        match self.calls.collapse(&self.process, region, || None) {
            Ok(_) => Ok(Ok(())),
            Err(error) if error.is_process_gone() => {
                Err(LinuxError::NoSuchProcess(self.process.id.pid))
            }
            Err(error) => error.errno().map(Err).ok_or(error),
        }
    }

    /// Waits after calls that took long, for longer and longer, and for less after short ones.
    fn pause_after_call(&mut self, wait: &mut impl FnMut(Duration) -> bool) -> bool {
        // Each call is a batch, so the decision to end it says nothing.
        let _ = self.pauses.record_call_duration(self.calls.statistics.last);
        self.pauses.end_batch(self.began.elapsed());
        wait(self.pauses.pause_after_batch())
    }

    /// Gives regions base pages again. Returns those that stay huge: other mappings hold the page,
    /// or threads on several CPUs run the text all the time.
    pub fn split(&mut self, regions: &[RegionAddr]) -> Result<Vec<RegionAddr>> {
        let mut huge = regions.to_vec();
        let deadline = Instant::now() + SPLIT_TIME;
        for tries in 0.. {
            let cpu = self.cpu_of_running_thread(tries);
            let mut left = Vec::new();
            for region in huge {
                if self.read_mapped_region(region)? != TextPages::Huge {
                    continue;
                }
                match self.calls.split_huge_page(&self.process, region, cpu) {
                    Err(error @ LinuxError::NotAnswering(_)) => return Err(error),
                    Err(error) if error.is_process_gone() => {
                        return Err(LinuxError::NoSuchProcess(self.process.id.pid));
                    }
                    // The kernel also answers without an error where it does not split.
                    Err(_) | Ok(_) => {}
                }
                if self.read_mapped_region(region)? == TextPages::Huge {
                    left.push(region);
                }
            }
            huge = left;
            if huge.is_empty() || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(BETWEEN_SPLITS);
        }
        Ok(huge)
    }

    /// The CPU of one of the threads that run now, in turn by `tries`. A split on it is not
    /// disturbed by that thread, which waits meanwhile.
    fn cpu_of_running_thread(&self, tries: usize) -> Option<u32> {
        let pid = i32::try_from(self.process.id.pid).ok()?;
        let tasks = Process::new(pid).ok()?.tasks().ok()?;
        let stats = tasks.flatten().take(MOST_THREADS).filter_map(|task| task.stat().ok());
        let running = stats.filter(|stat| stat.state == 'R').filter_map(|stat| stat.processor);
        let mut cpus: Vec<u32> = running.filter_map(|cpu| u32::try_from(cpu).ok()).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus.get(tries.checked_rem(cpus.len())?).copied()
    }
}
