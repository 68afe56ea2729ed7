//! Imports that nearly every workload needs.

pub(crate) use crate::console::{Console, ConsoleInput};
pub(crate) use crate::error::{MemoryCallError, WorkloadError, WorkloadResult};
pub(crate) use crate::memory::{
    MemoryProtection, PAGE, PAGE_WORDS, REGION, REGION_PAGES, RequestedPageKind, WorkloadMemory,
};
pub(crate) use crate::process::{
    ready_report, report_ready, resident_memory_event, run_workers_until_first_ends,
    serve_until_quit, wait_for_go,
};
pub(crate) use crate::protocol::{
    OperationTotals, WorkloadEvent, WorkloadReady, WorkloadRequest, WrongWord,
};
pub(crate) use crate::rng::{WorkloadRng, mix_bits};
pub(crate) use std::time::{Duration, Instant};
