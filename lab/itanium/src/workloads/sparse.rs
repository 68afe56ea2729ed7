//! Sparse access (thesis, section 4.3.1 and figure 4.1).

use super::{EventSink, ProgramEvent, Touch, emit_map};
use crate::Result;

/// The page size in the program's code.
const PAGE_BYTES: u64 = 16384;
/// Bytes from one area to the next.
const STRIDE_BYTES: u64 = 0x200_0000;

/// A page every 32 MiB, all of them touched in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseWorkload {
    /// Number of rounds.
    pub loops: u32,
    /// Number of pages.
    pub areas: u32,
    /// Each area begins one page further from its multiple of 32 MiB than the one before.
    pub perturbed: bool,
}

impl SparseWorkload {
    /// As in figure 4.1.
    pub const THESIS: Self = Self {
        loops: 3,
        areas: 512,
        perturbed: true,
    };

    pub(super) fn emit_events(&self, sink: EventSink<'_>) -> Result {
        for area in 0..self.areas {
            let off = if self.perturbed { PAGE_BYTES } else { 0 };
            let address = u64::from(area) * (STRIDE_BYTES + off);
            // Address 0 is not a valid request to `mmap`.
            let at = (area > 0).then_some(address);
            emit_map(0, area, PAGE_BYTES, at, sink)?;
        }
        for _ in 0..self.loops {
            for area in 0..self.areas {
                sink(ProgramEvent::Touch(Touch {
                    mapping: area,
                    ..Touch::STORE
                }))?;
            }
        }
        Ok(())
    }
}
