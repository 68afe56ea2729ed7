//! Ways to have huge pages on the running kernel: what first touches get, what khugepaged does, who manages.

mod khugepaged;

use super::host::Host;
use super::managed::{Managed, manage};
use crate::error::BenchError;
use hawkeye_linux::Means;
use hawkeye_manager::{Journal, Settings};
use hawkeye_policy::{CpuBudget, Rate};
pub use khugepaged::Khugepaged;
use std::time::{Duration, Instant};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Base pages; nobody promotes.
    Base,
    /// `always`, and khugepaged at the pace that it is shipped with.
    ThpShipped,
    /// `always`, and khugepaged as fast as it is let.
    ThpPaced,
    /// `madvise`, and khugepaged at the pace that it is shipped with: huge pages for who asks for them.
    Madvise,
    /// Base pages at faults, promotions by the policy `ingens`.
    Ingens,
    /// The same by `hawkeye-g`.
    HawkeyeG,
    /// The same by `hawkeye`.
    Hawkeye,
    /// Huge pages at faults, too.
    HawkeyeHuge,
}

/// How fast systems may promote.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// All of them so many regions a second, whatever CPU that takes.
    Same(f64),
    /// Each as it would by itself: khugepaged without pauses where it is paced up, a manager by its defaults.
    Own,
}

/// What promoting cost and made.
#[derive(Clone, Debug, Default)]
pub struct Promoting {
    /// Regions that became huge.
    pub promoted: u64,
    /// CPU time of whoever promoted.
    pub cpu: Duration,
    /// How long it was at it.
    pub wall: Duration,
}

impl Promoting {
    /// CPU time in per cent of a core.
    pub fn cpu_percent(&self) -> f64 {
        self.cpu.as_secs_f64() * 100.0 / self.wall.as_secs_f64().max(1e-9)
    }
}

impl From<&Managed> for Promoting {
    fn from(managed: &Managed) -> Self {
        Self {
            promoted: managed.journal.totals().promoted,
            cpu: managed.cpu,
            wall: managed.wall,
        }
    }
}

impl System {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Base,
        Self::ThpShipped,
        Self::ThpPaced,
        Self::Madvise,
        Self::Ingens,
        Self::HawkeyeG,
        Self::Hawkeye,
        Self::HawkeyeHuge,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base pages",
            Self::ThpShipped => "THP always",
            Self::ThpPaced => "THP always, paced up",
            Self::Madvise => "THP madvise",
            Self::Ingens => "ingens",
            Self::HawkeyeG => "hawkeye-g",
            Self::Hawkeye => "hawkeye",
            Self::HawkeyeHuge => "hawkeye, huge at faults",
        }
    }

    /// The policy of its manager, if it has one.
    pub fn policy(self) -> Option<&'static str> {
        match self {
            Self::Base | Self::ThpShipped | Self::ThpPaced | Self::Madvise => None,
            Self::Ingens => Some("ingens"),
            Self::HawkeyeG => Some("hawkeye-g"),
            Self::Hawkeye | Self::HawkeyeHuge => Some("hawkeye"),
        }
    }

    /// Sets the kernel up for programs that start from now on. khugepaged rests until [`Promoter::promote`].
    ///
    /// # Errors
    /// A setting can't be changed.
    pub fn prepare(self, host: &mut Host) -> Result<(), BenchError> {
        let at_faults = match self {
            Self::ThpShipped | Self::ThpPaced | Self::HawkeyeHuge => "always",
            _ => "madvise",
        };
        Khugepaged::Resting.apply(host)?;
        khugepaged::bloat(host, self.policy().is_some())?;
        host.set_enabled(at_faults)
    }

    /// Sets up what it promotes by, which takes a moment.
    ///
    /// # Errors
    /// Nothing can be managed here.
    pub fn promoter(self, host: &mut Host) -> Result<Promoter<'_>, BenchError> {
        let manager = match self.policy() {
            Some(policy) => Some((policy, host.means()?)),
            None => None,
        };
        Ok(Promoter {
            system: self,
            host,
            manager,
        })
    }
}

/// Who promotes, ready to begin.
pub struct Promoter<'a> {
    system: System,
    host: &'a mut Host,
    /// The policy of a manager, and what it manages by.
    manager: Option<(&'static str, Means)>,
}

impl Promoter<'_> {
    /// Has it promote for a process until `enough` says so, at most for `at_most`.
    ///
    /// # Errors
    /// A setting can't be changed, the process is gone.
    pub fn promote(
        self,
        pid: u32,
        pace: Pace,
        at_most: Duration,
        mut enough: impl FnMut() -> bool,
    ) -> Result<Promoting, BenchError> {
        if let Some((policy, means)) = self.manager {
            let enough = |_: &Journal| enough();
            let managed = manage(means, pid, policy, settings(pace)?, at_most, enough)?;
            return Ok(Promoting::from(&managed));
        }
        let host = self.host;
        match (self.system, pace) {
            (System::ThpPaced, Pace::Same(per_s)) => Khugepaged::Paced(per_s).apply(host)?,
            (System::ThpPaced, Pace::Own) => Khugepaged::Unpaced.apply(host)?,
            (System::ThpShipped | System::Madvise, _) => Khugepaged::Shipped.apply(host)?,
            _ => {}
        }
        let (begun, before) = (Instant::now(), khugepaged::Done::now()?);
        while begun.elapsed() < at_most && !enough() {
            std::thread::sleep(Duration::from_millis(50));
        }
        let done = khugepaged::Done::now()?;
        Khugepaged::Resting.apply(host)?;
        Ok(Promoting {
            promoted: done.collapsed.saturating_sub(before.collapsed),
            cpu: done.cpu.saturating_sub(before.cpu),
            wall: begun.elapsed(),
        })
    }
}

/// How a manager works at a pace.
fn settings(pace: Pace) -> Result<Settings, BenchError> {
    Ok(match pace {
        Pace::Own => Settings::default(),
        Pace::Same(per_s) => Settings {
            rate: Some(Rate::per_second(per_s)?),
            cpu: CpuBudget::new(100.0)?,
            ..Settings::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::is_known;

    #[test]
    fn managers_have_policies_that_there_are() {
        for system in System::ALL {
            assert!(system.policy().is_none_or(is_known), "{}", system.name());
        }
    }
}
