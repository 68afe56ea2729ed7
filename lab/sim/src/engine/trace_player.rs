//! The trace that a program replays, read batch by batch.

use super::EngineError;
use crate::mmu::translation::Access;
use crate::trace::{AccessKind, TraceError, TraceReader};
use crate::workloads::TraceReplay;
use std::io::BufRead;

const BATCH: usize = 256;

#[derive(Debug)]
pub(super) struct TracePlayer {
    program: String,
    trace: TraceReader<Box<dyn BufRead>>,
    pub(super) tape: TraceReplay,
    pub(super) batch: Vec<Access>,
    pub(super) batches: u64,
    /// Whether the trace has instructions: known after the first batch.
    has_instructions: Option<bool>,
    /// Time by which the last batch exceeded its budget, in nanoseconds.
    pub(super) overdrawn_ns: f64,
}

impl TracePlayer {
    pub(super) fn open(program: &str, tape: &TraceReplay) -> Result<Self, EngineError> {
        let trace =
            TraceReader::open(&tape.path, tape.bad).map_err(|e| trace_error(program, &e))?;
        Ok(Self {
            program: program.to_owned(),
            trace,
            tape: tape.clone(),
            batch: Vec::with_capacity(BATCH),
            batches: 0,
            has_instructions: None,
            overdrawn_ns: 0.0,
        })
    }

    /// Reads the next batch; returns the program's own work for each of its accesses, in cycles.
    pub(super) fn read_batch(&mut self) -> Result<f64, EngineError> {
        self.batch.clear();
        let mut instructions = 0_u64;
        while self.batch.len() < BATCH {
            let Some(next) = self.trace.next() else { break };
            let next = next.map_err(|error| trace_error(&self.program, &error))?;
            match next.kind {
                AccessKind::Fetch => instructions += 1,
                _ if !TraceReplay::is_data_access(&next) => {}
                AccessKind::Load => self.batch.push(Access::load(next.address)),
                AccessKind::Store | AccessKind::Modify => {
                    self.batch.push(Access::store(next.address))
                }
            }
        }
        let accesses = self.batch.len().max(1) as f64;
        // One instruction may make all accesses of a later batch. Its work is counted before.
        let has_instructions = *self.has_instructions.get_or_insert(instructions > 0);
        Ok(match has_instructions {
            false => self.tape.cycles_per_access,
            true => instructions as f64 * self.tape.cycles_per_instruction / accesses,
        })
    }
}

fn trace_error(program: &str, error: &TraceError) -> EngineError {
    EngineError::Trace { program: program.to_owned(), message: error.to_string() }
}
