//! A program that reads a word of each region of its memory at equal distances, and the time of the
//! longest of these reads. It shows how long a promotion keeps other accesses waiting.

use crate::page_fault_stalls::{PageFaultRecorder, set_thread_sched_fifo, thread_fault_count};
use crate::prelude::*;
use crate::process::write_each_page;
use crate::shared_file::open_memory_file;
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
    let memory = match &args.file {
        Some(path) => {
            let file = open_memory_file(path, bytes)?;
            let mut memory = WorkloadMemory::map_file_aligned(&file, bytes, 0)?;
            fill(&mut memory);
            memory
        }
        None => WorkloadMemory::map_private_and_touch(bytes, RequestedPageKind::Base, fill)?,
    };
    report_ready(console, memory.start_address(), bytes as u64)?;
    let (recorder, over) = (&Mutex::new(PageFaultRecorder::new()?), &AtomicBool::new(false));
    let answer = |request| {
        let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
        (request == WorkloadRequest::Faults).then(|| WorkloadEvent::Faults(recorder.take_times()))
    };
    let distance = Duration::from_micros(args.every_us);
    let reader = move || time_reads_until_over(&memory, distance, recorder, over);
    run_workers_until_first_ends(console, over, [Box::new(reader)], answer)
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
