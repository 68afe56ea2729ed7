//! Memory torture: threads that change their memory in every way a program can. At any time they
//! have the expected value of each byte.
//!
//! ```text
//!  run_torture --> torture_thread --picks--> operation: TortureOperation
//!                     |                         v
//!                     |                      operation_steps: does it to memory and to the shadow
//!                     |                         v
//!                     |-- mapping_with_shadow_copy --> shadow_pages: ExpectedPage
//!                     `-- snapshot_check_runner: a forked child checks a snapshot
//! ```
//!
//! Read `torture_thread` first, then `operation`. A word that differs from the shadow is
//! reported by [`WorkloadEvent::Wrong`] and ends the workload.

mod mapping_with_shadow_copy;
mod operation;
mod operation_steps;
mod shadow_pages;
mod snapshot_check_runner;
mod torture_thread;

use crate::prelude::*;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use torture_thread::TortureThread;

#[derive(Clone, Debug, clap::Args)]
pub struct TortureArgs {
    /// Memory of all threads together, in MiB, at least 8 for each.
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    pub mib: u64,
    /// Threads.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Duration, in seconds; it ends earlier on `quit`.
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Seed: with the same one, each thread makes the same operations in the same order.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Pages to start with [default: both base and huge, at random].
    #[arg(long, value_enum)]
    pub pages: Option<RequestedPageKind>,
    /// Make one byte wrong before the last check, to see that it is found.
    #[arg(long, hide = true)]
    pub corrupt: bool,
}

/// Least memory of one thread, in MiB: four regions.
const LEAST_MIB: u64 = 8;
const PROGRESS: Duration = Duration::from_secs(1);
/// Time between two checks of standard input.
const POLL: Duration = Duration::from_millis(100);

type TortureResult = WorkloadResult<OperationTotals>;

pub(super) fn run_torture(args: &TortureArgs, console: &mut Console) -> WorkloadResult<()> {
    let each_mib = args.mib / u64::from(args.threads);
    if each_mib < LEAST_MIB {
        let message = format!("--mib {} is less than {LEAST_MIB} for each thread", args.mib);
        return Err(WorkloadError::Usage(message));
    }
    let pages = each_mib as usize / 2 * REGION_PAGES;
    let duration = Duration::try_from_secs_f64(args.seconds).unwrap_or_default();
    let torturers = (0..usize::from(args.threads))
        .map(|thread| TortureThread::new(thread, pages, args))
        .collect::<WorkloadResult<Vec<_>, _>>()?;
    console.emit_event(&WorkloadEvent::Ready(ready_report(0, args.mib << 20, 0)))?;

    let begin = Instant::now();
    let deadline = begin.checked_add(duration).unwrap_or(begin);
    let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    let totals = thread::scope(|scope| {
        let (sender, outcomes) = mpsc::channel();
        for torturer in torturers {
            let (sender, stop, operations) = (sender.clone(), &stop, &operations);
            let body = move || {
                let outcome =
                    run_torture_thread(torturer, deadline, stop, operations, args.corrupt);
                // A receiver that is gone has the first failure, and that is enough.
                let _ = sender.send(outcome);
            };
            if let Err(source) = thread::Builder::new().spawn_scoped(scope, body) {
                stop.store(true, Ordering::Relaxed);
                return Err(WorkloadError::wrap_system_error("starting a thread")(source));
            }
        }
        drop(sender);
        let totals = collect_totals(&outcomes, begin, &stop, &operations, console);
        stop.store(true, Ordering::Relaxed);
        totals
    });
    let elapsed_s = begin.elapsed().as_secs_f64();
    console.emit_event(&WorkloadEvent::Done(OperationTotals { elapsed_s, ..totals? }))
}

fn run_torture_thread(
    mut torturer: TortureThread,
    deadline: Instant,
    stop: &AtomicBool,
    operations: &AtomicU64,
    corrupt: bool,
) -> TortureResult {
    while !stop.load(Ordering::Relaxed) && Instant::now() < deadline {
        torturer.run_random_operation()?;
        operations.fetch_add(1, Ordering::Relaxed);
    }
    if corrupt {
        torturer.corrupt_one_byte();
    }
    torturer.verify_all_mappings()?;
    Ok(torturer.totals)
}

/// Waits for all threads, or for the first failure, which is printed at once.
fn collect_totals(
    outcomes: &Receiver<TortureResult>,
    begin: Instant,
    stop: &AtomicBool,
    operations: &AtomicU64,
    console: &mut Console,
) -> TortureResult {
    let (mut totals, mut reported) = (OperationTotals::default(), begin);
    loop {
        match outcomes.recv_timeout(POLL) {
            Ok(Ok(more)) => totals = add_totals(totals, more),
            Ok(Err(error)) => {
                if let WorkloadError::Wrong(wrong) = &error {
                    console.emit_event(&WorkloadEvent::Wrong(wrong.clone()))?;
                }
                return Err(error);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(totals),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // The end of standard input is no reason to end, because the duration is limited anyway.
        if let Some(ConsoleInput::Request(WorkloadRequest::Quit | WorkloadRequest::Stop)) =
            console.poll_input()
        {
            stop.store(true, Ordering::Relaxed);
        }
        if reported.elapsed() >= PROGRESS {
            reported = Instant::now();
            let operations = operations.load(Ordering::Relaxed);
            let elapsed_s = begin.elapsed().as_secs_f64();
            console.emit_event(&WorkloadEvent::Progress { elapsed_s, operations })?;
        }
    }
}

fn add_totals(a: OperationTotals, b: OperationTotals) -> OperationTotals {
    OperationTotals {
        elapsed_s: a.elapsed_s.max(b.elapsed_s),
        operations: a.operations + b.operations,
        verified_bytes: a.verified_bytes + b.verified_bytes,
        written_bytes: a.written_bytes + b.written_bytes,
        forks: a.forks + b.forks,
        maps: a.maps + b.maps,
        unmaps: a.unmaps + b.unmaps,
        remaps: a.remaps + b.remaps,
        discards: a.discards + b.discards,
        protections: a.protections + b.protections,
        refused: a.refused + b.refused,
    }
}
