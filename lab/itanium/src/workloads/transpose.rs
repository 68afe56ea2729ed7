//! Matrix transposition (thesis, section 6.2.1 and figure 6.2).

use super::{EventSink, ProgramEvent, Touch, emit_map};
use crate::Result;

/// A matrix element; the thesis does not state its size in bytes.
const ELEMENT_BYTES: u64 = 8;

/// `a[j][i] = b[i][j]`, row by row of `b`, for larger and larger matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransposeWorkload {
    /// Rows and columns of the first pair, and the increment from each pair to the next.
    pub step: u32,
    /// Number of pairs of matrices.
    pub pairs: u32,
}

impl TransposeWorkload {
    pub(super) fn emit_events(&self, sink: EventSink<'_>) -> Result {
        for pair in 1..=self.pairs {
            let dimension = u64::from(self.step * pair);
            let bytes = dimension * dimension * ELEMENT_BYTES;
            for mapping in [0, 1] {
                emit_map(0, mapping, bytes, None, sink)?;
            }
            for i in 0..dimension {
                for j in 0..dimension {
                    for (mapping, element, write) in
                        [(1, i * dimension + j, false), (0, j * dimension + i, true)]
                    {
                        sink(ProgramEvent::Touch(Touch {
                            mapping,
                            offset: element * ELEMENT_BYTES,
                            write,
                            useful_cycles: 1,
                            ..Touch::STORE
                        }))?;
                    }
                }
            }
            for mapping in [0, 1] {
                sink(ProgramEvent::Unmap {
                    process: 0,
                    mapping,
                })?;
            }
        }
        Ok(())
    }
}
