//! Text of a program: functions in a file that is mapped executable, called in random order.

use crate::access::RateReportArgs;
use crate::arch::FUNCTION_BYTES;
use crate::executable_memory::{ExecutableMemory, write_code};
use crate::prelude::*;
use crate::process::ForkedWorker;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct TextArgs {
    /// Machine code to call, in MiB.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(2..=4096))]
    pub mib: u64,
    /// Call only the functions in the first KIB of the code [default: all].
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(1..))]
    pub hot_kib: Option<u64>,
    /// File to write the code to, and to map; it is replaced.
    #[arg(long, value_name = "FILE")]
    pub path: PathBuf,
    /// Forked processes that map the file too.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub workers: u16,
    /// Copy the code to private memory with huge pages at the same addresses before the first call.
    #[arg(long)]
    pub copy: bool,
    /// File to write the number of calls to, each time it is reported.
    #[arg(long, value_name = "FILE")]
    pub count_file: Option<PathBuf>,
    /// Start and reports.
    #[command(flatten)]
    pub report: RateReportArgs,
}

/// Calls between two checks of the clock and of the input.
const BATCH: usize = 4096;

pub(super) fn run_text(args: &TextArgs, console: &mut Console) -> WorkloadResult<()> {
    let bytes = (args.mib << 20) as usize / REGION * REGION;
    let file = create_code_file(args, bytes)
        .map_err(WorkloadError::wrap_system_error("writing the file of code"))?;
    let workers = (0..args.workers).map(|_| start_mapper(&file, bytes));
    let _workers: Vec<ForkedWorker> = workers.collect::<Result<_, _>>()?;
    let mut code = ExecutableMemory::map_code(&file, bytes)?;
    if args.copy {
        code.copy_to_huge_pages()?;
    }
    call_each_page(&code);
    report_ready(console, code.start_address(), bytes as u64)?;
    call_at_random(&code, args, console)
}

/// The file is closed for writing, as a program's is while it runs.
fn create_code_file(args: &TextArgs, bytes: usize) -> io::Result<File> {
    // A file that other processes map must keep its contents.
    let _ = std::fs::remove_file(&args.path);
    write_code(&mut File::create(&args.path)?, bytes)?;
    File::open(&args.path)
}

fn start_mapper(file: &File, bytes: usize) -> WorkloadResult<ForkedWorker> {
    // SAFETY: this process has one thread. The child maps memory and calls code in it.
    unsafe {
        ForkedWorker::fork(|| {
            let Ok(code) = ExecutableMemory::map_code(file, bytes) else { return };
            loop {
                call_each_page(&code);
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    }
}

fn call_each_page(code: &ExecutableMemory) {
    let per_page = code.count_functions() / (code.bytes() / PAGE);
    for number in (0..code.count_functions()).step_by(per_page) {
        code.call_function(number);
    }
}

/// Calls the first `functions`. Each call depends on the value of the one before, so none begins
/// early.
fn call_batch(code: &ExecutableMemory, functions: usize, rng: &mut WorkloadRng, last: &mut usize) {
    for _ in 0..BATCH {
        let next = (rng.draw_below(functions) + *last) % functions;
        *last = code.call_function(next) as usize;
    }
}

/// What was called, and what of it is reported.
struct CallReporter<'a> {
    args: &'a TextArgs,
    count_file: Option<File>,
    begun: Instant,
    calls: u64,
    /// Time and calls at the last report.
    reported: (Duration, u64),
}

impl<'a> CallReporter<'a> {
    fn new(args: &'a TextArgs) -> WorkloadResult<Self> {
        let failed = WorkloadError::wrap_system_error("creating the file of counts");
        let count_file = args.count_file.as_ref().map(File::create).transpose().map_err(failed)?;
        Ok(Self {
            args,
            count_file,
            begun: Instant::now(),
            calls: 0,
            reported: (Duration::ZERO, 0),
        })
    }

    fn restart_interval(&mut self) {
        self.reported = (self.begun.elapsed(), self.calls);
    }

    fn add_batch(&mut self, console: &mut Console) -> WorkloadResult<()> {
        self.calls += BATCH as u64;
        let elapsed = self.begun.elapsed();
        let (before, calls_before) = self.reported;
        let interval = elapsed.saturating_sub(before);
        if interval < Duration::from_millis(self.args.report.report_ms) {
            return Ok(());
        }
        self.reported = (elapsed, self.calls);
        if let Some(file) = &mut self.count_file {
            let failed = WorkloadError::wrap_system_error("writing the file of counts");
            write_count(file, self.calls).map_err(failed)?;
        }
        if self.args.report.quiet {
            return Ok(());
        }
        let accesses_per_s = (self.calls - calls_before) as f64 / interval.as_secs_f64();
        let (elapsed_s, accesses) = (elapsed.as_secs_f64(), self.calls);
        console.emit_event(&WorkloadEvent::Rate { elapsed_s, accesses, accesses_per_s })
    }
}

fn call_at_random(
    code: &ExecutableMemory,
    args: &TextArgs,
    console: &mut Console,
) -> WorkloadResult<()> {
    let mut reporter = CallReporter::new(args)?;
    let (mut rng, mut last) = (WorkloadRng::new(1, 0), 0);
    let functions = args.hot_kib.map_or(usize::MAX, |kib| (kib as usize) << 10);
    let functions = (functions / FUNCTION_BYTES).min(code.count_functions());
    let mut running = !args.report.wait;
    loop {
        let input = if running { console.poll_input() } else { Some(console.wait_for_input()) };
        match input {
            None => {
                call_batch(code, functions, &mut rng, &mut last);
                reporter.add_batch(console)?;
            }
            Some(ConsoleInput::End | ConsoleInput::Request(WorkloadRequest::Quit)) => return Ok(()),
            Some(ConsoleInput::Request(WorkloadRequest::Go)) => {
                running = true;
                reporter.restart_interval();
            }
            Some(ConsoleInput::Request(WorkloadRequest::Stop)) => running = false,
            Some(ConsoleInput::Request(WorkloadRequest::Verify)) => {
                let (bad_bytes, first_bad) = code.compare_with_written_code();
                let checked_bytes = code.bytes() as u64;
                let verified = WorkloadEvent::Verified { checked_bytes, bad_bytes, first_bad };
                console.emit_event(&verified)?;
            }
            Some(ConsoleInput::Request(WorkloadRequest::Rss)) => {
                console.emit_event(&resident_memory_event()?)?;
            }
            Some(other) => console.refuse_input(other)?,
        }
    }
}

/// With a fixed width, so that a reader never sees a part of an old number.
fn write_count(file: &mut File, calls: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(format!("{calls:020}\n").as_bytes())
}
