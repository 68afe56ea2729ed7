//! Linear access (thesis, section 4.3.2).

use super::{EventSink, ProgramEvent, Touch, emit_map};
use crate::Result;
use crate::address::REGION_BITS;

/// One walk over memory that is already present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearWorkload {
    /// Bytes of memory.
    pub bytes: u64,
    /// Bytes from one touch to the next.
    pub stride_bytes: u32,
}

impl LinearWorkload {
    /// A GiB, a touch for each 16 KiB.
    pub const THESIS: Self = Self {
        bytes: 1 << 30,
        stride_bytes: 16384,
    };
    /// Chosen: begins a page of the linear table, as the thesis' sum assumes (32 nested faults).
    const ADDRESS: u64 = (1 << REGION_BITS) + (1 << 30);

    pub(super) fn emit_events(&self, sink: EventSink<'_>) -> Result {
        emit_map(0, 0, self.bytes, Some(Self::ADDRESS), sink)?;
        sink(ProgramEvent::Lock {
            process: 0,
            mapping: 0,
        })?;
        sink(ProgramEvent::Measure)?;
        for offset in (0..self.bytes).step_by(self.stride_bytes.max(1) as usize) {
            sink(ProgramEvent::Touch(Touch {
                offset,
                write: false,
                ..Touch::STORE
            }))?;
        }
        Ok(())
    }
}
