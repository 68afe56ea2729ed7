//! A program that touches one new page at equal distances, and the time of each page fault.

pub(crate) mod page_fault_times;

pub use page_fault_times::PageFaultTimes;

use crate::prelude::*;
use crate::process::{
    Worker, new_nanosecond_histogram, read_at_random_until_over, write_each_page,
};
use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

#[derive(Clone, Debug, clap::Args)]
pub struct PageFaultStallsArgs {
    /// Memory in base pages that can be promoted and that a thread reads at random, in MiB.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(2..=1 << 20))]
    pub mib: u64,
    /// Memory beside it that never becomes huge (`MADV_NOHUGEPAGE`), in MiB.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    pub beside_mib: u64,
    /// Memory of the same mapping that is touched page by page, in MiB; when all of it is present
    /// it is given back.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(2..=1 << 16))]
    pub touched_mib: u64,
    /// From one touch to the next, in microseconds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    pub every_us: u64,
}

/// Faults, or reads, since the last report.
pub(crate) struct PageFaultRecorder {
    nanoseconds: Histogram<u64>,
    /// All times except their counts.
    times: PageFaultTimes,
}

impl PageFaultRecorder {
    fn new() -> WorkloadResult<Self> {
        Ok(Self { nanoseconds: new_nanosecond_histogram()?, times: PageFaultTimes::default() })
    }

    fn record_fault_time(&mut self, took: Duration, distance: Duration) -> WorkloadResult<()> {
        self.times.faults += 1;
        self.record_time(took, distance)
    }

    /// Records the longest of some reads, of which some had page faults.
    pub(crate) fn record_reads(
        &mut self,
        longest: Duration,
        distance: Duration,
        faults: u64,
        reads: u64,
    ) -> WorkloadResult<()> {
        self.times.faults += faults;
        self.times.present += reads.saturating_sub(faults);
        self.record_time(longest, distance)
    }

    fn record_time(&mut self, took: Duration, distance: Duration) -> WorkloadResult<()> {
        let ns = took.as_nanos() as u64;
        self.times.longest_ns = self.times.longest_ns.max(ns);
        let distance_ns = distance.as_nanos() as u64;
        let recorded = self.nanoseconds.record_correct(ns, distance_ns);
        recorded.map_err(WorkloadError::from_histogram_error)
    }

    fn take_times(&mut self) -> PageFaultTimes {
        let counts = self
            .nanoseconds
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect();
        let times = PageFaultTimes { counts, ..std::mem::take(&mut self.times) };
        self.nanoseconds.reset();
        times
    }
}

pub(super) fn run_page_fault_stalls(
    args: &PageFaultStallsArgs,
    console: &mut Console,
) -> WorkloadResult<()> {
    let bytes = (args.mib.next_multiple_of(2) << 20) as usize;
    let touched_bytes = (args.touched_mib.next_multiple_of(2) << 20) as usize;
    let beside_bytes = (args.beside_mib << 20) as usize;
    let beside = (beside_bytes > 0).then(|| WorkloadMemory::map_without_huge_pages(beside_bytes));
    let mut beside = beside.transpose()?;
    if let Some(beside) = &mut beside {
        write_each_page(beside, beside_bytes);
    }
    let memory = WorkloadMemory::map_private_and_touch(
        bytes + touched_bytes,
        RequestedPageKind::Base,
        |memory| {
            write_each_page(memory, bytes);
        },
    )?;
    let (Some(own), Some(touched)) = memory.split_at(bytes) else {
        unreachable!("neither part is empty")
    };
    report_ready(console, own.start_address(), bytes as u64)?;
    let distance = Duration::from_micros(args.every_us);
    run_with_recorder(console, |recorder, over| {
        [
            Box::new(move || read_at_random_until_over(&own, over)),
            Box::new(move || time_faults_until_over(touched, distance, recorder, over)),
        ]
    })
}

/// Runs workers, which record times, until the first one ends. Reports the times on request.
pub(crate) fn run_with_recorder<const N: usize>(
    console: &mut Console,
    workers: impl for<'a> FnOnce(&'a Mutex<PageFaultRecorder>, &'a AtomicBool) -> [Worker<'a>; N],
) -> WorkloadResult<()> {
    let (recorder, over) = (&Mutex::new(PageFaultRecorder::new()?), &AtomicBool::new(false));
    let answer = |request| {
        let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
        (request == WorkloadRequest::Faults).then(|| WorkloadEvent::Faults(recorder.take_times()))
    };
    run_workers_until_first_ends(console, over, workers(recorder, over), answer)
}

fn time_faults_until_over(
    mut memory: WorkloadMemory,
    distance: Duration,
    recorder: &Mutex<PageFaultRecorder>,
    over: &AtomicBool,
) -> WorkloadResult<()> {
    // Without the privilege the thread keeps its priority, and its times include waits for a
    // processor.
    let _ = set_thread_sched_fifo();
    while !over.load(Ordering::Relaxed) {
        memory.discard_range(0, memory.bytes())?;
        let mut due = Instant::now();
        for offset in (0..memory.bytes()).step_by(PAGE) {
            if over.load(Ordering::Relaxed) {
                break;
            }
            due = (due + distance).max(Instant::now());
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let before = thread_fault_count()?;
            let begun = Instant::now();
            memory.write_word(offset, 1);
            let took = begun.elapsed();
            let faulted = thread_fault_count()? > before;
            let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
            if faulted {
                recorder.record_fault_time(took, distance)?;
            } else {
                recorder.times.present += 1;
            }
        }
    }
    Ok(())
}

/// Ready threads get a processor ahead of managers at their lowest real-time priority.
pub(crate) fn set_thread_sched_fifo() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 2 };
    // SAFETY: a plain system call on this thread, which only reads `priority`.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn thread_fault_count() -> WorkloadResult<i64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).map_err(io::Error::from);
    let usage = usage.map_err(WorkloadError::wrap_system_error("getrusage"))?;
    Ok(usage.minor_page_faults())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISTANCE: Duration = Duration::from_micros(100);

    fn times(took_us: &[u64]) -> PageFaultTimes {
        let mut recorder = PageFaultRecorder::new().unwrap();
        for us in took_us {
            recorder.record_fault_time(Duration::from_micros(*us), DISTANCE).unwrap();
        }
        recorder.take_times()
    }

    fn near(ns: u64, us: u64) -> bool {
        ns.abs_diff(us * 1000) <= us
    }

    #[test]
    fn quantiles_are_right_to_a_thousandth() {
        let all: Vec<u64> = (1..=100).collect();
        let times = times(&all);
        assert!(near(times.quantile_ns(0.5), 50), "{times:?}");
        assert!(near(times.quantile_ns(0.99), 99), "{times:?}");
        assert_eq!((times.longest_ns, times.faults), (100_000, 100));
        assert_eq!(PageFaultTimes::default().quantile_ns(0.999), 0);
    }

    #[test]
    fn a_long_fault_stands_for_those_that_were_due_meanwhile() {
        let short = vec![2; 98];
        let times = times(&[&short[..], &[1000]].concat());
        assert_eq!(times.faults, 99);
        // 1000, 900, ... 100 us: 10 of 108.
        assert!(near(times.quantile_ns(0.92), 200), "{times:?}");
        assert!(near(times.quantile_ns(0.90), 2), "{times:?}");
    }

    #[test]
    fn times_of_several_turns_are_those_of_all_faults() {
        let mut sum = times(&[1, 2, 3]);
        sum.merge(&times(&[3, 4, 90]));
        assert_eq!(sum, times(&[1, 2, 3, 3, 4, 90]));
    }
}
