//! A child process on which primitives are tried.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the figures come from system calls and through a pipe"
)]

use crate::anonymous_mapping::map_anonymous;
use crate::error::{LinuxError, Result};
use crate::probe::userfaultfd_handle::{UserfaultfdHandle, WatchMode};
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::read_clock_ns;
use crate::ring_buffer::decode_u64s;
use hawkeye_policy::saturating_cast::usize_from_u64;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PageOrder, RegionAddr};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe, read, write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::time::Duration;

/// Regions of memory that the child maps.
pub const REGIONS: u64 = 8;

/// Orders for the child; it answers with nanoseconds, a count or an errno, and touches of blocks
/// with three numbers.
#[repr(u8)]
#[derive(Clone, Copy, strum::FromRepr)]
pub enum ChildCommand {
    /// Write one byte into every base page of the first half of its regions.
    Touch = b't',
    /// Read one byte of every base page of that half; the answer is the time that it took.
    Read = b'r',
    /// Count the bytes that differ from what the child wrote.
    Verify = b'v',
    /// Write one byte into each of the first ten base pages of the first region.
    TouchTen = b'f',
    /// `madvise(MADV_HUGEPAGE)` on all its regions.
    WantHuge = b'h',
    /// `madvise(MADV_NOHUGEPAGE)` on all its regions, which are huge where THP is `always`.
    WantBase = b'b',
    /// Map new shared memory over all its regions; the answer is the errno, 0 for success.
    MapShared = b'm',
    /// Remove all access to its regions and restore it, which leaves no translation of them in the
    /// TLB.
    LeaveTlb = b'l',
    /// Register the first region with userfaultfd and write-protect it; the answer is the errno, 0
    /// for success.
    Protect = b'p',
    /// Touch blocks of new memory, of 2^n base pages each, where n follows the order. The answer is
    /// the number of pages of the first block that were present after one touch, and the times for
    /// one touch of a block and for all touches of it.
    TouchBlocks = b'g',
    /// The same for blocks that are advised against huge pages.
    TouchBaseBlocks = b's',
}

type Answer = [u64; 3];

/// What the first touches of new blocks of memory showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTouchResult {
    /// Base pages of a block that are present after one touch.
    pub by_one_touch: u64,
    /// Time for the first touch of a block: the least of several.
    pub first: Duration,
    /// Time to touch every base page of a block: the least of several.
    pub all: Duration,
}

/// Killed and reaped when dropped.
pub struct ProbeChild {
    child: Pid,
    pub handle: ProcessHandle,
    orders: OwnedFd,
    answers: OwnedFd,
    start: u64,
}

const WHOLE_BYTES: usize = (REGIONS * HUGE_PAGE_BYTES) as usize;

const UNRESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_NORESERVE;

/// Regions that [`ChildCommand::Touch`] populates; the others stay untouched.
const TOUCHED_REGIONS: u64 = REGIONS / 2;
pub const TOUCHED_PAGES: u64 = TOUCHED_REGIONS * HUGE_PAGE_BYTES / BASE_PAGE_BYTES;

impl ProbeChild {
    pub fn spawn() -> Result<Self> {
        let (orders_in, orders) = pipe().map_err(LinuxError::wrap_errno("creating a pipe"))?;
        let (answers, answers_out) = pipe().map_err(LinuxError::wrap_errno("creating a pipe"))?;
        // SAFETY: the child only makes system calls and touches its own new mapping (see
        // `execute_commands_until_exit`). It needs no lock that another thread may hold at the
        // fork.
        match unsafe { fork() }.map_err(LinuxError::wrap_errno("starting a child process"))? {
            ForkResult::Child => {
                drop(orders);
                drop(answers);
                execute_commands_until_exit(&orders_in, &answers_out)
            }
            ForkResult::Parent { child } => {
                drop(orders_in);
                drop(answers_out);
                let handle = match ProcessHandle::open(child.as_raw() as u32) {
                    Ok(handle) => handle,
                    Err(error) => {
                        let _ = kill(child, Signal::SIGKILL);
                        let _ = waitpid(child, None);
                        return Err(error);
                    }
                };
                let mut throw_away = Self { child, handle, orders, answers, start: 0 };
                throw_away.start = throw_away.read_answer()?[0];
                if throw_away.start == 0 {
                    let failed = LinuxError::wrap_errno("mapping memory in a child process");
                    return Err(failed(Errno::ENOMEM));
                }
                Ok(throw_away)
            }
        }
    }

    /// The region number `index`; the child touches those below half of [`REGIONS`].
    pub fn region(&self, index: u64) -> RegionAddr {
        RegionAddr::containing(self.start + index * HUGE_PAGE_BYTES)
    }

    pub fn touched_regions(&self) -> Vec<RegionAddr> {
        (0..TOUCHED_REGIONS).map(|index| self.region(index)).collect()
    }

    pub fn first_untouched_region(&self) -> RegionAddr {
        self.region(TOUCHED_REGIONS)
    }

    /// Makes the child read every base page of the first half; returns how long that took.
    pub fn time_reading_touched_pages(&self) -> Result<Duration> {
        self.send_command_and_wait(ChildCommand::Read).map(Duration::from_nanos)
    }

    /// Makes the child touch new memory in blocks of this size. Each block is a mapping of its own,
    /// advised for huge pages (`advised`) or against them. `None` where the child cannot map them.
    pub fn touch_blocks(&self, size: PageOrder, advised: bool) -> Result<Option<BlockTouchResult>> {
        use ChildCommand::{TouchBaseBlocks, TouchBlocks};
        let order = if advised { TouchBlocks } else { TouchBaseBlocks };
        let [by_one_touch, first, all] = self.send_and_wait(order, size.log2_pages() as u8)?;
        let (first, all) = (Duration::from_nanos(first), Duration::from_nanos(all));
        Ok((by_one_touch > 0).then_some(BlockTouchResult { by_one_touch, first, all }))
    }

    pub fn send_command_and_wait(&self, order: ChildCommand) -> Result<u64> {
        Ok(self.send_and_wait(order, 0)?[0])
    }

    fn send_and_wait(&self, order: ChildCommand, log2_pages: u8) -> Result<Answer> {
        let failed = LinuxError::wrap_errno("writing to a child process");
        write(&self.orders, &[order as u8, log2_pages]).map_err(failed)?;
        self.read_answer()
    }

    fn read_answer(&self) -> Result<Answer> {
        let mut bytes = [0u8; size_of::<Answer>()];
        match read(&self.answers, &mut bytes) {
            Ok(length) if length == bytes.len() => {
                let mut numbers = decode_u64s(&bytes);
                Ok(std::array::from_fn(|_| numbers.next().unwrap_or(0)))
            }
            Ok(_) => Err(LinuxError::NoSuchProcess(self.child.as_raw() as u32)),
            Err(errno) => Err(LinuxError::wrap_errno("reading from a child process")(errno)),
        }
    }
}

impl Drop for ProbeChild {
    fn drop(&mut self) {
        let _ = kill(self.child, Signal::SIGKILL);
        let _ = waitpid(self.child, None);
    }
}

/// The child's main loop: only system calls and its own mapping.
fn execute_commands_until_exit(orders: &OwnedFd, answers: &OwnedFd) -> ! {
    // SAFETY: plain system calls without pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The kernel is what is tried here. That hawkeye's own parent disabled THP is another fact.
        libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0);
    }
    let start = match map_anonymous(WHOLE_BYTES + usize_from_u64(HUGE_PAGE_BYTES), UNRESERVED) {
        Some(memory) => (memory.as_ptr() as u64).next_multiple_of(HUGE_PAGE_BYTES),
        None => 0,
    };
    let mut answer: Answer = [start, 0, 0];
    loop {
        let bytes = answer.map(u64::to_ne_bytes);
        if write(answers, bytes.as_flattened()).is_err() || start == 0 {
            // SAFETY: ends the process without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        let mut order = [0u8; 2];
        if !matches!(read(orders, &mut order), Ok(2)) {
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        // SAFETY: `start` is the aligned start of the mapping made above, which has room for
        // REGIONS whole regions from there on.
        answer = unsafe { execute_command(order, start as *mut u8) };
    }
}

/// Carries out one order on the mapping at `memory`.
///
/// # Safety
/// `memory` points to `REGIONS` regions that are mapped readable and writable.
unsafe fn execute_command([order, log2_pages]: [u8; 2], memory: *mut u8) -> Answer {
    let pages = TOUCHED_PAGES as usize;
    let page = |index: usize| memory.wrapping_add(index * usize_from_u64(BASE_PAGE_BYTES));
    let touch = |pages: usize| {
        for index in 0..pages {
            // SAFETY: within the mapping, by the contract above.
            unsafe { page(index).write_volatile(marker_byte_of_page(index)) };
        }
        0
    };
    // SAFETY: advice about the child's own mapping.
    let advise = |advice| unsafe { libc::madvise(memory.cast(), WHOLE_BYTES, advice) as u64 };
    let Some(command) = ChildCommand::from_repr(order) else {
        return [0; 3];
    };
    let answer = match command {
        ChildCommand::TouchBlocks => return touch_blocks(log2_pages, libc::MADV_HUGEPAGE),
        ChildCommand::TouchBaseBlocks => return touch_blocks(log2_pages, libc::MADV_NOHUGEPAGE),
        ChildCommand::Touch => touch(pages),
        ChildCommand::TouchTen => touch(10),
        ChildCommand::Read => {
            let begun = monotonic_ns();
            for index in 0..pages {
                // SAFETY: within the mapping, by the contract above.
                let _ = unsafe { page(index).read_volatile() };
            }
            monotonic_ns() - begun
        }
        ChildCommand::Verify => {
            let mut wrong = 0;
            for index in 0..pages {
                for offset in 0..usize_from_u64(BASE_PAGE_BYTES) {
                    // SAFETY: as above.
                    let found = unsafe { page(index).wrapping_add(offset).read_volatile() };
                    let marked = if offset == 0 { marker_byte_of_page(index) } else { 0 };
                    wrong += u64::from(found != 0 && found != marked);
                }
            }
            wrong
        }
        ChildCommand::WantHuge => advise(libc::MADV_HUGEPAGE),
        ChildCommand::WantBase => advise(libc::MADV_NOHUGEPAGE),
        ChildCommand::MapShared => {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: replaces the child's own mapping, in which no reference points.
            let new = unsafe { libc::mmap(memory.cast(), WHOLE_BYTES, access, flags, -1, 0) };
            if new == libc::MAP_FAILED { Errno::last_raw() as u64 } else { 0 }
        }
        ChildCommand::LeaveTlb => {
            let all = libc::PROT_READ | libc::PROT_WRITE;
            for protection in [libc::PROT_NONE, all] {
                // SAFETY: the child's own mapping, which no other thread touches meanwhile.
                unsafe { libc::mprotect(memory.cast(), WHOLE_BYTES, protection) };
            }
            0
        }
        ChildCommand::Protect => {
            let start = memory as u64;
            protect_own_memory_from_writes(start..start + HUGE_PAGE_BYTES)
                .map_or_else(|e| e as u64, |()| 0)
        }
    };
    [answer, 0, 0]
}

/// Protects memory of this process from writes until the process ends.
fn protect_own_memory_from_writes(range: Range<u64>) -> Result<(), Errno> {
    let watcher = UserfaultfdHandle::open(true)?;
    watcher.register(range.clone(), WatchMode::WriteProtect)?;
    watcher.write_protect(range, true)?;
    std::mem::forget(watcher);
    Ok(())
}

/// Blocks that are timed, in addition to the one in which pages are counted.
const TIMED_BLOCKS: usize = 16;
/// Base pages of the largest block.
const MOST_PAGES: usize = 256;

/// Touches new memory in blocks of 2^`log2_pages` base pages (at most 256). All zeros if no memory
/// is available.
fn touch_blocks(log2_pages: u8, advice: i32) -> Answer {
    let page = usize_from_u64(BASE_PAGE_BYTES);
    let pages = 1usize << log2_pages;
    if pages > MOST_PAGES {
        return [0; 3];
    }
    let block = page * pages;
    // A gap of a block's size lies between blocks. Otherwise they were one mapping, in which larger
    // pages fit.
    let bytes = (2 * TIMED_BLOCKS + 2) * block;
    let Some(memory) = map_anonymous(bytes, UNRESERVED).map(NonNull::as_ptr) else {
        return [0; 3];
    };
    // SAFETY: a new mapping; everything below stays within it.
    unsafe {
        let start = memory.wrapping_add(memory.align_offset(block)).cast::<u8>();
        let nth = |n: usize| start.wrapping_add(2 * n * block);
        for n in 0..=TIMED_BLOCKS {
            libc::madvise(nth(n).cast(), block, advice);
        }
        nth(0).write_volatile(1);
        let mut there = [0u8; MOST_PAGES];
        libc::mincore(nth(0).cast(), block, there.as_mut_ptr());
        let mut count = 0;
        for page in &there {
            count += u64::from(page & 1);
        }
        let (mut first, mut all) = (u64::MAX, u64::MAX);
        for n in 1..=TIMED_BLOCKS {
            let begun = monotonic_ns();
            nth(n).write_volatile(1);
            first = first.min(monotonic_ns() - begun);
            for index in 1..pages {
                nth(n).wrapping_add(index * page).write_volatile(1);
            }
            all = all.min(monotonic_ns() - begun);
        }
        libc::munmap(memory, bytes);
        [count, first, all]
    }
}

fn marker_byte_of_page(page: usize) -> u8 {
    (page % 251) as u8 + 1
}

fn monotonic_ns() -> u64 {
    read_clock_ns(libc::CLOCK_MONOTONIC)
}
