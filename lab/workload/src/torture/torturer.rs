//! One thread of torture: its mappings, and one random operation after the other.

use super::model::Mismatch;
use super::operation::Operation;
use super::piece::Piece;
use super::snapshot::Snapshots;
use crate::error::{MemoryError, WorkloadError};
use crate::memory::{PAGE, Pages, REGION_PAGES};
use crate::protocol::{TortureTotals, WrongWord};
use crate::rng::Rng;
use std::ops::Range;

/// What one thread may use, and what it begins with.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Number of the thread.
    pub thread: usize,
    /// Seed of all threads.
    pub seed: u64,
    /// Most pages that it maps.
    pub pages: usize,
    /// Pages it asks for; either kind, at random, if not said.
    pub kind: Option<Pages>,
}

/// The operation at which every thread forks for the first time, however short it runs.
const FIRST_FORK: u64 = 40;

/// A thread's mappings, its shadow of them, and its random numbers.
pub(super) struct Torturer {
    pub(super) plan: Plan,
    pub(super) rng: Rng,
    pub(super) pieces: Vec<Piece>,
    /// Pages in all of them.
    pub(super) mapped: usize,
    /// Identity of the next mapping.
    pub(super) next_tag: u64,
    /// Of the last page written.
    pub(super) generation: u32,
    /// What it is doing.
    pub(super) during: Operation,
    pub(super) snapshots: Snapshots,
    /// What it has done so far.
    pub totals: TortureTotals,
}

impl Torturer {
    /// Maps three quarters of what the thread may use.
    pub(super) fn new(plan: Plan) -> Result<Self, WorkloadError> {
        let mut this = Self {
            rng: Rng::new(plan.seed, plan.thread as u64),
            pieces: Vec::new(),
            mapped: 0,
            next_tag: (plan.thread as u64) << 32,
            generation: 0,
            during: Operation::Map,
            snapshots: Snapshots::new()?,
            totals: TortureTotals::default(),
            plan,
        };
        while this.mapped < this.plan.pages * 3 / 4 {
            this.map()?;
        }
        Ok(this)
    }

    /// Makes one operation.
    pub(super) fn step(&mut self) -> Result<(), WorkloadError> {
        self.totals.operations += 1;
        self.during = if self.totals.operations == FIRST_FORK {
            Operation::Fork
        } else if self.pieces.is_empty() {
            Operation::Map
        } else {
            Operation::draw(&mut self.rng)
        };
        let result = match self.during {
            Operation::Map => self.map(),
            _ if self.pieces.is_empty() => Ok(()),
            Operation::Write | Operation::Sparse | Operation::Zero => self.write(),
            Operation::Verify => self.verify(),
            Operation::Discard => self.discard(),
            Operation::Protect | Operation::Forbid => self.protect(),
            Operation::Move => self.relocate(),
            Operation::Resize => self.resize(),
            Operation::Cut => self.cut(),
            Operation::Unmap => self.unmap(),
            Operation::Fork => self.fork(),
        };
        match result {
            Err(WorkloadError::Memory(error)) if is_shortage(&error) => {
                self.totals.refused += 1;
                Ok(())
            }
            other => other,
        }
    }

    /// Checks everything.
    pub(super) fn finish(&mut self) -> Result<(), WorkloadError> {
        self.during = Operation::Verify;
        (0..self.pieces.len()).try_for_each(|at| self.check(at, 0..self.pieces[at].pages()))
    }

    /// Makes one byte wrong, so that a test can see that it is found.
    pub(super) fn corrupt(&mut self) {
        if let Some(piece) = self.pieces.last_mut() {
            piece.corrupt(piece.pages() / 2, 200);
        }
    }

    /// A random mapping: mostly by size, so that all memory has its turn, but sometimes any.
    fn pick_piece(&mut self) -> usize {
        if self.rng.one_in(4) {
            return self.rng.below(self.pieces.len());
        }
        let mut left = self.rng.below(self.mapped);
        let holds = |piece: &Piece| match left.checked_sub(piece.pages()) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        };
        self.pieces.iter().position(holds).unwrap_or(0)
    }

    /// A random mapping and a random range of it: short ones and long ones alike, and one in
    /// four whole regions.
    pub(super) fn pick(&mut self) -> (usize, Range<usize>) {
        let at = self.pick_piece();
        let piece = &self.pieces[at];
        let (pages, to_region) = (piece.pages(), piece.pages_to_region());
        if pages >= to_region + REGION_PAGES && self.rng.one_in(4) {
            let region = self.rng.below((pages - to_region) / REGION_PAGES);
            let first = to_region + region * REGION_PAGES;
            return (at, first..first + REGION_PAGES);
        }
        let most = 1 << self.rng.below(11);
        let first = self.rng.below(pages);
        (at, first..pages.min(first + 1 + self.rng.below(most)))
    }

    /// Compares pages of a mapping with its shadow.
    pub(super) fn check(&mut self, at: usize, range: Range<usize>) -> Result<(), WorkloadError> {
        self.totals.verified_bytes += (range.len() * PAGE) as u64;
        let seen = self.pieces[at].check(range);
        seen.map_err(|mismatch| self.wrong(at, mismatch, false))
    }

    /// The error for a word that is not what it should be.
    pub(super) fn wrong(&self, at: usize, mismatch: Mismatch, in_child: bool) -> WorkloadError {
        let Mismatch {
            page,
            word,
            expected,
            found,
        } = mismatch;
        let piece = &self.pieces[at];
        WorkloadError::Wrong(WrongWord {
            address: piece.address(page, word),
            expected,
            found,
            found_again: if in_child {
                found
            } else {
                piece.word(page, word)
            },
            thread: self.plan.thread,
            during: format!("{:?}", self.during).to_lowercase(),
            in_child,
        })
    }
}

/// Whether the kernel lacked something, and has changed nothing. Kernels before 6.17 answer `EFAULT`
/// when a mapping that they keep in several parts is to be moved.
fn is_shortage(error: &MemoryError) -> bool {
    match error.source.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => true,
        Some(libc::EFAULT) => error.call == "mremap",
        _ => false,
    }
}
