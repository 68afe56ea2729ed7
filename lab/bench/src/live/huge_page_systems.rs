//! Ways to get huge pages on the running kernel: what first touches get, what khugepaged does, and
//! which manager runs.

mod khugepaged;

use super::bench_host::BenchHost;
use super::live_report::{LiveReport, ManagerCpuUse};
use super::manager_runs::manage_processes_until;
use crate::error::BenchResult;
use hawkeye_linux::ChosenKernelMethods;
use hawkeye_manager::{Journal, Settings};
use hawkeye_policy::{CpuBudget, RatePerSecond};
pub use khugepaged::KhugepagedPace;
pub(super) use khugepaged::set_empty_page_limit_and_shrinker;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// What a report must say where memory is short under systems with a manager, because it is not
/// HawkEye's default.
pub(super) const KERNEL_SPLIT_NOTE: &str = "Under a manager the kernel's own settings are those of kernel_split = \"on\", which is off by default: where memory is short, the kernel also splits huge pages that are mostly zeros (Linux 6.12 and later).";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePageSystem {
    /// Base pages without promotion.
    Base,
    /// `always`, and khugepaged at its default pace.
    ThpShipped,
    /// `always`, and khugepaged as fast as its settings allow.
    ThpPaced,
    /// `madvise`, and khugepaged at its default pace: huge pages for programs that request them.
    Madvise,
    /// Base pages at faults, promotions by the policy `hawkeye-g`.
    HawkeyeG,
    Hawkeye,
    /// Huge pages at faults, too.
    HawkeyeHuge,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PromoterPace {
    /// All promoters at this rate in regions per second, with no limit on CPU time.
    Same(f64),
    /// Each promoter at its own pace: khugepaged without pauses if it is sped up, a manager with
    /// default settings.
    Own,
}

#[derive(Clone, Debug, Default)]
pub struct PromoterResult {
    pub promoted: u64,
    pub cpu: Duration,
    pub wall: Duration,
}

impl PromoterResult {
    pub fn cpu_percent_of_core(&self) -> f64 {
        self.cpu.as_secs_f64() * 100.0 / self.wall.as_secs_f64().max(1e-9)
    }
}

impl ManagerCpuUse {
    pub(super) fn add_promoter_result(&mut self, run: &PromoterResult) {
        self.merge(&Self {
            cpu_s: run.cpu.as_secs_f64(),
            wall_s: run.wall.as_secs_f64(),
            worst_percent: run.cpu_percent_of_core(),
        });
    }
}

impl HugePageSystem {
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base pages",
            Self::ThpShipped => "THP always",
            Self::ThpPaced => "THP always, paced up",
            Self::Madvise => "THP madvise",
            Self::HawkeyeG => "hawkeye-g",
            Self::Hawkeye => "hawkeye",
            Self::HawkeyeHuge => "hawkeye, huge at faults",
        }
    }

    /// The policy of its manager, if it has one.
    pub fn manager_policy(self) -> Option<&'static str> {
        match self {
            Self::Base | Self::ThpShipped | Self::ThpPaced | Self::Madvise => None,
            Self::HawkeyeG => Some("hawkeye-g"),
            Self::Hawkeye | Self::HawkeyeHuge => Some("hawkeye"),
        }
    }

    /// Configures the kernel for programs that start from now on. khugepaged rests until
    /// [`Promoter::promote_process_until`]. Under a manager the kernel splits at limits, which
    /// [`KERNEL_SPLIT_NOTE`] says.
    pub fn prepare_kernel(self, host: &mut BenchHost) -> BenchResult<()> {
        let at_faults = match self {
            Self::ThpShipped | Self::ThpPaced | Self::HawkeyeHuge => "always",
            _ => "madvise",
        };
        KhugepagedPace::Resting.apply_pace(host)?;
        set_empty_page_limit_and_shrinker(host, self.manager_policy().is_some())?;
        host.set_thp_enabled(at_faults)
    }

    /// Creates the promoter, which takes a moment.
    pub fn new_promoter(self, host: &mut BenchHost) -> BenchResult<Promoter<'_>> {
        let manager = match self.manager_policy() {
            Some(policy) => Some((policy, host.new_kernel_backend()?)),
            None => None,
        };
        Ok(Promoter { system: self, host, manager })
    }
}

/// The manager or khugepaged, ready to promote.
pub struct Promoter<'a> {
    system: HugePageSystem,
    host: &'a mut BenchHost,
    /// The policy of a manager, and the kernel interfaces that it uses.
    manager: Option<(&'static str, ChosenKernelMethods)>,
}

impl Promoter<'_> {
    /// Promotes in a process at the promoter's own pace while a thread works, for at most
    /// `at_most`. The CPU use of a manager goes into the report.
    pub fn promote_during<T: Send>(
        self,
        pid: u32,
        at_most: Duration,
        report: &mut LiveReport,
        work: impl FnOnce() -> T + Send,
    ) -> BenchResult<(T, PromoterResult)> {
        let managed = self.system.manager_policy().is_some();
        let (done, promoting) = std::thread::scope(|scope| {
            let working = scope.spawn(work);
            let promoting = self
                .promote_process_until(pid, PromoterPace::Own, at_most, || working.is_finished());
            (join_or_resume_panic(working), promoting)
        });
        let promoting = promoting?;
        if managed {
            report.managing.add_promoter_result(&promoting);
        }
        Ok((done, promoting))
    }

    /// Promotes in a process until `enough` returns true, for at most `at_most`.
    pub fn promote_process_until(
        self,
        pid: u32,
        pace: PromoterPace,
        at_most: Duration,
        mut enough: impl FnMut() -> bool,
    ) -> BenchResult<PromoterResult> {
        if let Some((policy, means)) = self.manager {
            let (settings, enough) = (manager_settings(pace)?, |_: &Journal| enough());
            let managed = manage_processes_until(means, &[pid], policy, settings, at_most, enough)?;
            return Ok(PromoterResult {
                promoted: managed.journal.totals().promoted,
                cpu: managed.cpu,
                wall: managed.wall,
            });
        }
        let host = self.host;
        match (self.system, pace) {
            (HugePageSystem::ThpPaced, PromoterPace::Same(per_s)) => {
                KhugepagedPace::Paced(per_s).apply_pace(host)?
            }
            (HugePageSystem::ThpPaced, PromoterPace::Own) => {
                KhugepagedPace::Unpaced.apply_pace(host)?
            }
            (HugePageSystem::ThpShipped | HugePageSystem::Madvise, _) => {
                KhugepagedPace::Shipped.apply_pace(host)?
            }
            _ => {}
        }
        let (begun, before) = (Instant::now(), khugepaged::KhugepagedTotals::read_totals()?);
        while begun.elapsed() < at_most && !enough() {
            std::thread::sleep(Duration::from_millis(50));
        }
        let done = khugepaged::KhugepagedTotals::read_totals()?;
        KhugepagedPace::Resting.apply_pace(host)?;
        Ok(PromoterResult {
            promoted: done.collapsed.saturating_sub(before.collapsed),
            cpu: done.cpu.saturating_sub(before.cpu),
            wall: begun.elapsed(),
        })
    }
}

/// The result of a thread, or its panic.
pub(super) fn join_or_resume_panic<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn manager_settings(pace: PromoterPace) -> BenchResult<Settings> {
    Ok(match pace {
        PromoterPace::Own => Settings::default(),
        PromoterPace::Same(per_s) => Settings {
            rate: Some(RatePerSecond::new(per_s)?),
            cpu: CpuBudget::new(100.0)?,
            ..Settings::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::manager_runs::POLICIES;
    use hawkeye_policy::policies::policy_names;

    #[test]
    fn managers_have_policies_that_there_are() {
        let managed =
            [HugePageSystem::HawkeyeG, HugePageSystem::Hawkeye, HugePageSystem::HawkeyeHuge];
        let of_systems = managed.iter().filter_map(|system| system.manager_policy());
        for policy in of_systems.chain(POLICIES) {
            assert!(policy_names().any(|known| known == policy), "{policy}");
        }
    }
}
