//! Programs of which a part is hot.

use super::watch::Yardsticks;
use crate::live::Scale;
use crate::live::error::BenchError;
use crate::live::host::Host;
use crate::live::programs::huge::promote_all;
use crate::live::programs::speed::turn;
use crate::live::programs::{Kind, Program};
use crate::workload::Hot;
use std::time::Duration;

/// Nearly all questions are about a tenth of the keys: where a tenth of them went elsewhere, their page walks would cost more than those of the hot
/// part, because less of the page tables is in the caches.
const HOT: Hot = Hot {
    keys_percent: 10,
    questions_percent: 99,
};

/// A program to watch.
pub(super) struct Subject {
    pub(super) kind: Kind,
    /// Which of its keys are asked for, where it is asked for keys.
    hot: Option<Hot>,
    /// How large it is.
    mib: u64,
}

/// One of ours with its hot seventh at the highest addresses, and of those that others wrote the ones that are asked for keys, nearly always for a
/// tenth that lies in ten places of memory. The others gain too little to see a share of it (`hawkeye bench --live programs`).
pub(super) fn subjects(scale: Scale) -> Vec<Subject> {
    let ours = |mib, words| Subject {
        kind: Kind::Reader {
            name: "pointer chase",
            words,
        },
        hot: None,
        mib,
    };
    let others = |kind| Subject {
        kind,
        hot: Some(HOT),
        mib: 4096,
    };
    match scale {
        Scale::Quick => vec![ours(256, "chase --hot-mib 32 --hot-percent 99")],
        Scale::Full => vec![
            ours(5120, "chase --hot-mib 768 --hot-percent 99"),
            others(Kind::Redis),
            others(Kind::Memcached),
            others(Kind::JavaHashMap),
            others(Kind::Sparsehash),
        ],
    }
}

impl Subject {
    pub(super) fn of_ours(&self) -> bool {
        matches!(self.kind, Kind::Reader { .. })
    }

    /// What it takes of memory.
    pub(super) fn resident_bytes(&self) -> u64 {
        self.kind.resident_bytes(self.mib)
    }

    /// Starts one and has it work for a while.
    pub(super) fn start(
        &self,
        host: &Host,
        warm_up: Duration,
    ) -> Result<Box<dyn Program>, BenchError> {
        let mut program = match self.hot {
            None => self.kind.start(host, self.mib)?,
            Some(hot) => self.kind.start_hot(host, self.mib, hot)?,
        };
        turn(program.as_mut(), warm_up)?;
        Ok(program)
    }

    /// Starts one that has base pages whoever promotes, and one that is all huge. khugepaged passes both by: the first is told that it can't
    /// have huge pages, and the second has its memory before anybody may have huge ones unasked.
    pub(super) fn start_yardsticks(
        &self,
        host: &Host,
        warm_up: Duration,
    ) -> Result<Yardsticks, BenchError> {
        let huge = self.start(host, warm_up)?;
        promote_all(huge.pid())?;
        let set = |disabled| {
            let failed = |errno: nix::errno::Errno| {
                BenchError::Impossible(format!("PR_SET_THP_DISABLE is refused: {errno}"))
            };
            nix::sys::prctl::set_thp_disable(disabled).map_err(failed)
        };
        // Programs inherit it from who starts them.
        set(true)?;
        let base = self.start(host, warm_up);
        set(false)?;
        Ok(Yardsticks { base: base?, huge })
    }
}
