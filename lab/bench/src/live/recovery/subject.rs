//! Programs of which a part is hot.

use super::watch::Yardsticks;
use crate::error::BenchError;
use crate::live::Scale;
use crate::live::host::Host;
use crate::live::programs::huge::promote_all;
use crate::live::programs::speed::turn;
use crate::live::programs::{Kind, Program};
use hawkeye_workload::Hot;
use std::time::Duration;

/// A program to watch.
pub(super) struct Subject {
    pub(super) kind: Kind,
    watched: Size,
    /// Of either yardstick: as much of it is hot as of the program, so that huge pages gain it as much.
    yardstick: Size,
}

/// How large a program is.
#[derive(Clone, Copy)]
struct Size {
    mib: u64,
    /// Which of its keys are asked for, where it is asked for keys.
    hot: Option<Hot>,
}

/// Nearly all questions are about a part of the keys: where a tenth of them went elsewhere, their page walks would cost more than those of the hot
/// part, because less of the page tables is in the caches.
fn hot(keys_percent: u8) -> Option<Hot> {
    Some(Hot {
        keys_percent,
        questions_percent: 99,
    })
}

/// One of ours with its hot seventh at the highest addresses, and of those that others wrote the ones that are asked for keys, nearly always for a
/// tenth that lies in ten places of memory. The others gain too little to see a share of it (`hawkeye-lab bench --live programs`).
pub(super) fn subjects(scale: Scale) -> Vec<Subject> {
    let ours = |mib, words| {
        let size = Size { mib, hot: None };
        Subject {
            kind: Kind::Reader {
                name: "pointer chase",
                words,
            },
            watched: size,
            yardstick: size,
        }
    };
    // Three of the whole size would not fit into this machine's 24 GiB.
    let others = |kind, mib| Subject {
        kind,
        watched: Size { mib, hot: hot(10) },
        yardstick: Size {
            mib: mib / 2,
            hot: hot(20),
        },
    };
    match scale {
        Scale::Quick => vec![ours(256, "chase --hot-mib 32 --hot-percent 99")],
        Scale::Full => vec![
            ours(5120, "chase --hot-mib 768 --hot-percent 99"),
            others(Kind::Redis, 6144),
            others(Kind::Memcached, 6144),
            // Their tables are powers of two.
            others(Kind::JavaHashMap, 8192),
            others(Kind::Sparsehash, 8192),
        ],
    }
}

impl Subject {
    pub(super) fn of_ours(&self) -> bool {
        matches!(self.kind, Kind::Reader { .. })
    }

    /// What it and its yardsticks take of memory.
    pub(super) fn need_bytes(&self) -> u64 {
        let [watched, yardstick] =
            [self.watched, self.yardstick].map(|size| self.kind.resident_bytes(size.mib));
        watched + 2 * yardstick
    }

    /// Starts it and has it work for a while.
    pub(super) fn start(
        &self,
        host: &Host,
        warm_up: Duration,
    ) -> Result<Box<dyn Program>, BenchError> {
        self.start_of(self.watched, host, warm_up)
    }

    fn start_of(
        &self,
        size: Size,
        host: &Host,
        warm_up: Duration,
    ) -> Result<Box<dyn Program>, BenchError> {
        let mut program = match size.hot {
            None => self.kind.start(host, size.mib)?,
            Some(hot) => self.kind.start_hot(host, size.mib, hot)?,
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
        let start = || self.start_of(self.yardstick, host, warm_up);
        let huge = start()?;
        promote_all(huge.pid())?;
        let set = |disabled| {
            let failed = |errno: nix::errno::Errno| {
                BenchError::Impossible(format!("PR_SET_THP_DISABLE is refused: {errno}"))
            };
            nix::sys::prctl::set_thp_disable(disabled).map_err(failed)
        };
        // Programs inherit it from who starts them.
        set(true)?;
        let base = start();
        set(false)?;
        Ok(Yardsticks { base: base?, huge })
    }
}
