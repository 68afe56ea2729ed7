//! Work that is done a slice at a time.

use crate::error::Result;
use crate::promote::target_call::TargetCalls;
use std::time::{Duration, Instant};

/// How far something has come.
#[derive(Debug)]
pub enum Slice<T> {
    /// All of it is done.
    Done(T),
    /// It goes on at the next call, after this time.
    Unfinished(Duration),
}

/// What a slice came to, or why it failed.
pub type Sliced<T> = Result<Slice<T>>;

impl<T> Slice<T> {
    /// What is done, changed by `change`.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Slice<U> {
        match self {
            Self::Done(done) => Slice::Done(change(done)),
            Self::Unfinished(wait) => Slice::Unfinished(wait),
        }
    }
}

/// A slice's time, and the calls that it may make.
pub struct Turn<'a> {
    /// Calls that take locks of the process.
    pub calls: &'a mut TargetCalls,
    /// When the slice ends.
    pub deadline: Instant,
}
