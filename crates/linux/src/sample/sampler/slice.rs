//! Work that is done a slice at a time.

use std::time::Duration;

/// How far something has come.
#[derive(Debug)]
pub enum Slice<T> {
    /// All of it is done.
    Done(T),
    /// It goes on at the next call, after this time.
    Unfinished(Duration),
}
