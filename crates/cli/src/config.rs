//! The daemon's configuration: TOML, checked as a whole before anything is done with it.
//!
//! `packaging/hawkeye.toml` explains every key.
//!
//! ```text
//!  TOML text --> section: a table, asked key by key --> read (in this file) --> Config
//!                  |   value: how each kind is written       rules: [[rule]]
//!                  `-> error: Problems, with line and key, all at once
//! ```
//! A section notes which keys were asked for. Those that were not are unknown, and are reported as such.

mod error;
mod prezeroing;
mod rules;
mod section;
mod value;

pub use error::{ConfigError, Problems};
pub use prezeroing::PrezeroingSettings;

use hawkeye_linux::page_sizes::GivenTo;
use hawkeye_linux::sample::counters::CounterEvents;
use hawkeye_linux::takeover::thp_settings::Khugepaged;
use hawkeye_manager::Settings;
use hawkeye_policy::fault_ahead::FillThreads;
use hawkeye_policy::policies::{self, IngensSettings, LinuxSettings, Pace, PolicySettings};
use hawkeye_policy::{
    BloatThreshold, CoverageAverage, CpuBudget, MemoryGuard, Rate, Rules, SamplingPace, Selection,
    Unmatched, Watermarks,
};
use section::Section;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use value::{Bytes, Word};

/// Everything that the daemon is told. Every value is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the policy; one that exists.
    pub policy: String,
    /// What policies are told.
    pub policy_settings: PolicySettings,
    /// How the manager works; its watermarks are the machine's.
    pub settings: Settings,
    /// Watermarks of every cgroup that has a memory limit.
    pub group_watermarks: Watermarks,
    /// Which processes are large enough.
    pub selection: Selection,
    /// Which of them are managed, and on which terms.
    pub rules: Rules,
    /// What becomes of khugepaged meanwhile.
    pub khugepaged: Khugepaged,
    /// Whether the kernel is to split sparse huge pages itself where memory runs out, those of
    /// excluded programs too.
    pub kernel_split: Switch,
    /// Where `status` and the like reach the daemon.
    pub socket: PathBuf,
    /// Where metrics are served, on this machine only; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// The file that events are written to; `None`: they are kept in memory alone.
    pub journal: Option<JournalFile>,
    /// Where coverage and decisions are recorded over time; `None`: nowhere.
    pub recording: Option<RecordingFolder>,
    /// Hardware events to count instead of those of the built-in table.
    pub counters: CounterEvents,
    /// What is done before programs ask for it.
    pub fill: FillSettings,
    /// What becomes of the kernel's own zeroing of free memory.
    pub prezeroing: PrezeroingSettings,
    /// To whom pages between 4 KiB and 2 MiB may be given at first touches. The kernel's switches hold for the
    /// whole machine.
    pub small_pages: GivenTo,
    /// Whether what is learned of programs is kept for their next start.
    pub learn: Switch,
}

impl Word for GivenTo {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", Self::Nobody),
        ("advised", Self::Advised),
        ("all", Self::Everybody),
    ];
}

/// What is done before programs ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FillSettings {
    /// Huge pages are zeroed and mapped before programs get there.
    pub fault_ahead: Switch,
    /// So many regions a second at the most; `None`: as fast as it goes.
    pub rate: Option<Rate>,
    /// By so many threads; `None`: by as many as there are spare cores.
    pub threads: Option<FillThreads>,
    /// Everybody on the machine gets huge pages at first faults while memory allows.
    pub huge_faults: Switch,
}

/// Something that is done or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// It is done.
    On,
    /// It is not.
    #[default]
    Off,
}

impl Word for Switch {
    const WORDS: &'static [(&'static str, Self)] = &[("off", Self::Off), ("on", Self::On)];
}

impl Word for Khugepaged {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", Self::Off),
        ("restrain", Self::Restrain),
        ("leave", Self::Leave),
    ];
}

/// A journal on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFile {
    /// Where.
    pub file: PathBuf,
    /// How large it may become before it is begun anew, in bytes (64 KiB and up).
    pub max_bytes: u64,
}

/// Recordings on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingFolder {
    /// The folder of their files, one a minute.
    pub folder: PathBuf,
    /// How much of them is kept, in bytes (1 MiB and up).
    pub max_bytes: u64,
}

/// The policy where none is named.
const DEFAULT_POLICY: &str = "hawkeye";
const DEFAULT_SOCKET: &str = "/run/hawkeye/hawkeye.sock";
const DEFAULT_JOURNAL_BYTES: u64 = 64 << 20;
/// A journal that holds nothing is of no use.
const LEAST_JOURNAL_BYTES: u64 = 64 << 10;
const DEFAULT_RECORDING_BYTES: u64 = 256 << 20;
/// Some minutes of a large machine.
const LEAST_RECORDING_BYTES: u64 = 1 << 20;
/// `sun_path` has 108 bytes, the last of them 0 (unix(7)).
const LONGEST_SOCKET_BYTES: usize = 107;
/// No configuration is as long as this; a device given by mistake is.
const LONGEST_FILE_BYTES: u64 = 1 << 20;

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: DEFAULT_POLICY.into(),
            policy_settings: PolicySettings::default(),
            settings: Settings::default(),
            group_watermarks: Watermarks::default(),
            selection: Selection::default(),
            rules: Rules::default(),
            khugepaged: Khugepaged::default(),
            kernel_split: Switch::default(),
            socket: DEFAULT_SOCKET.into(),
            metrics: None,
            journal: None,
            recording: None,
            counters: CounterEvents::default(),
            fill: FillSettings::default(),
            prezeroing: PrezeroingSettings::default(),
            small_pages: GivenTo::default(),
            learn: Switch::default(),
        }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It can't be read, or something in it is wrong: all of that, with line and key.
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
            let error = io::Error::new(
                io::ErrorKind::FileTooLarge,
                "this is no configuration: over 1 MiB",
            );
            return Err(failed(error));
        }
        Ok(Self::parse(&path.display().to_string(), &text)?)
    }

    /// Reads a text; `name` is what errors call it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problems> {
        let (config, _, verdict) = section::read(name, text, read);
        verdict.map(|()| config)
    }
}

/// Reads everything. Where something is wrong, its default stands in: nobody will see it.
fn read(top: &mut Section<'_, '_>) -> Config {
    let usual = Config::default();
    let policy = top.or("policy", usual.policy.clone());
    if let Err(error) = policies::by_name(&policy, &usual.policy_settings) {
        top.complain("policy", format!("can't be used: {error}"));
    }
    let socket = top.or("socket", usual.socket.clone());
    if socket.as_os_str().len() > LONGEST_SOCKET_BYTES {
        top.refuse("socket", "a path of at most 107 bytes");
    }
    let khugepaged = top.or("khugepaged", usual.khugepaged);
    let kernel_split = top.or("kernel_split", usual.kernel_split);
    let small_pages = top.or("small_pages", usual.small_pages);
    let learn = top.or("learn", usual.learn);
    let mut settings = usual.settings;
    top.section("sampling", |s| sampling(s, &mut settings));
    top.section("limits", |s| limits(s, &mut settings));
    let group_watermarks = top.section("memory", |s| memory(s, &mut settings));
    let linux = top.section("linux", |s| linux(s, &settings));
    let ingens = top.section("ingens", ingens);
    let mut unmatched = Unmatched::default();
    let selection = top.section("selection", |s| selection(s, &mut unmatched));
    let rules = Rules::new(rules::read(top), unmatched);
    let fill = top.section("fault_ahead", fault_ahead);
    if rules.want_warm_starts() && fill.fault_ahead == Switch::Off {
        let why = "has rules with `warm`, which takes mode = \"on\" under [fault_ahead]";
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
        prezeroing: top.section("prezeroing", prezeroing::read),
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
    let weight = s.or("newest_weight", settings.average.weight_new());
    let average = CoverageAverage::new(weight);
    let keys = [("weight of the newest sample", "newest_weight")];
    settings.average = s.checked(average, &keys).unwrap_or_default();
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
    let cpu = CpuBudget::new(s.or("cpu_percent", CpuBudget::DEFAULT_PERCENT));
    let keys = [("CPU budget (% of one core)", "cpu_percent")];
    settings.cpu = s.checked(cpu, &keys).unwrap_or_default();
    settings.max_promotions = s.optional("max_promotions");
    let keys = [("rate (per second)", "promotions_per_s")];
    settings.rate = s
        .optional("promotions_per_s")
        .and_then(|rate| s.checked(Rate::per_second(rate), &keys));
}

fn memory(s: &mut Section<'_, '_>, settings: &mut Settings) -> Watermarks {
    settings.watermarks = watermarks(s);
    let limit = s.or("pressure_limit_percent", settings.pressure_limit_percent);
    let guard = MemoryGuard::new(settings.watermarks, limit);
    let keys = [("memory pressure limit (%)", "pressure_limit_percent")];
    if s.checked(guard, &keys).is_some() {
        settings.pressure_limit_percent = limit;
    }
    let pages = s.or("bloat_pages", settings.bloat.zero_pages());
    let keys = [("bloat threshold (zero base pages)", "bloat_pages")];
    settings.bloat = s
        .checked(BloatThreshold::new(pages), &keys)
        .unwrap_or_default();
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
    let wanted = IngensSettings::new(
        s.or(
            "utilisation_percent",
            IngensSettings::DEFAULT_UTILISATION_PERCENT,
        ),
        s.or("fmfi_switch", IngensSettings::DEFAULT_FMFI_SWITCH),
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
    let (usual_pages, usual_sleep) = match Pace::default() {
        Pace::Khugepaged {
            pages_to_scan,
            scan_sleep,
        } => (pages_to_scan, scan_sleep),
        Pace::PerSecond(_) | Pace::Unlimited => (4096, Duration::from_secs(10)),
    };
    let pages_to_scan = s.or("pages_to_scan", usual_pages);
    if pages_to_scan == 0 {
        s.refuse("pages_to_scan", "at least 1");
    }
    let scan_sleep = s.or("scan_sleep", usual_sleep);
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

fn journal(s: &mut Section<'_, '_>) -> Option<JournalFile> {
    let file = s.optional("file");
    let Bytes(max_bytes) = s.or("max_size", Bytes(DEFAULT_JOURNAL_BYTES));
    if max_bytes < LEAST_JOURNAL_BYTES {
        s.refuse("max_size", "at least \"64 KiB\"");
    }
    if s.is_set("max_size") && !s.is_set("file") {
        s.complain("max_size", "has no meaning without file".into());
    }
    file.map(|file| JournalFile { file, max_bytes })
}

fn recording(s: &mut Section<'_, '_>) -> Option<RecordingFolder> {
    let folder = s.optional("folder");
    let Bytes(max_bytes) = s.or("max_size", Bytes(DEFAULT_RECORDING_BYTES));
    if max_bytes < LEAST_RECORDING_BYTES {
        s.refuse("max_size", "at least \"1 MiB\"");
    }
    if s.is_set("max_size") && !s.is_set("folder") {
        s.complain("max_size", "has no meaning without folder".into());
    }
    folder.map(|folder| RecordingFolder { folder, max_bytes })
}

fn fault_ahead(s: &mut Section<'_, '_>) -> FillSettings {
    let usual = FillSettings::default();
    let keys = [("rate (per second)", "regions_per_s")];
    FillSettings {
        fault_ahead: s.or("mode", usual.fault_ahead),
        rate: s
            .optional("regions_per_s")
            .and_then(|rate| s.checked(Rate::per_second(rate), &keys)),
        threads: s.optional("threads").and_then(|threads| {
            let keys = [(FillThreads::NAME, "threads")];
            s.checked(FillThreads::new(threads), &keys)
        }),
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

#[cfg(test)]
mod tests;
