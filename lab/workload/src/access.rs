//! Workloads that read memory in one pattern and report their rate.
//!
//! ```text
//!  run_* --> map_and_fill --> read_until_end <-- read_loop_control: when to read, report and end
//!                                 ^
//!                                 `-- AccessPattern::read_batch
//!                                       access_patterns: RandomReads, StridedReads
//!                                       pointer_chase (with random_cycle), zipf, sparse
//! ```
//!
//! Read `access_patterns` first: the trait, and its two simplest implementations. `blocks` has a
//! layout of its own: many mappings, partly used and replaced.

mod access_patterns;
mod blocks;
mod pointer_chase;
mod random_cycle;
mod read_loop_control;
mod sparse;
mod zipf;

use crate::memory_file::map_file_or_private_memory;
use crate::prelude::*;
use access_patterns::{AccessPattern, HotColdLayout, RandomReads, StridedReads};
use pointer_chase::PointerChase;
use read_loop_control::ReadLoopControl;
use sparse::SparseReads;
use std::path::PathBuf;
use zipf::ZipfReads;

pub(super) use blocks::run_block_reads;

pub use blocks::BlocksArgs;
pub use sparse::SparseArgs;
pub use zipf::ZipfArgs;

#[derive(Clone, Debug, clap::Args)]
pub struct ReadWorkloadArgs {
    /// Memory to read, in MiB.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Size of the hot part at the highest addresses, in MiB [default: 512 for hot-spot, else 0].
    #[arg(long)]
    pub hot_mib: Option<u64>,
    /// Share of the reads that goes to the hot part, in per cent.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub hot_percent: u8,
    /// Distance of the reads of `stride`, in bytes, a multiple of 8.
    #[arg(long, default_value_t = 4096)]
    pub stride_bytes: u64,
    /// Read this file of shared memory, which other processes may map, too [default: private
    /// memory].
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Pages to start with, in private memory.
    #[arg(long, value_enum, default_value_t = RequestedPageKind::Base)]
    pub pages: RequestedPageKind,
    /// Start and reports.
    #[command(flatten)]
    pub report: RateReportArgs,
    /// End after N seconds of reading instead of at the end of standard input.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// End after N reads instead of at the end of standard input.
    #[arg(long)]
    pub accesses: Option<u64>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// When a workload starts, and how it reports its rate.
#[derive(Clone, Debug, clap::Args)]
pub struct RateReportArgs {
    /// How often to report the rate, in milliseconds.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u64).range(1..))]
    pub report_ms: u64,
    /// Do not report the rate on standard output.
    #[arg(long)]
    pub quiet: bool,
    /// Wait for `go` before the first access.
    #[arg(long)]
    pub wait: bool,
}

const MIB: u64 = 1 << 20;
/// Default size of the hot part of `hot-spot`, in MiB.
pub(super) const HOT_MIB: u64 = 512;

/// Reads between two checks of the clock: tens of microseconds to a few milliseconds.
const BATCH: usize = 8192;

pub(super) fn run_random_reads(
    args: &ReadWorkloadArgs,
    hot_mib: u64,
    console: &mut Console,
) -> WorkloadResult<()> {
    let (memory, layout) = map_and_fill(args, args.hot_mib.unwrap_or(hot_mib))?;
    let walk = RandomReads::new(layout, args.seed);
    read_until_end(walk, &memory, layout, args, console)
}

pub(super) fn run_strided_reads(
    args: &ReadWorkloadArgs,
    bytes: u64,
    console: &mut Console,
) -> WorkloadResult<()> {
    if bytes == 0 || bytes % 8 != 0 {
        let message = "--stride-bytes is not a multiple of 8".to_owned();
        return Err(WorkloadError::Usage(message));
    }
    let (memory, layout) = map_and_fill(args, args.hot_mib.unwrap_or(0))?;
    let walk = StridedReads::new(layout, bytes as usize, args.seed);
    read_until_end(walk, &memory, layout, args, console)
}

pub(super) fn run_pointer_chase(
    args: &ReadWorkloadArgs,
    console: &mut Console,
) -> WorkloadResult<()> {
    let (mut memory, layout) = map_and_fill(args, args.hot_mib.unwrap_or(0))?;
    let walk = PointerChase::new(&mut memory, layout, args.seed);
    read_until_end(walk, &memory, layout, args, console)
}

pub(super) fn run_zipf_reads(args: &ZipfArgs, console: &mut Console) -> WorkloadResult<()> {
    let access = &args.access;
    let (memory, layout) = map_and_fill(access, 0)?;
    let walk = ZipfReads::new(&memory, args.theta, access.seed)?;
    read_until_end(walk, &memory, layout, access, console)
}

pub(super) fn run_sparse_reads(args: &SparseArgs, console: &mut Console) -> WorkloadResult<()> {
    let access = &args.access;
    let walk = SparseReads::new(args)?;
    let memory = walk.map_and_fill(access.pages)?;
    let layout = walk.layout_by_address();
    read_until_end(walk, &memory, layout, access, console)
}

/// Maps the memory, writes to every page of it, and marks the hot part.
fn map_and_fill(
    args: &ReadWorkloadArgs,
    hot_mib: u64,
) -> WorkloadResult<(WorkloadMemory, HotColdLayout)> {
    if hot_mib > args.mib {
        let message = format!("the hot part ({hot_mib} MiB) is larger than --mib {}", args.mib);
        return Err(WorkloadError::Usage(message));
    }
    let (all, hot) = ((args.mib * MIB) as usize, (hot_mib * MIB) as usize);
    // Processes that share a file write the same words.
    let fill = |memory: &mut WorkloadMemory| {
        for offset in (0..all).step_by(PAGE) {
            memory.write_word(offset, mix_bits(offset as u64) | 1);
        }
    };
    let memory = map_file_or_private_memory(args.file.as_deref(), all, args.pages, fill)?;
    let layout = HotColdLayout::new(all - hot, hot, args.hot_percent);
    Ok((memory, layout))
}

fn read_until_end(
    mut walk: impl AccessPattern,
    memory: &WorkloadMemory,
    layout: HotColdLayout,
    args: &ReadWorkloadArgs,
    console: &mut Console,
) -> WorkloadResult<()> {
    console.emit_event(&WorkloadEvent::Ready(ready_report(
        memory.start_address(),
        memory.bytes() as u64,
        memory.start_address() + layout.hot.offset as u64,
    )))?;
    let mut pace = ReadLoopControl::new(args);
    while let Some(count) = pace.serve_and_next_batch_size(console)? {
        walk.read_batch(memory, count);
    }
    Ok(())
}
