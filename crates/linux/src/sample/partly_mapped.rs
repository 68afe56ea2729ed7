//! Huge pages of which a process gave parts back.
//!
//! Where a program frees a part of a huge page (`MADV_DONTNEED`, `munmap`), base pages map the
//! rest. The freed part stays allocated, and charged to the cgroup, until the kernel splits the
//! page. It does so in reclaim alone (mm/huge_memory.c, `deferred_split_scan`). Allocators free
//! parts all the time, so this is often most of a program's bloat.
//!
//! ```text
//!  counts, listings, samples --> record_huge_pages --> suspects: were huge, are not any more
//!                                                         |
//!                     find_partly_mapped_huge_page: pagemap, kpageflags
//!                                                         v
//!                                        `RegionSample::freed`, and what a split frees
//! ```

use crate::error::{LinuxError, Result};
use crate::ring_buffer::decode_u64s;
use crate::sample::pagemap::{self, FRAME, HugeAlignedRunKind, PRESENT};
use hawkeye_policy::{MAY_BE_REFILLED, PAGES_PER_REGION, RegionAddr, RegionSample};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A page of a file, or of shared memory, in `/proc/PID/pagemap`.
const FILE_OR_SHARED: u64 = 1 << 61;
/// A walk over a process's memory that takes longer may find what was split meanwhile.
const LONGEST_WALK: Duration = Duration::from_secs(10);
/// Pause after a search, in multiples of its duration.
const SEARCH_PAUSE: u32 = 10;
/// Most suspects of a process, and most splits of it that are remembered: 128 GiB of huge pages.
const MOST_SUSPECTS: usize = 1 << 16;

/// The huge pages of one process that were seen last, and regions that have lost theirs since.
#[derive(Debug, Default)]
pub(crate) struct LostHugePages {
    /// Ascending.
    huge: Vec<RegionAddr>,
    /// Regions that have lost theirs.
    suspects: BTreeMap<RegionAddr, Suspect>,
    /// Regions in which the manager split a huge page, and when, as long as that tells something.
    split: BTreeMap<RegionAddr, Instant>,
    /// When those that tell nothing any more were last forgotten.
    split_forgotten_at: Option<Instant>,
    /// When the next search may begin.
    search_again_at: Option<Instant>,
}

/// A region that lost its huge page.
#[derive(Debug, Default)]
struct Suspect {
    /// When a search last came to it.
    searched_at: Option<Instant>,
    /// The part of a huge page that the last search that did not fail found there.
    found: Option<RegionSample>,
}

impl LostHugePages {
    /// Takes in all huge pages of the process, ascending. A walk takes several slices, and the
    /// manager may have split between them what it found.
    pub(crate) fn record_huge_pages(&mut self, mut huge: Vec<RegionAddr>) {
        let now = Instant::now();
        let age = |at: Instant| now.saturating_duration_since(at);
        // Not at each listing: while memory fills, there are many a second.
        if self.split_forgotten_at.is_none_or(|at| age(at) >= Duration::from_secs(1)) {
            self.split_forgotten_at = Some(now);
            self.split.retain(|_, at| age(*at) < MAY_BE_REFILLED);
        }
        huge.retain(|region| self.split.get(region).is_none_or(|at| age(*at) >= LONGEST_WALK));
        let is_huge = |region: &RegionAddr| huge.binary_search(region).is_ok();
        self.suspects.retain(|region, _| !is_huge(region));
        let room = MOST_SUSPECTS.saturating_sub(self.suspects.len());
        for region in self.huge.iter().filter(|region| !is_huge(region)).take(room) {
            self.suspects.entry(*region).or_default();
        }
        self.huge = huge;
    }

    /// Whether the process has no huge page, and no region that had one.
    pub(crate) fn is_empty(&self) -> bool {
        self.huge.is_empty() && self.suspects.is_empty() && self.split.is_empty()
    }

    /// Regions that lost their huge page and that no search has come to.
    pub(crate) fn not_searched(&self) -> impl Iterator<Item = RegionAddr> {
        let waiting = self.suspects.iter().filter(|(_, suspect)| suspect.searched_at.is_none());
        waiting.map(|(region, _)| *region)
    }

    /// Whether the last look at all huge pages showed one in this region.
    pub(crate) fn is_known_huge(&self, region: RegionAddr) -> bool {
        self.huge.binary_search(&region).is_ok()
    }

    /// Whether a search may begin now: it takes at most a tenth of the time. While memory fills,
    /// huge pages are listed many times a second.
    pub(crate) fn may_search(&self, now: Instant) -> bool {
        !self.suspects.is_empty() && self.search_again_at.is_none_or(|at| now >= at)
    }

    /// A search that began at this time has ended.
    pub(crate) fn end_search(&mut self, begun: Instant) {
        self.search_again_at = Some(Instant::now() + begun.elapsed() * SEARCH_PAUSE);
    }

    /// A search came to this region, and found this part of a huge page or nothing.
    pub(crate) fn record_search(&mut self, region: RegionAddr, found: Option<RegionSample>) {
        if let Some(suspect) = self.suspects.get_mut(&region) {
            *suspect = Suspect { searched_at: Some(Instant::now()), found };
        }
    }

    /// A search of this region failed, which says nothing about what an earlier one found.
    pub(crate) fn record_failed_search(&mut self, region: RegionAddr) {
        if let Some(suspect) = self.suspects.get_mut(&region) {
            suspect.searched_at = Some(Instant::now());
        }
    }

    /// Huge pages that are mapped in part, by address.
    pub(crate) fn found(&self) -> impl Iterator<Item = &RegionSample> {
        self.suspects.values().filter_map(|suspect| suspect.found.as_ref())
    }

    /// The suspects in the order in which to search them: those that no search has come to, then
    /// those searched longest ago, because programs give back more.
    pub(crate) fn suspects_to_search(&self) -> Vec<RegionAddr> {
        let suspects = self.suspects.iter();
        let mut suspects: Vec<_> = suspects.map(|(region, it)| (it.searched_at, *region)).collect();
        suspects.sort_unstable();
        suspects.into_iter().map(|(_, region)| region).collect()
    }

    /// Nothing is searched: no suspect waits.
    pub(crate) fn skip_search(&mut self) {
        let now = Instant::now();
        self.suspects.values_mut().for_each(|suspect| suspect.searched_at = Some(now));
    }

    /// Whether a region was huge and is not any more.
    pub(crate) fn is_suspect(&self, region: RegionAddr) -> bool {
        self.suspects.contains_key(&region)
    }

    /// The manager has split the huge page of a region, so nothing of it is left.
    pub(crate) fn record_split(&mut self, region: RegionAddr) {
        if self.split.len() < MOST_SUSPECTS || self.split.contains_key(&region) {
            self.split.insert(region, Instant::now());
        }
        if let Ok(at) = self.huge.binary_search(&region) {
            self.huge.remove(at);
        }
        self.clear_suspicion(region);
    }

    /// Whether recovery needs to know of a region, where the process is not promoted: by what it
    /// is, or because it was split so lately that it matters whether the process has filled it
    /// again.
    pub(crate) fn is_needed_for_recovery(&self, found: &RegionSample) -> bool {
        found.is_huge_or_gave_back() || self.split.contains_key(&found.region)
    }

    /// No huge page is left in part there.
    pub(crate) fn clear_suspicion(&mut self, region: RegionAddr) {
        self.suspects.remove(&region);
    }
}

/// A huge page that base pages map in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartlyMappedHugePage {
    /// The first of its base pages that is still mapped (0-511).
    pub(crate) mapped_page: u16,
    /// Its base pages that are not mapped any more (1-511).
    pub(crate) freed: u16,
    /// Whether another process maps some of them too, as after a fork. The kernel does not split it
    /// then.
    pub(crate) is_shared: bool,
}

/// The huge page that base pages map in part, by a region's entries of `/proc/PID/pagemap`; `None`:
/// there is none.
pub(crate) fn find_partly_mapped_huge_page(entries: &[u8]) -> Result<Option<PartlyMappedHugePage>> {
    for (first_frame, part) in find_parts_of_aligned_runs(entries) {
        let kind = pagemap::read_huge_aligned_run_kind(first_frame);
        let kind = kind.map_err(LinuxError::wrap_io_error("reading", "/proc/kpageflags"))?;
        if kind == HugeAlignedRunKind::HugePage {
            return Ok(Some(part));
        }
    }
    Ok(None)
}

/// The aligned runs of 512 frames of which anonymous pages of the region map some and not all, each
/// at its place. Each with its first frame, in the order of their first pages. One base page in 512
/// is at its place by chance, so most such runs are no huge page.
fn find_parts_of_aligned_runs(entries: &[u8]) -> Vec<(u64, PartlyMappedHugePage)> {
    let anonymous = |entry: u64| entry & PRESENT != 0 && entry & FILE_OR_SHARED == 0;
    let aligned = |first: &u64| *first != 0 && *first % u64::from(PAGES_PER_REGION) == 0;
    let mut parts: Vec<(u64, PartlyMappedHugePage)> = Vec::new();
    let pages = (0..PAGES_PER_REGION).zip(decode_u64s(entries));
    for (mapped_page, entry) in pages.filter(|(_, entry)| anonymous(*entry)) {
        let run = (entry & FRAME).checked_sub(u64::from(mapped_page));
        let Some(first_frame) = run.filter(aligned) else { continue };
        let is_shared = pagemap::is_mapped_by_others(entry);
        match parts.iter_mut().find(|(first, _)| *first == first_frame) {
            Some((_, part)) => {
                part.freed -= 1;
                part.is_shared |= is_shared;
            }
            None => {
                let freed = PAGES_PER_REGION - 1;
                parts.push((first_frame, PartlyMappedHugePage { mapped_page, freed, is_shared }));
            }
        }
    }
    parts.retain(|(_, part)| part.freed > 0);
    parts
}

/// The sample of a region in which a huge page is mapped in part.
pub(crate) fn sample_of_partly_mapped(
    region: RegionAddr,
    entries: &[u8],
    part: PartlyMappedHugePage,
) -> Option<RegionSample> {
    let found = pagemap::region_sample_from_entries(region, entries)?;
    Some(RegionSample { freed: part.freed, ..found })
}

/// Base pages that a region's entries map to memory of its own.
pub(crate) fn count_present(region: RegionAddr, entries: &[u8]) -> u16 {
    pagemap::region_sample_from_entries(region, entries).map_or(0, |found| found.present)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::pagemap::EXCLUSIVE;
    use hawkeye_policy::{HUGE_PAGE_BYTES, PageOrder};

    fn region(index: u64) -> RegionAddr {
        RegionAddr::containing(index * HUGE_PAGE_BYTES)
    }

    fn regions(indices: &[u64]) -> Vec<RegionAddr> {
        indices.iter().map(|index| region(*index)).collect()
    }

    fn search_all(lost: &mut LostHugePages) -> Vec<RegionAddr> {
        let searched = lost.suspects_to_search();
        searched.iter().for_each(|region| lost.record_search(*region, None));
        searched
    }

    #[test]
    fn what_was_huge_and_is_not_any_more_is_suspect() {
        let mut lost = LostHugePages::default();
        lost.record_huge_pages(regions(&[1, 2, 3]));
        assert_eq!(lost.suspects_to_search(), []);
        lost.record_huge_pages(regions(&[2, 4]));
        assert_eq!(lost.not_searched().count(), 2);
        assert_eq!(search_all(&mut lost), regions(&[1, 3]));
        assert_eq!(lost.not_searched().count(), 0);
        lost.record_huge_pages(regions(&[1]));
        assert_eq!(search_all(&mut lost), regions(&[2, 4, 3]), "1 is huge again");
        lost.clear_suspicion(region(3));
        assert_eq!(search_all(&mut lost), regions(&[2, 4]), "they are searched again");
    }

    /// Recovery splits thousands of huge pages a second while memory is about to be full.
    #[test]
    fn what_the_manager_split_is_not_suspect() {
        let mut lost = LostHugePages::default();
        lost.record_huge_pages(regions(&[1, 2, 3]));
        lost.record_split(region(2));
        // A walk found it before.
        lost.record_huge_pages(regions(&[1, 2, 3]));
        lost.record_huge_pages(regions(&[3]));
        assert_eq!(lost.suspects_to_search(), regions(&[1]));
    }

    #[test]
    fn a_split_region_that_is_full_again_is_shown_to_recovery() {
        let full = |index| {
            let sample = RegionSample::new_full_and_untouched(region(index));
            RegionSample { order: PageOrder::BASE, ..sample }
        };
        let mut lost = LostHugePages::default();
        lost.record_huge_pages(regions(&[1, 2]));
        lost.record_split(region(1));
        // Listings follow, which forget what is over.
        lost.record_huge_pages(regions(&[2]));
        assert!(lost.is_needed_for_recovery(&full(1)));
        assert!(!lost.is_needed_for_recovery(&full(3)), "it was never huge");
        assert!(lost.is_needed_for_recovery(&RegionSample { zero_mapped: 9, ..full(3) }));
        let huge = RegionSample { order: PageOrder::HUGE, ..full(3) };
        assert!(lost.is_needed_for_recovery(&huge));
    }

    #[test]
    fn a_search_goes_on_where_the_last_one_ended() {
        let mut lost = LostHugePages::default();
        lost.record_huge_pages(regions(&[1, 2, 3, 4]));
        lost.record_huge_pages(Vec::new());
        for next in 1..=4 {
            let left: Vec<u64> = (next..=4).collect();
            assert!(lost.suspects_to_search().starts_with(&regions(&left)));
            lost.record_search(region(next), None);
        }
        // However few regions each search reaches, it comes to all of them.
        assert_eq!(lost.not_searched().count(), 0, "the process is listed again");
        assert_eq!(lost.suspects_to_search(), regions(&[1, 2, 3, 4]));
    }

    #[test]
    fn new_suspects_do_not_keep_older_ones_from_another_search() {
        let mut lost = LostHugePages::default();
        let mut searches: BTreeMap<RegionAddr, u32> = BTreeMap::new();
        for first_huge in 1..=9 {
            let huge: Vec<u64> = (first_huge..=9).collect();
            lost.record_huge_pages(regions(&huge));
            // One more suspect at each listing, and time for two.
            for region in lost.suspects_to_search().into_iter().take(2) {
                lost.record_search(region, None);
                *searches.entry(region).or_default() += 1;
            }
        }
        for index in 1..=3 {
            assert!(searches[&region(index)] >= 2, "{index}: {searches:?}");
        }
    }

    #[test]
    fn a_failed_search_keeps_what_an_earlier_one_found() {
        let mut lost = LostHugePages::default();
        lost.record_huge_pages(regions(&[1]));
        lost.record_huge_pages(Vec::new());
        lost.record_failed_search(region(1));
        assert_eq!(lost.not_searched().count(), 0, "it was searched");
        let entries = entries_of_pages(0..100, EXCLUSIVE);
        let (_, part) = find_parts_of_aligned_runs(&entries)[0];
        let found = sample_of_partly_mapped(region(1), &entries, part);
        assert_eq!(found.map(|sample| sample.freed), Some(412));
        lost.record_search(region(1), found);
        lost.record_failed_search(region(1));
        assert_eq!(lost.found().next(), found.as_ref());
        lost.record_search(region(1), None);
        assert_eq!(lost.found().next(), None);
    }

    /// Entries of a region that maps these pages of the run from frame 1024 on.
    fn entries_of_pages(pages: impl Iterator<Item = u64>, flags: u64) -> Vec<u8> {
        let mut entries = [0u64; PAGES_PER_REGION as usize];
        for page in pages {
            entries[page as usize] = PRESENT | flags | (1024 + page);
        }
        entries.iter().flat_map(|entry| entry.to_ne_bytes()).collect()
    }

    #[test]
    fn pages_of_an_aligned_run_at_their_places_are_part_of_it() {
        let part = |entries: &[u8]| find_parts_of_aligned_runs(entries).first().copied();
        let found = |mapped_page, freed| {
            Some((1024, PartlyMappedHugePage { mapped_page, freed, is_shared: false }))
        };
        assert_eq!(part(&entries_of_pages(7..107, EXCLUSIVE)), found(7, 412));
        assert_eq!(part(&entries_of_pages(511..512, EXCLUSIVE)), found(511, 511));
        assert_eq!(part(&entries_of_pages(0..512, EXCLUSIVE)), None, "all of it is mapped");
        assert_eq!(part(&entries_of_pages(0..0, EXCLUSIVE)), None);
        let shared = part(&entries_of_pages(0..9, 0)).map(|(_, part)| part.is_shared);
        assert_eq!(shared, Some(true), "another process maps it");
        assert_eq!(part(&entries_of_pages(0..9, EXCLUSIVE | FILE_OR_SHARED)), None);
        // What was touched since then has frames elsewhere.
        let mut refilled = entries_of_pages(0..100, EXCLUSIVE);
        for page in 100..512usize {
            let entry = PRESENT | EXCLUSIVE | (9000 + 3 * page as u64);
            refilled[page * 8..][..8].copy_from_slice(&entry.to_ne_bytes());
        }
        assert_eq!(part(&refilled), found(0, 412));
        let shifted: Vec<u8> = [
            entries_of_pages(0..0, 0)[..8].to_vec(),
            entries_of_pages(0..511, EXCLUSIVE)[..511 * 8].to_vec(),
        ]
        .concat();
        assert_eq!(part(&shifted), None, "neighbours, but not at their places");
    }

    #[test]
    fn a_new_page_that_is_at_its_place_by_chance_hides_no_other_run() {
        let mut entries = entries_of_pages(100..200, EXCLUSIVE);
        let by_chance = PRESENT | EXCLUSIVE | (4096 + 3);
        entries[3 * 8..][..8].copy_from_slice(&by_chance.to_ne_bytes());
        let part =
            |mapped_page, freed| PartlyMappedHugePage { mapped_page, freed, is_shared: false };
        let expected = [(4096, part(3, 511)), (1024, part(100, 412))];
        assert_eq!(find_parts_of_aligned_runs(&entries), expected);
    }
}
