//! A workload out of a trace: one program that makes its accesses, in its memory.
//!
//! The trace is read twice, never held in memory: once to find its memory, once while it is played.
//! All of its memory counts as anonymous memory of one address space that one thread accesses,
//! because traces do not record this. An access to two pages counts as one to the first.

use super::workload_spec::{Area, Phase, Process, WorkloadSpec};
use super::{ByteSize, TraceReplay, WorkloadSpecError};
use crate::trace::{TraceError, TraceReader};
use hawkeye_policy::HUGE_PAGE_BYTES;
use std::collections::BTreeSet;
use std::path::PathBuf;
use thiserror::Error;

/// Memory at a smaller distance is in one mapping.
const APART: u64 = 64 << 20;

/// Why a trace cannot be a workload.
#[derive(Debug, Error)]
pub enum TraceWorkloadError {
    /// It can't be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It has only instructions, or only memory of a kernel.
    #[error("{path} has no access to a program's data: have the tool trace loads and stores", path = .0.display())]
    NoAccess(PathBuf),
    /// A value is out of range.
    #[error(transparent)]
    Workload(#[from] WorkloadSpecError),
}

/// A workload that plays a trace `times` times (at least 1), and the number of records left out.
///
/// # Errors
/// An unreadable file or no trace; no access to data; a value of `tape` out of range.
pub fn workload_of_trace(
    tape: TraceReplay,
    times: u32,
) -> Result<(WorkloadSpec, u64), TraceWorkloadError> {
    let (areas, skipped) = areas_of_trace(&tape)?;
    let name = tape.path.file_name().unwrap_or(tape.path.as_os_str());
    let name = name.to_string_lossy().into_owned();
    let workload = WorkloadSpec {
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

/// The memory that a trace accesses, as ascending mappings, and the number of records left out.
fn areas_of_trace(tape: &TraceReplay) -> Result<(Vec<Area>, u64), TraceWorkloadError> {
    let mut trace = TraceReader::open(&tape.path, tape.bad)?;
    let mut regions = BTreeSet::new();
    let mut last = None;
    for access in &mut trace {
        let access = access?;
        let region = access.address / HUGE_PAGE_BYTES;
        if TraceReplay::is_data_access(&access) && last != Some(region) {
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
        size: ByteSize((to - from) * HUGE_PAGE_BYTES),
        start: Some(from * HUGE_PAGE_BYTES),
        pieces: None,
        file: None,
    };
    Ok((spans.into_iter().map(area).collect(), trace.skipped_records()))
}
