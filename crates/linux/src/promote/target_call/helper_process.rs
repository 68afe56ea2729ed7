//! The helper process: makes the calls that it receives, one after the other.
//!
//! It is forked from a process that may have several threads. So nothing here allocates, locks or
//! unwinds: it makes plain system calls on memory of the stack.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "it allocates nothing and cannot report an error: the figures come from system calls"
)]

use super::helper_messages::{
    ADVISE, HOLD_FILE, LIST, MAX_DATA, MAX_RANGES, READ_FILE, READ_MEMORY, RawRequest, RawResult,
};
use crate::processes::mapping_records::{RECORD_BYTES, keep_new_records};
use crate::promote::sched_fifo::ThreadScheduling;
use hawkeye_policy::saturating_cast::nanos_of_duration;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

/// The command name of a helper.
pub(crate) const HELPER_NAME: &CStr = c"hawkeye-call";
/// The helper's end of the socket, and the only descriptor that it keeps open.
pub(crate) const SOCKET: i32 = 0;

pub(super) fn serve_requests(socket: i32, manager: u32) -> ! {
    become_helper(HELPER_NAME, socket, manager);
    let usual = ThreadScheduling::usual_after_fork();
    let mut request = RawRequest::EMPTY;
    let mut packet = ResultPacket { head: RawResult::default(), data: [0; MAX_DATA] };
    let mut held = None;
    loop {
        let Some(descriptor) = receive_request(&mut request) else {
            exit_process();
        };
        if let Some(file) = held.take() {
            // SAFETY: opened by `hold_file`, and used nowhere else.
            unsafe { libc::close(file) };
        }
        let before = read_clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        let began = read_clock_ns(libc::CLOCK_MONOTONIC);
        let pinned = SavedCpuAffinity::pin_to_requested_cpu(request.cpu);
        let result = match request.kind {
            ADVISE => call_process_madvise(&request, descriptor, usual),
            LIST => list_mappings(descriptor, &mut packet),
            READ_FILE => read_file(&request, None, &mut packet.data),
            READ_MEMORY => read_file(&request, Some(descriptor), &mut packet.data),
            HOLD_FILE => hold_file(&request, &mut held),
            _ => -i64::from(libc::EINVAL),
        };
        // The result of advice is no number of bytes in the packet.
        let data = if request.kind == ADVISE { 0 } else { usize::try_from(result).unwrap_or(0) };
        if let Some(pinned) = pinned {
            pinned.unpin();
        }
        packet.head = RawResult {
            result,
            began_ns: began,
            took_ns: read_clock_ns(libc::CLOCK_MONOTONIC).saturating_sub(began),
            cpu_ns: read_clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(before),
            more: 0,
        };
        if descriptor >= 0 {
            // SAFETY: the descriptor came with the request, and is not used again.
            unsafe { libc::close(descriptor) };
        }
        send_result(&packet, data);
    }
}

const THIS_THREAD: Pid = Pid::from_raw(0);

/// The CPUs that this thread may use, while it is pinned to one of them.
struct SavedCpuAffinity(CpuSet);

impl SavedCpuAffinity {
    /// Pins this thread to the CPU of a request, if it names one. The call is correct on any CPU.
    fn pin_to_requested_cpu(cpu: u64) -> Option<Self> {
        let mut one = CpuSet::new();
        one.set(cpu.checked_sub(1)? as usize).ok()?;
        let usual = sched_getaffinity(THIS_THREAD).ok()?;
        sched_setaffinity(THIS_THREAD, &one).ok()?;
        Some(Self(usual))
    }

    fn unpin(self) {
        // It fails only if those CPUs have gone: then the kernel chooses others.
        let _ = sched_setaffinity(THIS_THREAD, &self.0);
    }
}

fn send_result(packet: &ResultPacket, data: usize) {
    let length = size_of::<RawResult>() + data.min(MAX_DATA);
    let start = std::ptr::from_ref(packet).cast::<c_void>();
    // SAFETY: `length` bytes of the packet exist.
    let sent = unsafe { libc::send(SOCKET, start, length, libc::MSG_NOSIGNAL) };
    if sent < 0 {
        exit_process();
    }
}

// A listing fills a packet with whole records.
const _: () = assert!(MAX_DATA % RECORD_BYTES == 0);

#[repr(C)]
struct ResultPacket {
    head: RawResult,
    data: [u8; MAX_DATA],
}

/// Makes this forked process a helper of this name: it keeps nothing of the manager's except the
/// socket, as descriptor [`SOCKET`], and ends with the manager.
pub(crate) fn become_helper(name: &CStr, socket: i32, manager: u32) {
    // SAFETY: plain system calls without pointers, except the name, which ends with a zero.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The manager may have ended before that.
        if libc::getppid().unsigned_abs() != manager {
            exit_process();
        }
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        // The manager's locks, pipes and files must not stay open because a call hangs.
        libc::dup2(socket, SOCKET);
        libc::syscall(libc::SYS_close_range, 1u32, u32::MAX, 0u32);
        // A Ctrl-C or Ctrl-\ in the terminal is for the manager only.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

pub(crate) fn exit_process() -> ! {
    // SAFETY: ends this process without running any exit handler of the manager's.
    unsafe { libc::_exit(0) }
}

/// A clock's time in nanoseconds, by a plain system call.
pub(crate) fn read_clock_ns(which: libc::clockid_t) -> u64 {
    // It fails only for clocks that do not exist.
    let time = clock_gettime(ClockId::from_raw(which));
    time.map_or(0, |time| nanos_of_duration(Duration::from(time)))
}

/// Waits for a request; returns the descriptor that came with it, or -1. `None` when the manager
/// has ended.
fn receive_request(request: &mut RawRequest) -> Option<i32> {
    let mut packet = libc::iovec {
        iov_base: (&raw mut *request).cast::<c_void>(),
        iov_len: size_of::<RawRequest>(),
    };
    // `u64` gives the alignment that the header in it needs.
    let mut control = [0u64; 8];
    // SAFETY: all zeros is a valid header, and an empty one.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &raw mut packet;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast::<c_void>();
    header.msg_controllen = size_of_val(&control) as _;
    let length = loop {
        // SAFETY: what the header points to is ours and lives through the call.
        let length = unsafe { libc::recvmsg(SOCKET, &raw mut header, libc::MSG_CMSG_CLOEXEC) };
        if length >= 0 || last_errno() != i64::from(libc::EINTR) {
            break length;
        }
    };
    if length != size_of::<RawRequest>() as isize {
        return None;
    }
    // SAFETY: the kernel has filled in the header; a message of this kind carries one descriptor.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        if message.is_null() || (*message).cmsg_type != libc::SCM_RIGHTS {
            return Some(-1);
        }
        Some(libc::CMSG_DATA(message).cast::<i32>().read_unaligned())
    }
}

fn result_or_minus_errno(result: i64) -> i64 {
    if result < 0 { -last_errno() } else { result }
}

fn last_errno() -> i64 {
    // SAFETY: the address of this thread's own error number.
    i64::from(unsafe { *libc::__errno_location() })
}

fn call_process_madvise(request: &RawRequest, process: i32, usual: ThreadScheduling) -> i64 {
    let count = (request.ranges as usize).min(MAX_RANGES);
    // A short call, which must not lose its processor while it holds the lock.
    let with_sched_fifo = request.advice == libc::MADV_COLD;
    if with_sched_fifo {
        ThreadScheduling::FIFO.set_for_this_thread();
    }
    let (call, ranges) = (libc::SYS_process_madvise, request.range.as_ptr());
    // SAFETY: the ranges are ours, two words each as in an iovec; the addresses in them are the
    // target's, and only the kernel interprets them.
    let done = unsafe { libc::syscall(call, process, ranges, count, request.advice, 0u32) };
    let done = result_or_minus_errno(done);
    if with_sched_fifo {
        usual.set_for_this_thread();
    }
    done
}

/// Lists mappings by a BPF iterator. The records are in `packet`; if they exceed one packet,
/// earlier packets were sent before. A manager that does not receive them holds up this helper and
/// no target.
fn list_mappings(link: i32, packet: &mut ResultPacket) -> i64 {
    const BPF_ITER_CREATE: i32 = 33;
    // The link, and no flags.
    let attributes = [link, 0];
    let (start, size) = (attributes.as_ptr(), size_of_val(&attributes) as u32);
    // SAFETY: the attributes are ours and live through the call.
    let iterator = unsafe { libc::syscall(libc::SYS_bpf, BPF_ITER_CREATE, start, size) };
    if iterator < 0 {
        return -last_errno();
    }
    let iterator = iterator as i32;
    let (mut filled, mut end) = (0, 0);
    let result = loop {
        // A kernel fills up to 32 KiB at a read. A read into the rest of a packet could return one
        // mapping that is known and has shrunk, which would end the listing.
        if filled > MAX_DATA / 2 {
            packet.head = RawResult { more: 1, ..RawResult::default() };
            send_result(packet, filled);
            filled = 0;
        }
        let rest = &mut packet.data[filled..];
        // SAFETY: the buffer is ours and lives through the call.
        let length = result_or_minus_errno(unsafe {
            libc::read(iterator, rest.as_mut_ptr().cast::<c_void>(), rest.len())
        } as i64);
        match usize::try_from(length) {
            Ok(length) => {
                let kept = keep_new_records(rest.get_mut(..length).unwrap_or_default(), &mut end);
                if kept == 0 {
                    break filled as i64;
                }
                filled += kept;
            }
            // There are more objects than one read covers.
            Err(_) if length == -i64::from(libc::EAGAIN) || length == -i64::from(libc::EINTR) => {}
            Err(_) => break length,
        }
    };
    // SAFETY: opened above, and used nowhere else.
    unsafe { libc::close(iterator) };
    result
}

/// Reads a file. With a pidfd it is a file of that process. It is read only if the process was
/// alive after the open: then it cannot belong to another process with the same pid.
fn read_file(request: &RawRequest, process: Option<i32>, data: &mut [u8; MAX_DATA]) -> i64 {
    let file = match open_file(request) {
        Ok(file) => file,
        Err(error) => return error,
    };
    let length = (request.length as usize).min(MAX_DATA);
    // SAFETY: the buffer is ours and at least `length` bytes long; the file is used nowhere else.
    unsafe {
        let buffer = data.as_mut_ptr().cast::<c_void>();
        let read = if process.is_some_and(process_has_ended) {
            -i64::from(libc::ESRCH)
        } else {
            result_or_minus_errno(libc::pread(file, buffer, length, request.offset as i64) as i64)
        };
        libc::close(file);
        read
    }
}

/// Opens a file, and keeps it open until the next call.
fn hold_file(request: &RawRequest, held: &mut Option<i32>) -> i64 {
    match open_file(request) {
        Ok(file) => {
            *held = Some(file);
            0
        }
        Err(error) => error,
    }
}

/// Opens the file of a request; otherwise returns minus its error.
fn open_file(request: &RawRequest) -> Result<i32, i64> {
    if request.path.last() != Some(&0) {
        return Err(-i64::from(libc::ENAMETOOLONG));
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero.
    let file = unsafe { libc::open(request.path.as_ptr().cast(), flags) };
    if file < 0 { Err(-last_errno()) } else { Ok(file) }
}

fn process_has_ended(process: i32) -> bool {
    let mut ended = libc::pollfd { fd: process, events: libc::POLLIN, revents: 0 };
    // SAFETY: the one entry is ours and lives through the call.
    unsafe { libc::poll(&raw mut ended, 1, 0) != 0 }
}
