//! Work that is done one slice at a time.

use crate::error::Result;
use crate::promote::target_call::TargetCalls;
use std::time::{Duration, Instant};

/// Progress of some work.
#[derive(Debug)]
pub enum Slice<T> {
    /// The work is done.
    Done(T),
    /// The work continues at the next call, after this time.
    Unfinished(Duration),
}

/// Result of a slice, or why it failed.
pub type Sliced<T> = Result<Slice<T>>;

impl<T> Slice<T> {
    /// Applies `change` to the result of finished work.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Slice<U> {
        match self {
            Self::Done(done) => Slice::Done(change(done)),
            Self::Unfinished(wait) => Slice::Unfinished(wait),
        }
    }
}

/// The deadline of a slice, and the calls that it may make.
pub struct Turn<'a> {
    /// Calls that take locks of the process.
    pub calls: &'a mut TargetCalls,
    /// End of the slice.
    pub deadline: Instant,
}
