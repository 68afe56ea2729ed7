//! Messages between the manager and a helper: a request is one packet, an answer one or several.

use crate::processes::process::ProcessHandle;
use crate::promote::process_madvise::{COLLAPSE, NamedAdvice};
use crate::ring_buffer::decode_u64s;
use hawkeye_policy::RegionAddr;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Name of the call that lists a process's mappings.
pub(super) const LISTING_MAPPINGS: &str = "listing mappings";

/// Most address ranges in one request.
pub(super) const MAX_RANGES: usize = 64;
/// Most bytes of data in one packet of an answer.
pub(super) const MAX_DATA: usize = 32 << 10;
/// Most bytes of a path, including its final zero.
pub(super) const MAX_PATH: usize = 64;

// A socket's buffer has `net.core.wmem_default` bytes, which tuning guides set to 64 KiB. A packet
// that does not fit into it is refused with EMSGSIZE; the kernel needs 32 bytes of it
// (net/unix/af_unix.c, `unix_dgram_sendmsg`).
const _: () = assert!(size_of::<RawResult>() + MAX_DATA + 32 <= 64 << 10);

/// A call to make: its name, the bytes to send, and the descriptor on which the call works.
#[derive(Clone, Copy)]
pub struct TargetRequest<'a> {
    pub(super) call: &'static str,
    pub(super) raw: RawRequest,
    pub(super) passed: Option<BorrowedFd<'a>>,
}

impl<'a> TargetRequest<'a> {
    /// `process_madvise` on the first 64 ranges.
    pub(crate) fn for_advice(
        process: &'a ProcessHandle,
        advice: NamedAdvice,
        ranges: &[Range<u64>],
    ) -> Self {
        let NamedAdvice { number, call } = advice;
        let mut raw = RawRequest { kind: ADVISE, advice: number, ..RawRequest::EMPTY };
        for (slot, range) in raw.range.iter_mut().zip(ranges) {
            *slot = [range.start, range.end.saturating_sub(range.start)];
            raw.ranges += 1;
        }
        Self { call, raw, passed: Some(process.fd()) }
    }

    /// `MADV_COLLAPSE` of a region. [`CallHelperPool::collapse`](super::CallHelperPool::collapse)
    /// makes it again where the kernel refuses at once.
    pub(crate) fn for_collapse(process: &'a ProcessHandle, region: RegionAddr) -> Self {
        let range = region.start()..region.end();
        Self::for_advice(process, COLLAPSE, &[range])
    }

    /// Makes the call on this CPU, where that is allowed.
    #[must_use]
    pub fn on_cpu(mut self, cpu: Option<u32>) -> Self {
        self.raw.cpu = RawRequest::encode_cpu(cpu);
        self
    }

    /// Lists mappings by the BPF iterator of a link; the answer has the records that its program
    /// wrote.
    pub fn for_listing_mappings(link: BorrowedFd<'a>) -> Self {
        let raw = RawRequest { kind: LIST, ..RawRequest::EMPTY };
        Self { call: LISTING_MAPPINGS, raw, passed: Some(link) }
    }

    /// Reads up to 32 KiB of a file of `/proc`, from `offset` on; errors name it by `call`. The
    /// answer is `ENAMETOOLONG` if the path has more than 63 bytes.
    pub fn for_reading_file(call: &'static str, path: &str, offset: u64, length: usize) -> Self {
        let mut raw =
            RawRequest { kind: READ_FILE, offset, length: length as u64, ..RawRequest::EMPTY };
        // The last byte of a path that fits stays zero and ends it.
        for (slot, byte) in raw.path.iter_mut().zip(path.bytes()) {
            *slot = byte;
        }
        Self { call, raw, passed: None }
    }

    /// Opens a file of `/proc`, which the helper keeps open until its next call.
    pub(super) fn for_holding_file(call: &'static str, path: &str) -> Self {
        let mut request = Self::for_reading_file(call, path, 0, 0);
        request.raw.kind = HOLD_FILE;
        request
    }

    /// Reads up to 32 KiB of a process's memory through `/proc/PID/mem`, which faults it in. It
    /// never reaches another process that has got the same pid meanwhile.
    pub fn for_reading_memory(process: &'a ProcessHandle, address: u64, length: usize) -> Self {
        let path = format!("/proc/{}/mem", process.id.pid);
        let mut request = Self::for_reading_file("reading memory", &path, address, length);
        request.raw.kind = READ_MEMORY;
        request.passed = Some(process.fd());
        request
    }
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    /// The return value of the call, or the kernel's error.
    pub result: Result<u64, Errno>,
    /// Start of the call, on CLOCK_MONOTONIC.
    pub began: Duration,
    /// Duration of the call.
    pub took: Duration,
    /// CPU time of the call.
    pub cpu: Duration,
    /// Data that was read.
    pub data: Vec<u8>,
}

pub(super) const ADVISE: u32 = 1;
pub(super) const LIST: u32 = 2;
pub(super) const READ_FILE: u32 = 3;
pub(super) const READ_MEMORY: u32 = 4;
pub(super) const HOLD_FILE: u32 = 5;

/// A request as it is sent. Both sides are one program, so the layout is private to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawRequest {
    pub kind: u32,
    pub advice: i32,
    pub ranges: u64,
    /// 1 plus the CPU that makes the call; 0: any.
    pub cpu: u64,
    pub offset: u64,
    pub length: u64,
    pub path: [u8; MAX_PATH],
    pub range: [[u64; 2]; MAX_RANGES],
}

/// The head of an answer; the data follows it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RawResult {
    /// Return value of the call, or minus its error.
    pub result: i64,
    pub began_ns: u64,
    pub took_ns: u64,
    pub cpu_ns: u64,
    /// 1 where another packet of the same answer follows.
    pub more: u64,
}

impl RawRequest {
    pub(super) const EMPTY: Self = Self {
        kind: 0,
        advice: 0,
        ranges: 0,
        cpu: 0,
        offset: 0,
        length: 0,
        path: [0; MAX_PATH],
        range: [[0; 2]; MAX_RANGES],
    };

    fn encode_cpu(cpu: Option<u32>) -> u64 {
        cpu.map_or(0, |cpu| u64::from(cpu) + 1)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        // SAFETY: the struct has no padding, so all its bytes are initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// Receives a packet of an answer that has arrived; also returns whether it is the last one.
pub(super) fn receive_result_packet(socket: BorrowedFd<'_>) -> Result<(CallResult, bool), Errno> {
    const HEAD: usize = size_of::<RawResult>();
    let mut packet = vec![0u8; HEAD + MAX_DATA];
    let length = recv(socket.as_raw_fd(), &mut packet, MsgFlags::empty())?;
    if length < HEAD {
        // The helper has died, which closed its end.
        return Err(Errno::ECONNRESET);
    }
    packet.truncate(length);
    let data = packet.split_off(HEAD);
    let mut words = decode_u64s(&packet);
    let [result, began, took, cpu, more] = std::array::from_fn(|_| words.next().unwrap_or(0));
    let result = i64::from_ne_bytes(result.to_ne_bytes());
    let answer = CallResult {
        result: u64::try_from(result)
            .map_err(|_| Errno::from_raw(i32::try_from(-result).unwrap_or(libc::EIO))),
        began: Duration::from_nanos(began),
        took: Duration::from_nanos(took),
        cpu: Duration::from_nanos(cpu),
        data,
    };
    Ok((answer, more == 0))
}
