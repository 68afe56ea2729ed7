//! Torture of shared memory: processes that map one file write, truncate, punch holes, unmap and
//! fork. At any time each has the expected contents of its own pages.
//!
//! Page n belongs to process n modulo the number of processes, so that neighbours in a region
//! belong to different processes. Most of the last quarter of the file belongs to the first
//! process, which truncates it; no other process touches it.

use crate::memory_file::create_memory_file;
use crate::prelude::*;
use crate::process::{ForkedChild, exit_code_of_wait_status};
use std::fs::File;
use std::os::fd::AsRawFd;

#[derive(Clone, Debug, clap::Args)]
pub struct SharedFileTortureArgs {
    /// Size of the file, in MiB.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    pub mib: u64,
    /// Processes that map it.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub processes: u16,
    /// Duration, in seconds.
    #[arg(long, default_value_t = 20)]
    pub seconds: u64,
    /// Seed: with the same one, each process makes the same operations in the same order.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Make one word wrong before the last check, to see that it is found.
    #[arg(long, hide = true)]
    pub corrupt: bool,
}

/// Exit status of a process that found a wrong word. Others end with 0, or with 2 after an error.
const WRONG: u8 = 1;
const FAILED: u8 = 2;
/// Words that each process reports through memory that it shares with the first one.
const REPORT_WORDS: usize = 8;

pub(super) fn run_shared_file_torture(
    args: &SharedFileTortureArgs,
    console: &mut Console,
) -> WorkloadResult<()> {
    let bytes = (args.mib << 20) as usize / REGION * REGION;
    let failed = WorkloadError::wrap_system_error("memfd_create");
    let file = create_memory_file(bytes as u64).map_err(failed)?;
    let processes = usize::from(args.processes);
    let report_bytes = (processes * REPORT_WORDS * 8).next_multiple_of(PAGE);
    let mut reports = WorkloadMemory::map_shared(report_bytes)?;
    let begin = Instant::now();
    let mut children = Vec::new();
    for number in 0..processes {
        // SAFETY: this process has one thread, so no lock is held at the fork.
        let child = unsafe {
            ForkedChild::fork(|| torture_in_child(args, &file, bytes, number, &mut reports))
        };
        children.push(child.map_err(WorkloadError::wrap_system_error("fork"))?);
    }
    console.emit_event(&WorkloadEvent::Ready(ready_report(0, bytes as u64, 0)))?;
    let mut totals = OperationTotals::default();
    for (number, child) in children.into_iter().enumerate() {
        let status =
            child.wait().map_err(WorkloadError::wrap_system_error("waiting for a child"))?;
        let report = |word: usize| reports.read_word((number * REPORT_WORDS + word) * 8);
        match exit_code_of_wait_status(status) {
            Some(0) => {
                totals.operations += report(0);
                totals.verified_bytes += report(1);
                totals.forks += report(2);
            }
            Some(code) if code == i32::from(WRONG) => {
                return Err(WorkloadError::Wrong(WrongWord {
                    address: report(3),
                    expected: report(4),
                    found: report(5),
                    found_again: report(6),
                    thread: number,
                    during: "torture of shared memory".to_owned(),
                    in_child: report(7) > 0,
                }));
            }
            _ => return Err(WorkloadError::Child(status)),
        }
    }
    totals.elapsed_s = begin.elapsed().as_secs_f64();
    console.emit_event(&WorkloadEvent::Done(totals))
}

fn torture_in_child(
    args: &SharedFileTortureArgs,
    file: &File,
    bytes: usize,
    number: usize,
    reports: &mut WorkloadMemory,
) -> u8 {
    // SAFETY: plain system calls without pointers. The usual alarm of a child is for short work.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::alarm(u32::try_from(args.seconds.saturating_add(120)).unwrap_or(0));
    }
    let Ok(memory) = WorkloadMemory::map_file_aligned(file, bytes, 0) else { return FAILED };
    // Not at a multiple of 2 MiB: a truncation cuts a huge page.
    let tail = bytes / PAGE * 3 / 4 + 37;
    let owned = |page: &usize| match *page < tail {
        true => page % usize::from(args.processes) == number,
        false => number == 0,
    };
    let mut torturer = FileTorturer {
        file,
        memory: Some(memory),
        bytes,
        tail,
        expected: vec![0; bytes / PAGE],
        own: (0..bytes / PAGE).filter(owned).collect(),
        rng: WorkloadRng::new(args.seed, number as u64),
        verified_bytes: 0,
        forks: 0,
    };
    let (result, operations) = torturer.torture_for(args.seconds, args.corrupt && number == 0);
    let mut report = [operations, torturer.verified_bytes, torturer.forks, 0, 0, 0, 0, 0];
    let status = match result {
        Ok(()) => 0,
        Err(TortureFailure::Call) => FAILED,
        Err(TortureFailure::Wrong(wrong)) => {
            report[3..].copy_from_slice(&wrong);
            WRONG
        }
    };
    for (word, value) in report.into_iter().enumerate() {
        reports.write_word((number * REPORT_WORDS + word) * 8, value);
    }
    status
}

enum TortureFailure {
    /// A system call failed.
    Call,
    /// Address, the expected and the found word, a second read, and 1 where a child found it.
    Wrong([u64; 5]),
}

struct FileTorturer<'a> {
    file: &'a File,
    /// `None` only while it is mapped anew.
    memory: Option<WorkloadMemory>,
    bytes: usize,
    /// The first page that truncation removes.
    tail: usize,
    /// What each own page holds: 0 for zeros, otherwise the seed of its words.
    expected: Vec<u64>,
    own: Vec<usize>,
    rng: WorkloadRng,
    verified_bytes: u64,
    forks: u64,
}

impl FileTorturer<'_> {
    /// Returns the number of operations, too.
    fn torture_for(&mut self, seconds: u64, corrupt: bool) -> (Result<(), TortureFailure>, u64) {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut operations = 0;
        while Instant::now() < end {
            for _ in 0..64 {
                if let Err(failure) = self.make_one_operation() {
                    return (Err(failure), operations);
                }
                operations += 1;
            }
        }
        if corrupt {
            self.write_page(self.own[0]);
            self.expected[self.own[0]] ^= 2;
        }
        let last = self.own.clone().into_iter().try_for_each(|page| self.verify_page(page, false));
        (last, operations)
    }

    fn make_one_operation(&mut self) -> Result<(), TortureFailure> {
        let page = self.own[self.rng.draw_below(self.own.len())];
        match self.rng.draw_below(1000) {
            0..500 => {
                self.write_page(page);
                Ok(())
            }
            500..900 => self.verify_page(page, false),
            900..980 => self.punch_hole(page),
            980..996 => self.map_again(),
            996..999 => self.fork_and_verify(),
            _ => self.truncate_tail(),
        }
    }

    fn memory(&mut self) -> Result<&mut WorkloadMemory, TortureFailure> {
        self.memory.as_mut().ok_or(TortureFailure::Call)
    }

    fn write_page(&mut self, page: usize) {
        let seed = self.rng.next_bits() | 1;
        if let Some(memory) = &mut self.memory {
            for word in 0..PAGE_WORDS {
                memory.write_word(page * PAGE + word * 8, seed ^ word as u64);
            }
            self.expected[page] = seed;
        }
    }

    fn verify_page(&mut self, page: usize, in_child: bool) -> Result<(), TortureFailure> {
        let seed = self.expected[page];
        let memory = self.memory()?;
        for word in 0..PAGE_WORDS {
            let offset = page * PAGE + word * 8;
            let expected = if seed == 0 { 0 } else { seed ^ word as u64 };
            let found = memory.read_word(offset);
            if found != expected {
                let address = memory.start_address() + offset as u64;
                let again = memory.read_word(offset);
                let child = u64::from(in_child);
                return Err(TortureFailure::Wrong([address, expected, found, again, child]));
            }
        }
        self.verified_bytes += PAGE as u64;
        Ok(())
    }

    /// Takes a page out of the file; it reads as zeros afterwards.
    fn punch_hole(&mut self, page: usize) -> Result<(), TortureFailure> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (offset, length) = ((page * PAGE) as libc::off_t, PAGE as libc::off_t);
        // SAFETY: a plain system call without pointers.
        match unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, length) } {
            0 => {
                self.expected[page] = 0;
                Ok(())
            }
            _ => Err(TortureFailure::Call),
        }
    }

    fn map_again(&mut self) -> Result<(), TortureFailure> {
        self.memory = None;
        let memory = WorkloadMemory::map_file_aligned(self.file, self.bytes, 0);
        self.memory = Some(memory.map_err(|_| TortureFailure::Call)?);
        Ok(())
    }

    /// A child shares the mapping, and sees the same contents while this process waits.
    fn fork_and_verify(&mut self) -> Result<(), TortureFailure> {
        let pages: Vec<usize> =
            (0..16).map(|_| self.own[self.rng.draw_below(self.own.len())]).collect();
        // SAFETY: this process has one thread. The child reads memory.
        let child = unsafe {
            ForkedChild::fork(|| {
                let verified = pages.iter().try_for_each(|page| self.verify_page(*page, true));
                if verified.is_err() { WRONG } else { 0 }
            })
        };
        self.forks += 1;
        let status = child.and_then(ForkedChild::wait).map_err(|_| TortureFailure::Call)?;
        if exit_code_of_wait_status(status) == Some(0) {
            return Ok(());
        }
        // Where the parent sees nothing wrong, only the child did.
        pages.iter().try_for_each(|page| self.verify_page(*page, true))?;
        Err(TortureFailure::Wrong([0, 0, 0, 0, 1]))
    }

    /// Cuts off the last quarter of the file and makes it as long as before: zeros.
    fn truncate_tail(&mut self) -> Result<(), TortureFailure> {
        if self.own.last().is_none_or(|last| *last < self.tail) {
            return Ok(());
        }
        let cut = self.file.set_len((self.tail * PAGE) as u64);
        let grown = cut.and_then(|()| self.file.set_len(self.bytes as u64));
        grown.map_err(|_| TortureFailure::Call)?;
        self.expected[self.tail..].fill(0);
        Ok(())
    }
}
