//! What the manager and a helper tell each other: a request is one packet, an answer one or several.

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Address ranges that one request can name.
pub(super) const MAX_RANGES: usize = 64;
/// Bytes that one packet of an answer can bring.
pub(super) const MAX_DATA: usize = 64 << 10;
/// Bytes of a path, its end included.
pub(super) const MAX_PATH: usize = 64;

/// A call to be made.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// `process_madvise` on up to 64 ranges.
    Advise {
        /// The target's pidfd.
        process: BorrowedFd<'a>,
        /// `MADV_*`.
        advice: i32,
        /// Addresses of the target.
        ranges: &'a [Range<u64>],
        /// Whether the helper must not lose its processor in the middle (`SCHED_FIFO` meanwhile).
        unpreempted: bool,
    },
    /// Lists mappings by a BPF iterator, and brings the records that its program wrote.
    List {
        /// The iterator's link.
        link: BorrowedFd<'a>,
    },
    /// Reads a file of `/proc`.
    ReadFile {
        /// Which, at most 63 bytes.
        path: &'a str,
        /// From this byte on.
        offset: u64,
        /// At most that many bytes, up to 64 KiB.
        length: usize,
    },
    /// Reads memory of a process through `/proc/PID/mem`, which faults it in. Another process that has
    /// got the same pid meanwhile is not reached.
    ReadMemory {
        /// Its pidfd.
        process: BorrowedFd<'a>,
        /// Its pid.
        pid: u32,
        /// Where.
        address: u64,
        /// At most that many bytes, up to 64 KiB.
        length: usize,
    },
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the call returned, or the kernel's error.
    pub result: Result<u64, Errno>,
    /// When it began, on CLOCK_MONOTONIC.
    pub began: Duration,
    /// How long it took.
    pub took: Duration,
    /// CPU time that it took.
    pub cpu: Duration,
    /// What was read.
    pub data: Vec<u8>,
}

pub(super) const ADVISE: u32 = 1;
pub(super) const LIST: u32 = 2;
pub(super) const READ_FILE: u32 = 3;
pub(super) const READ_MEMORY: u32 = 4;

/// A request as it is sent. Both sides are of one program: the layout is its own.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawRequest {
    pub kind: u32,
    pub advice: i32,
    pub unpreempted: u32,
    pub ranges: u32,
    pub offset: u64,
    pub length: u64,
    pub path: [u8; MAX_PATH],
    pub range: [[u64; 2]; MAX_RANGES],
}

/// The head of an answer; what was read follows it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RawAnswer {
    /// Of the call, or minus the error.
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
        unpreempted: 0,
        ranges: 0,
        offset: 0,
        length: 0,
        path: [0; MAX_PATH],
        range: [[0; 2]; MAX_RANGES],
    };
}

impl RawRequest {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the struct has no padding, so that all its bytes are initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// A request as the helper reads it, and the descriptor that it is about.
///
/// # Errors
/// It does not fit.
pub(super) fn encode(request: &Request<'_>) -> Result<(RawRequest, Option<i32>), Errno> {
    let mut raw = RawRequest::EMPTY;
    let mut passed = None;
    match *request {
        Request::Advise {
            process,
            advice,
            ranges,
            unpreempted,
        } => {
            if ranges.len() > MAX_RANGES {
                return Err(Errno::E2BIG);
            }
            (raw.kind, raw.advice) = (ADVISE, advice);
            raw.unpreempted = u32::from(unpreempted);
            raw.ranges = u32::try_from(ranges.len()).unwrap_or(0);
            for (slot, range) in raw.range.iter_mut().zip(ranges) {
                *slot = [range.start, range.end.saturating_sub(range.start)];
            }
            passed = Some(process.as_raw_fd());
        }
        Request::List { link } => {
            raw.kind = LIST;
            passed = Some(link.as_raw_fd());
        }
        Request::ReadFile {
            path,
            offset,
            length,
        } => {
            // The last byte stays zero: it ends the path.
            let path = path.as_bytes();
            if path.len() >= MAX_PATH || path.contains(&0) {
                return Err(Errno::ENAMETOOLONG);
            }
            raw.path[..path.len()].copy_from_slice(path);
            (raw.kind, raw.offset, raw.length) = (READ_FILE, offset, length as u64);
        }
        Request::ReadMemory {
            process,
            pid,
            address,
            length,
        } => {
            let path = format!("/proc/{pid}/mem");
            raw.path[..path.len()].copy_from_slice(path.as_bytes());
            raw.kind = READ_MEMORY;
            (raw.offset, raw.length) = (address, length as u64);
            passed = Some(process.as_raw_fd());
        }
    }
    Ok((raw, passed))
}

/// Receives a packet of an answer that is there; also whether it is the last.
pub(super) fn receive_answer(socket: BorrowedFd<'_>) -> Result<(Answer, bool), Errno> {
    const HEAD: usize = size_of::<RawAnswer>();
    let mut packet = vec![0u8; HEAD + MAX_DATA];
    let length = recv(socket.as_raw_fd(), &mut packet, MsgFlags::empty())?;
    if length < HEAD {
        // It has died and closed its end.
        return Err(Errno::ECONNRESET);
    }
    packet.truncate(length);
    let data = packet.split_off(HEAD);
    let word = |place: usize| {
        let bytes = packet.get(place * 8..place * 8 + 8);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    let result = i64::from_ne_bytes(word(0).to_ne_bytes());
    let answer = Answer {
        result: match u64::try_from(result) {
            Ok(done) => Ok(done),
            Err(_) => Err(Errno::from_raw(i32::try_from(-result).unwrap_or(libc::EIO))),
        },
        began: Duration::from_nanos(word(1)),
        took: Duration::from_nanos(word(2)),
        cpu: Duration::from_nanos(word(3)),
        data,
    };
    Ok((answer, word(4) == 0))
}
