//! A program that reads a word of each region of its memory at equal distances, and the time of the
//! longest of these reads. It shows how long a promotion keeps other accesses waiting.

use crate::memory_file::map_file_or_private_memory;
use crate::page_fault_stalls::{
    PageFaultRecorder, run_with_recorder, set_thread_sched_fifo, thread_fault_count,
};
use crate::prelude::*;
use crate::process::write_each_page;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

#[derive(Clone, Debug, clap::Args)]
pub struct ReadStallsArgs {
    /// Memory in base pages that can be promoted, in MiB.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(2..=1 << 20))]
    pub mib: u64,
    /// Fill and map this file of shared memory, which other processes may map, too [default:
    /// private memory].
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// From one read of all regions to the next, in microseconds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    pub every_us: u64,
}

pub(super) fn run_read_stalls(args: &ReadStallsArgs, console: &mut Console) -> WorkloadResult<()> {
    let bytes = (args.mib << 20) as usize / REGION * REGION;
    let fill = |memory: &mut WorkloadMemory| write_each_page(memory, bytes);
    let (file, pages) = (args.file.as_deref(), RequestedPageKind::Base);
    let memory = map_file_or_private_memory(file, bytes, pages, fill)?;
    report_ready(console, memory.start_address(), bytes as u64)?;
    let distance = Duration::from_micros(args.every_us);
    run_with_recorder(console, |recorder, over| {
        [Box::new(move || time_reads_until_over(&memory, distance, recorder, over))]
    })
}

fn time_reads_until_over(
    memory: &WorkloadMemory,
    distance: Duration,
    recorder: &Mutex<PageFaultRecorder>,
    over: &AtomicBool,
) -> WorkloadResult<()> {
    // Without the privilege the thread keeps its priority, and its times include waits for a
    // processor.
    let _ = set_thread_sched_fifo();
    let regions = memory.bytes() / REGION;
    let mut rng = WorkloadRng::new(1, std::process::id().into());
    let mut due = Instant::now();
    while !over.load(Ordering::Relaxed) {
        due = (due + distance).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let faults_before = thread_fault_count()?;
        let mut longest = Duration::ZERO;
        for region in 0..regions {
            let offset = region * REGION + rng.draw_below(REGION / 8) * 8;
            let begun = Instant::now();
            memory.read_word(offset);
            longest = longest.max(begun.elapsed());
        }
        let faults = (thread_fault_count()? - faults_before).unsigned_abs();
        let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
        recorder.record_reads(longest, distance, faults, regions as u64)?;
    }
    Ok(())
}
