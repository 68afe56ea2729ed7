//! Options that `run` and `attach` share.

use crate::config::{FillSettings, Switch};
use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use hawkeye_linux::page_sizes::GivenTo;
use hawkeye_manager::Settings;
use hawkeye_policy::fault_ahead::FillThreads;
use hawkeye_policy::policies::{self, PolicySettings};
use hawkeye_policy::{BloatThreshold, CoverageAverage, CpuBudget, Policy, Rate, Watermarks};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The policy where none is named.
pub const DEFAULT_POLICY: &str = "hawkeye";
/// Seconds from one sampling window to the next.
pub const DEFAULT_PERIOD_S: &str = "30";
/// Seconds that one lasts.
pub const DEFAULT_WINDOW_S: &str = "1";

#[derive(Args, Clone, Debug)]
pub struct ManagingOptions {
    /// Who gets huge pages first.
    ///
    /// hawkeye (by what each promotion saves; none where translation costs under 2 %), hawkeye-g (by access coverage),
    /// hawkeye-pmu (by overhead, then coverage), ingens (by memory held; regions 90 % in use while memory is
    /// fragmented), linux (khugepaged's order and pace), none (recover bloat only).
    #[arg(long, value_name = "P", default_value = DEFAULT_POLICY, value_parser = known_policy)]
    pub policy: String,

    /// Seconds between windows.
    ///
    /// From one sampling window to the next; more where that would cost the program over 1 %, less until a large process was looked at whole.
    #[arg(long, value_name = "S", default_value = DEFAULT_PERIOD_S, value_parser = seconds)]
    period: Duration,

    /// Seconds that a window lasts.
    ///
    /// A sampling window.
    #[arg(long, value_name = "S", default_value = DEFAULT_WINDOW_S, value_parser = seconds)]
    window: Duration,

    /// Weight of the newest window in the moving average of coverage, over 0 and at most 1.
    #[arg(long, value_name = "WEIGHT", default_value = "0.4", hide_short_help = true, value_parser = average)]
    average: CoverageAverage,

    /// Promote at most N regions in all.
    #[arg(long, value_name = "N")]
    max_promotions: Option<u64>,

    /// Promote so many regions a second.
    ///
    /// At most; for the policy linux instead of khugepaged's 8 in 10 s.
    #[arg(long, value_name = "REGIONS_PER_S", value_parser = rate)]
    rate: Option<Rate>,

    /// CPU time for it, % of a core.
    ///
    /// That the manager may use over a minute; it keeps that by doing less.
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = cpu)]
    cpu: CpuBudget,

    /// Recover over HIGH %, to LOW.
    ///
    /// Bloat, above HIGH per cent of memory in use, until under LOW; of the machine and of the program's cgroup.
    #[arg(long, value_name = "HIGH,LOW", default_value = "85,70", value_parser = watermarks)]
    watermarks: Watermarks,

    /// Split pages with so many zeros.
    ///
    /// Huge pages, with so many of their 512 base pages that hold nothing but zeros.
    #[arg(long, value_name = "N", default_value = "64", value_parser = bloat)]
    bloat_threshold: BloatThreshold,

    /// Let the kernel split sparse huge pages of every program where memory runs out.
    ///
    /// Linux 6.12 and later. At a cgroup's limit, before the kernel kills, and faster than the manager can look.
    /// Two settings of the machine change for that, max_ptes_none and shrink_underused. They also govern programs
    /// that are not managed. Put back at the end.
    #[arg(long, hide_short_help = true)]
    pub kernel_split: bool,

    #[command(flatten)]
    pub fill: FillOptions,

    /// Smaller pages: advised, all.
    ///
    /// Give memory that is too small or too sparse for huge pages pages of 16 KiB to 1 MiB at its first touch, where the
    /// policy finds that they pay: off, advised (only memory whose program asked for huge pages by madvise), or all.
    /// The kernel's switches hold for the whole machine: with all, EVERY program on it gets such pages meanwhile, not only
    /// those that are managed. Put back at the end.
    #[arg(long, value_name = "WHOSE", hide_possible_values = true, value_enum, default_value_t = SmallPagesMode::Off)]
    pub small_pages: SmallPagesMode,

    /// Keep what is learned for the next start.
    ///
    /// Of the program, by its executable, and use it when it is started again: page sizes at first touches
    /// (with --small-pages), and how much is filled at its start (with --fault-ahead). Kept in /var/lib/hawkeye/learned, one
    /// file a program; deleting a file has it forgotten.
    #[arg(long)]
    pub learn: bool,

    /// Record into a Parquet file.
    ///
    /// Coverage by region, overhead, memory and every decision, for `hawkeye report`; see docs/recordings.md.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Write the summary as JSON too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// What is done before the program asks for it.
#[derive(Args, Clone, Debug)]
pub struct FillOptions {
    /// Fill memory ahead: on or auto.
    ///
    /// Zero huge pages and map them before the program gets there, on another CPU: on, off, or auto (where there is a second CPU, and the kernel
    /// shows where programs touch new memory).
    #[arg(long, value_name = "MODE", hide_possible_values = true, value_enum, default_value_t = FaultAheadMode::Off)]
    pub fault_ahead: FaultAheadMode,

    /// Fill ahead at most so many regions a second.
    ///
    /// Regions of 2 MiB.
    #[arg(long, value_name = "REGIONS_PER_S", hide_short_help = true, value_parser = rate)]
    pub fill_rate: Option<Rate>,

    /// Fill ahead by so many threads, 1 to 64.
    ///
    /// Unless set: as many as there are cores but one, at most 4.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = fill_threads)]
    pub fill_threads: Option<FillThreads>,

    /// Huge pages at first faults for EVERYBODY.
    ///
    /// Everybody on this machine, while memory allows, without waiting for compaction. Put back at the end.
    #[arg(long)]
    pub huge_faults: bool,
}

/// To whom pages between 4 KiB and 2 MiB may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SmallPagesMode {
    /// To nobody.
    Off,
    /// Memory whose program asked for huge pages.
    Advised,
    /// Everybody on the machine.
    All,
}

impl From<SmallPagesMode> for GivenTo {
    fn from(mode: SmallPagesMode) -> Self {
        match mode {
            SmallPagesMode::Off => Self::Nobody,
            SmallPagesMode::Advised => Self::Advised,
            SmallPagesMode::All => Self::Everybody,
        }
    }
}

/// Whether memory is filled ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FaultAheadMode {
    /// It is an error where it can't be.
    On,
    Off,
    /// Where it can be done.
    Auto,
}

impl FillOptions {
    /// The same as settings; whether it is an error where memory can't be filled ahead.
    pub fn settings(&self, warm_bytes: u64) -> (FillSettings, bool) {
        let several = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        let switch = |on| if on { Switch::On } else { Switch::Off };
        // Whoever asks for a warm start wants it.
        let required = self.fault_ahead == FaultAheadMode::On || warm_bytes > 0;
        let wanted = required || (self.fault_ahead == FaultAheadMode::Auto && several);
        let settings = FillSettings {
            fault_ahead: switch(wanted),
            rate: self.fill_rate,
            threads: self.fill_threads,
            huge_faults: switch(self.huge_faults),
        };
        (settings, required)
    }
}

impl ManagingOptions {
    /// The settings that were asked for.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let settings = Settings {
            period: self.period,
            window: self.window,
            average: self.average,
            max_promotions: self.max_promotions,
            rate: self.rate,
            cpu: self.cpu,
            watermarks: self.watermarks,
            bloat: self.bloat_threshold,
            ..Settings::default()
        };
        Ok(settings.check()?)
    }

    /// The policy that was asked for.
    pub fn make_policy(&self, settings: &Settings) -> anyhow::Result<Box<dyn Policy>> {
        let settings = PolicySettings {
            average: settings.average,
            linux: settings.linux(),
            ..PolicySettings::default()
        };
        Ok(policies::by_name(&self.policy, &settings)?)
    }
}

fn known_policy(name: &str) -> Result<String, String> {
    policies::by_name(name, &PolicySettings::default())
        .map(|policy| policy.name().to_owned())
        .map_err(|error| error.to_string())
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("{text:?} is no number"))
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = number(text)?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("{text:?} is no time: more than 0 seconds are needed"))
}

fn average(text: &str) -> Result<CoverageAverage, String> {
    CoverageAverage::new(number(text)?).map_err(|error| error.to_string())
}

fn rate(text: &str) -> Result<Rate, String> {
    Rate::per_second(number(text)?).map_err(|error| error.to_string())
}

fn fill_threads(text: &str) -> Result<FillThreads, String> {
    FillThreads::new(number(text)?).map_err(|error| error.to_string())
}

fn cpu(text: &str) -> Result<CpuBudget, String> {
    CpuBudget::new(number(text)?).map_err(|error| error.to_string())
}

fn bloat(text: &str) -> Result<BloatThreshold, String> {
    BloatThreshold::new(number(text)?).map_err(|error| error.to_string())
}

/// A size in bytes, with or without a unit.
pub fn bytes(text: &str) -> Result<u64, String> {
    let size = text.parse::<ByteSize>();
    size.map(|size| size.as_u64())
        .map_err(|_| format!("{text:?} is no size, such as 512MiB or 8GiB"))
}

fn watermarks(text: &str) -> Result<Watermarks, String> {
    let (high, low) = text
        .split_once(',')
        .ok_or_else(|| format!("{text:?} is not HIGH,LOW, as in 85,70"))?;
    Watermarks::new(number(high)?, number(low)?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_in_a_sentence() {
        for bad in ["70,85", "85", "200,70", "85,0", "x,y"] {
            assert!(watermarks(bad).is_err(), "{bad}");
        }
        for bad in ["0", "-1", "nan", "1e400", "soon"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert!(cpu("0").is_err() && cpu("101").is_err() && cpu("2.5").is_ok());
        assert!(average("0").is_err() && average("1.1").is_err() && average("1").is_ok());
        assert!(rate("0").is_err() && rate("-3").is_err() && rate("0.8").is_ok());
        assert!(fill_threads("0").is_err() && fill_threads("65").is_err());
        assert!(fill_threads("2.5").is_err() && fill_threads("64").is_ok());
        assert!(bloat("0").is_err() && bloat("513").is_err() && bloat("512").is_ok());
        let unknown = known_policy("best").expect_err("there is no such policy");
        assert!(unknown.contains("hawkeye-g"), "{unknown}");
    }
}
