//! A process with far more mapped than there is memory, and the delays of its calls.

use crate::memory_file::create_memory_file;
use crate::prelude::*;
use crate::process::{read_at_random_until_over, write_each_page};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

#[derive(Clone, Debug, clap::Args)]
pub struct OneTibArgs {
    /// Address space to fill with mappings of one small file, in GiB.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=8192))]
    pub mapped_gib: u64,
    /// Of it, with page tables filled in, in GiB: each takes 2 MiB of page tables.
    #[arg(long, default_value_t = 0)]
    pub populated_gib: u64,
    /// Memory of its own that it reads at random, in MiB, in base pages.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub mib: u64,
}

/// Small, but large enough that 1 TiB of it takes 4096 mappings (`vm.max_map_count` is 65530).
const FILE_BYTES: u64 = 256 << 20;
const GIB: u64 = 1 << 30;
const PIECE: usize = 16 * PAGE;
/// Between two measured calls. Waiting threads get their turn at once, so the measured time is a
/// delay by a lock. Anything longer than this cannot be missed.
const PAUSE: Duration = Duration::from_micros(200);

pub(super) fn run_one_tib(args: &OneTibArgs, console: &mut Console) -> WorkloadResult<()> {
    if args.populated_gib > args.mapped_gib {
        return Err(WorkloadError::Usage(format!(
            "--populated-gib {} is more than --mapped-gib {}",
            args.populated_gib, args.mapped_gib
        )));
    }
    let _mapped = map_file_many_times(args)?;
    let bytes = (args.mib << 20) as usize;
    let own = WorkloadMemory::map_private_and_touch(bytes, RequestedPageKind::Base, |memory| {
        write_each_page(memory, bytes);
    })?;
    report_ready(console, own.start_address(), own.bytes() as u64)?;
    // Faults are made in the last region, which stays part of the same mapping.
    let (Some(read), Some(faulted)) = own.split_at(bytes - REGION) else {
        unreachable!("--mib is at least two regions")
    };
    let (longest, over) = (&LongestProgramCallTimes::default(), &AtomicBool::new(false));
    let answer = |request| (request == WorkloadRequest::Longest).then(|| longest.take_as_event());
    run_workers_until_first_ends(
        console,
        over,
        [
            Box::new(move || read_at_random_until_over(&read, over)),
            Box::new(|| time_map_and_unmap(longest, over)),
            Box::new(move || time_page_faults(faulted, longest, over)),
        ],
        answer,
    )
}

/// Maps the small file until the address space has the requested size.
fn map_file_many_times(args: &OneTibArgs) -> WorkloadResult<Vec<WorkloadMemory>> {
    let failed = WorkloadError::wrap_system_error("making a file in memory");
    let file = create_memory_file(FILE_BYTES).map_err(failed)?;
    let pieces = args.mapped_gib * GIB / FILE_BYTES;
    let populated = args.populated_gib * GIB / FILE_BYTES;
    (0..pieces)
        .map(|piece| {
            let bytes = FILE_BYTES as usize;
            Ok(WorkloadMemory::map_file(&file, bytes, piece < populated)?)
        })
        .collect()
}

/// The longest calls since the last report, in nanoseconds.
#[derive(Debug, Default)]
struct LongestProgramCallTimes {
    map: AtomicU64,
    unmap: AtomicU64,
    fault: AtomicU64,
    calls: AtomicU64,
}

impl LongestProgramCallTimes {
    fn time_call<T>(&self, longest: &AtomicU64, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        longest.fetch_max(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        result
    }

    fn take_as_event(&self) -> WorkloadEvent {
        let us = |longest: &AtomicU64| longest.swap(0, Ordering::Relaxed) as f64 / 1e3;
        WorkloadEvent::Longest {
            map_us: us(&self.map),
            unmap_us: us(&self.unmap),
            fault_us: us(&self.fault),
            calls: self.calls.swap(0, Ordering::Relaxed),
        }
    }
}

fn time_map_and_unmap(longest: &LongestProgramCallTimes, over: &AtomicBool) -> WorkloadResult<()> {
    while !over.load(Ordering::Relaxed) {
        let mapping = longest.time_call(&longest.map, || WorkloadMemory::map_shared(PIECE))?;
        longest.time_call(&longest.unmap, || drop(mapping));
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn time_page_faults(
    mut memory: WorkloadMemory,
    longest: &LongestProgramCallTimes,
    over: &AtomicBool,
) -> WorkloadResult<()> {
    while !over.load(Ordering::Relaxed) {
        memory.discard_range(0, memory.bytes())?;
        for page in 0..memory.count_pages() {
            if over.load(Ordering::Relaxed) {
                break;
            }
            longest.time_call(&longest.fault, || memory.write_word(page * PAGE, 1));
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}
