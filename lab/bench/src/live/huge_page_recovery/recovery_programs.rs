//! Programs with a hot part.

use crate::live::prelude::*;
use hawkeye_workload::HotKeyShares;

pub(super) struct RecoveryProgram {
    pub(super) kind: ProgramKind,
    pub(super) mib: u64,
}

/// Nearly all requests are for a tenth of the keys. With fewer of them, the page walks of the other
/// keys would cost more than those of the hot part, because caches hold less of their page tables.
const HOT: HotKeyShares = HotKeyShares { keys_percent: 10, questions_percent: 99 };

/// One program of ours with its hot seventh at the highest addresses, and programs of others with
/// their hot tenth in ten places of memory.
pub(super) fn programs_to_recover(scale: Scale) -> Vec<RecoveryProgram> {
    let of = |kind, mib| RecoveryProgram { kind, mib };
    let ours = |words| reader_kind("pointer chase", words);
    match scale {
        Scale::Quick => vec![of(ours("chase --hot-mib 32 --hot-percent 99"), 256)],
        Scale::Full => vec![
            of(ours("chase --hot-mib 768 --hot-percent 99"), 5120),
            of(ProgramKind::Redis, 6144),
            of(ProgramKind::Memcached, 6144),
            // Its table size is a power of two.
            of(ProgramKind::JavaHashMap, 8192),
            of(ProgramKind::Sparsehash, 8192),
        ],
    }
}

impl RecoveryProgram {
    pub(super) fn is_own_workload(&self) -> bool {
        matches!(self.kind, ProgramKind::Reader { .. })
    }

    pub(super) fn start_and_warm_up(
        &self,
        host: &BenchHost,
        warm_up: Duration,
    ) -> BenchResult<Box<dyn MeasuredProgram>> {
        let mut program = match self.is_own_workload() {
            true => self.kind.start(host, self.mib)?,
            false => self.kind.start_with_hot_keys(host, self.mib, HOT)?,
        };
        measure_turn(program.as_mut(), warm_up)?;
        Ok(program)
    }
}
