//! What users can set, checked on creation.

use hawkeye_policy::policies::PolicySettings;
use hawkeye_policy::{
    BloatThreshold, CoverageAveraging, CpuBudget, MemoryGuard, RatePerSecond, ReserveLimit,
    SamplingCostLimits, SavingsShare, Setting, SettingError, Watermarks,
};
use std::time::Duration;

/// How the manager works. Every value in here is valid by its type or by [`Settings::check`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Time from one sampling window to the next; longer where that would cost too much.
    pub period: Duration,
    /// Length of a window.
    pub window: Duration,
    /// How coverage is averaged.
    pub average: CoverageAveraging,
    /// Limit of promotions in total; `None`: no limit.
    pub max_promotions: Option<u64>,
    /// Limit of promotions per second; `None`: no limit except the CPU budget.
    pub rate: Option<RatePerSecond>,
    /// The budget of the manager's own CPU time.
    pub cpu: CpuBudget,
    /// What promotions may use of the CPU time that they save, beyond that budget.
    pub promotion_return: SavingsShare,
    /// Shares of memory in use between which bloat is recovered.
    pub watermarks: Watermarks,
    /// Whether short memory also holds back promotion of regions that are fully present. Such a
    /// promotion takes no memory, but compaction may have to make room. The papers' kernels don't
    /// hold them back.
    pub hold_full: bool,
    /// PSI "some avg10" above which nothing is promoted, in per cent.
    pub pressure_limit_percent: f64,
    /// Number of zero base pages at which a huge page is split.
    pub bloat: BloatThreshold,
    /// Limit of the reserve of huge pages.
    pub reserve: ReserveLimit,
    /// What sampling may cost the program.
    pub pace: SamplingCostLimits,
    /// Whether a program that grows is sampled before its turn, also while it grows. The
    /// papers' kernels sample by the clock; for those a program is only sampled early when the
    /// memory of all programs has settled.
    pub early_samples: bool,
    /// A new program that grows for this long is sampled while it grows. After its first sample it
    /// is left alone for longer.
    pub growth_until_first_sample: Duration,
    /// Only accesses are measured: no promotion, no recovery, no choice of page sizes.
    pub measure_only: bool,
}

impl Default for Settings {
    /// The paper's figures, where it gives any.
    fn default() -> Self {
        Self {
            period: SamplingCostLimits::DEFAULT_BASE_PERIOD,
            window: Duration::from_secs(1),
            average: CoverageAveraging::default(),
            max_promotions: None,
            rate: None,
            cpu: CpuBudget::default(),
            promotion_return: SavingsShare::default(),
            watermarks: Watermarks::default(),
            hold_full: true,
            pressure_limit_percent: MemoryGuard::DEFAULT_PRESSURE_LIMIT_PERCENT,
            bloat: BloatThreshold::default(),
            reserve: ReserveLimit::default(),
            pace: SamplingCostLimits::default(),
            early_samples: true,
            growth_until_first_sample: Duration::from_millis(400),
            measure_only: false,
        }
    }
}

/// The shortest window in which the clear and the read of a large process fit.
const SHORTEST_WINDOW: Duration = Duration::from_millis(1);
const LONGEST_PERIOD: Duration = Duration::from_secs(24 * 3600);

impl Settings {
    /// Checks what no single type can check.
    pub fn check(self) -> Result<Self, SettingError> {
        let (window, period) = (self.window.as_secs_f64(), self.period.as_secs_f64());
        let fits = (SHORTEST_WINDOW..=self.period).contains(&self.window);
        let allowed = "at least 1 ms and at most the period";
        SettingError::error_unless_valid(fits, Setting::Window, window, allowed)?;
        let fits = self.period <= LONGEST_PERIOD;
        SettingError::error_unless_valid(fits, Setting::Period, period, "at most a day")?;
        Ok(self)
    }

    /// The policies' settings that follow from these.
    pub fn policy_settings(&self) -> PolicySettings {
        PolicySettings { average: self.average, linux_rate: self.rate, ..PolicySettings::default() }
    }
}
