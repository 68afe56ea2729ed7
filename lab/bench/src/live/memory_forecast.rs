//! The memory that `hawkeye advise` forecasts for THP always, from programs that run under THP
//! never, beside what they have under THP always.

use super::guard_arm::{GuardArm, khugepaged_pace_note};
use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::programs::debian_packages::find_hawkeye_program;
use super::programs::{program_launcher, run_for_successful_stdout};
use serde::Deserialize;

/// The quick form runs the first three. PostgreSQL is not among them: its user can't move it into a
/// cgroup.
const PROGRAMS: [ProgramKind; 10] = [
    ProgramKind::Redis,
    ProgramKind::JavaHashMap,
    ProgramKind::GoMap,
    ProgramKind::Memcached,
    ProgramKind::Sparsehash,
    ProgramKind::MariaDb,
    ProgramKind::RocksDb,
    ProgramKind::DuckDb,
    ProgramKind::Mg,
    ProgramKind::Graph,
];
const QUICK_PROGRAMS: usize = 3;

/// Share of a server's keys that is deleted.
const DELETED_PERCENT: u8 = 80;
/// Redis' allocator gives free memory back within ten seconds.
const GIVES_MEMORY_BACK: Duration = Duration::from_secs(12);

const CGROUP: &str = "hawkeye-bench-forecast";

/// What experiments use of `hawkeye advise --cgroup PATH --json`: the cgroup comes first.
#[derive(Debug, Deserialize)]
struct MemoryForecast {
    cgroups: Vec<CgroupForecast>,
}

#[derive(Debug, Deserialize)]
struct CgroupForecast {
    always_added_bytes: u64,
}

/// Memory of a program without files.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ForecastAndTruth {
    never_bytes: u64,
    /// Forecast under THP never.
    forecast_added_bytes: u64,
    always_bytes: u64,
}

impl ForecastAndTruth {
    fn added_bytes(&self) -> f64 {
        self.always_bytes as f64 - self.never_bytes as f64
    }

    /// How much more was forecast than added, in per cent of the program's memory.
    fn error_percent(&self) -> f64 {
        (self.forecast_added_bytes as f64 - self.added_bytes()) * 100.0 / self.never_bytes as f64
    }
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let mib = scale.short_or_long(128, 1024);
    let rounds = scale.short_or_long(1, 3);
    // khugepaged must get to all of a program's memory.
    let work = Duration::from_secs(scale.short_or_long(6, 60));
    let usual = &PROGRAMS[..scale.short_or_long(QUICK_PROGRAMS, PROGRAMS.len())];
    let mut within_ten = 0;
    let mut all = 0;
    for kind in host.selected_programs(&PROGRAMS, usual)? {
        let results: BenchResult<Vec<_>> =
            (0..rounds).map(|_| forecast_and_measure(host, kind, mib, work)).collect();
        match results {
            Ok(results) => {
                all += 1;
                within_ten += usize::from(add_row_to_report(kind.name(), &results, report) <= 10.0);
            }
            // One program that can't run here does not affect the others.
            Err(error) => {
                report.add_note(format!("{} could not be measured: {error}", kind.name()))
            }
        }
    }
    report.add_row(
        "forecasts within 10 % of the program's memory",
        within_ten as f64,
        "programs",
        format!("of {all}; goal: all"),
    );
    report.add_note(format!(
        "Each program has {mib} MiB of data and works for {} s under THP never, then again under THP always. Of Redis and memcached, {DELETED_PERCENT} % of the keys are deleted then, and as much time passes again. Error: memory that `hawkeye advise --cgroup` forecast at the end under never, less what the cgroup has more under always, in per cent of what it has under never, without files; the largest of {rounds} runs.",
        work.as_secs()
    ));
    report.add_note(khugepaged_pace_note());
    Ok(())
}

fn forecast_and_measure(
    host: &mut BenchHost,
    kind: ProgramKind,
    mib: u64,
    work: Duration,
) -> BenchResult<ForecastAndTruth> {
    require_available_memory(kind.expected_resident_bytes(mib) * 2)?;
    let (never_bytes, forecast_added_bytes) = GuardArm::NEVER.run_under_arm(host, |host, _| {
        run_in_cgroup(host, kind, mib, work, |group| {
            Ok((group.used_bytes_without_files()?, forecast_added_bytes()?))
        })
    })?;
    let always_bytes = GuardArm::ALWAYS.run_under_arm(host, |host, _| {
        run_in_cgroup(host, kind, mib, work, MemoryCgroup::used_bytes_without_files)
    })?;
    Ok(ForecastAndTruth { never_bytes, forecast_added_bytes, always_bytes })
}

/// Starts a program in a cgroup and lets it work. Most keys of a server are deleted then. Calls
/// `look` at the end.
fn run_in_cgroup<T>(
    host: &BenchHost,
    kind: ProgramKind,
    mib: u64,
    work: Duration,
    look: impl FnOnce(&MemoryCgroup) -> BenchResult<T>,
) -> BenchResult<T> {
    let group = MemoryCgroup::without_limit(CGROUP)?;
    program_launcher::run_with_launcher(group.launcher_words().to_vec(), || {
        let mut program = kind.start(host, mib)?;
        program.start_work()?;
        std::thread::sleep(work);
        program.pause_work()?;
        if program.delete_keys(DELETED_PERCENT)? {
            std::thread::sleep(work.max(GIVES_MEMORY_BACK));
        }
        let found = look(&group);
        program.prepare_to_end()?;
        found
    })
}

fn forecast_added_bytes() -> BenchResult<u64> {
    let mut command = Command::new(find_hawkeye_program()?);
    command.args(["advise", "--json", "--cgroup", &format!("/{CGROUP}")]);
    let output = run_for_successful_stdout(command)?;
    let forecast: MemoryForecast = serde_json::from_str(&output)
        .map_err(|error| impossible!("the forecast is unreadable: {error}"))?;
    let first = forecast.cgroups.first();
    first
        .map(|group| group.always_added_bytes)
        .ok_or_else(|| impossible!("there is no forecast for the cgroup {CGROUP}"))
}

/// Returns the largest error, in per cent.
fn add_row_to_report(program: &str, results: &[ForecastAndTruth], report: &mut LiveReport) -> f64 {
    let errors = results.iter().map(ForecastAndTruth::error_percent);
    let worst = errors.reduce(|a, b| if b.abs() > a.abs() { b } else { a }).unwrap_or(f64::NAN);
    let mib =
        |bytes: fn(&ForecastAndTruth) -> f64| median_of_mapped(results, bytes) / f64::from(1 << 20);
    report.add_row(
        format!("{program}: error of the forecast"),
        worst,
        "%",
        format!(
            "{:+.0} MiB forecast, {:+.0} MiB added to {:.0} MiB; goal: at most 10",
            mib(|one| one.forecast_added_bytes as f64),
            mib(ForecastAndTruth::added_bytes),
            mib(|one| one.never_bytes as f64),
        ),
    );
    report.print_last_row_to_stderr();
    worst.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_error_counts_in_either_direction() {
        let run = |added: u64| ForecastAndTruth {
            never_bytes: 100 << 20,
            forecast_added_bytes: 20 << 20,
            always_bytes: (100 + added) << 20,
        };
        let mut report = LiveReport::new("forecast");
        assert_eq!(add_row_to_report("Redis", &[run(19), run(35), run(30)], &mut report), 15.0);
        let row = &report.rows[0];
        assert_eq!(row.value, -15.0);
        assert_eq!(row.beside, "+20 MiB forecast, +30 MiB added to 100 MiB; goal: at most 10");
    }

    #[test]
    fn the_first_cgroup_of_a_forecast_is_the_requested_one() {
        let json = r#"{"enabled":"never","read":2,"cgroups":[{"cgroup":"/a","processes":1,
            "anonymous_bytes":9,"always_added_bytes":4096},{"cgroup":"/a/b","always_added_bytes":1}]}"#;
        let forecast: MemoryForecast = serde_json::from_str(json).expect("a forecast");
        assert_eq!(forecast.cgroups[0].always_added_bytes, 4096);
    }
}
