//! The process that holds the reserve: one thread answers the manager, one fills.
//!
//! It is forked from a process that may have several threads, and both threads share the
//! thread-local storage of the first. So nothing here allocates, locks, unwinds or reads `errno`:
//! it makes plain system calls on memory of its own.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "it allocates nothing and cannot report an error: the figures come from system calls"
)]

use crate::anonymous_mapping::map_anonymous;
use crate::promote::process_madvise::COLLAPSE;
use crate::promote::target_call::{SOCKET, become_helper, exit_process, read_clock_ns};
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, ReserveState, ReserveTarget};
use nix::errno::Errno;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const MAX_PAGES: u32 = 512;
/// Request: give one huge page back; the answer is the CPU, or -1.
pub(super) const GIVE_BACK: u32 = 1;
/// Request: give back what exceeds the target. There is no answer: nothing would read it, and the
/// process waits where answers fill the socket.
pub(super) const SHRINK: u32 = 2;

const HUGE: usize = HUGE_PAGE_BYTES as usize;
const BASE: usize = BASE_PAGE_BYTES as usize;
const FILLER_STACK: usize = 64 << 10;
const UNRESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_NORESERVE;

// States of a slot. Only the filler leaves EMPTY, and only one thread leaves READY.
const EMPTY: u8 = 0;
const FILLING: u8 = 1;
const READY: u8 = 2;
const GIVING: u8 = 3;

#[repr(C)]
pub(super) struct ReserveSharedState {
    target: AtomicU32,
    held: AtomicU32,
    /// 1: missing pages are filled.
    fill: AtomicU32,
    /// Changes whenever there may be something to fill; the filler waits for that.
    changes: AtomicU32,
    /// The filler's thread id.
    filler: AtomicI32,
    filled: AtomicU64,
    failed: AtomicU64,
    served: AtomicU64,
    fill_cpu_ns: AtomicU64,
    slots: [AtomicU8; MAX_PAGES as usize],
}

impl ReserveSharedState {
    pub(super) fn map() -> Result<&'static Self, Errno> {
        let start = map_anonymous(size_of::<Self>(), libc::MAP_SHARED).ok_or_else(Errno::last)?;
        // SAFETY: it is aligned to a page, large enough, and all zeros are valid atomics.
        // `unmap_self` is called once, by the drop of the only owner of the reference.
        Ok(unsafe { start.cast::<Self>().as_ref() })
    }

    pub(super) fn unmap_self(&'static self) {
        let start = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: mapped by `map`, and its owner is being dropped.
        unsafe { libc::munmap(start, size_of::<Self>()) };
    }

    pub(super) fn state(&self) -> ReserveState {
        ReserveState {
            held: self.held.load(Ordering::Relaxed),
            filled: self.filled.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            served: self.served.load(Ordering::Relaxed),
            fill_cpu: Duration::from_nanos(self.fill_cpu_ns.load(Ordering::Relaxed)),
        }
    }

    /// Sets the target; returns whether the process must give pages back.
    pub(super) fn set_target(&self, target: ReserveTarget) -> bool {
        let before = self.target.swap(target.pages, Ordering::SeqCst);
        let fill = u32::from(target.fill);
        let fill_before = self.fill.swap(fill, Ordering::SeqCst);
        if (before, fill_before) != (target.pages, fill) {
            self.wake_filler();
        }
        before > target.pages
    }

    fn wake_filler(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the word lives as long as the mapping.
        unsafe { libc::syscall(libc::SYS_futex, self.changes.as_ptr(), libc::FUTEX_WAKE, 1) };
    }

    /// Waits until `changes` is no longer `seen`.
    fn wait_for_change(&self, seen: u32) {
        let forever = ptr::null::<libc::timespec>();
        let word = self.changes.as_ptr();
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, seen, forever) };
    }
}

/// The huge pages: slot `n` is the `n`th of them.
#[derive(Clone, Copy)]
struct ReservedPages {
    shared: &'static ReserveSharedState,
    start: NonNull<u8>,
    count: usize,
}

pub(super) fn serve_manager(
    socket: i32,
    manager: u32,
    shared: &'static ReserveSharedState,
    pages: u32,
) -> ! {
    become_helper(c"hawkeye-reserve", socket, manager);
    make_first_oom_victim();
    let count = pages.min(MAX_PAGES) as usize;
    let Some(mut pages) = map_reserved_pages(shared, count) else {
        exit_process();
    };
    start_filler_thread(&mut pages);
    loop {
        let mut request = [0u32; 2];
        let length = size_of_val(&request);
        // SAFETY: the buffer is ours and `length` bytes long.
        let got = unsafe { libc::recv(SOCKET, request.as_mut_ptr().cast(), length, 0) };
        if got != length as isize {
            exit_process();
        }
        if request[0] != GIVE_BACK {
            pages.shrink_to_target();
            continue;
        }
        let answer = [pages.give_back_and_return_cpu() as u32, request[1]];
        // SAFETY: `length` bytes of the answer exist.
        let sent =
            unsafe { libc::send(SOCKET, answer.as_ptr().cast(), length, libc::MSG_NOSIGNAL) };
        if sent < 0 {
            exit_process();
        }
    }
}

/// If memory runs out, the reserve is the first to go.
fn make_first_oom_victim() {
    // SAFETY: plain system calls; the strings end with a zero, and the lengths are theirs.
    unsafe {
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        if file >= 0 {
            libc::write(file, c"1000".as_ptr().cast(), 4);
            libc::close(file);
        }
    }
}

fn map_reserved_pages(shared: &'static ReserveSharedState, count: usize) -> Option<ReservedPages> {
    let bytes = (count + 1) * HUGE;
    let start = map_anonymous(bytes, UNRESERVED)?.cast::<u8>();
    // SAFETY: the mapping is ours; with the offset, `count` whole huge pages remain in it.
    let start = unsafe {
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
        start.add(start.as_ptr().align_offset(HUGE))
    };
    Some(ReservedPages { shared, start, count })
}

/// Starts the thread that fills. It shares all of this process.
fn start_filler_thread(pages: &mut ReservedPages) {
    let Some(stack) = map_anonymous(FILLER_STACK, UNRESERVED) else {
        exit_process();
    };
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    // SAFETY: the stack is the new thread's alone, and grows down from its end; `pages` is in the
    // frame of `serve_manager`, which never returns.
    let thread = unsafe {
        let top = stack.as_ptr().byte_add(FILLER_STACK);
        libc::clone(run_filler_thread, top, flags, ptr::from_mut(pages).cast())
    };
    if thread < 0 {
        exit_process();
    }
    pages.shared.filler.store(thread, Ordering::SeqCst);
}

extern "C" fn run_filler_thread(pages: *mut c_void) -> i32 {
    // SAFETY: `start_filler_thread` passes pages that live as long as the process.
    let pages = unsafe { *pages.cast::<ReservedPages>() };
    // The first run of this code causes faults of its own, which must not be counted.
    let warm = MaybeUninit::<[u8; 64]>::zeroed();
    let _ = count_write_faults(warm.as_ptr().cast_mut().cast(), 64);
    let shared = pages.shared;
    loop {
        let seen = shared.changes.load(Ordering::SeqCst);
        let is_missing = shared.held.load(Ordering::SeqCst) < shared.target.load(Ordering::SeqCst);
        let wanted = shared.fill.load(Ordering::SeqCst) == 1 && is_missing;
        if !wanted || !pages.fill_one_page() {
            shared.wait_for_change(seen);
        }
        // The target may have changed during the fill.
        while pages.give_back_one_excess_page() {}
    }
}

/// Sets the scheduling of a thread of this process (0: the calling one).
fn set_scheduling_policy(thread: i32, policy: i32) {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: `priority` is ours and lives through the call.
    unsafe { libc::sched_setscheduler(thread, policy, &raw const priority) };
}

/// Page faults of this thread while it writes to the first and the last byte.
fn count_write_faults(start: *mut u8, bytes: usize) -> i64 {
    let before = thread_minor_faults();
    // SAFETY: the memory is ours, and no reference into it exists.
    unsafe {
        start.write_volatile(1);
        start.add(bytes - 1).write_volatile(1);
    }
    thread_minor_faults() - before
}

/// Leaves no base page of a huge page filled with zeros. Otherwise the kernel may split it as
/// underused when memory is short (6.12, mm/huge_memory.c, `thp_underused`).
fn write_to_each_base_page(start: *mut u8) {
    for offset in (0..HUGE).step_by(BASE) {
        // SAFETY: the memory is ours, and no reference into it exists.
        unsafe { start.add(offset).write_volatile(1) };
    }
}

fn thread_minor_faults() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is ours; all zeros are valid where the call fails.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_minflt
    }
}

impl ReservedPages {
    fn page_pointer(&self, slot: usize) -> *mut u8 {
        // SAFETY: `slot` is under `count`, so this is within the mapping.
        unsafe { self.start.as_ptr().add(slot * HUGE) }
    }

    fn slot_states(&self) -> &'static [AtomicU8] {
        self.shared.slots.get(..self.count).unwrap_or_default()
    }

    /// Advises the kernel about a page of the reserve; returns whether it did that.
    fn advise(&self, slot: usize, advice: i32) -> bool {
        // SAFETY: within the mapping, into which no reference exists.
        unsafe { libc::madvise(self.page_pointer(slot).cast(), HUGE, advice) == 0 }
    }

    /// Fills one page; returns whether that worked.
    fn fill_one_page(&self) -> bool {
        let is_empty = |slot: &AtomicU8| slot.load(Ordering::SeqCst) == EMPTY;
        let Some(slot) = self.slot_states().iter().position(is_empty) else {
            return false;
        };
        let shared = self.shared;
        self.slot_states()[slot].store(FILLING, Ordering::SeqCst);
        set_scheduling_policy(0, libc::SCHED_IDLE);
        let before = read_clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        // One fault for both ends: a huge page. Where the kernel maps none at faults, although it
        // has one (the setting `never`), a collapse makes it.
        let huge = count_write_faults(self.page_pointer(slot), HUGE) == 1
            || self.advise(slot, COLLAPSE.number);
        if huge {
            write_to_each_base_page(self.page_pointer(slot));
        }
        let took = read_clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(before);
        shared.fill_cpu_ns.fetch_add(took, Ordering::SeqCst);
        if huge {
            shared.held.fetch_add(1, Ordering::SeqCst);
            shared.filled.fetch_add(1, Ordering::SeqCst);
            self.slot_states()[slot].store(READY, Ordering::SeqCst);
        } else {
            self.advise(slot, libc::MADV_DONTNEED);
            self.slot_states()[slot].store(EMPTY, Ordering::SeqCst);
            shared.failed.fetch_add(1, Ordering::SeqCst);
        }
        huge
    }

    /// Gives one page back if there are more than the target; returns whether it did.
    fn give_back_one_excess_page(&self) -> bool {
        self.give_back_one_page_beyond(self.shared.target.load(Ordering::SeqCst))
    }

    /// Gives one page back if more than `kept` are held; returns whether it did. The page is
    /// counted off first: two threads may give back at the same time.
    fn give_back_one_page_beyond(&self, kept: u32) -> bool {
        let (order, held) = (Ordering::SeqCst, &self.shared.held);
        let one_less = |held: u32| (held > kept).then(|| held - 1);
        if held.fetch_update(order, order, one_less).is_err() {
            return false;
        }
        let given = self.give_back_ready_slot();
        if !given {
            held.fetch_add(1, order);
            // It may have filled another page meanwhile, which is now one too many.
            self.shared.wake_filler();
        }
        given
    }

    /// Gives the page of a slot back; returns whether one was ready.
    fn give_back_ready_slot(&self) -> bool {
        let order = Ordering::SeqCst;
        let take = |slot: &AtomicU8| slot.compare_exchange(READY, GIVING, order, order).is_ok();
        let Some(slot) = self.slot_states().iter().position(take) else {
            return false;
        };
        self.advise(slot, libc::MADV_DONTNEED);
        self.slot_states()[slot].store(EMPTY, order);
        true
    }

    /// Gives one page back; returns the CPU that got it, or -1.
    fn give_back_and_return_cpu(&self) -> i32 {
        if !self.give_back_one_page_beyond(0) {
            return -1;
        }
        let mut cpu = 0u32;
        let none = ptr::null_mut::<c_void>();
        // SAFETY: `cpu` is ours and lives through the call.
        let failed = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, none, none) } < 0;
        self.shared.served.fetch_add(1, Ordering::SeqCst);
        self.shared.wake_filler();
        if failed { -1 } else { cpu as i32 }
    }

    /// Gives back what exceeds the target. A fill under way is finished at normal priority, so that
    /// its page follows at once.
    fn shrink_to_target(&self) {
        set_scheduling_policy(self.shared.filler.load(Ordering::SeqCst), libc::SCHED_OTHER);
        while self.give_back_one_excess_page() {}
    }
}

#[cfg(test)]
mod tests;
