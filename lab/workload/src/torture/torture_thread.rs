//! One thread of torture: its mappings, and one random operation after the other.

use super::TortureArgs;
use super::mapping_with_shadow_copy::MappingWithShadowCopy;
use super::operation::TortureOperation;
use super::shadow_pages::PageMismatch;
use super::snapshot_check_runner::SnapshotCheckRunner;
use crate::prelude::*;
use std::ops::Range;

/// The operation at which every thread forks for the first time, even in a short run.
const FIRST_FORK: u64 = 40;

/// A thread's mappings, its shadow of them, and its random numbers.
pub(super) struct TortureThread {
    thread: usize,
    pub(super) most_pages: usize,
    /// The kind of pages that it requests; `None` for either kind, at random.
    pub(super) kind: Option<RequestedPageKind>,
    pub(super) rng: WorkloadRng,
    pub(super) pieces: Vec<MappingWithShadowCopy>,
    pub(super) mapped: usize,
    pub(super) next_tag: u64,
    /// Generation of the last written page.
    pub(super) generation: u32,
    pub(super) during: TortureOperation,
    pub(super) snapshots: SnapshotCheckRunner,
    pub totals: OperationTotals,
}

impl TortureThread {
    /// Maps three quarters of what the thread may use.
    pub(super) fn new(
        thread: usize,
        most_pages: usize,
        args: &TortureArgs,
    ) -> WorkloadResult<Self> {
        let mut this = Self {
            thread,
            most_pages,
            kind: args.pages,
            rng: WorkloadRng::new(args.seed, thread as u64),
            pieces: Vec::new(),
            mapped: 0,
            next_tag: (thread as u64) << 32,
            generation: 0,
            during: TortureOperation::Map,
            snapshots: SnapshotCheckRunner::new()?,
            totals: OperationTotals::default(),
        };
        while this.mapped < this.most_pages * 3 / 4 {
            this.map_new_memory()?;
        }
        Ok(this)
    }

    pub(super) fn run_random_operation(&mut self) -> WorkloadResult<()> {
        self.totals.operations += 1;
        self.during = if self.totals.operations == FIRST_FORK {
            TortureOperation::Fork
        } else if self.pieces.is_empty() {
            TortureOperation::Map
        } else {
            TortureOperation::draw_by_weight(&mut self.rng)
        };
        let result = match self.during {
            TortureOperation::Map => self.map_new_memory(),
            _ if self.pieces.is_empty() => Ok(()),
            TortureOperation::Write | TortureOperation::Sparse | TortureOperation::Zero => {
                self.write_random_range()
            }
            TortureOperation::Verify => self.verify_random_range(),
            TortureOperation::Discard => self.discard_random_range(),
            TortureOperation::Protect | TortureOperation::Forbid => self.protect_random_range(),
            TortureOperation::Move => self.relocate_random_mapping(),
            TortureOperation::Resize => self.resize_random_mapping(),
            TortureOperation::Cut => self.unmap_random_range(),
            TortureOperation::Unmap => self.unmap_random_mapping(),
            TortureOperation::Fork => self.fork_snapshot_checker(),
        };
        match result {
            Err(WorkloadError::Memory(error)) if is_resource_shortage(&error) => {
                self.totals.refused += 1;
                Ok(())
            }
            other => other,
        }
    }

    pub(super) fn verify_all_mappings(&mut self) -> WorkloadResult<()> {
        self.during = TortureOperation::Verify;
        (0..self.pieces.len()).try_for_each(|at| self.check_range(at, 0..self.pieces[at].pages()))
    }

    /// Makes one byte wrong, so that a test can check its detection.
    pub(super) fn corrupt_one_byte(&mut self) {
        if let Some(piece) = self.pieces.last_mut() {
            piece.flip_bit_of_word(piece.pages() / 2, 200);
        }
    }

    /// Mostly by size, so that all memory has its turn, and sometimes uniform.
    fn pick_mapping_index(&mut self) -> usize {
        if self.rng.draw_one_in(4) {
            return self.rng.draw_below(self.pieces.len());
        }
        let mut left = self.rng.draw_below(self.mapped);
        let holds = |piece: &MappingWithShadowCopy| match left.checked_sub(piece.pages()) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        };
        self.pieces.iter().position(holds).unwrap_or(0)
    }

    /// Both short and long ranges. One in four is of whole regions.
    pub(super) fn pick_mapping_and_range(&mut self) -> (usize, Range<usize>) {
        let at = self.pick_mapping_index();
        let piece = &self.pieces[at];
        let (pages, to_region) = (piece.pages(), piece.pages_before_first_region());
        if pages >= to_region + REGION_PAGES && self.rng.draw_one_in(4) {
            let region = self.rng.draw_below((pages - to_region) / REGION_PAGES);
            let first = to_region + region * REGION_PAGES;
            return (at, first..first + REGION_PAGES);
        }
        let most = 1 << self.rng.draw_below(11);
        let first = self.rng.draw_below(pages);
        (at, first..pages.min(first + 1 + self.rng.draw_below(most)))
    }

    pub(super) fn check_range(&mut self, at: usize, range: Range<usize>) -> WorkloadResult<()> {
        self.totals.verified_bytes += (range.len() * PAGE) as u64;
        let seen = self.pieces[at].check_pages(range);
        seen.map_err(|mismatch| self.wrong_word_error(at, mismatch, false))
    }

    pub(super) fn wrong_word_error(
        &self,
        at: usize,
        mismatch: PageMismatch,
        in_child: bool,
    ) -> WorkloadError {
        let during = format!("{:?}", self.during).to_lowercase();
        let mut wrong = self.pieces[at].wrong_word_of_mismatch(mismatch, &during);
        if in_child {
            wrong.found_again = wrong.found;
        }
        WorkloadError::Wrong(WrongWord { thread: self.thread, in_child, ..wrong })
    }
}

/// Whether the kernel lacked a resource and has changed nothing. Kernels before 6.17 return
/// `EFAULT` to a move of a mapping that they keep in several parts.
fn is_resource_shortage(error: &MemoryCallError) -> bool {
    match error.source.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => true,
        Some(libc::EFAULT) => error.call == "mremap",
        _ => false,
    }
}
