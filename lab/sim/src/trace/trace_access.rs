//! One access of a trace.

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and then writes the same address.
    Modify,
    /// Fetches an instruction.
    Fetch,
}

/// One access of a trace. A field that the format lacks is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceAccess {
    /// What it does.
    pub kind: AccessKind,
    /// Address of its first byte. May be in a kernel's memory, if the trace contains that.
    pub address: u64,
    /// Number of bytes.
    pub bytes: Option<u32>,
    /// The thread; for `perf script` without thread ids, the process.
    pub thread: Option<u64>,
    /// Time, in nanoseconds of the trace's own clock.
    pub time_ns: Option<u64>,
}

impl TraceAccess {
    pub(super) const fn new(kind: AccessKind, address: u64) -> Self {
        Self { kind, address, bytes: None, thread: None, time_ns: None }
    }
}
