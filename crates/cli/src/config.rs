//! The daemon's configuration: TOML, checked as a whole before anything is done with it.
//!
//! `packaging/hawkeye.toml` explains every key.
//!
//! ```text
//!  TOML text --> section: a table, asked key by key --> read (in this file) --> Config
//!                  |   value: how each kind is written       rules: [[rule]]
//!                  `-> error: ConfigProblems, with line and key, all at once
//! ```
//! A section notes which keys were read. All other keys in the file are unknown, and are reported.

mod error;
mod rules;
mod section;
mod value;

pub use error::{ConfigError, Problems};

use crate::daemon::journal_writer::JournalSettings;
use crate::recording::Place;
use hawkeye_linux::page_sizes::GivenTo;
use hawkeye_linux::sample::counters::CounterEvents;
use hawkeye_linux::takeover::thp_settings::Khugepaged;
use hawkeye_manager::Settings;
use hawkeye_policy::fault_ahead::FillThreads;
use hawkeye_policy::policies::{self, IngensSettings, LinuxSettings, Pace, PolicySettings};
use hawkeye_policy::prezeroing::ZeroingBounds;
use hawkeye_policy::{MemoryGuard, Rate, Rules, SamplingPace, Selection, Unmatched, Watermarks};
use section::Section;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use value::Bytes;
pub use value::Word;

/// Name of the policy if the configuration has none.
pub const DEFAULT_POLICY: &str = "hawkeye";

/// The daemon's settings. Every value is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of an existing policy.
    pub policy: String,
    /// Settings of the policies.
    pub policy_settings: PolicySettings,
    /// Settings of the manager; its watermarks are those of the machine.
    pub settings: Settings,
    /// Watermarks of each cgroup with a memory limit.
    pub group_watermarks: Watermarks,
    /// Conditions on the size of managed processes.
    pub selection: Selection,
    /// Rules that include or exclude processes, with the settings of those that are included.
    pub rules: Rules,
    /// What the daemon does with khugepaged.
    pub khugepaged: Khugepaged,
    /// Whether the kernel splits sparse huge pages itself when memory runs out. This includes those
    /// of excluded programs.
    pub kernel_split: bool,
    /// The socket for `status` and other clients.
    pub socket: PathBuf,
    /// Loopback address for metrics; `None`: no metrics.
    pub metrics: Option<SocketAddr>,
    /// The file for events; `None`: the journal is kept in memory only.
    pub journal: Option<JournalSettings>,
    /// The folder for recordings of coverage and decisions; `None`: no recording.
    pub recording: Option<Place>,
    /// Hardware events to count instead of those of the built-in table.
    pub counters: CounterEvents,
    /// What is done ahead of programs.
    pub fill: FillSettings,
    /// Settings for the kernel's own zeroing of free memory.
    pub prezeroing: PrezeroingSettings,
    /// Which programs may get pages between 4 KiB and 2 MiB at first touches. The kernel's switches
    /// hold for the whole machine.
    pub small_pages: GivenTo,
    /// Whether what the manager learns about programs is kept for their next start.
    pub learn: bool,
}

impl Word for GivenTo {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", Self::Nobody),
        ("advised", Self::Advised),
        ("all", Self::Everybody),
    ];
}

/// What is done ahead of programs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FillSettings {
    /// Zero and map huge pages before programs touch them.
    pub fault_ahead: bool,
    /// Regions per second at most; `None`: no limit.
    pub rate: Option<Rate>,
    /// Number of threads; `None`: the number of spare cores.
    pub threads: Option<FillThreads>,
    /// Every program on the machine gets huge pages at first faults while memory allows.
    pub huge_faults: bool,
}

/// Settings for the kernel's own zeroing of free memory, on kernels that can do that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrezeroingSettings {
    /// Whether memory and idle time set its rate; if not, the rate stays as it is.
    pub paced: bool,
    /// Limits of the rate.
    pub bounds: ZeroingBounds,
    /// Whether it zeroes only when a processor is otherwise idle; if not, this stays as it was.
    pub idle_only: bool,
}

impl Default for PrezeroingSettings {
    fn default() -> Self {
        Self {
            paced: true,
            bounds: ZeroingBounds::default(),
            idle_only: true,
        }
    }
}

impl Word for Khugepaged {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", Self::Off),
        ("restrain", Self::Restrain),
        ("leave", Self::Leave),
    ];
}

/// Path of the socket where none is configured.
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
        section::read("", "", read).0
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// The file can't be read, or it has mistakes. All mistakes are reported, with line and key.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read {
            path: path.to_owned(),
            source,
        };
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        let mut file = file.take(LONGEST_FILE_BYTES + 1);
        file.read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > LONGEST_FILE_BYTES {
            let why = "the file is over 1 MiB, too large for a configuration";
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, why)));
        }
        Ok(Self::parse(&path.display().to_string(), &text)?)
    }

    /// Reads a text; errors call it `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problems> {
        let (config, _, verdict) = section::read(name, text, read);
        verdict.map(|()| config)
    }
}

/// Reads everything. A default replaces each wrong value, but a configuration with mistakes is
/// never used.
fn read(top: &mut Section<'_, '_>) -> Config {
    let policy: String = top.or("policy", DEFAULT_POLICY.into());
    if let Err(error) = policies::by_name(&policy, &PolicySettings::default()) {
        top.complain("policy", format!("can't be used: {error}"));
    }
    let socket: PathBuf = top.or("socket", DEFAULT_SOCKET.into());
    if socket.as_os_str().len() > LONGEST_SOCKET_BYTES {
        top.refuse("socket", "a path of at most 107 bytes");
    }
    let khugepaged = top.or("khugepaged", Khugepaged::default());
    let kernel_split = top.or("kernel_split", false);
    let small_pages = top.or("small_pages", GivenTo::default());
    let learn = top.or("learn", false);
    let mut settings = Settings::default();
    top.section("sampling", |s| sampling(s, &mut settings));
    top.section("limits", |s| limits(s, &mut settings));
    let group_watermarks = top.section("memory", |s| memory(s, &mut settings));
    let linux = top.section("linux", |s| linux(s, &settings));
    let ingens = top.section("ingens", ingens);
    let mut unmatched = Unmatched::default();
    let selection = top.section("selection", |s| selection(s, &mut unmatched));
    let rules = Rules::new(rules::read(top), unmatched);
    let fill = top.section("fault_ahead", fault_ahead);
    if rules.want_warm_starts() && !fill.fault_ahead {
        let why = "uses `warm`, which needs mode = \"on\" under [fault_ahead]";
        top.complain("rule", why.into());
    }
    Config {
        policy,
        policy_settings: PolicySettings {
            average: settings.average,
            ingens,
            linux,
        },
        settings,
        group_watermarks,
        selection,
        rules,
        khugepaged,
        kernel_split,
        socket,
        metrics: top.section("metrics", metrics),
        journal: top.section("journal", journal),
        recording: top.section("recording", recording),
        counters: top.section("counters", counters),
        fill,
        prezeroing: top.section("prezeroing", prezeroing),
        small_pages,
        learn,
    }
}

fn sampling(s: &mut Section<'_, '_>, settings: &mut Settings) {
    let wanted = Settings {
        period: s.or("period", settings.period),
        window: s.or("window", settings.window),
        ..*settings
    };
    let keys = [("window (s)", "window"), ("period (s)", "period")];
    *settings = s.checked(wanted.check(), &keys).unwrap_or(*settings);
    settings.average = s.or("newest_weight", settings.average);
    let usual = SamplingPace::default();
    let pace = SamplingPace::new(
        s.or("slowdown_percent", usual.slowdown_percent()),
        s.or("cpu_share_percent", usual.cpu_share_percent()),
    );
    let keys = [
        ("slowdown by sampling (%)", "slowdown_percent"),
        (
            "sampling's share of the CPU budget (%)",
            "cpu_share_percent",
        ),
    ];
    settings.pace = s.checked(pace, &keys).unwrap_or_default();
}

fn limits(s: &mut Section<'_, '_>, settings: &mut Settings) {
    settings.cpu = s.or("cpu_percent", settings.cpu);
    settings.max_promotions = s.optional("max_promotions");
    settings.rate = s.optional("promotions_per_s");
}

fn memory(s: &mut Section<'_, '_>, settings: &mut Settings) -> Watermarks {
    settings.watermarks = watermarks(s);
    let limit = s.or("pressure_limit_percent", settings.pressure_limit_percent);
    let guard = MemoryGuard::new(settings.watermarks, limit);
    let keys = [("memory pressure limit (%)", "pressure_limit_percent")];
    if s.checked(guard, &keys).is_some() {
        settings.pressure_limit_percent = limit;
    }
    settings.bloat = s.or("bloat_pages", settings.bloat);
    s.section("cgroup", watermarks)
}

fn watermarks(s: &mut Section<'_, '_>) -> Watermarks {
    let usual = Watermarks::default();
    let high = s.or("high_percent", usual.high_percent());
    let low = s.or("low_percent", usual.low_percent());
    let keys = [
        ("high watermark (%)", "high_percent"),
        ("low watermark (%)", "low_percent"),
    ];
    s.checked(Watermarks::new(high, low), &keys)
        .unwrap_or_default()
}

fn ingens(s: &mut Section<'_, '_>) -> IngensSettings {
    use IngensSettings as Ingens;
    let utilisation = s.or("utilisation_percent", Ingens::DEFAULT_UTILISATION_PERCENT);
    let wanted = Ingens::new(
        utilisation,
        s.or("fmfi_switch", Ingens::DEFAULT_FMFI_SWITCH),
    );
    let keys = [
        ("utilisation (%)", "utilisation_percent"),
        ("fragmentation index", "fmfi_switch"),
    ];
    s.checked(wanted, &keys).unwrap_or_default()
}

fn linux(s: &mut Section<'_, '_>, settings: &Settings) -> LinuxSettings {
    let usual = settings.linux();
    let max_ptes_none = s.or("max_ptes_none", usual.max_ptes_none);
    if max_ptes_none > 511 {
        s.refuse("max_ptes_none", "at most 511");
    }
    let pages_to_scan = s.or("pages_to_scan", Pace::DEFAULT_PAGES_TO_SCAN);
    if pages_to_scan == 0 {
        s.refuse("pages_to_scan", "at least 1");
    }
    let scan_sleep = s.or("scan_sleep", Pace::DEFAULT_SCAN_SLEEP);
    if scan_sleep < Duration::from_millis(1) {
        s.refuse("scan_sleep", "at least \"1 ms\"");
    }
    let own = Pace::Khugepaged {
        pages_to_scan,
        scan_sleep,
    };
    LinuxSettings {
        max_ptes_none,
        pace: settings.rate.map_or(own, Pace::PerSecond),
    }
}

fn selection(s: &mut Section<'_, '_>, unmatched: &mut Unmatched) -> Selection {
    let usual = Selection::default();
    *unmatched = s.or("unmatched", *unmatched);
    let Bytes(min_resident) = s.or("min_resident", Bytes(usual.joins_at_bytes()));
    let made = Selection::new(
        min_resident,
        s.or("look_every", usual.look_every()),
        s.or("max_processes", usual.max_processes()),
    );
    let keys = [
        (Selection::MIN_RESIDENT, "min_resident"),
        (Selection::LOOK_EVERY, "look_every"),
        (Selection::MAX_PROCESSES, "max_processes"),
    ];
    s.checked(made, &keys).unwrap_or_default()
}

fn metrics(s: &mut Section<'_, '_>) -> Option<SocketAddr> {
    let listen: String = s.optional("listen")?;
    let address = listen.parse::<SocketAddr>().ok();
    let local = address.filter(|address| address.ip().is_loopback());
    if local.is_none() {
        let example = SocketAddr::from((Ipv4Addr::LOCALHOST, 9754));
        let allowed = format!("a loopback address with its port, such as \"{example}\"");
        s.refuse("listen", &allowed);
    }
    local
}

fn journal(s: &mut Section<'_, '_>) -> Option<JournalSettings> {
    let (path, most_bytes) = limited_path(s, "file", DEFAULT_JOURNAL_BYTES, LEAST_JOURNAL);
    path.map(|path| JournalSettings { path, most_bytes })
}

fn recording(s: &mut Section<'_, '_>) -> Option<Place> {
    let (path, most_bytes) = limited_path(s, "folder", DEFAULT_RECORDING_BYTES, LEAST_RECORDING);
    path.map(|folder| Place::Folder { folder, most_bytes })
}

/// A path, and the limit `max_size` in bytes.
fn limited_path(
    s: &mut Section<'_, '_>,
    key: &'static str,
    usual_bytes: u64,
    (least_bytes, least): (u64, &str),
) -> (Option<PathBuf>, u64) {
    let path = s.optional(key);
    let Bytes(most_bytes) = s.or("max_size", Bytes(usual_bytes));
    if most_bytes < least_bytes {
        s.refuse("max_size", &format!("at least {least:?}"));
    }
    if s.is_set("max_size") && !s.is_set(key) {
        s.complain(
            "max_size",
            format!("has no effect without {key}; set {key}, or remove this key"),
        );
    }
    (path, most_bytes)
}

fn fault_ahead(s: &mut Section<'_, '_>) -> FillSettings {
    let usual = FillSettings::default();
    FillSettings {
        fault_ahead: s.or("mode", usual.fault_ahead),
        rate: s.optional("regions_per_s"),
        threads: s.optional("threads"),
        huge_faults: s.or("huge_faults", usual.huge_faults),
    }
}

fn counters(s: &mut Section<'_, '_>) -> CounterEvents {
    CounterEvents {
        load_walk_cycles: s.optional("load_walk_cycles"),
        store_walk_cycles: s.optional("store_walk_cycles"),
        cycles: s.optional("cycles"),
    }
}

fn prezeroing(s: &mut Section<'_, '_>) -> PrezeroingSettings {
    let usual = PrezeroingSettings::default();
    let pages = s.or("pages_per_s", usual.bounds.usual());
    let most = s.or("most_pages_per_s", usual.bounds.most().max(pages));
    let bounds = ZeroingBounds::new(pages, most);
    let keys = [
        (ZeroingBounds::USUAL, "pages_per_s"),
        (ZeroingBounds::MOST, "most_pages_per_s"),
    ];
    PrezeroingSettings {
        paced: s.or("mode", usual.paced),
        bounds: s.checked(bounds, &keys).unwrap_or_default(),
        idle_only: s.or("idle_only", usual.idle_only),
    }
}

#[cfg(test)]
mod tests;
