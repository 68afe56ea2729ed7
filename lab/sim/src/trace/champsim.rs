//! ChampSim's traces (`inc/trace_instruction.h`, `struct input_instr`): 64 bytes for each
//! instruction, in little-endian order: its address (8), whether it is a branch (1) and is taken
//! (1), 2 registers written and 4 read (1 each), 2 addresses written and 4 read (8 each). An
//! address of 0 is none.

use super::error::{Result, TraceError, TracePosition};
use super::trace_line_reader::trace_read_error;
use super::{AccessKind, TraceAccess};
use std::io::Read;

pub(super) const RECORD_BYTES: usize = 64;
pub(super) const EXPECTED: &str = "64 bytes of an instruction, with 0 or 1 in bytes 8 and 9";

const WRITTEN: usize = 16;
const READ: usize = 32;

#[derive(Debug)]
pub(super) struct ChampSimReader<R> {
    input: R,
    record: Vec<u8>,
    begin: u64,
    end: u64,
}

impl<R: Read> ChampSimReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, record: Vec::new(), begin: 0, end: 0 }
    }

    pub(super) fn position(&self) -> TracePosition {
        TracePosition::Byte(self.begin)
    }

    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        self.begin = self.end;
        self.record.clear();
        let mut limited = self.input.by_ref().take(RECORD_BYTES as u64);
        let read = limited.read_to_end(&mut self.record);
        self.end += self.record.len() as u64;
        read.map_err(|error| trace_read_error(self.position(), error))?;
        match self.record.len() {
            0 => Ok(None),
            RECORD_BYTES => Ok(Some(&self.record)),
            _ => Err(TraceError::Truncated {
                position: self.position(),
                within: "a record of 64 bytes",
            }),
        }
    }
}

pub(super) fn is_valid_record(record: &[u8]) -> bool {
    record.len() >= RECORD_BYTES && record[8] <= 1 && record[9] <= record[8].max(1)
}

/// Accesses of one instruction: its fetch, its loads, then its stores.
pub(super) fn instruction_accesses(record: &[u8]) -> impl Iterator<Item = TraceAccess> + use<> {
    let word = |at: usize| {
        let bytes = record[at..].first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(bytes)
    };
    let fetch = TraceAccess::new(AccessKind::Fetch, word(0));
    let loads: [u64; 4] = std::array::from_fn(|n| word(READ + 8 * n));
    let stores: [u64; 2] = std::array::from_fn(|n| word(WRITTEN + 8 * n));
    let loads = loads.into_iter().map(|address| (AccessKind::Load, address));
    let stores = stores.into_iter().map(|address| (AccessKind::Store, address));
    let data = loads.chain(stores).filter(|(_, address)| *address != 0);
    let data = data.map(|(kind, address)| TraceAccess::new(kind, address));
    std::iter::once(fetch).chain(data)
}
