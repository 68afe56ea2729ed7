//! Invariants of files and of their mappings.

use super::{FileRegionId, SharedFiles};
use crate::kernel::region_mapping::{RegionMapping, frame_run_of_huge_page};
use crate::memory::{AscendingRun, FrameRun, PhysicalMemory};
use crate::page_bits::PageBits;

impl SharedFiles {
    /// A rule on what files hold that is broken: each page is in one frame, and the file owns it.
    pub(in crate::kernel) fn broken_contents_rule(
        &self,
        memory: &PhysicalMemory,
    ) -> Option<&'static str> {
        let all = self.files.iter().flat_map(|(file, found)| {
            let held = found.contents.iter();
            held.map(|(index, held)| (FileRegionId { file: *file, index: *index }, held))
        });
        all.filter_map(|(file, held)| broken_held_rule(file, held, memory)).next()
    }
}

fn broken_held_rule(
    file: FileRegionId,
    held: &RegionMapping,
    memory: &PhysicalMemory,
) -> Option<&'static str> {
    let runs = || held.frames.iter().chain(held.huge.map(frame_run_of_huge_page));
    let count: u16 = runs().map(|run| run.count).sum();
    let owned = |run: AscendingRun| {
        let frames = FrameRun::new(run.value as u32, run.count.into());
        memory.owns_run(frames, file.owner_of_page(run.first))
    };
    let in_pages = |run: AscendingRun| PageBits::range(run.first, run.count);
    let rules = [
        ("a page of a file is in one frame", count == held.present.count()),
        ("a file owns the frames of its pages", runs().all(owned)),
        (
            "only pages that a file has are in frames",
            runs().all(|run| in_pages(run).is_subset_of(held.present)),
        ),
        ("only pages that a file has hold anything", held.nonzero.is_subset_of(held.present)),
        ("pages of a file are neither in swap nor shared zero pages", {
            held.swapped.or(held.zero_mapped).is_empty()
        }),
    ];
    rules.into_iter().find(|(_, holds)| !holds).map(|(rule, _)| rule)
}

/// A rule on the mapping of a file region that is broken. `held` is what the file has.
pub(in crate::kernel) fn broken_mapping_rule(
    found: &RegionMapping,
    held: Option<&RegionMapping>,
) -> Option<&'static str> {
    let Some(held) = held else {
        return Some("what is mapped of a file is in the file");
    };
    let same = |run: AscendingRun| {
        let there: Vec<_> = held.frames.runs_within(run.first, run.count).collect();
        there == [run]
    };
    let rules = [
        ("mapped pages of a file are in the file", found.present.is_subset_of(held.present)),
        ("a huge page of a file is mapped as such", found.huge == held.huge),
        ("a mapping has the frames of its file", found.frames.iter().all(same)),
        ("what pages of a file hold is known by the file", found.nonzero.is_empty()),
        ("pages of a file have no folios", found.folios.is_empty() && held.folios.is_empty()),
    ];
    rules.into_iter().find(|(_, holds)| !holds).map(|(rule, _)| rule)
}
