//! Operations of a torture thread on its memory.

use crate::rng::Rng;

const OPERATIONS: [(Operation, usize); 13] = [
    (Operation::Write, 250),
    (Operation::Sparse, 170),
    (Operation::Zero, 50),
    (Operation::Verify, 250),
    (Operation::Discard, 100),
    (Operation::Protect, 50),
    (Operation::Forbid, 20),
    (Operation::Move, 30),
    (Operation::Resize, 20),
    (Operation::Cut, 20),
    (Operation::Unmap, 15),
    (Operation::Map, 30),
    (Operation::Fork, 2),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
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

impl Operation {
    /// A random operation, by weight.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let total = OPERATIONS.iter().map(|(_, weight)| weight).sum();
        let mut left = rng.below(total);
        for (operation, weight) in OPERATIONS {
            if left < weight {
                return operation;
            }
            left -= weight;
        }
        unreachable!("a draw is below the sum of the weights")
    }
}
