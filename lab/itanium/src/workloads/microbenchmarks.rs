//! The thesis' microbenchmarks (sections 4.3 and 6.2).

use super::{MemoryTouch, ProgramEvent, ProgramEventSink, emit_map, emit_map_and_fill};
use crate::Result;
use crate::address::REGION_BITS;
use hawkeye_sim::rng::SimulationRng;

/// Linear access (thesis, section 4.3.2): one walk over memory that is already present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearWorkload {
    /// Bytes of memory.
    pub bytes: u64,
    /// Bytes from one touch to the next.
    pub stride_bytes: u32,
}

impl LinearWorkload {
    /// A GiB, a touch for each 16 KiB.
    pub const THESIS: Self = Self { bytes: 1 << 30, stride_bytes: 16384 };
    /// Chosen: begins a page of the linear table, as the thesis' sum assumes (32 nested faults).
    const ADDRESS: u64 = (1 << REGION_BITS) + (1 << 30);

    pub(super) fn emit_events(&self, sink: ProgramEventSink<'_>) -> Result {
        emit_map(0, 0, self.bytes, Some(Self::ADDRESS), sink)?;
        sink(ProgramEvent::Lock { process: 0, mapping: 0 })?;
        sink(ProgramEvent::Measure)?;
        for offset in (0..self.bytes).step_by(self.stride_bytes.max(1) as usize) {
            sink(ProgramEvent::Touch(MemoryTouch { offset, write: false, ..MemoryTouch::STORE }))?;
        }
        Ok(())
    }
}

// Sparse access (thesis, section 4.3.1 and figure 4.1).

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
    pub const THESIS: Self = Self { loops: 3, areas: 512, perturbed: true };

    pub(super) fn emit_events(&self, sink: ProgramEventSink<'_>) -> Result {
        for area in 0..self.areas {
            let off = if self.perturbed { PAGE_BYTES } else { 0 };
            let address = u64::from(area) * (STRIDE_BYTES + off);
            // Address 0 is not a valid request to `mmap`.
            let at = (area > 0).then_some(address);
            emit_map(0, area, PAGE_BYTES, at, sink)?;
        }
        for _ in 0..self.loops {
            for area in 0..self.areas {
                sink(ProgramEvent::Touch(MemoryTouch { mapping: area, ..MemoryTouch::STORE }))?;
            }
        }
        Ok(())
    }
}

// Tlbcover (thesis, section 6.2.2): random changes of a table in memory.

/// References to places in a table, all equally likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbcoverWorkload {
    /// Bytes of the table.
    pub bytes: u64,
    /// Number of references.
    pub accesses: u32,
    /// Cycles of the program's own work between references.
    pub useful_cycles: u32,
}

impl TlbcoverWorkload {
    /// Run 1 to 11 of the thesis. According to its text they range from 1 to 512 MiB, but by
    /// doubling that is ten. Chosen: 512 KiB for the first. Large pages gain nothing there on base
    /// pages of 4 KiB (table 6.2), so the TLB must hold the table.
    ///
    /// The largest run's times (114 and 104 s) and 19.23 cycles for a miss give 219 cycles from
    /// miss to miss on 16 KiB pages. 200 of them are the program's.
    pub const fn for_thesis_run(number: u32) -> Self {
        Self { bytes: (1 << 18) << number, accesses: 1_000_000, useful_cycles: 200 }
    }

    pub(super) fn emit_events(&self, seed: u64, sink: ProgramEventSink<'_>) -> Result {
        let mut rng = SimulationRng::new(seed, 0x71bc);
        emit_map_and_fill(0, 0, self.bytes, sink)?;
        sink(ProgramEvent::Measure)?;
        for _ in 0..self.accesses {
            sink(ProgramEvent::Touch(MemoryTouch {
                offset: rng.draw_below(self.bytes) & !7,
                useful_cycles: self.useful_cycles,
                ..MemoryTouch::STORE
            }))?;
        }
        Ok(())
    }
}

// Matrix transposition (thesis, section 6.2.1 and figure 6.2).

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
    pub(super) fn emit_events(&self, sink: ProgramEventSink<'_>) -> Result {
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
                        sink(ProgramEvent::Touch(MemoryTouch {
                            mapping,
                            offset: element * ELEMENT_BYTES,
                            write,
                            useful_cycles: 1,
                            ..MemoryTouch::STORE
                        }))?;
                    }
                }
            }
            for mapping in [0, 1] {
                sink(ProgramEvent::Unmap { process: 0, mapping })?;
            }
        }
        Ok(())
    }
}

// High contention (thesis, section 4.3.3 and figure 4.5).

/// The page size in the program's code.
const CONTENTION_PAGE_BYTES: u64 = 16384;

/// Processes that take turns; each goes over a few neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbContentionWorkload {
    /// Number of processes.
    pub processes: u32,
    /// Pages of 16 KiB in each process.
    pub pages: u32,
    /// Rounds over its pages in one turn. The thesis does not state how long a turn is.
    pub rounds: u32,
    /// Turns of each process.
    pub turns: u32,
}

impl TlbContentionWorkload {
    /// `processes` processes over 160 KiB each.
    pub const fn with_processes(processes: u32) -> Self {
        Self { processes, pages: 10, rounds: 10, turns: 100 }
    }

    pub(super) fn emit_events(&self, sink: ProgramEventSink<'_>) -> Result {
        let bytes = u64::from(self.pages) * CONTENTION_PAGE_BYTES;
        for process in 0..self.processes {
            emit_map_and_fill(process, 0, bytes, sink)?;
        }
        sink(ProgramEvent::Measure)?;
        for _ in 0..self.turns {
            for process in 0..self.processes {
                for touch in 0..self.rounds * self.pages {
                    sink(ProgramEvent::Touch(MemoryTouch {
                        process,
                        offset: u64::from(touch % self.pages) * CONTENTION_PAGE_BYTES,
                        useful_cycles: 1,
                        ..MemoryTouch::STORE
                    }))?;
                }
            }
        }
        Ok(())
    }
}
