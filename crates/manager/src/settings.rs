//! What a person can set, checked when it is made.

use hawkeye_policy::policies::{LinuxSettings, Pace};
use hawkeye_policy::{
    BloatThreshold, CoverageAverage, CpuBudget, MemoryGuard, Rate, SamplingPace, SettingError,
    Watermarks,
};
use std::time::Duration;

/// How the manager works. Every value in here is valid by its type or by [`Settings::check`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Time from one sampling window to the next; stretched where that would cost too much.
    pub period: Duration,
    /// Length of a window.
    pub window: Duration,
    /// How coverage is averaged.
    pub average: CoverageAverage,
    /// Promotions in total; `None`: no limit.
    pub max_promotions: Option<u64>,
    /// Promotions per second; `None`: no limit but the CPU budget.
    pub rate: Option<Rate>,
    /// The manager's own CPU.
    pub cpu: CpuBudget,
    /// Between which shares of memory in use bloat is recovered.
    pub watermarks: Watermarks,
    /// Whether memory that is short holds back promotion of regions that are all there, too: it takes no memory, but
    /// compaction may have to make room. The papers' kernels don't.
    pub hold_full: bool,
    /// PSI "some avg10" above which nothing is promoted, in per cent.
    pub pressure_limit_percent: f64,
    /// From how many zero base pages on a huge page is split.
    pub bloat: BloatThreshold,
    /// What sampling may cost the program.
    pub pace: SamplingPace,
    /// Nothing is done to any process but that its accesses are looked at: no promotion, no recovery, no page sizes.
    pub measure_only: bool,
}

impl Default for Settings {
    /// The paper's, where it says.
    fn default() -> Self {
        Self {
            period: SamplingPace::DEFAULT_BASE_PERIOD,
            window: Duration::from_secs(1),
            average: CoverageAverage::default(),
            max_promotions: None,
            rate: None,
            cpu: CpuBudget::default(),
            watermarks: Watermarks::default(),
            hold_full: true,
            pressure_limit_percent: MemoryGuard::DEFAULT_PRESSURE_LIMIT_PERCENT,
            bloat: BloatThreshold::default(),
            pace: SamplingPace::default(),
            measure_only: false,
        }
    }
}

/// The shortest window that a clear and a read of a large process leave room for.
const SHORTEST_WINDOW: Duration = Duration::from_millis(1);
const LONGEST_PERIOD: Duration = Duration::from_secs(24 * 3600);

impl Settings {
    /// Checks what no single type can.
    ///
    /// # Errors
    /// A window that is empty or longer than the period, a period of more than a day.
    pub fn check(self) -> Result<Self, SettingError> {
        let seconds = |time: Duration| time.as_secs_f64();
        if self.window < SHORTEST_WINDOW || self.window > self.period {
            return Err(SettingError::new(
                "window (s)",
                seconds(self.window),
                "at least 1 ms and at most the period",
            ));
        }
        if self.period > LONGEST_PERIOD {
            return Err(SettingError::new(
                "period (s)",
                seconds(self.period),
                "at most a day",
            ));
        }
        Ok(self)
    }

    /// What khugepaged's order needs to know: a rate that a person gives replaces its own pace.
    pub fn linux(&self) -> LinuxSettings {
        let pace = self
            .rate
            .map_or(LinuxSettings::default().pace, Pace::PerSecond);
        LinuxSettings {
            pace,
            ..LinuxSettings::default()
        }
    }
}
