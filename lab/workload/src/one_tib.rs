//! A process with far more mapped than there is memory, and how long its calls are held up.

use crate::console::{Console, Input};
use crate::error::WorkloadError;
use crate::memory::{Mapping, PAGE, Pages, REGION};
use crate::process::ready;
use crate::protocol::{Event, Request};
use crate::rng::Rng;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Options of `one-tib`.
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

/// Size of the file: small beside the memory, and large enough that 1 TiB of it takes 4096 mappings
/// (`vm.max_map_count` is 65530).
const FILE_BYTES: u64 = 256 << 20;
const GIB: u64 = 1 << 30;
/// Size of what is mapped and unmapped for the measurement.
const PIECE: usize = 16 * PAGE;
/// Between two measured calls. Waiting threads are let in at once, so that what they see is being held
/// up, not waiting for their turn on the processor; and anything longer than this cannot be missed.
const PAUSE: Duration = Duration::from_micros(200);
/// Between two looks at whether the others have ended.
const IDLE: Duration = Duration::from_millis(50);
/// Reads between two looks at the flag.
const BATCH: usize = 8192;

pub(super) fn one_tib(args: &OneTibArgs, console: &mut Console) -> Result<(), WorkloadError> {
    if args.populated_gib > args.mapped_gib {
        return Err(WorkloadError::Usage(format!(
            "--populated-gib {} is more than --mapped-gib {}",
            args.populated_gib, args.mapped_gib
        )));
    }
    let _mapped = map_many_times(args)?;
    let bytes = (args.mib << 20) as usize;
    let own = Mapping::private(bytes, Pages::Base, |memory| {
        for offset in (0..bytes).step_by(PAGE) {
            memory.write(offset, offset as u64 | 1);
        }
    })?;
    console.emit(&Event::Ready(ready(
        own.start(),
        own.bytes() as u64,
        own.start() + own.bytes() as u64,
    )))?;
    // The last region is where faults are made; it stays part of the same mapping.
    let (Some(read), Some(faulted)) = own.split(bytes - REGION) else {
        unreachable!("--mib is at least two regions")
    };
    let (longest, over) = (&Longest::default(), &AtomicBool::new(false));
    // Who comes to an end, by an error too, ends it for all.
    let end = |result| {
        over.store(true, Ordering::Relaxed);
        result
    };
    thread::scope(|scope| {
        let workers = [
            scope.spawn(move || end(read_at_random(&read, over))),
            scope.spawn(move || end(map_and_unmap(longest, over))),
            scope.spawn(move || end(fault(faulted, longest, over))),
        ];
        let answered = end(answer(longest, over, console));
        let joined = workers.into_iter().map(|worker| {
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.chain([answered]).collect()
    })
}

/// The small file, mapped until the address space is as large as wanted.
fn map_many_times(args: &OneTibArgs) -> Result<Vec<Mapping>, WorkloadError> {
    let file = memory_file().map_err(WorkloadError::system("making a file in memory"))?;
    file.set_len(FILE_BYTES)
        .map_err(WorkloadError::system("making a file in memory"))?;
    let pieces = args.mapped_gib * GIB / FILE_BYTES;
    let populated = args.populated_gib * GIB / FILE_BYTES;
    (0..pieces)
        .map(|piece| {
            Ok(Mapping::of_file(
                &file,
                FILE_BYTES as usize,
                piece < populated,
            )?)
        })
        .collect()
}

fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a string that ends with a zero byte.
    let fd = unsafe { libc::memfd_create(c"hawkeye-one-tib".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor; nobody else knows it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The longest calls since they were last asked for, in nanoseconds.
#[derive(Debug, Default)]
struct Longest {
    map: AtomicU64,
    unmap: AtomicU64,
    fault: AtomicU64,
    calls: AtomicU64,
}

impl Longest {
    fn time<T>(&self, longest: &AtomicU64, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        longest.fetch_max(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        result
    }

    fn take(&self) -> Event {
        let us = |longest: &AtomicU64| longest.swap(0, Ordering::Relaxed) as f64 / 1e3;
        Event::Longest {
            map_us: us(&self.map),
            unmap_us: us(&self.unmap),
            fault_us: us(&self.fault),
            calls: self.calls.swap(0, Ordering::Relaxed),
        }
    }
}

fn read_at_random(memory: &Mapping, over: &AtomicBool) -> Result<(), WorkloadError> {
    let mut rng = Rng::new(1, 0);
    while !over.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            memory.read(rng.below(memory.bytes() / 8) * 8);
        }
    }
    Ok(())
}

fn map_and_unmap(longest: &Longest, over: &AtomicBool) -> Result<(), WorkloadError> {
    while !over.load(Ordering::Relaxed) {
        let mapping = longest.time(&longest.map, || Mapping::shared(PIECE))?;
        longest.time(&longest.unmap, || drop(mapping));
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn fault(mut memory: Mapping, longest: &Longest, over: &AtomicBool) -> Result<(), WorkloadError> {
    while !over.load(Ordering::Relaxed) {
        memory.discard(0, memory.bytes())?;
        for page in 0..memory.pages() {
            if over.load(Ordering::Relaxed) {
                break;
            }
            longest.time(&longest.fault, || memory.write(page * PAGE, 1));
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Answers requests until there is a reason to end.
fn answer(
    longest: &Longest,
    over: &AtomicBool,
    console: &mut Console,
) -> Result<(), WorkloadError> {
    while !over.load(Ordering::Relaxed) {
        match console.wait(IDLE) {
            None => {}
            Some(Input::End | Input::Request(Request::Quit)) => break,
            Some(Input::Request(Request::Longest)) => console.emit(&longest.take())?,
            Some(Input::Request(other)) => console.refuse(other)?,
            Some(Input::Bad(bad)) => console.correct(&bad)?,
        }
    }
    Ok(())
}
