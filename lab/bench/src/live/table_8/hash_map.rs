//! Inserts into a hash map that doubles its table again and again: sparsehash's `dense_hash_map`.

use super::Needed;
use super::launch::{Launch, Ready};
use crate::error::BenchError;
use crate::live::programs::compiled::Compiled;

const SOURCE: &str = include_str!("inserts.cc");
/// Bytes of a bucket: a key and a value.
const BUCKET_BYTES: u64 = 16;

/// The compiled program.
pub(super) struct Program(Compiled);

/// Compiles it.
pub(super) fn build() -> Result<Program, BenchError> {
    Ok(Program(Compiled::with_sparsehash(SOURCE)?))
}

impl Program {
    /// So many inserts that the table is of `gib` GiB in the end.
    pub(super) fn inserts(&self, gib: u64) -> (Needed, Launch) {
        // It doubles when it is half full, and is a quarter full then.
        let inserts = (gib << 30) / BUCKET_BYTES * 17 / 64;
        let program = self.0.path().to_string_lossy().into_owned();
        let launch = Launch {
            words: vec![program, inserts.to_string()],
            ready: Ready::Ended,
        };
        (None, launch)
    }
}
