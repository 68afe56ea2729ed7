//! Look-ups in sparsehash's `dense_hash_map`. It speaks the workloads' line protocol.

use super::compiled::Compiled;
use super::reader::{Reader, command};
use crate::error::BenchError;
use hawkeye_workload::{Hot, Workload};

const SOURCE: &str = include_str!("sparsehash.cc");

/// Starts it with a table of `mib` MiB, rounded down to a power of two.
pub(super) fn start(mib: u64, hot: Hot) -> Result<Reader, BenchError> {
    let program = Compiled::with_sparsehash(SOURCE)?;
    let mut command = command(program.path());
    let table_mib: u64 = 1 << mib.max(1).ilog2();
    command.arg(table_mib.to_string()).args(hot.words());
    Reader::ready(Workload::spawn_command(command)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::compiled::has_sparsehash;
    use crate::live::programs::testing::{TENTH, not_here, works};
    use hawkeye_test_support::this_test;

    #[test]
    fn keys_are_looked_up() {
        if !has_sparsehash() {
            not_here(this_test!(), "sparsehash");
            return;
        }
        works(&mut start(3, Hot::UNIFORM).expect("starts"));
        works(&mut start(3, TENTH).expect("starts"));
    }
}
