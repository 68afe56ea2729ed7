//! What a trace tells of an access.

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and then writes the same place.
    Modify,
    /// Fetches an instruction.
    Fetch,
}

/// One access of a trace. What its format does not tell is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceAccess {
    /// What it does.
    pub kind: Kind,
    /// Its first byte. Of a kernel's memory too, where the trace has that.
    pub address: u64,
    /// How many bytes.
    pub bytes: Option<u32>,
    /// Whose it is: a thread, or of `perf script` the process if that is all it was asked for.
    pub thread: Option<u64>,
    /// When, in nanoseconds of the trace's own clock.
    pub time_ns: Option<u64>,
}

impl TraceAccess {
    pub(super) const fn new(kind: Kind, address: u64) -> Self {
        Self {
            kind,
            address,
            bytes: None,
            thread: None,
            time_ns: None,
        }
    }
}
