//! A file of shared memory that several processes map, at addresses of their own.

use crate::memory_file::{create_memory_file, open_memory_file};
use crate::prelude::*;
use crate::process::{ForkedWorker, write_each_page};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct SharedFileArgs {
    /// Size of the file, in MiB.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(2..=1 << 20))]
    pub mib: u64,
    /// Fill and map this file of shared memory, which other processes may map, too [default: a new
    /// one without a name].
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Forked processes that map it, beside the first one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub workers: u16,
    /// Base pages of each region that the file has; the others are holes.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub pages: u16,
    /// Private memory that each process fills, in MiB. A daemon finds processes by it.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1 << 16))]
    pub private_mib: u64,
    /// Map it one base page after a multiple of 2 MiB.
    #[arg(long)]
    pub misaligned: bool,
    /// Let the first process read the first half of these pages only, and the others the second.
    #[arg(long)]
    pub halves: bool,
    /// Let the forked processes lock it (mlock).
    #[arg(long)]
    pub lock: bool,
    /// Disable huge pages for the forked processes (PR_SET_THP_DISABLE).
    #[arg(long)]
    pub without_thp: bool,
}

/// Reads between two checks for input.
const BATCH: usize = 4096;
/// Pause after each batch of reads.
const PAUSE: Duration = Duration::from_micros(200);

pub(super) fn run_shared_file(args: &SharedFileArgs, console: &mut Console) -> WorkloadResult<()> {
    let bytes = (args.mib << 20) as usize / REGION * REGION;
    let file = match &args.file {
        Some(path) => open_memory_file(path, bytes)?,
        None => create_memory_file(bytes as u64)
            .map_err(WorkloadError::wrap_system_error("memfd_create"))?,
    };
    let shift = if args.misaligned { PAGE } else { 0 };
    let pages = usize::from(args.pages);
    fill_file(&file, bytes, pages)?;
    let middle = pages / 2;
    let [first, others] =
        if args.halves { [0..middle, middle..pages] } else { [0..pages, 0..pages] };
    // Mapped here and filled by each process: a worker must not allocate.
    let mut private = WorkloadMemory::map_private_if_any(args.private_mib)?;
    let mut fill_private = || {
        if let Some(private) = &mut private {
            write_each_page(private, (args.private_mib << 20) as usize);
            // A child has nowhere to report an error. Without this the memory is only not promoted.
            let _ = private.allow_promotion();
        }
    };
    // The file is not mapped here: a forked process would inherit it beside its own mapping.
    let mut workers = Vec::new();
    for number in 0..args.workers {
        // SAFETY: this process has one thread. The child maps memory and reads it.
        let worker = unsafe {
            ForkedWorker::fork(|| {
                let Ok(own) = map_in_worker(args, &file, bytes, shift) else { return };
                fill_private();
                read_each_page(&own, &others);
                let mut rng = WorkloadRng::new(3, number.into());
                loop {
                    read_batch(&own, &mut rng, &others);
                    std::thread::sleep(PAUSE);
                }
            })
        }?;
        workers.push(worker);
    }
    let memory = WorkloadMemory::map_file_aligned(&file, bytes, shift)?;
    fill_private();
    read_each_page(&memory, &first);
    report_ready(console, memory.start_address(), bytes as u64)?;
    let mut rng = WorkloadRng::new(1, 0);
    loop {
        read_batch(&memory, &mut rng, &first);
        match console.wait_for_input_within(PAUSE) {
            None => {}
            Some(ConsoleInput::End | ConsoleInput::Request(WorkloadRequest::Quit)) => return Ok(()),
            Some(ConsoleInput::Request(WorkloadRequest::Verify)) => {
                console.emit_event(&verify(&memory, pages))?
            }
            Some(ConsoleInput::Request(WorkloadRequest::Rss)) => {
                console.emit_event(&resident_memory_event()?)?
            }
            Some(other) => console.refuse_input(other)?,
        }
    }
}

fn map_in_worker(
    args: &SharedFileArgs,
    file: &File,
    bytes: usize,
    shift: usize,
) -> WorkloadResult<WorkloadMemory> {
    // SAFETY: one system call without pointers.
    if args.without_thp && unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } != 0 {
        return Err(WorkloadError::wrap_system_error("prctl")(io::Error::last_os_error()));
    }
    let memory = WorkloadMemory::map_file_aligned(file, bytes, shift)?;
    let start = memory.start_address() as *const libc::c_void;
    // SAFETY: the range is that of `memory`; its contents stay.
    if args.lock && unsafe { libc::mlock(start, bytes) } != 0 {
        return Err(WorkloadError::wrap_system_error("mlock")(io::Error::last_os_error()));
    }
    Ok(memory)
}

fn fill_file(file: &File, bytes: usize, pages: usize) -> WorkloadResult<()> {
    let mut memory = WorkloadMemory::map_file_aligned(file, bytes, 0)?;
    for page in (0..bytes / PAGE).filter(|page| page % REGION_PAGES < pages) {
        for word in 0..PAGE_WORDS {
            memory.write_word(page * PAGE + word * 8, expected_word(page, word));
        }
    }
    Ok(())
}

fn read_each_page(memory: &WorkloadMemory, pages: &Range<usize>) {
    for page in (0..memory.count_pages()).filter(|page| pages.contains(&(page % REGION_PAGES))) {
        memory.read_word(page * PAGE);
    }
}

fn read_batch(memory: &WorkloadMemory, rng: &mut WorkloadRng, pages: &Range<usize>) {
    let regions = memory.bytes() / REGION;
    for _ in 0..BATCH {
        let page =
            rng.draw_below(regions) * REGION_PAGES + pages.start + rng.draw_below(pages.len());
        memory.read_word(page * PAGE + rng.draw_below(PAGE_WORDS) * 8);
    }
}

/// The contents of a base page of the file, by its number.
pub fn page_of_shared_file(page: usize) -> Vec<u8> {
    (0..PAGE_WORDS).flat_map(|word| expected_word(page, word).to_ne_bytes()).collect()
}

fn expected_word(page: usize, word: usize) -> u64 {
    mix_bits((page * PAGE_WORDS + word) as u64) | 1
}

fn verify(memory: &WorkloadMemory, pages: usize) -> WorkloadEvent {
    let (mut bad_bytes, mut first_bad) = (0, None);
    for page in 0..memory.count_pages() {
        for word in 0..PAGE_WORDS {
            let offset = page * PAGE + word * 8;
            let there = page % REGION_PAGES < pages;
            // A hole is read as zeros, which gives the file a page: it is not read.
            if there && memory.read_word(offset) != expected_word(page, word) {
                bad_bytes += 8;
                first_bad = first_bad.or(Some(memory.start_address() + offset as u64));
            }
        }
    }
    let checked = memory.bytes() / REGION * pages * PAGE;
    WorkloadEvent::Verified { checked_bytes: checked as u64, bad_bytes, first_bad }
}
