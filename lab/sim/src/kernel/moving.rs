//! Pages move to other frames: whoever has them is told.

use super::space::{by_region, first_page};
use super::{Kernel, SpaceId};
use crate::bits::PageBits;
use crate::memory::{FrameRun, Owner, Run, block_of};
use hawkeye_policy::{PAGES_PER_REGION, PageOrder};

/// Pages that are to move together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) count: u16,
    /// They are a folio of this order.
    pub(super) order: Option<PageOrder>,
}

impl Kernel {
    /// The first of a run of frames of a pageblock (with its packed owner) that should stay together: a folio, or all
    /// before the next one.
    pub(super) fn next_piece(&self, block: u32, run: Run) -> Piece {
        let all = Piece {
            count: run.count,
            order: None,
        };
        let Owner::Anonymous { family, page } = Owner::unpack(run.value) else {
            return all;
        };
        let members = self.spaces.members(family).iter();
        let frame = FrameRun::of_block(block).first + u32::from(run.first);
        let folios = members.filter_map(|member| self.next_folio(*member, page, frame, run.count));
        match folios.min() {
            None => all,
            Some((0, order)) => Piece {
                count: run.count.min(order.pages() as u16),
                order: (u64::from(run.count) >= order.pages()).then_some(order),
            },
            Some((before, _)) => Piece {
                count: before,
                order: None,
            },
        }
    }

    /// The next folio that a space has in these frames, from their first page on: after how many pages, and its order.
    fn next_folio(
        &self,
        space: SpaceId,
        page: u64,
        frame: u32,
        count: u16,
    ) -> Option<(u16, PageOrder)> {
        let table = &self.spaces.get(space)?.table;
        by_region(page..page + u64::from(count)).find_map(|(region, first, count)| {
            let found = table.get(region).filter(|r| !r.folios.is_empty())?;
            let passed = first_page(region) + u64::from(first) - page;
            let had = |place: u16| frame + passed as u32 + u32::from(place - first);
            let here = found.folios.all().and(PageBits::range(first, count));
            let mut there = (first..first + count).filter(|place| here.contains(*place));
            let place = there.find(|place| found.frame(*place) == Some(had(*place)))?;
            let order = found.folios.order_at(place)?;
            Some((passed as u16 + place - first, order))
        })
    }

    /// What was in some frames is in others, from `to` on.
    pub(super) fn moved(&mut self, owner: Owner, from: FrameRun, to: u32) {
        match owner {
            Owner::Anonymous { family, page } => self.remap(family, page, from, to),
            Owner::Cache { page } => {
                for (page, to) in (page..).zip(to..).take(from.count as usize) {
                    self.reclaim_state.cache.moved(page, to);
                }
            }
            Owner::Kernel { .. } | Owner::Reserved { .. } => {}
        }
    }

    /// All members of a family that have these frames at pages from `page` on have others now, from `to` on.
    fn remap(&mut self, family: u32, page: u64, from: FrameRun, to: u32) {
        for member in self.spaces.members(family).to_vec() {
            for (region, first, count) in by_region(page..page + u64::from(from.count)) {
                // From a page in this region to the frame it had.
                let passed = first_page(region) + u64::from(first) - page;
                let piece = FrameRun {
                    first: from.first + passed as u32,
                    count: count.into(),
                };
                self.remap_in_region(member, region, first, piece, to + passed as u32);
            }
        }
    }

    fn remap_in_region(
        &mut self,
        member: SpaceId,
        region: u64,
        first: u16,
        from: FrameRun,
        to: u32,
    ) {
        let found = self.spaces.get(member).and_then(|s| s.table.get(region));
        // A relative that has split its huge page may have moved on; this one hasn't.
        let huge = found.is_some_and(|f| f.huge.is_some() && f.frame(first) == Some(from.first));
        if huge {
            self.end_joined(member, region);
        }
        let Some(space) = self.spaces.get_mut(member) else {
            return;
        };
        let Some(found) = space.table.get_mut(region) else {
            return;
        };
        if huge && from.count == u32::from(PAGES_PER_REGION) && to % from.count == 0 {
            found.huge = Some(block_of(to));
            return;
        }
        if huge {
            found.split();
            space.huge -= 1;
            self.reports.remapped.note(member, region);
        }
        let had = |place: u16| u64::from(from.first) + u64::from(place - first);
        let runs = found.frames.within(first, from.count as u16);
        let same: Vec<_> = runs.filter(|run| run.value == had(run.first)).collect();
        for run in &same {
            found.frames.remove(run.first, run.count);
            found.frames.insert(Run {
                value: run.value - u64::from(from.first) + u64::from(to),
                ..*run
            });
        }
        found.end_scattered_folios();
        if !same.is_empty() {
            self.reports.remapped.note_moved(member, region);
        }
    }
}
