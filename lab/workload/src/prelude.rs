//! Imports that nearly every workload needs.

pub(crate) use crate::console::{Console, ConsoleInput};
pub(crate) use crate::error::{MemoryError, WorkloadError, WorkloadResult};
pub(crate) use crate::memory::{
    PAGE, PAGE_WORDS, Protection, REGION, REGION_PAGES, RequestedPageKind, WorkloadMemory,
};
pub(crate) use crate::process::{
    ready_report, report_ready, resident_report, run_workers, serve_until_quit, wait_for_go,
};
pub(crate) use crate::protocol::{
    TortureTotals, WorkloadEvent, WorkloadReady, WorkloadRequest, WrongWord,
};
pub(crate) use crate::rng::{WorkloadRng, mix_bits};
pub(crate) use std::time::{Duration, Instant};
