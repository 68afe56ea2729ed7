//! The operations of a torture thread.

use super::mapping_with_shadow_copy::MappingWithShadowCopy;
use super::operation::TortureOperation;
use super::shadow_pages::ExpectedPage;
use super::snapshot_check_runner::SnapshotCheckRunner;
use super::torture_thread::TortureThread;
use crate::prelude::*;

/// Largest number of mappings of one thread; beyond it the smallest one is unmapped.
const MOST_PIECES: usize = 48;
/// Writes that the parent makes while a child checks its snapshot.
const WRITES_DURING_FORK: usize = 24;

impl TortureThread {
    /// Gives a range new contents of the kind of the current operation.
    pub(super) fn write_random_range(&mut self) -> WorkloadResult<()> {
        let (at, range) = self.pick_mapping_and_range();
        if self.rng.draw_one_in(2) {
            self.check_range(at, range.clone())?;
        }
        for page in range {
            // A sparse write skips most pages of its range, so that zero pages lie among used ones.
            if self.during == TortureOperation::Sparse && !self.rng.draw_one_in(8) {
                continue;
            }
            self.write_page(at, page);
        }
        Ok(())
    }

    fn write_page(&mut self, at: usize, page: usize) {
        self.generation += 1;
        let generation = self.generation;
        let contents = match self.during {
            TortureOperation::Zero => ExpectedPage::Zero,
            TortureOperation::Sparse => {
                let byte =
                    if self.rng.draw_one_in(4) { PAGE - 1 } else { self.rng.draw_below(PAGE) };
                ExpectedPage::Sparse(generation, byte as u16)
            }
            _ => ExpectedPage::Full(generation),
        };
        self.pieces[at].write_page(page, contents);
        self.totals.written_bytes += PAGE as u64;
    }

    pub(super) fn verify_random_range(&mut self) -> WorkloadResult<()> {
        let (at, range) = self.pick_mapping_and_range();
        self.check_range(at, range)
    }

    pub(super) fn discard_random_range(&mut self) -> WorkloadResult<()> {
        let (at, range) = self.pick_mapping_and_range();
        if self.rng.draw_one_in(2) {
            self.check_range(at, range.clone())?;
        }
        self.pieces[at].discard(range.clone())?;
        self.totals.discards += 1;
        if self.rng.draw_one_in(2) { self.check_range(at, range) } else { Ok(()) }
    }

    /// Forbids writes, or all accesses, for a moment.
    pub(super) fn protect_random_range(&mut self) -> WorkloadResult<()> {
        let (at, range) = self.pick_mapping_and_range();
        let forbidden = self.during == TortureOperation::Forbid;
        let protection = if forbidden { MemoryProtection::Nothing } else { MemoryProtection::Read };
        self.pieces[at].protect(range.clone(), protection)?;
        let seen = if forbidden { Ok(()) } else { self.check_range(at, range.clone()) };
        // Nothing of this mapping can be written before this call has succeeded.
        let restored = self.pieces[at].protect(range.clone(), MemoryProtection::ReadWrite);
        restored.map_err(|error| WorkloadError::wrap_system_error(error.call)(error.source))?;
        self.totals.protections += 1;
        seen?;
        self.check_range(at, range)
    }

    pub(super) fn relocate_random_mapping(&mut self) -> WorkloadResult<()> {
        let (at, range) = self.pick_mapping_and_range();
        let shift = if self.rng.draw_one_in(2) { 0 } else { self.rng.draw_below(REGION_PAGES) };
        self.pieces[at].relocate(shift)?;
        self.totals.remaps += 1;
        self.check_range(at, range)
    }

    pub(super) fn resize_random_mapping(&mut self) -> WorkloadResult<()> {
        let (at, range) = self.pick_mapping_and_range();
        let before = self.pieces[at].pages();
        let free = self.most_pages.saturating_sub(self.mapped);
        let after = if free > 0 && !self.rng.draw_one_in(4) {
            before + 1 + self.rng.draw_below(free.min(4 * REGION_PAGES))
        } else {
            before - self.rng.draw_below(before)
        };
        self.pieces[at].resize(after)?;
        self.mapped = self.mapped - before + after;
        self.totals.remaps += 1;
        self.check_range(at, range.start.min(after)..range.end.min(after))?;
        self.check_range(at, before.min(after)..after.min(before + REGION_PAGES))
    }

    pub(super) fn unmap_random_range(&mut self) -> WorkloadResult<()> {
        let (at, range) = self.pick_mapping_and_range();
        self.check_range(at, range.clone())?;
        self.mapped -= range.len();
        let piece = self.pieces.swap_remove(at);
        self.pieces.extend(piece.unmap_and_split(range));
        self.totals.unmaps += 1;
        if self.pieces.len() > MOST_PIECES { self.unmap_smallest_mapping() } else { Ok(()) }
    }

    pub(super) fn unmap_random_mapping(&mut self) -> WorkloadResult<()> {
        let at = self.rng.draw_below(self.pieces.len());
        self.unmap_mapping_at(at)
    }

    fn unmap_smallest_mapping(&mut self) -> WorkloadResult<()> {
        let pages = |at: &usize| self.pieces[*at].pages();
        let smallest = (0..self.pieces.len()).min_by_key(pages);
        smallest.map_or(Ok(()), |at| self.unmap_mapping_at(at))
    }

    fn unmap_mapping_at(&mut self, at: usize) -> WorkloadResult<()> {
        self.check_range(at, 0..self.pieces[at].pages())?;
        self.mapped -= self.pieces.swap_remove(at).pages();
        self.totals.unmaps += 1;
        Ok(())
    }

    pub(super) fn map_new_memory(&mut self) -> WorkloadResult<()> {
        let free = self.most_pages.saturating_sub(self.mapped) / REGION_PAGES;
        if free == 0 {
            return Ok(());
        }
        let regions = 1 + self.rng.draw_below(free.min(8));
        let huge = self.rng.draw_one_in(2);
        let kind = self.kind.unwrap_or(if huge {
            RequestedPageKind::Huge
        } else {
            RequestedPageKind::Default
        });
        let touch = |memory: &mut WorkloadMemory| {
            // Other operations touch single pages, in any order.
            if kind == RequestedPageKind::Base {
                (0..memory.count_pages()).for_each(|page| memory.write_word(page * PAGE, 0));
            }
        };
        let memory = WorkloadMemory::map_private_and_touch(regions * REGION, kind, touch)?;
        self.mapped += memory.count_pages();
        self.pieces.push(MappingWithShadowCopy::new(memory, self.next_tag));
        self.next_tag += 1;
        self.totals.maps += 1;
        Ok(())
    }

    /// Forks a child that checks a snapshot of a mapping while this thread goes on writing.
    pub(super) fn fork_snapshot_checker(&mut self) -> WorkloadResult<()> {
        let (at, _) = self.pick_mapping_and_range();
        let most = 8 * REGION_PAGES;
        let first = self.rng.draw_below(self.pieces[at].pages());
        let range = first..self.pieces[at].pages().min(first + most);
        let turn = SnapshotCheckRunner::lock_child_turn();
        let Some(child) = self.snapshots.fork_child(&mut self.pieces[at], range.clone())? else {
            self.totals.refused += 1;
            return Ok(());
        };
        self.totals.forks += 1;
        self.during = TortureOperation::Write;
        for _ in 0..WRITES_DURING_FORK {
            self.write_random_range()?;
        }
        for page in range.clone().step_by(3) {
            self.write_page(at, page);
        }
        self.during = TortureOperation::Fork;
        let seen = self.snapshots.wait_for_result(child)?;
        drop(turn);
        self.totals.verified_bytes += (range.len() * PAGE) as u64;
        if let Err(mismatch) = seen {
            return Err(self.wrong_word_error(at, mismatch, true));
        }
        self.check_range(at, range)
    }
}
