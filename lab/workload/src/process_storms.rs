//! Processes that are hard to watch: threads and children without end, exec, early exit.

use crate::prelude::*;
use crate::process::{self, ForkedChild, exit_code_of_wait_status};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

#[derive(Clone, Debug, clap::Args)]
pub struct ThreadStormArgs {
    /// Threads at a time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// Memory and duration.
    #[command(flatten)]
    pub hold: HeldMemoryArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ForkStormArgs {
    /// Children at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub children: u16,
    /// Memory and duration.
    #[command(flatten)]
    pub hold: HeldMemoryArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ExecSelfArgs {
    /// Delay before each exec, in milliseconds.
    #[arg(long, default_value_t = 500)]
    pub ms: u64,
    /// How often.
    #[arg(long, default_value_t = 1)]
    pub times: u32,
    /// Memory and duration; the duration counts from the last exec.
    #[command(flatten)]
    pub hold: HeldMemoryArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ExitAfterArgs {
    /// Delay, in milliseconds.
    #[arg(long, default_value_t = 500)]
    pub ms: u64,
    /// Exit status.
    #[arg(long, default_value_t = 0)]
    pub status: u8,
    /// Memory to touch.
    #[command(flatten)]
    pub memory: TouchedMemoryArgs,
}

/// Memory that a storm holds, and how long it lasts.
#[derive(Clone, Debug, clap::Args)]
pub struct HeldMemoryArgs {
    /// Memory to touch.
    #[command(flatten)]
    pub memory: TouchedMemoryArgs,
    /// End after N seconds instead of at the end of standard input.
    #[arg(long)]
    pub seconds: Option<f64>,
}

/// Memory that is touched once.
#[derive(Clone, Debug, clap::Args)]
pub struct TouchedMemoryArgs {
    /// Memory to touch, in MiB.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Pages to start with.
    #[arg(long, value_enum, default_value_t = RequestedPageKind::Base)]
    pub pages: RequestedPageKind,
}

impl TouchedMemoryArgs {
    pub(super) fn map_and_fill(&self) -> WorkloadResult<WorkloadMemory> {
        let bytes = (self.mib << 20) as usize;
        let fill = |memory: &mut WorkloadMemory| process::write_each_page(memory, bytes);
        Ok(WorkloadMemory::map_private_and_touch(bytes, self.pages, fill)?)
    }
}

/// Counts the times that `exec-self` has executed itself.
const EXECS_VARIABLE: &str = "HAWKEYE_WORKLOAD_EXECS";
const PAGES_WRITTEN: usize = 64;
/// Time between two checks of the clock and of standard input while idle.
const IDLE: Duration = Duration::from_millis(50);
const PROGRESS: Duration = Duration::from_secs(1);

pub(super) fn run_thread_storm(
    args: &ThreadStormArgs,
    console: &mut Console,
) -> WorkloadResult<()> {
    let memory = args.hold.memory.map_and_fill()?;
    run_storm_rounds(memory, &args.hold, console, |_, _| {
        let started: WorkloadResult<Vec<_>, _> =
            (0..args.threads).map(|_| thread::Builder::new().spawn(map_and_write_pages)).collect();
        let threads = started.map_err(WorkloadError::wrap_system_error("starting a thread"))?;
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(args.threads.into())
    })
}

fn map_and_write_pages() -> WorkloadResult<()> {
    WorkloadMemory::map_private_and_touch(REGION, RequestedPageKind::Default, |memory| {
        for page in 0..PAGES_WRITTEN {
            memory.write_word(page * PAGE, 1);
        }
    })?;
    Ok(())
}

pub(super) fn run_fork_storm(args: &ForkStormArgs, console: &mut Console) -> WorkloadResult<()> {
    let memory = args.hold.memory.map_and_fill()?;
    run_storm_rounds(memory, &args.hold, console, |memory, rng| {
        let mut children = Vec::with_capacity(args.children.into());
        for _ in 0..args.children {
            let first = rng.draw_below(memory.count_pages().saturating_sub(PAGES_WRITTEN).max(1));
            // SAFETY: the child only writes to memory.
            let child = unsafe { ForkedChild::fork(|| write_and_check_pages(memory, first)) };
            children.push(child.map_err(WorkloadError::wrap_system_error("fork"))?);
        }
        for child in children {
            let status = child.wait().map_err(WorkloadError::wrap_system_error("waitpid"))?;
            if exit_code_of_wait_status(status) != Some(0) {
                return Err(WorkloadError::Child(status));
            }
        }
        Ok(args.children.into())
    })
}

fn write_and_check_pages(memory: &mut WorkloadMemory, first: usize) -> u8 {
    let end = memory.count_pages().min(first + PAGES_WRITTEN);
    for page in first..end {
        memory.write_word(page * PAGE, page as u64);
    }
    let kept = (first..end).all(|page| memory.read_word(page * PAGE) == page as u64);
    u8::from(!kept)
}

pub(super) fn run_exec_self(args: &ExecSelfArgs, console: &mut Console) -> WorkloadResult<()> {
    let count = std::env::var(EXECS_VARIABLE).ok().and_then(|count| count.parse().ok());
    let execs = count.unwrap_or(0);
    let memory = args.hold.memory.map_and_fill()?;
    if execs < args.times {
        report_ready_with_exec_count(&memory, execs, console)?;
        // Standard input is not read before the last exec: input read now would be lost.
        thread::sleep(Duration::from_millis(args.ms));
        let error = Command::new("/proc/self/exe")
            .args(std::env::args_os().skip(1))
            .env(EXECS_VARIABLE, (execs + 1).to_string())
            .exec();
        return Err(WorkloadError::wrap_system_error("exec")(error));
    }
    report_ready_with_exec_count(&memory, execs, console)?;
    let mut clock = EndCondition::new(args.hold.seconds);
    while clock.wait_and_should_go_on(console, IDLE)? {}
    Ok(())
}

pub(super) fn run_exit_after(args: &ExitAfterArgs, console: &mut Console) -> WorkloadResult<()> {
    let memory = args.memory.map_and_fill()?;
    report_ready_with_exec_count(&memory, 0, console)?;
    thread::sleep(Duration::from_millis(args.ms));
    std::process::exit(args.status.into())
}

pub(super) fn report_ready_with_exec_count(
    memory: &WorkloadMemory,
    execs: u32,
    console: &mut Console,
) -> WorkloadResult<()> {
    let (start, bytes) = (memory.start_address(), memory.bytes() as u64);
    console.emit_event(&WorkloadEvent::Ready(WorkloadReady {
        execs,
        ..process::ready_report(start, bytes, start + bytes)
    }))
}

/// `round` returns the number of tasks that it started.
fn run_storm_rounds(
    mut memory: WorkloadMemory,
    args: &HeldMemoryArgs,
    console: &mut Console,
    mut round: impl FnMut(&mut WorkloadMemory, &mut WorkloadRng) -> WorkloadResult<u64>,
) -> WorkloadResult<()> {
    report_ready_with_exec_count(&memory, 0, console)?;
    let mut rng = WorkloadRng::new(1, 0);
    let mut clock = EndCondition::new(args.seconds);
    let (mut operations, mut reported) = (0, Instant::now());
    while clock.wait_and_should_go_on(console, Duration::ZERO)? {
        operations += round(&mut memory, &mut rng)?;
        if reported.elapsed() >= PROGRESS {
            reported = Instant::now();
            console.emit_event(&WorkloadEvent::Progress {
                elapsed_s: clock.elapsed_s(),
                operations,
            })?;
        }
    }
    let elapsed_s = clock.elapsed_s();
    console.emit_event(&WorkloadEvent::Done(OperationTotals {
        elapsed_s,
        operations,
        ..Default::default()
    }))
}

/// Time or input has ended.
pub(super) struct EndCondition {
    begin: Instant,
    period: Option<Duration>,
    input_ended: bool,
}

impl EndCondition {
    /// After this many seconds, or at the end of standard input.
    pub(super) fn new(seconds: Option<f64>) -> Self {
        Self {
            begin: Instant::now(),
            period: seconds.map(|s| Duration::try_from_secs_f64(s).unwrap_or_default()),
            input_ended: false,
        }
    }

    fn elapsed_s(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    pub(super) fn is_time_over(&self) -> bool {
        self.time_left().is_zero()
    }

    /// The longest duration if the time is not limited.
    pub(super) fn time_left(&self) -> Duration {
        let left = |period: Duration| period.saturating_sub(self.begin.elapsed());
        self.period.map_or(Duration::MAX, left)
    }

    /// Waits for input at most `wait`. The end of input does not count where the time is limited.
    pub(super) fn wait_for_input_within(
        &mut self,
        console: &mut Console,
        wait: Duration,
    ) -> Option<ConsoleInput> {
        if self.input_ended {
            thread::sleep(wait);
            return None;
        }
        let input = console.wait_for_input_within(wait);
        self.input_ended = input == Some(ConsoleInput::End);
        input.filter(|_| !self.input_ended || self.period.is_none())
    }

    /// Checks the clock and standard input, and waits for the latter at most `wait`.
    pub(super) fn wait_and_should_go_on(
        &mut self,
        console: &mut Console,
        wait: Duration,
    ) -> WorkloadResult<bool> {
        match self.wait_for_input_within(console, wait) {
            Some(
                ConsoleInput::End
                | ConsoleInput::Request(WorkloadRequest::Quit | WorkloadRequest::Stop),
            ) => return Ok(false),
            Some(other) => console.refuse_input(other)?,
            None => {}
        }
        Ok(!self.is_time_over())
    }
}
