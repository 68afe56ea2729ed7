//! Programs with a hot part.

use super::watch::Yardsticks;
use crate::live::prelude::*;
use hawkeye_workload::Hot;

pub(super) struct Subject {
    pub(super) kind: Kind,
    watched: Size,
    /// Size of each yardstick. Its hot part has the same share as the program's, so that huge pages
    /// gain it as much.
    yardstick: Size,
}

#[derive(Clone, Copy)]
struct Size {
    mib: u64,
    /// The keys that are requested most, for programs with keys.
    hot: Option<Hot>,
}

/// Nearly all questions are about a part of the keys. Page walks of a tenth elsewhere would cost
/// more than those of the hot part, because the caches hold less of their page tables.
fn hot(keys_percent: u8) -> Option<Hot> {
    Some(Hot {
        keys_percent,
        questions_percent: 99,
    })
}

/// One program of ours with its hot seventh at the highest addresses, and programs of others that
/// look keys up. Nearly all of their look-ups are for a tenth of the keys, which lies in ten places
/// of memory. The other programs gain too little to measure a share of the gain (`hawkeye-lab bench
/// --live programs`).
pub(super) fn subjects(scale: Scale) -> Vec<Subject> {
    let ours = |mib, words| {
        let size = Size { mib, hot: None };
        Subject {
            kind: reader("pointer chase", words),
            watched: size,
            yardstick: size,
        }
    };
    // Three programs of the whole size would not fit into this machine's 24 GiB.
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
            // Its table size is a power of two.
            others(Kind::JavaHashMap, 8192),
            others(Kind::Sparsehash, 8192),
        ],
    }
}

impl Subject {
    pub(super) fn of_ours(&self) -> bool {
        matches!(self.kind, Kind::Reader { .. })
    }

    /// Memory that the program and its yardsticks need.
    pub(super) fn need_bytes(&self) -> u64 {
        let [watched, yardstick] =
            [self.watched, self.yardstick].map(|size| self.kind.resident_bytes(size.mib));
        watched + 2 * yardstick
    }

    /// Starts the program and lets it work for a while.
    pub(super) fn start(&self, host: &Host, warm_up: Duration) -> Result<Box<dyn Program>> {
        self.start_of(self.watched, host, warm_up)
    }

    fn start_of(&self, size: Size, host: &Host, warm_up: Duration) -> Result<Box<dyn Program>> {
        let mut program = match size.hot {
            None => self.kind.start(host, size.mib)?,
            Some(hot) => self.kind.start_hot(host, size.mib, hot)?,
        };
        turn(program.as_mut(), warm_up)?;
        Ok(program)
    }

    /// Starts a yardstick that keeps base pages under every system, and one that is all huge.
    /// khugepaged skips both: the first may not have huge pages, and the second has its memory
    /// before huge pages are enabled for all.
    pub(super) fn start_yardsticks(&self, host: &Host, warm_up: Duration) -> Result<Yardsticks> {
        let start = || self.start_of(self.yardstick, host, warm_up);
        let huge = start()?;
        promote_all(huge.pid())?;
        let set = |disabled| {
            let failed =
                |errno: nix::errno::Errno| impossible!("PR_SET_THP_DISABLE is refused: {errno}");
            nix::sys::prctl::set_thp_disable(disabled).map_err(failed)
        };
        // A program inherits this setting from its parent.
        set(true)?;
        let base = start();
        set(false)?;
        Ok(Yardsticks { base: base?, huge })
    }
}
