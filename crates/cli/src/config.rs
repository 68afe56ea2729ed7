//! The daemon's configuration: TOML, checked as a whole before anything is done with it.
//!
//! `packaging/hawkeye.toml` explains every key.
//!
//! ```text
//!  TOML text --> config_table: asked key by key --> read_config (in this file) --> Config
//!                  |   config_value: how each kind is written   rules: [[rule]]
//!                  `-> config_error: ConfigProblems, with line and key, all at once
//! ```
//! A table notes which keys were read. All other keys in the file are unknown, and are reported.

mod config_error;
mod config_table;
mod config_value;
mod rules;

pub use config_error::{ConfigError, ConfigProblems};

use crate::daemon::journal_file_writer::JournalFileSettings;
use crate::recording::RecordingTarget;
use config_table::ConfigTable;
pub use config_value::KeywordValue;
use config_value::MemorySize;
use hawkeye_linux::machine_lease::thp_settings::KhugepagedMode;
use hawkeye_linux::page_sizes::ThpMode;
use hawkeye_linux::processes::profile_requests::ProfileRequestSources;
use hawkeye_linux::sample::counters::EventCodeOverrides;
use hawkeye_manager::Settings;
use hawkeye_policy::policies::{self, PolicySettings};
use hawkeye_policy::prefault::PrefaultThreadCount;
use hawkeye_policy::prezeroing::ZeroingRateBounds;
use hawkeye_policy::{
    MemoryGuard, ProcessSelectionSettings, ProcessSettings, RatePerSecond, ReserveLimit, Rules,
    SamplingCostLimits, SettingsProfile, UnmatchedAction, Watermarks,
};
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The daemon's settings. Every value is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The behaviour of processes for which no rule sets another, where no key below overrides it.
    pub profile: SettingsProfile,
    pub policy: String,
    /// Settings of the manager; its watermarks are those of the machine.
    pub settings: Settings,
    /// Watermarks of each cgroup with a memory limit.
    pub group_watermarks: Watermarks,
    pub selection: ProcessSelectionSettings,
    pub rules: Rules,
    /// Where workloads may ask for a profile.
    pub profile_requests: ProfileRequestSources,
    pub khugepaged: KhugepagedMode,
    /// Whether the kernel splits sparse huge pages when memory runs out, of excluded programs too.
    pub kernel_split: bool,
    /// Whether shared memory is promoted, where no rule sets that.
    pub shared_memory: bool,
    /// Whether the kernel aligns new shared memory of every program.
    pub align_shared_memory: bool,
    pub socket: PathBuf,
    /// Loopback address for metrics; `None`: no metrics.
    pub metrics: Option<SocketAddr>,
    /// The file for events; `None`: the journal is kept in memory only.
    pub journal: Option<JournalFileSettings>,
    /// The folder for recordings of coverage and decisions; `None`: no recording.
    pub recording: Option<RecordingTarget>,
    pub counters: EventCodeOverrides,
    pub fill: PrefaultSettings,
    pub prezeroing: PrezeroingSettings,
    /// Which programs on the machine may get pages between 4 KiB and 2 MiB at first touches.
    pub small_pages: ThpMode,
    /// Whether what the manager learns about programs is kept for their next start.
    pub learn: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefaultMode {
    /// `run` and `attach` fail where it is impossible.
    On,
    #[default]
    Off,
    /// Where a core is spare, without a change to settings of the machine.
    Auto,
}

impl KeywordValue for PrefaultMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("on", Self::On), ("off", Self::Off), ("auto", Self::Auto)];
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrefaultSettings {
    pub mode: PrefaultMode,
    /// Regions per second at most; `None`: no limit.
    pub rate: Option<RatePerSecond>,
    /// Number of threads; `None`: the number of spare cores.
    pub threads: Option<PrefaultThreadCount>,
    /// Every program on the machine gets huge pages at first faults while memory allows.
    pub huge_faults: bool,
}

/// Settings for the kernel's own zeroing of free memory, on kernels that can do that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrezeroingSettings {
    /// Whether memory and idle time set its rate; if not, the rate stays as it is.
    pub paced: bool,
    pub bounds: ZeroingRateBounds,
    /// Whether it zeroes only when a processor is otherwise idle; if not, this stays as it was.
    pub idle_only: bool,
}

impl Default for PrezeroingSettings {
    fn default() -> Self {
        Self { paced: true, bounds: ZeroingRateBounds::default(), idle_only: true }
    }
}

pub const DEFAULT_CONFIG_FILE: &str = "/etc/hawkeye/hawkeye.toml";
pub const DEFAULT_SOCKET: &str = "/run/hawkeye/hawkeye.sock";
const DEFAULT_JOURNAL_BYTES: u64 = 64 << 20;
/// A smaller journal would hold too little.
const LEAST_JOURNAL: (u64, &str) = (64 << 10, "64 KiB");
const DEFAULT_RECORDING_BYTES: u64 = 256 << 20;
/// Enough for some minutes of a large machine.
const LEAST_RECORDING: (u64, &str) = (1 << 20, "1 MiB");
/// `sun_path` has 108 bytes, the last of them 0 (unix(7)).
const LONGEST_SOCKET_BYTES: usize = 107;
/// No configuration is longer; a device given by mistake is.
const LONGEST_FILE_BYTES: u64 = 1 << 20;

impl Default for Config {
    fn default() -> Self {
        config_table::parse_config_text("", "", read_config).0
    }
}

/// The configuration file: `named`, or the usual one unless that is missing.
pub fn find_config_file(named: Option<&Path>) -> Option<&Path> {
    named.or_else(|| unless_missing(Path::new(DEFAULT_CONFIG_FILE)))
}

/// Only a missing file means that every key has its default: a link to nowhere is a mistake, which
/// loading reports.
fn unless_missing(file: &Path) -> Option<&Path> {
    let found = fs::symlink_metadata(file);
    let is_missing = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    (!is_missing).then_some(file)
}

impl Config {
    /// Reads what [`find_config_file`] has found.
    pub fn load_or_default(file: Option<&Path>) -> Result<Self, ConfigError> {
        file.map_or_else(|| Ok(Self::default()), Self::load)
    }

    /// Reads a file. All of its mistakes are reported, with line and key.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let mut file = File::open(path).map_err(failed)?.take(LONGEST_FILE_BYTES + 1);
        file.read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > LONGEST_FILE_BYTES {
            let why = "the file is over 1 MiB, too large for a configuration";
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, why)));
        }
        Ok(Self::parse(&path.display().to_string(), &text)?)
    }

    /// Reads a text; errors call it `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigProblems> {
        let (config, _, verdict) = config_table::parse_config_text(name, text, read_config);
        verdict.map(|()| config)
    }
}

/// A default replaces each wrong value, but a configuration with mistakes is never used.
fn read_config(top: &mut ConfigTable<'_, '_>) -> Config {
    let profile = top.read_or_default("profile", SettingsProfile::default());
    let policy: Option<String> = top.read_optional("policy");
    if let Some(name) = &policy {
        if let Err(error) = policies::make_policy_by_name(name, &PolicySettings::default()) {
            top.report_problem("policy", format!("can't be used: {error}"));
        }
    }
    let socket: PathBuf = top.read_or_default("socket", DEFAULT_SOCKET.into());
    report_long_socket_path(top, "socket", Some(&socket));
    let khugepaged = top.read_or_default("khugepaged", KhugepagedMode::default());
    let kernel_split = top.read_or_default("kernel_split", false);
    let shared_memory = top.read_or_default("shared_memory", false);
    let align_shared_memory = top.read_or_default("align_shared_memory", false);
    let small_pages = top.read_or_default("small_pages", ThpMode::default());
    let learn = top.read_or_default("learn", false);
    let mut settings = Settings::default();
    top.read_subtable("sampling", |s| read_sampling_settings(s, &mut settings));
    top.read_subtable("limits", |s| read_limit_settings(s, &mut settings));
    let group_watermarks = top.read_subtable("memory", |s| read_memory_settings(s, &mut settings));
    let (unmatched, selection) = top.read_subtable("selection", read_process_selection);
    let (highest_request, profile_requests) =
        top.read_subtable("workload_profiles", |s| read_workload_profiles(s, profile));
    let (mode, mut fill) = top.read_subtable("fault_ahead", read_prefault_settings);
    // A key of its own overrides the profile.
    let default_rules = ProcessSettings {
        promotes: policy.is_some() || profile.promotes(),
        prefaults: mode.is_some() || profile.wants_huge_first_touch(),
        shared_memory,
        ..ProcessSettings::default()
    };
    let rules = Rules::new(rules::read_rules(top, default_rules), unmatched);
    let rules = rules.with_default_settings(default_rules).with_highest_request(highest_request);
    let requested = default_rules.with_profile(highest_request);
    let requested = profile_requests.any().then_some(requested);
    let any = |kind: fn(&ProcessSettings) -> bool| {
        rules.all_process_settings().chain(requested).any(|rules| kind(&rules))
    };
    // Rules keep processes of the profile `guard` from the policy of others.
    let most = match any(|rules| rules.promotes) {
        true => SettingsProfile::Balanced,
        false => SettingsProfile::Guard,
    };
    let policy = policy.unwrap_or_else(|| most.policy_name().to_owned());
    fill.mode = mode.unwrap_or(match any(|rules| rules.prefaults) {
        true => PrefaultMode::Auto,
        false => PrefaultMode::Off,
    });
    if rules.any_rule_wants_warm_start() && fill.mode == PrefaultMode::Off {
        let why = "uses `warm`, for which mode under [fault_ahead] must not be \"off\"";
        top.report_problem("rule", why.into());
    }
    Config {
        profile,
        policy,
        settings,
        group_watermarks,
        selection,
        rules,
        profile_requests,
        khugepaged,
        kernel_split,
        shared_memory,
        align_shared_memory,
        socket,
        metrics: top.read_subtable("metrics", read_metrics_address),
        journal: top.read_subtable("journal", read_journal_settings),
        recording: top.read_subtable("recording", read_recording_target),
        counters: top.read_subtable("counters", read_counter_events),
        fill,
        prezeroing: top.read_subtable("prezeroing", read_prezeroing_settings),
        small_pages,
        learn,
    }
}

fn read_sampling_settings(s: &mut ConfigTable<'_, '_>, settings: &mut Settings) {
    let wanted = Settings {
        period: s.read_or_default("period", settings.period),
        window: s.read_or_default("window", settings.window),
        ..*settings
    };
    *settings = s.value_or_report(wanted.check()).unwrap_or(*settings);
    settings.average = s.read_or_default("newest_weight", settings.average);
    let usual = SamplingCostLimits::default();
    let pace = SamplingCostLimits::new(
        s.read_or_default("slowdown_percent", usual.max_slowdown_percent()),
        s.read_or_default("cpu_share_percent", usual.max_percent_of_manager_budget()),
    );
    settings.pace = s.value_or_report(pace).unwrap_or_default();
}

fn read_limit_settings(s: &mut ConfigTable<'_, '_>, settings: &mut Settings) {
    settings.cpu = s.read_or_default("cpu_percent", settings.cpu);
    settings.promotion_return =
        s.read_or_default("promotion_return_percent", settings.promotion_return);
    settings.max_promotions = s.read_optional("max_promotions");
    settings.rate = s.read_optional("promotions_per_s");
    let MemorySize(bytes) = s.read_or_default("reserve", MemorySize(settings.reserve.bytes()));
    let reserve = s.value_or_report(ReserveLimit::from_bytes(bytes));
    settings.reserve = reserve.unwrap_or_default();
}

fn read_memory_settings(s: &mut ConfigTable<'_, '_>, settings: &mut Settings) -> Watermarks {
    settings.watermarks = read_watermarks(s);
    let limit = s.read_or_default("pressure_limit_percent", settings.pressure_limit_percent);
    if s.value_or_report(MemoryGuard::new(settings.watermarks, limit)).is_some() {
        settings.pressure_limit_percent = limit;
    }
    settings.bloat = s.read_or_default("bloat_pages", settings.bloat);
    s.read_subtable("cgroup", read_watermarks)
}

fn read_watermarks(s: &mut ConfigTable<'_, '_>) -> Watermarks {
    let usual = Watermarks::default();
    let high = s.read_or_default("high_percent", usual.high_percent());
    let low = s.read_or_default("low_percent", usual.low_percent());
    s.value_or_report(Watermarks::new(high, low)).unwrap_or_default()
}

fn read_process_selection(
    s: &mut ConfigTable<'_, '_>,
) -> (UnmatchedAction, ProcessSelectionSettings) {
    let usual = ProcessSelectionSettings::default();
    let unmatched = s.read_or_default("unmatched", UnmatchedAction::default());
    let MemorySize(min_resident) =
        s.read_or_default("min_resident", MemorySize(usual.min_bytes_to_join()));
    let made = ProcessSelectionSettings::new(
        min_resident,
        s.read_or_default("look_every", usual.scan_interval()),
        s.read_or_default("max_processes", usual.max_processes()),
    );
    (unmatched, s.value_or_report(made).unwrap_or_default())
}

/// The most that a workload may ask for, and where it may ask.
fn read_workload_profiles(
    s: &mut ConfigTable<'_, '_>,
    usual: SettingsProfile,
) -> (SettingsProfile, ProfileRequestSources) {
    let highest = s.read_or_default("highest", usual);
    let sources = ProfileRequestSources {
        units: s.read_or_default("units", true),
        cgroups: s.read_or_default("cgroups", true),
        cri_socket: s.read_optional("cri_socket"),
    };
    report_long_socket_path(s, "cri_socket", sources.cri_socket.as_deref());
    (highest, sources)
}

fn report_long_socket_path(s: &mut ConfigTable<'_, '_>, key: &'static str, path: Option<&Path>) {
    if path.is_some_and(|path| path.as_os_str().len() > LONGEST_SOCKET_BYTES) {
        s.report_invalid_value(key, "a path of at most 107 bytes");
    }
}

fn read_metrics_address(s: &mut ConfigTable<'_, '_>) -> Option<SocketAddr> {
    let listen: String = s.read_optional("listen")?;
    let address = listen.parse::<SocketAddr>().ok();
    let local = address.filter(|address| address.ip().is_loopback());
    if local.is_none() {
        s.report_invalid_value(
            "listen",
            "a loopback address with its port, such as \"127.0.0.1:9754\"",
        );
    }
    local
}

fn read_journal_settings(s: &mut ConfigTable<'_, '_>) -> Option<JournalFileSettings> {
    let found = read_path_and_max_size(s, "file", DEFAULT_JOURNAL_BYTES, LEAST_JOURNAL);
    found.map(|(path, most_bytes)| JournalFileSettings { path, most_bytes })
}

fn read_recording_target(s: &mut ConfigTable<'_, '_>) -> Option<RecordingTarget> {
    let found = read_path_and_max_size(s, "folder", DEFAULT_RECORDING_BYTES, LEAST_RECORDING);
    found.map(|(folder, most_bytes)| RecordingTarget::Folder { folder, most_bytes })
}

fn read_path_and_max_size(
    s: &mut ConfigTable<'_, '_>,
    key: &'static str,
    usual_bytes: u64,
    (least_bytes, least): (u64, &str),
) -> Option<(PathBuf, u64)> {
    let path = s.read_optional(key);
    let MemorySize(most_bytes) = s.read_or_default("max_size", MemorySize(usual_bytes));
    if most_bytes < least_bytes {
        s.report_invalid_value("max_size", &format!("at least {least:?}"));
    }
    if s.is_key_set("max_size") && !s.is_key_set(key) {
        let why = format!("has no effect without {key}; set {key}, or remove this key");
        s.report_problem("max_size", why);
    }
    path.map(|path| (path, most_bytes))
}

/// The settings, and their mode if it is set.
fn read_prefault_settings(s: &mut ConfigTable<'_, '_>) -> (Option<PrefaultMode>, PrefaultSettings) {
    let mode = s.read_optional("mode");
    let settings = PrefaultSettings {
        mode: PrefaultMode::default(),
        rate: s.read_optional("regions_per_s"),
        threads: s.read_optional("threads"),
        huge_faults: s.read_or_default("huge_faults", false),
    };
    (mode, settings)
}

fn read_counter_events(s: &mut ConfigTable<'_, '_>) -> EventCodeOverrides {
    EventCodeOverrides {
        load_walk_cycles: s.read_optional("load_walk_cycles"),
        store_walk_cycles: s.read_optional("store_walk_cycles"),
        cycles: s.read_optional("cycles"),
    }
}

fn read_prezeroing_settings(s: &mut ConfigTable<'_, '_>) -> PrezeroingSettings {
    let usual = PrezeroingSettings::default();
    let pages = s.read_or_default("pages_per_s", usual.bounds.half_busy_rate());
    let most = s.read_or_default("most_pages_per_s", usual.bounds.all_idle_rate().max(pages));
    let bounds = ZeroingRateBounds::new(pages, most);
    PrezeroingSettings {
        paced: s.read_or_default("mode", usual.paced),
        bounds: s.value_or_report(bounds).unwrap_or_default(),
        idle_only: s.read_or_default("idle_only", usual.idle_only),
    }
}

#[cfg(test)]
mod tests;
