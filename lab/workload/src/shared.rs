//! Memory that processes share: forked workers that read it copy-on-write, or pages that KSM
//! merges.

use crate::prelude::*;
use crate::process::ForkedWorker;
use crate::process_storms::EndCondition;

#[derive(Clone, Debug, clap::Args)]
pub struct SharedArgs {
    /// Memory that the parent fills and its workers share, in MiB.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Forked workers.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub workers: u16,
    /// Memory that each worker fills after the fork, in MiB: it is private.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1 << 16))]
    pub private_mib: u64,
    /// Let the workers sleep. Otherwise they read all memory at random.
    #[arg(long)]
    pub asleep: bool,
    /// Pause of each worker after every 4096 reads, in milliseconds.
    #[arg(long, default_value_t = 4)]
    pub pause_ms: u16,
    /// Let the parent read this many MiB of the memory at random, with pauses.
    #[arg(long, default_value_t = 0)]
    pub parent_mib: u64,
    /// Fill pages with this many different contents, and have KSM merge equal ones [default: none
    /// is equal to another].
    #[arg(long)]
    pub mergeable: Option<u64>,
    /// Of every N pages only one gets such contents; the others are equal to none.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub mergeable_every: u64,
    /// Wait for `go` before the workers are forked.
    #[arg(long)]
    pub wait: bool,
    /// End after N seconds instead of at the end of standard input.
    #[arg(long)]
    pub seconds: Option<f64>,
}

impl SharedArgs {
    fn first_word_of_page(&self, page: u64) -> u64 {
        match self.mergeable {
            Some(different) if page % self.mergeable_every == 0 => {
                page / self.mergeable_every % different.max(1) + 1
            }
            _ => u64::MAX - page,
        }
    }
}

const BATCH: usize = 4096;
const PAUSE: Duration = Duration::from_millis(1);
/// Time between two checks for requests of a parent that does not read.
const IDLE: Duration = Duration::from_millis(50);

pub(super) fn run_shared(args: &SharedArgs, console: &mut Console) -> WorkloadResult<()> {
    let bytes = (args.mib << 20) as usize;
    let mut memory = WorkloadMemory::map_private(bytes, RequestedPageKind::Base)?;
    if args.mergeable.is_some() {
        memory.allow_same_page_merging()?;
    }
    for page in 0..memory.count_pages() {
        memory.write_word(page * PAGE, args.first_word_of_page(page as u64));
    }
    memory.allow_promotion()?;
    // Mapped by the parent and filled by each worker: a worker must not allocate.
    let private = WorkloadMemory::map_private_if_any(args.private_mib)?;
    let mut family = SharingProcesses { memory, private, workers: Vec::new() };
    if !args.wait {
        family.fork_workers(args)?;
    }
    let (start, bytes) = (family.memory.start_address(), family.memory.bytes() as u64);
    report_ready(console, start, bytes)?;
    family.read_and_serve(args, console)
}

struct SharingProcesses {
    memory: WorkloadMemory,
    private: Option<WorkloadMemory>,
    workers: Vec<ForkedWorker>,
}

impl SharingProcesses {
    fn fork_workers(&mut self, args: &SharedArgs) -> WorkloadResult<()> {
        for number in 0..args.workers {
            // SAFETY: the child reads and writes memory and makes system calls.
            let worker =
                unsafe { ForkedWorker::fork(|| fill_and_read_in_worker(self, args, number)) }?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Reads, if the parent should, and answers requests until there is a reason to end.
    fn read_and_serve(&mut self, args: &SharedArgs, console: &mut Console) -> WorkloadResult<()> {
        let mut clock = EndCondition::new(args.seconds);
        let read_pages = ((args.parent_mib << 20) as usize).min(self.memory.bytes()) / PAGE;
        let mut rng = WorkloadRng::new(1, 0);
        while !clock.is_time_over() {
            let pause = if read_pages > 0 { PAUSE } else { IDLE };
            if read_pages > 0 {
                for _ in 0..BATCH {
                    read_random_word(&self.memory, &mut rng, read_pages);
                }
            }
            match clock.wait_for_input_within(console, pause) {
                None => {}
                Some(ConsoleInput::End | ConsoleInput::Request(WorkloadRequest::Quit)) => break,
                Some(ConsoleInput::Request(WorkloadRequest::Go)) => self.fork_workers(args)?,
                Some(ConsoleInput::Request(WorkloadRequest::Stop)) => self.workers.clear(),
                Some(ConsoleInput::Request(WorkloadRequest::Rss)) => {
                    console.emit_event(&resident_memory_event()?)?
                }
                Some(other) => console.refuse_input(other)?,
            }
        }
        Ok(())
    }
}

fn read_random_word(memory: &WorkloadMemory, rng: &mut WorkloadRng, pages: usize) {
    let word = rng.draw_below(pages * PAGE_WORDS);
    memory.read_word(word * 8);
}

fn pause_of_ms(ms: u16) -> libc::timespec {
    libc::timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * 1_000_000 }
}

/// A worker's work, which is async-signal-safe.
fn fill_and_read_in_worker(family: &mut SharingProcesses, args: &SharedArgs, number: u16) {
    let mut rng = WorkloadRng::new(2, number.into());
    if let Some(private) = &mut family.private {
        for page in 0..private.count_pages() {
            private.write_word(page * PAGE, rng.next_bits());
        }
        // A child has nowhere to report an error. Without this the memory is only not promoted.
        let _ = private.allow_promotion();
    }
    let pause = pause_of_ms(args.pause_ms);
    if args.asleep {
        return;
    }
    loop {
        for _ in 0..BATCH / 2 {
            read_random_word(&family.memory, &mut rng, family.memory.count_pages());
            let other = family.private.as_ref().unwrap_or(&family.memory);
            read_random_word(other, &mut rng, other.count_pages());
        }
        if args.pause_ms > 0 {
            // SAFETY: async-signal-safe; `pause` is ours.
            unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_may_be_longer_than_a_second() {
        for (ms, parts) in [(4, (0, 4_000_000)), (1000, (1, 0)), (2500, (2, 500_000_000))] {
            let pause = pause_of_ms(ms);
            assert_eq!((pause.tv_sec, pause.tv_nsec), parts);
        }
    }
}
