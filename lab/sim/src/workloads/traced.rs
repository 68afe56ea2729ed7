//! A workload out of a trace: one program that makes its accesses, in its memory.
//!
//! The trace is read twice, never held: once for what memory there is, once while it is played. All of it counts as anonymous memory of
//! one address space and is accessed by one thread: traces don't tell. An access to two pages counts as one to the first.

use super::spec::{Area, Phase, Process, Workload};
use super::{Size, WorkloadError};
use crate::trace::{BadRecords, Kind, Trace, TraceAccess, TraceError};
use hawkeye_policy::HUGE_PAGE_BYTES;
use std::collections::BTreeSet;
use std::path::PathBuf;
use thiserror::Error;

/// A trace, and how it is played.
#[derive(Clone, Debug, PartialEq)]
pub struct Tape {
    /// The file.
    pub path: PathBuf,
    /// What becomes of what is not of its format.
    pub bad: BadRecords,
    /// The program's own work for each instruction, where the trace has these, in cycles (0.01-1e6): all but translation.
    pub cycles_per_instruction: f64,
    /// The same for each access, where it has none.
    pub cycles_per_access: f64,
    /// How much of the time of walks it waits for, in per cent.
    pub waited_percent: f64,
    /// Each access counts as so many like it, one after the other (1-1e9): a short trace, or one of samples, stands for a
    /// long run.
    pub scale: f64,
}

/// First address that programs can't have, with page tables of four levels.
const END: u64 = 1 << 47;
/// Memory closer than this is one mapping.
const APART: u64 = 64 << 20;

impl Tape {
    /// A trace that is played as it is, by a processor that does an instruction a cycle, four for each access, and waits for
    /// walks: none of it is known of a trace.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            bad: BadRecords::Fail,
            cycles_per_instruction: 1.0,
            cycles_per_access: 4.0,
            waited_percent: 100.0,
            scale: 1.0,
        }
    }

    /// Whether an access is one to data of a program.
    pub(crate) fn holds(access: &TraceAccess) -> bool {
        access.kind != Kind::Fetch && access.address < END
    }
}

/// A trace that is no workload.
#[derive(Debug, Error)]
pub enum TraceWorkloadError {
    /// It can't be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It has instructions, or memory of a kernel, and nothing else.
    #[error("{path} has no access to a program's data: have the tool trace loads and stores", path = .0.display())]
    NoAccess(PathBuf),
    /// A value is out of range.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// A workload that plays a trace so many times (1 or more); and how many lines or records were left out.
///
/// # Errors
/// The file can't be read or is no trace; it has no access to data; a value of `tape` is out of range.
pub fn traced(tape: Tape, times: u32) -> Result<(Workload, u64), TraceWorkloadError> {
    let (areas, skipped) = areas(&tape)?;
    let name = tape.path.file_name().unwrap_or(tape.path.as_os_str());
    let name = name.to_string_lossy().into_owned();
    let workload = Workload {
        name: name.clone(),
        source: format!("The accesses of {}.", tape.path.display()),
        processes: vec![Process {
            repeat: times,
            ..Process::new(name, areas, vec![Phase::Play(tape)])
        }],
        guests: Vec::new(),
    };
    workload.check()?;
    Ok((workload, skipped))
}

/// The memory that a trace accesses, as mappings in ascending order; and what was left out of it.
fn areas(tape: &Tape) -> Result<(Vec<Area>, u64), TraceWorkloadError> {
    let mut trace = Trace::open(&tape.path, tape.bad)?;
    let mut regions = BTreeSet::new();
    let mut last = None;
    for access in &mut trace {
        let access = access?;
        let region = access.address / HUGE_PAGE_BYTES;
        if Tape::holds(&access) && last != Some(region) {
            regions.insert(region);
            last = Some(region);
        }
    }
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for region in regions {
        match spans.last_mut() {
            Some((_, end)) if (region - *end) * HUGE_PAGE_BYTES < APART => *end = region + 1,
            _ => spans.push((region, region + 1)),
        }
    }
    if spans.is_empty() {
        return Err(TraceWorkloadError::NoAccess(tape.path.clone()));
    }
    let area = |(from, to): (u64, u64)| Area {
        name: format!("{:#x}", from * HUGE_PAGE_BYTES),
        size: Size((to - from) * HUGE_PAGE_BYTES),
        start: Some(from * HUGE_PAGE_BYTES),
        pieces: None,
    };
    Ok((spans.into_iter().map(area).collect(), trace.skipped()))
}
