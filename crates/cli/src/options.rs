//! Options of `run` and `attach`.

use crate::config::{KeywordValue, PrefaultMode, PrefaultSettings};
use bytesize::ByteSize;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hawkeye_linux::page_sizes::ThpMode;
use hawkeye_manager::Settings;
use hawkeye_policy::policies::{self, PolicySettings};
use hawkeye_policy::prefault::PrefaultThreadCount;
use hawkeye_policy::{
    BloatThreshold, CoverageAveraging, CpuBudget, RatePerSecond, SavingsShare, SettingError,
    SettingsProfile, Watermarks,
};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub const DEFAULT_PERIOD_S: &str = "30";
pub const DEFAULT_WINDOW_S: &str = "1";

#[derive(Args, Clone, Debug)]
pub struct ManageOptions {
    /// Choose a behaviour [default: speed for run, balanced for attach].
    ///
    /// guard (promotes nothing), balanced (promotes what pays for itself), speed (the same, and
    /// memory is huge at its first touch wherever that can be arranged for the managed program
    /// alone). All recover bloat. Options below override parts of it.
    #[arg(long, value_name = "PROFILE", hide_possible_values = true, value_parser = keyword_parser::<SettingsProfile>())]
    pub profile: Option<SettingsProfile>,

    // What it chooses is in `policies.rs`.
    #[arg(long, value_name = "P", value_parser = parse_policy_name, help = POLICY_HELP, long_help = policy_long_help())]
    policy: Option<String>,

    /// Seconds between sampling windows.
    ///
    /// Measured from the start of one window to the start of the next. HawkEye waits longer where
    /// sampling would cost the program over 1 %, and less until it has sampled all of a large
    /// process.
    #[arg(long, value_name = "S", default_value = DEFAULT_PERIOD_S, value_parser = parse_seconds)]
    period: Duration,

    /// Seconds that a sampling window lasts.
    #[arg(long, value_name = "S", default_value = DEFAULT_WINDOW_S, value_parser = parse_seconds)]
    window: Duration,

    /// Weight of the newest window in the moving average of coverage, over 0 and at most 1.
    #[arg(long, value_name = "WEIGHT", default_value = "0.4", hide_short_help = true, value_parser = checked_number_parser(CoverageAveraging::new))]
    average: CoverageAveraging,

    /// Promote at most N regions in all.
    #[arg(long, value_name = "N")]
    max_promotions: Option<u64>,

    /// Promote at most N regions a second.
    ///
    /// With the policy linux this replaces khugepaged's 8 regions in 10 s.
    #[arg(long, value_name = "REGIONS_PER_S", value_parser = checked_number_parser(RatePerSecond::new))]
    rate: Option<RatePerSecond>,

    /// Limit the manager's CPU time, in % of a core.
    ///
    /// The share that the manager may use over a minute. It does less work to stay within it.
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = checked_number_parser(CpuBudget::new))]
    cpu: CpuBudget,

    /// Let promotions use PERCENT of the CPU time that they save, beyond --cpu; 0: nothing.
    ///
    /// Counts what promotions have saved and, by the estimate, will save in 5 minutes. They use at
    /// most half of a core.
    #[arg(long, value_name = "PERCENT", default_value = "25", hide_short_help = true, value_parser = checked_number_parser(SavingsShare::new))]
    promotion_return: SavingsShare,

    /// Recover bloat over HIGH %, to LOW %.
    ///
    /// Recovery begins above HIGH per cent of memory in use and ends under LOW. Both hold for the
    /// machine and for the program's cgroup.
    #[arg(long, value_name = "HIGH,LOW", default_value = "85,70", value_parser = parse_watermarks)]
    watermarks: Watermarks,

    /// Split at N zero-filled base pages.
    ///
    /// Recovery splits huge pages in which at least N base pages hold only zeros.
    #[arg(long, value_name = "N", default_value_t, value_parser = checked_number_parser(BloatThreshold::new))]
    bloat_threshold: BloatThreshold,

    /// Let the kernel split sparse huge pages of every program where memory runs out.
    ///
    /// Linux 6.12 and later. At a cgroup's limit, before the kernel kills, and faster than the
    /// manager can look. Two settings of the machine change for that, max_ptes_none and
    /// shrink_underused. They also govern programs that are not managed. Put back at the end.
    #[arg(long, hide_short_help = true)]
    pub kernel_split: bool,

    /// Promote shared memory too: memfd, System V, /dev/shm, shared anonymous memory.
    ///
    /// Only where address and file offset are congruent modulo 2 MiB, and where the managed
    /// processes map all but 24 of 512 base pages. Memory that several processes map stays huge
    /// until they unmap it: no call splits it. Every process that maps it, managed or not, maps it
    /// again at its next access, also where it locked that memory (mlock).
    #[arg(long, hide_short_help = true)]
    pub shared_memory: bool,

    /// Let the kernel align shared memory that programs map from now on.
    ///
    /// Sets shmem_enabled to advise where it is never. Only aligned shared memory can become huge.
    /// The setting also holds for programs that are not managed. Shared memory gets huge pages at
    /// page faults where its program asks for them by madvise. Put back at the end.
    #[arg(long, hide_short_help = true)]
    pub align_shared_memory: bool,

    /// Prefault memory: on, off or auto [default: by the profile].
    ///
    /// Another CPU zeroes huge pages and maps them before the program touches them. auto: where a
    /// CPU is spare and the kernel reports where programs touch new memory; no setting of the
    /// machine changes. The default is auto with the profile speed, off with others.
    #[arg(long = "fault-ahead", value_name = "MODE", hide_possible_values = true, value_parser = keyword_parser::<PrefaultMode>())]
    prefault: Option<PrefaultMode>,

    /// Prefault at most N regions of 2 MiB a second.
    #[arg(long, value_name = "REGIONS_PER_S", hide_short_help = true, value_parser = checked_number_parser(RatePerSecond::new))]
    fill_rate: Option<RatePerSecond>,

    /// Prefault with N threads, 1 to 64.
    ///
    /// The default is one fewer than there are cores, at most 4.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = checked_number_parser(PrefaultThreadCount::new))]
    fill_threads: Option<PrefaultThreadCount>,

    /// Enable huge pages at page faults machine-wide.
    ///
    /// Every program gets them while memory allows, without waiting for compaction. The setting is
    /// restored at the end.
    #[arg(long)]
    huge_faults: bool,

    /// Give small or sparse memory pages of 16 KiB to 1 MiB: advised or all.
    ///
    /// Memory that is too small or too sparse for huge pages gets such pages at its first touch,
    /// where the policy finds that they pay. off: none. advised: only memory for which its program
    /// asked for huge pages by madvise. all: all memory. The kernel's switches hold for the whole
    /// machine: with all, every program on it gets such pages meanwhile, not only managed ones. The
    /// settings are restored at the end.
    #[arg(long, value_name = "MODE", hide_possible_values = true, default_value = "off", value_parser = keyword_parser::<ThpMode>())]
    pub small_pages: ThpMode,

    /// Keep what is learned for the next start.
    ///
    /// HawkEye records by executable which page sizes suited the program (with --small-pages) and
    /// how much memory each start touched (with --fault-ahead), and uses that at its next start.
    /// /var/lib/hawkeye/learned has one file a program; delete a file to forget the program.
    #[arg(long)]
    pub learn: bool,

    /// Record into a Parquet file.
    ///
    /// Coverage by region, overhead, memory and every decision, for `hawkeye report`; see
    /// docs/use/recordings.md.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Write the summary as JSON too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl ManageOptions {
    pub fn policy_name(&self, profile: SettingsProfile) -> String {
        self.policy.clone().unwrap_or_else(|| profile.policy_name().to_owned())
    }

    /// Settings of prefault, with the mode of this profile where none is set.
    pub fn prefault_settings(&self, profile: SettingsProfile, warm_bytes: u64) -> PrefaultSettings {
        let implied = match profile.wants_huge_first_touch() {
            true => PrefaultMode::Auto,
            false => PrefaultMode::Off,
        };
        // A warm start is impossible without prefault.
        let mode = match warm_bytes {
            0 => self.prefault.unwrap_or(implied),
            _ => PrefaultMode::On,
        };
        PrefaultSettings {
            mode,
            rate: self.fill_rate,
            threads: self.fill_threads,
            huge_faults: self.huge_faults,
        }
    }

    pub fn manager_settings(&self) -> anyhow::Result<Settings> {
        let settings = Settings {
            period: self.period,
            window: self.window,
            average: self.average,
            max_promotions: self.max_promotions,
            rate: self.rate,
            cpu: self.cpu,
            promotion_return: self.promotion_return,
            watermarks: self.watermarks,
            bloat: self.bloat_threshold,
            ..Settings::default()
        };
        Ok(settings.check()?)
    }
}

/// Without the policies' names: with every new one the help would outgrow a screen.
const POLICY_HELP: &str = "Choose which regions become huge first [default: by the profile]";

fn policy_long_help() -> String {
    let all = policies::policy_names_and_summaries();
    let all: Vec<_> = all.map(|(name, first)| format!("{name} ({first})")).collect();
    let all = all.join(", ");
    format!("{POLICY_HELP}.\n\n{all}.")
}

fn parse_policy_name(name: &str) -> Result<String, String> {
    let policy = policies::make_policy_by_name(name, &PolicySettings::default());
    policy.map(|policy| policy.name().to_owned()).map_err(|error| error.to_string())
}

fn parse_number<T: FromStr>(text: &str) -> Result<T, String> {
    let number = text.trim().parse();
    number.map_err(|_| format!("{text:?} is not a number"))
}

pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let time = Duration::try_from_secs_f64(parse_number(text)?).ok();
    let time = time.filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("{text:?} is not a time: give more than 0 seconds"))
}

/// A process id. The error tells a user that gives a name how to find the id.
pub fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| match text.trim_start_matches('-').parse::<u64>() {
        Ok(_) => "a process id (PID) is a number from 1".to_owned(),
        Err(_) => format!(
            "expected a process id (PID), which is a number; `pidof {text}` prints those of a program"
        ),
    })
}

fn checked_number_parser<N: FromStr, T>(
    make: fn(N) -> Result<T, SettingError>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| make(parse_number(text)?).map_err(|error| error.to_string())
}

pub fn keyword_parser<T: KeywordValue + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let value = |text: String| T::WORDS.iter().find(|(word, _)| *word == text);
    let parser = PossibleValuesParser::new(T::WORDS.iter().map(|(word, _)| *word));
    parser.try_map(move |text| value(text).map(|(_, value)| *value).ok_or("unknown value"))
}

pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = text.parse().map(|size: ByteSize| size.as_u64());
    bytes.map_err(|_| format!("{text:?} is not a size: give bytes or a unit, for example 8GiB"))
}

fn parse_watermarks(text: &str) -> Result<Watermarks, String> {
    let wrong = || format!("{text:?} is not HIGH,LOW in per cent, for example 85,70");
    let (high, low) = text.split_once(',').ok_or_else(wrong)?;
    Watermarks::new(parse_number(high)?, parse_number(low)?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_place_of_a_process_id_is_refused_with_advice() {
        assert_eq!(parse_pid("4711"), Ok(4711));
        let name = parse_pid("redis-server").expect_err("a name");
        assert!(name.contains("`pidof redis-server`"), "{name}");
        for number in ["0", "-1", "4294967296"] {
            let said = parse_pid(number).expect_err(number);
            assert!(said.contains("a number from 1"), "{said}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for bad in ["70,85", "85", "200,70", "85,0", "x,y"] {
            assert!(parse_watermarks(bad).is_err(), "{bad}");
        }
        for bad in ["0", "-1", "nan", "1e400", "soon"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
        let average = checked_number_parser(CoverageAveraging::new);
        let fill_threads = checked_number_parser(PrefaultThreadCount::new);
        assert!(average("0").is_err() && average("1.1").is_err() && average("1").is_ok());
        assert!(fill_threads("0").is_err() && fill_threads("65").is_err());
        assert!(fill_threads("2.5").is_err() && fill_threads("64").is_ok());
    }
}
