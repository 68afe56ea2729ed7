//! Operations of a torture thread on its memory.

use crate::rng::WorkloadRng;

const OPERATIONS: [(TortureOperation, usize); 13] = [
    (TortureOperation::Write, 250),
    (TortureOperation::Sparse, 170),
    (TortureOperation::Zero, 50),
    (TortureOperation::Verify, 250),
    (TortureOperation::Discard, 100),
    (TortureOperation::Protect, 50),
    (TortureOperation::Forbid, 20),
    (TortureOperation::Move, 30),
    (TortureOperation::Resize, 20),
    (TortureOperation::Cut, 20),
    (TortureOperation::Unmap, 15),
    (TortureOperation::Map, 30),
    (TortureOperation::Fork, 2),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TortureOperation {
    Write,
    /// Write single bytes to a few pages of a range, between zero pages.
    Sparse,
    Zero,
    Verify,
    /// Give a range back, which must then read as zeros.
    Discard,
    /// Make a range read-only for the time of a check.
    Protect,
    /// Make a range inaccessible for a moment.
    Forbid,
    Move,
    Resize,
    Cut,
    Unmap,
    Map,
    /// Fork a child that checks a snapshot, and go on writing.
    Fork,
}

impl TortureOperation {
    /// A random operation, by weight.
    pub(super) fn draw_by_weight(rng: &mut WorkloadRng) -> Self {
        let total = OPERATIONS.iter().map(|(_, weight)| weight).sum();
        let mut left = rng.draw_below(total);
        for (operation, weight) in OPERATIONS {
            if left < weight {
                return operation;
            }
            left -= weight;
        }
        unreachable!("a draw is below the sum of the weights")
    }
}
