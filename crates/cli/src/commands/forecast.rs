//! The forecast for `advise` and `status`: what huge pages for every program (`enabled=always`)
//! would add to each cgroup.
//!
//! ```text
//!  population_survey (hawkeye_linux) --> MeasuredGrowth --> CgroupPopulation
//!                                                               |
//!        forecast_text, or JSON <-- MemoryForecast <-- forecast_cgroups (hawkeye_policy)
//! ```
//! `measure_growth` and `forecast_below` read the machine. The rest is pure.

use super::daemon::watermark_table;
use crate::config::{Config, find_config_file};
use crate::text_format::{WrappedText, format_added_range, format_bytes, format_count};
use anyhow::{Context, Result, bail};
use hawkeye_linux::memory::cgroup_limits::CgroupLimits;
use hawkeye_linux::memory::system_memory;
use hawkeye_linux::probe::{self, ProbeExtent};
use hawkeye_linux::processes::huge_page_context::ThpSettings;
use hawkeye_linux::processes::profile_requests::read_attributes_with_user;
use hawkeye_linux::processes::{UserNames, read_process_attributes};
use hawkeye_linux::sample::population_survey::{SurveyCoverage, survey_population};
use hawkeye_linux::{ChosenKernelMethods, RecoveryMethod};
use hawkeye_policy::{
    BloatThreshold, CgroupForecast, CgroupPopulation, HugePageGrowth, MemoryUse, RuleVerdict,
    Rules, WatermarkTable, ZeroFilledSample, forecast_cgroups,
};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Rows at most; `--json` has all.
const MOST_ROWS: usize = 20;
/// Columns left for the name of a cgroup.
const NAME_COLUMNS: usize = 17;
/// A survey ends after this time where nothing else is given.
pub const MOST_SECONDS: f64 = 30.0;

/// The settings of recovery that `guard` would have.
pub struct RecoverySettings {
    pub watermarks: WatermarkTable,
    threshold: BloatThreshold,
    /// Anonymous memory from which on a process is managed.
    min_resident_bytes: u64,
    /// Which processes are left alone. What workloads ask for is not read.
    rules: Rules,
}

impl RecoverySettings {
    /// Those of the daemon's configuration, `file` or the usual one; the defaults where it can't be
    /// used.
    pub fn of_config_file(file: Option<&Path>) -> Self {
        let config = Config::load_or_default(find_config_file(file));
        let config = config.unwrap_or_else(|error| {
            tracing::warn!("the forecast assumes the default watermarks, and no rules: {error}");
            Config::default()
        });
        Self {
            watermarks: watermark_table(&config),
            threshold: config.settings.bloat,
            min_resident_bytes: config.selection.min_bytes_to_join(),
            rules: config.rules,
        }
    }

    /// Whether nothing is taken back from a process of this size.
    fn leaves_alone(&self, pid: u32, anonymous_bytes: u64, users: &UserNames) -> bool {
        if anonymous_bytes < self.min_resident_bytes {
            return true;
        }
        let verdict = |identity| self.rules.evaluate_process(&identity);
        let mut judged = read_process_attributes(pid, users).map(verdict);
        if matches!(judged, Ok(RuleVerdict::Undecided { .. })) {
            // The user's name decides. Waiting for it costs others their turn, so it is the last
            // resort.
            judged = read_attributes_with_user(pid, users).map(verdict);
        }
        matches!(judged, Ok(RuleVerdict::Exclude { .. } | RuleVerdict::Undecided { .. }))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryForecast {
    /// Which programs the kernel gives huge pages to now: `always`, `madvise` or `never`.
    pub enabled: Option<String>,
    /// Whether this kernel can give memory back; if not, `guard` changes nothing.
    pub recovery_possible: bool,
    #[serde(flatten)]
    pub coverage: SurveyCoverage,
    /// Processes that were read, but not the contents of their pages: what they have filled with
    /// zeros is not known.
    pub processes_without_contents: usize,
    /// The machine (`/`) or the requested cgroup first, then those that grow most.
    pub cgroups: Vec<CgroupForecast>,
}

/// What huge pages would add to each process that was read.
pub struct MeasuredGrowth {
    pub coverage: SurveyCoverage,
    without_contents: usize,
    pub processes: Vec<ProcessGrowth>,
}

pub struct ProcessGrowth {
    pub pid: u32,
    pub cgroup: PathBuf,
    pub anonymous_bytes: u64,
    pub growth: HugePageGrowth,
}

/// The forecast for `top` and the cgroups below it; `/` is the machine.
pub fn measure_forecast(
    top: &Path,
    settings: &RecoverySettings,
    seconds: f64,
) -> Result<MemoryForecast> {
    let mut methods = set_up_methods_for_measuring()?;
    let wanted = |_, cgroup: &Path| cgroup.starts_with(top);
    let measured = measure_growth(&mut methods, settings, wanted, seconds)?;
    Ok(MemoryForecast {
        enabled: ThpSettings::read().enabled,
        recovery_possible: methods.recovery != RecoveryMethod::None,
        processes_without_contents: measured.without_contents,
        coverage: measured.coverage,
        cgroups: forecast_below(top, &measured.processes, &settings.watermarks)?,
    })
}

/// Probes this machine, and sets up what works for measuring without managing.
pub fn set_up_methods_for_measuring() -> Result<ChosenKernelMethods> {
    let probed = probe::gather_kernel_facts(ProbeExtent::ForManaging, None)?;
    let facts = probed.facts;
    if let Some(why) = facts.host.unsupported_page_sizes() {
        let advice = facts.host.unmanaged_page_sizes().is_some();
        let advice = if advice { "; `hawkeye advise PID` works without measuring" } else { "" };
        bail!("nothing can be measured: {why}{advice}");
    }
    let decision = probe::decide_kernel_methods(&facts)?;
    Ok(probe::set_up_chosen_methods(&decision, probed.page_tables)?)
}

/// Reads the processes for which `wanted` is true, by pid and cgroup.
pub fn measure_growth(
    methods: &mut ChosenKernelMethods,
    settings: &RecoverySettings,
    wanted: impl Fn(u32, &Path) -> bool,
    seconds: f64,
) -> Result<MeasuredGrowth> {
    let recovery = methods.recovery;
    let users = UserNames::default();
    let mut processes = Vec::new();
    let mut without_contents = 0;
    let coverage = survey_population(
        &mut methods.sampler,
        &CgroupLimits::of_this_machine(),
        wanted,
        Instant::now() + Duration::from_secs_f64(seconds),
        |found, mut contents| {
            let scanned = &found.scanned;
            let pid = scanned.process.pid;
            let threshold = recovery.is_possible_for_pid(pid).then_some(settings.threshold);
            let growth_with = |zero_filled: &ZeroFilledSample| {
                HugePageGrowth::of_process(&found.regions, zero_filled, scanned.family, threshold)
                    .with_given_back(found.below_peak_bytes)
            };
            let mut growth = growth_with(&ZeroFilledSample::default());
            // A process that stays too small is not managed.
            let then_bytes = scanned.anonymous_bytes + growth.added_bytes;
            if settings.leaves_alone(pid, then_bytes, &users) {
                growth = growth.without_recovery();
            } else if threshold.is_some() {
                match contents.sample_zero_filled(&found.regions) {
                    Some(zero_filled) => growth = growth_with(&zero_filled),
                    None => without_contents += 1,
                }
            }
            let anonymous_bytes = scanned.own_bytes;
            processes.push(ProcessGrowth { pid, cgroup: found.cgroup, anonymous_bytes, growth });
        },
    )?;
    Ok(MeasuredGrowth { coverage, without_contents, processes })
}

/// The forecast for `top`, then for those of the cgroups below it that have a limit or one of these
/// processes, the largest growth first.
pub fn forecast_below(
    top: &Path,
    processes: &[ProcessGrowth],
    watermarks: &WatermarkTable,
) -> Result<Vec<CgroupForecast>> {
    let limits = CgroupLimits::of_this_machine();
    let machine =
        system_memory::machine_memory_use().context("can't read the memory use of the machine")?;
    let usage = |cgroup: &Path| {
        let machine = (cgroup == Path::new("/")).then_some(machine);
        let limited = limits.memory_use_of_cgroup(cgroup).unwrap_or_else(|error| {
            tracing::warn!("can't read the memory of cgroup {}: {error}", cgroup.display());
            None
        });
        limited.or(machine)
    };
    let populations = cgroup_populations(top, processes, usage);
    let mut forecasts = forecast_cgroups(&populations, watermarks);
    forecasts.sort_by_key(|forecast| {
        (Path::new(&forecast.cgroup) != top, Reverse(forecast.always_added_bytes))
    });
    Ok(forecasts)
}

fn cgroup_populations(
    top: &Path,
    processes: &[ProcessGrowth],
    usage: impl Fn(&Path) -> Option<MemoryUse>,
) -> Vec<CgroupPopulation> {
    let empty = |path: &Path| CgroupPopulation {
        cgroup: path.display().to_string(),
        usage: usage(path),
        ..CgroupPopulation::default()
    };
    let mut groups = BTreeMap::from([(top, empty(top))]);
    for process in processes {
        let within = process.cgroup.ancestors().take_while(|path| path.starts_with(top));
        for path in within {
            groups.entry(path).or_insert_with(|| empty(path));
        }
        if let Some(own) = groups.get_mut(process.cgroup.as_path()) {
            own.processes += 1;
            own.anonymous_bytes += process.anonymous_bytes;
            own.growth.add(process.growth);
        }
    }
    groups.retain(|path, group| *path == top || group.usage.is_some() || group.processes > 0);
    groups.into_values().collect()
}

pub fn forecast_text(forecast: &MemoryForecast) -> String {
    let mut out = WrappedText::default();
    let enabled = forecast.enabled.as_deref().unwrap_or("absent");
    let read = format_count(forecast.coverage.read as u64);
    out.push_sentence(format!(
        "Memory with huge pages for every program (enabled=always; now {enabled}), from what {read} processes populate now:"
    ));
    let (used, limit, always, guard) = ("USED", "LIMIT", "ALWAYS", "GUARD");
    out.0 += &format!("\n{used:>8} {limit:>8} {always:>16} {guard:>25}  CGROUP\n");
    for row in forecast.cgroups.iter().take(MOST_ROWS) {
        out.0 += &forecast_row(row);
    }
    let more = forecast.cgroups.len().saturating_sub(MOST_ROWS);
    if more > 0 {
        out.0 += &format!("and {more} more cgroups that would grow less\n");
    }
    out.0.push('\n');
    out.push_sentence(
        "ALWAYS: what would be added at most, and the use of the limit then. GUARD: what of it stays. Recovery begins above the high watermark and goes on to the low one. It frees what programs may have given back, and takes back what they have filled with zeros. The use of the limit is that with the larger figure.",
    );
    for sentence in forecast_warnings(forecast) {
        out.push_sentence(sentence);
    }
    out.0
}

fn forecast_row(row: &CgroupForecast) -> String {
    let used = format_bytes(row.used_bytes.unwrap_or(row.anonymous_bytes));
    let limit = row.limit_bytes.map_or_else(|| "-".to_owned(), format_bytes);
    let percent = |percent: Option<f64>| match percent {
        None => String::new(),
        Some(percent) if percent >= 1000.0 => ">999 %".to_owned(),
        Some(percent) => format!("{percent:.0} %"),
    };
    let always_added = format!("+{}", format_bytes(row.always_added_bytes));
    let guard_added = format_added_range(row.guard_least_added_bytes, row.guard_added_bytes);
    let always = format!("{always_added:>9} {:>6}", percent(row.always_percent_of_limit));
    let guard = format!("{guard_added:>18} {:>6}", percent(row.guard_percent_of_limit));
    let name = match &*row.cgroup {
        "/" => "the machine".to_owned(),
        cgroup => clip_start_printable(cgroup, NAME_COLUMNS),
    };
    let row = format!("{used:>8} {limit:>8} {always} {guard}  {name}");
    row.trim_end().to_owned() + "\n"
}

fn forecast_warnings(forecast: &MemoryForecast) -> Vec<String> {
    let mut warnings = Vec::new();
    let over = |percent: Option<f64>| percent.is_some_and(|percent| percent >= 100.0);
    let count = |kind: fn(&CgroupForecast) -> Option<f64>| {
        forecast.cgroups.iter().filter(|row| over(kind(row))).count()
    };
    let always = count(|row| row.always_percent_of_limit);
    if always > 0 {
        let guard = count(|row| row.guard_percent_of_limit);
        warnings.push(format!(
            "Over the limit, where the kernel kills: {always} with `always`, {guard} under `guard`."
        ));
    }
    if !forecast.recovery_possible {
        warnings.push(
            "This kernel can't give memory of huge pages back, so `guard` changes nothing. `hawkeye doctor` shows what would enable that."
                .to_owned(),
        );
    }
    let left_out = forecast.coverage.left_out;
    if left_out > 0 {
        warnings.push(format!(
            "Left out, because they could not be read or were not reached in time: {} processes.",
            format_count(left_out as u64)
        ));
    }
    let without_contents = forecast.processes_without_contents;
    if without_contents > 0 {
        warnings.push(format!(
            "GUARD may be lower: what is filled with zeros is not known of {} processes.",
            format_count(without_contents as u64)
        ));
    }
    warnings
}

/// The end of a path, because the beginnings are alike.
pub fn clip_start_printable(path: &str, width: usize) -> String {
    let printable = path.chars().map(|c| if c.is_control() { '?' } else { c });
    let length = path.chars().count();
    if length <= width {
        return printable.collect();
    }
    ['…'].into_iter().chain(printable.skip(length + 1 - width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn process(cgroup: &str, mib: u64) -> ProcessGrowth {
        ProcessGrowth {
            pid: 1,
            cgroup: cgroup.into(),
            anonymous_bytes: mib * MIB,
            growth: HugePageGrowth { added_bytes: mib * MIB, ..HugePageGrowth::default() },
        }
    }

    fn populations(top: &str, processes: &[ProcessGrowth]) -> Vec<(String, usize, bool)> {
        let limit = MemoryUse { used_bytes: MIB, total_bytes: 2 * MIB };
        let limited = |path: &Path| path.ends_with("limited").then_some(limit);
        let found = cgroup_populations(Path::new(top), processes, limited).into_iter();
        found.map(|group| (group.cgroup, group.processes, group.usage.is_some())).collect()
    }

    #[test]
    fn cgroups_with_a_limit_or_a_process_are_listed_once_and_not_above_the_requested_one() {
        let processes = ["/a/limited/x/y", "/a/limited/x/y", "/a/limited"].map(|p| process(p, 1));
        let expect = |of: &[(&str, usize, bool)]| -> Vec<(String, usize, bool)> {
            of.iter().map(|(path, count, limit)| ((*path).to_owned(), *count, *limit)).collect()
        };
        let all = expect(&[("/", 0, false), ("/a/limited", 1, true), ("/a/limited/x/y", 2, false)]);
        assert_eq!(populations("/", &processes), all);
        let below = expect(&[("/a", 0, false), ("/a/limited", 1, true)]);
        assert_eq!(populations("/a", &processes[2..]), below);
        assert_eq!(populations("/b", &[]), expect(&[("/b", 0, false)]));
    }

    #[test]
    fn the_requested_cgroup_comes_first_then_the_largest_growth() {
        let processes = [process("/a", 1), process("/b", 3), process("/", 0)];
        let found = forecast_below(Path::new("/"), &processes, &WatermarkTable::default());
        let found = found.expect("the memory use can be read");
        let order: Vec<&str> = found.iter().map(|forecast| &*forecast.cgroup).collect();
        assert_eq!(order, ["/", "/b", "/a"]);
        assert_eq!(found[0].always_added_bytes, 4 * MIB);
    }

    fn row(cgroup: &str, limit_mib: Option<u64>) -> CgroupForecast {
        CgroupForecast {
            cgroup: cgroup.into(),
            processes: 3,
            anonymous_bytes: 900 * MIB,
            used_bytes: limit_mib.map(|_| 950 * MIB),
            limit_bytes: limit_mib.map(|mib| mib * MIB),
            always_added_bytes: 512 * MIB,
            always_percent_of_limit: limit_mib.map(|mib| 146_200.0 / mib as f64),
            guard_added_bytes: 60 * MIB,
            guard_least_added_bytes: match limit_mib {
                None => 30 << 20,
                Some(1024) => -(700 << 20),
                Some(_) => 60 << 20,
            },
            guard_percent_of_limit: limit_mib.map(|mib| 101_000.0 / mib as f64),
        }
    }

    fn forecast() -> MemoryForecast {
        MemoryForecast {
            enabled: Some("madvise".into()),
            recovery_possible: false,
            coverage: SurveyCoverage { read: 41, left_out: 2 },
            processes_without_contents: 0,
            cgroups: vec![
                row("/", Some(24 << 10)),
                row("/kubepods.slice/kubepods-burstable.slice/pod1\x1b/container", Some(1 << 10)),
                row("/system.slice/redis.service", None),
            ],
        }
    }

    #[test]
    fn the_table_has_each_cgroup_and_warns_of_limits() {
        insta::assert_snapshot!(forecast_text(&forecast()));
    }

    #[test]
    fn lines_fit_into_80_columns_and_long_lists_are_cut() {
        let mut long = forecast();
        let widest = CgroupForecast {
            always_percent_of_limit: Some(12_345.0),
            always_added_bytes: 1023 << 30,
            guard_added_bytes: 1023 << 30,
            guard_least_added_bytes: -(1023 << 30),
            ..row("/kubepods.slice/kubepods-burstable.slice/pod1\x1b/container", Some(1))
        };
        long.cgroups.extend(vec![widest; 30]);
        let text = forecast_text(&long);
        assert!(text.contains("and 13 more cgroups"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80 && !line.contains('\x1b'), "{line}");
        }
    }
}
