//! The memory that `hawkeye advise` forecasts for THP always and for guard, from programs that run
//! under THP never, beside what they then have.

use super::guard_arm::{GuardArm, khugepaged_pace_note};
use super::kept_rounds::{KeptRound, KeptRounds};
use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::programs::debian_packages::find_hawkeye_program;
use super::programs::{program_launcher, run_for_successful_stdout};
use crate::run_origin::RunOrigin;
use hawkeye_policy::saturating_cast::i64_from_u64;
use serde::{Deserialize, Serialize};

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

/// The limit under guard: THP always would use this share of it, so that guard acts.
const ALWAYS_PERCENT_OF_LIMIT: u64 = 92;
/// THP never would use at most this share, which is the high watermark: guard could not bring use
/// below what programs fill.
const NEVER_PERCENT_OF_LIMIT: u64 = 85;

/// What experiments use of `hawkeye advise --cgroup PATH --json`: the cgroup comes first.
#[derive(Debug, Deserialize)]
struct MemoryForecast {
    cgroups: Vec<CgroupForecast>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct CgroupForecast {
    always_added_bytes: u64,
    guard_added_bytes: u64,
    /// Rounds that were kept by earlier builds have only the figure above.
    #[serde(default)]
    guard_least_added_bytes: Option<i64>,
}

impl CgroupForecast {
    fn guard_least_and_most_bytes(self) -> [i64; 2] {
        let most = i64_from_u64(self.guard_added_bytes);
        [self.guard_least_added_bytes.unwrap_or(most), most]
    }
}

/// How long a program works and guard acts, and how much data it has.
#[derive(Clone, Copy)]
struct ForecastSizes {
    mib: u64,
    /// khugepaged must get to all of a program's memory.
    work: Duration,
    /// From the limit to the measurement.
    recovery: Duration,
}

/// A program under each arm once: its memory without files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct ForecastRound {
    never_bytes: u64,
    always_bytes: u64,
    guard_bytes: u64,
    /// The limit under guard, and in the forecast.
    limit_bytes: u64,
    /// Memory that guard took back.
    recovered_bytes: u64,
    /// Made under THP never.
    forecast: CgroupForecast,
}

/// A column of the forecast, and the memory that it is about.
struct ForecastColumn {
    row: &'static str,
    /// From the least to the most.
    forecast_bytes: fn(&ForecastRound) -> [i64; 2],
    then_bytes: fn(&ForecastRound) -> u64,
}

const ALWAYS: ForecastColumn = ForecastColumn {
    row: "error of the forecast",
    forecast_bytes: |round| [i64_from_u64(round.forecast.always_added_bytes); 2],
    then_bytes: |round| round.always_bytes,
};
const GUARD: ForecastColumn = ForecastColumn {
    row: "error of the forecast under guard",
    forecast_bytes: |round| round.forecast.guard_least_and_most_bytes(),
    then_bytes: |round| round.guard_bytes,
};

impl ForecastColumn {
    fn added_bytes(&self, round: &ForecastRound) -> f64 {
        (self.then_bytes)(round) as f64 - round.never_bytes as f64
    }

    /// How much more was forecast than added, in per cent of the program's memory; 0 within the
    /// range of the forecast.
    fn error_percent(&self, round: &ForecastRound) -> f64 {
        let added_bytes = self.added_bytes(round);
        let [least, most] = (self.forecast_bytes)(round).map(|bytes| bytes as f64);
        let error_bytes = added_bytes.clamp(least, most.max(least)) - added_bytes;
        error_bytes * 100.0 / round.never_bytes as f64
    }

    /// Width of the range of the forecast, in per cent of the program's memory.
    fn width_percent(&self, round: &ForecastRound) -> f64 {
        let [least, most] = (self.forecast_bytes)(round);
        most.saturating_sub(least) as f64 * 100.0 / round.never_bytes as f64
    }

    /// Returns the largest error, in per cent.
    fn add_row_to_report(
        &self,
        program: &str,
        rounds: &[ForecastRound],
        report: &mut LiveReport,
    ) -> f64 {
        let errors = rounds.iter().map(|round| self.error_percent(round));
        let worst = errors.reduce(|a, b| if b.abs() > a.abs() { b } else { a }).unwrap_or(f64::NAN);
        let mib = |bytes: &dyn Fn(&ForecastRound) -> f64| {
            median_of_mapped(rounds, bytes) / f64::from(1 << 20)
        };
        let [least, most] = [0, 1].map(|n: usize| {
            format!("{:+.0}", mib(&|round| (self.forecast_bytes)(round)[n] as f64))
        });
        let width = median_of_mapped(rounds, |round| self.width_percent(round));
        let forecast = match least == most {
            true => format!("{most} MiB"),
            false => format!("{least} to {most} MiB, a range of {width:.0} %,"),
        };
        report.add_row(
            format!("{program}: {}", self.row),
            worst,
            "%",
            format!(
                "the largest of {} rounds; {forecast} forecast, {:+.0} MiB added to {:.0} MiB; goal: at most 10",
                rounds.len(),
                mib(&|round| self.added_bytes(round)),
                mib(&|round| round.never_bytes as f64),
            ),
        );
        worst.abs()
    }
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = ForecastSizes {
        mib: scale.short_or_long(128, 1024),
        work: Duration::from_secs(scale.short_or_long(6, 45)),
        recovery: Duration::from_secs(scale.short_or_long(10, 30)),
    };
    let quick = scale == Scale::Quick;
    let rounds = host.rounds().unwrap_or(scale.short_or_long(1, 2));
    let usual = &PROGRAMS[..scale.short_or_long(QUICK_PROGRAMS, PROGRAMS.len())];
    let programs = host.selected_programs(&PROGRAMS, usual)?;
    let origin = RunOrigin::of_this_machine();
    let mut kept = KeptRounds::load(host.kept_rounds_file(report.name.name))?;
    // A session that is stopped has rounds of all programs, rather than all rounds of some.
    for _ in 0..rounds {
        for kind in programs.iter().copied() {
            match forecast_and_measure(host, kind, sizes) {
                Ok(arms) => {
                    let (program, origin) = (kind.name().to_owned(), origin.dated_today());
                    kept.add_round(KeptRound { program, quick, origin, arms })?;
                    eprintln!("hawkeye-lab: {}: a round of {} is done", report.name, kind.name());
                }
                // One program that can't run here does not affect the others.
                Err(error) => {
                    report.add_note(format!("A round of {} failed: {error}", kind.name()))
                }
            }
        }
    }
    add_rows_of_programs(&kept, quick, &origin, report)?;
    report.add_note(format!(
        "Each program has {} MiB of data and works for {} s, in turn under THP always, THP never and guard. Of Redis and memcached, {DELETED_PERCENT} % of the keys are deleted then, and as much time passes again. Error: memory that `hawkeye advise --cgroup` forecast at the end under never, less what the cgroup then has more than under never, in per cent of what it has under never, without files. By default a session has {} rounds, and adds them to those of earlier sessions with the same build.",
        sizes.mib,
        sizes.work.as_secs(),
        scale.short_or_long(1, 2),
    ));
    report.add_note(format!(
        "Under guard the cgroup gets its limit at the end, {} s before its memory is read: the larger of what always used, as {ALWAYS_PERCENT_OF_LIMIT} % of the limit, and what never used, as {NEVER_PERCENT_OF_LIMIT} %. The forecast is made with the same limit. Where recovery acts it is a range: recovery begins above the high watermark and goes on to the low one. It frees what the program may have given back itself, and takes back what that has filled with zeros. Within the range nothing is an error, so its width is printed, too.",
        sizes.recovery.as_secs(),
    ));
    report.add_note(khugepaged_pace_note());
    Ok(())
}

/// Adds the rows of all programs that have rounds of this machine and build.
///
/// # Errors
/// There is no such round. A result without rows would replace the one of an earlier build.
fn add_rows_of_programs(
    kept: &KeptRounds<ForecastRound>,
    quick: bool,
    origin: &RunOrigin,
    report: &mut LiveReport,
) -> BenchResult<()> {
    let mut within_ten = [0_usize; 2];
    let mut all = 0;
    for kind in PROGRAMS {
        let rounds: Vec<ForecastRound> =
            kept.rounds_of_build(kind.name(), quick, origin).map(|round| round.arms).collect();
        if rounds.is_empty() {
            continue;
        }
        all += 1;
        for (column, within_ten) in [&ALWAYS, &GUARD].into_iter().zip(&mut within_ten) {
            let worst = column.add_row_to_report(kind.name(), &rounds, report);
            *within_ten += usize::from(worst <= 10.0);
        }
        let mib = |bytes: fn(&ForecastRound) -> u64| {
            median_of_mapped(&rounds, |round| bytes_to_mib(bytes(round)))
        };
        report.add_row(
            format!("{}: taken back by guard", kind.name()),
            mib(|round| round.recovered_bytes),
            "MiB",
            format!("limit {:.0} MiB", mib(|round| round.limit_bytes)),
        );
    }
    if all == 0 {
        let notes: String = report.notes.iter().map(|note| format!("; {note}")).collect();
        bail!(
            "there is no finished round of this machine and of this build, {}: measure some with --rounds 1 or more{notes}",
            origin.commit_name()
        );
    }
    let beside = format!("of {all}; goal: all");
    for (what, within_ten) in ["forecasts", "forecasts under guard"].into_iter().zip(within_ten) {
        let what = format!("{what} within 10 % of the program's memory");
        report.add_row(what, within_ten as f64, "programs", beside.clone());
    }
    Ok(())
}

fn forecast_and_measure(
    host: &mut BenchHost,
    kind: ProgramKind,
    sizes: ForecastSizes,
) -> BenchResult<ForecastRound> {
    require_available_memory(kind.expected_resident_bytes(sizes.mib) * 2)?;
    let always_bytes = GuardArm::ALWAYS.run_under_arm(host, |host, _| {
        run_in_cgroup(host, kind, sizes, |group, _| group.used_bytes_without_files())
    })?;
    let (never_bytes, limit_bytes, forecast) = GuardArm::NEVER.run_under_arm(host, |host, _| {
        run_in_cgroup(host, kind, sizes, |group, _| {
            let never_bytes = group.used_bytes_without_files()?;
            let limit_bytes = limit_for_guard(never_bytes, always_bytes);
            group.set_limit(limit_bytes)?;
            Ok((never_bytes, limit_bytes, forecast_of_cgroup()?))
        })
    })?;
    let (guard_bytes, recovered_bytes) = GuardArm::GUARD.run_under_arm(host, |host, daemon| {
        let daemon = daemon.ok_or_else(|| impossible!("guard has no daemon"))?;
        run_in_cgroup(host, kind, sizes, |group, pid| {
            daemon.wait_until_managed(pid)?;
            group.set_limit(limit_bytes)?;
            std::thread::sleep(sizes.recovery);
            let recovered_bytes = daemon.fetch_status()?.totals.recovered_bytes;
            Ok((group.used_bytes_without_files()?, recovered_bytes))
        })
    })?;
    Ok(ForecastRound {
        never_bytes,
        always_bytes,
        guard_bytes,
        limit_bytes,
        recovered_bytes,
        forecast,
    })
}

fn limit_for_guard(never_bytes: u64, always_bytes: u64) -> u64 {
    let by_always = always_bytes / ALWAYS_PERCENT_OF_LIMIT * 100;
    by_always.max(never_bytes / NEVER_PERCENT_OF_LIMIT * 100)
}

/// Starts a program in a cgroup and lets it work. Most keys of a server are deleted then. Calls
/// `look` with the cgroup and the program's pid at the end.
fn run_in_cgroup<T>(
    host: &BenchHost,
    kind: ProgramKind,
    sizes: ForecastSizes,
    look: impl FnOnce(&MemoryCgroup, u32) -> BenchResult<T>,
) -> BenchResult<T> {
    let group = MemoryCgroup::without_limit(CGROUP)?;
    program_launcher::run_with_launcher(group.launcher_words().to_vec(), || {
        let mut program = kind.start(host, sizes.mib)?;
        program.start_work()?;
        std::thread::sleep(sizes.work);
        program.pause_work()?;
        if program.delete_keys(DELETED_PERCENT)? {
            std::thread::sleep(sizes.work.max(GIVES_MEMORY_BACK));
        }
        let found = look(&group, program.pid());
        let oom_kills = group.count_oom_kills();
        let ended = program.prepare_to_end();
        let found = unless_killed(found, oom_kills?)?;
        ended?;
        Ok(found)
    })
}

/// A program that the kernel killed has hardly any memory, which is no result.
fn unless_killed<T>(found: BenchResult<T>, oom_kills: u64) -> BenchResult<T> {
    if oom_kills > 0 {
        bail!("the kernel killed it at its limit");
    }
    found
}

fn forecast_of_cgroup() -> BenchResult<CgroupForecast> {
    let mut command = Command::new(find_hawkeye_program()?);
    command.args(["advise", "--json", "--cgroup", &format!("/{CGROUP}")]);
    let output = run_for_successful_stdout(command)?;
    let forecast: MemoryForecast = serde_json::from_str(&output)
        .map_err(|error| impossible!("the forecast is unreadable: {error}"))?;
    let first = forecast.cgroups.first().copied();
    first.ok_or_else(|| impossible!("there is no forecast for the cgroup {CGROUP}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast_mib(always: u64, guard: std::ops::RangeInclusive<i32>) -> CgroupForecast {
        let (least, most) = guard.into_inner();
        CgroupForecast {
            always_added_bytes: always << 20,
            guard_added_bytes: u64::from(most.unsigned_abs()) << 20,
            guard_least_added_bytes: Some(i64::from(least) << 20),
        }
    }

    fn round(always_added: u64, guard_added: u64) -> ForecastRound {
        ForecastRound {
            never_bytes: 100 << 20,
            always_bytes: (100 + always_added) << 20,
            guard_bytes: (100 + guard_added) << 20,
            limit_bytes: 130 << 20,
            recovered_bytes: 12 << 20,
            forecast: forecast_mib(20, 10..=10),
        }
    }

    #[test]
    fn the_worst_error_counts_in_either_direction() {
        let rounds = [round(19, 9), round(35, 12), round(30, 6)];
        let mut report = LiveReport::new("forecast");
        assert_eq!(ALWAYS.add_row_to_report("Redis", &rounds, &mut report), 15.0);
        assert_eq!(GUARD.add_row_to_report("Redis", &rounds, &mut report), 4.0);
        let always = report.row("Redis: error of the forecast");
        assert_eq!(always.value, -15.0);
        let beside =
            "the largest of 3 rounds; +20 MiB forecast, +30 MiB added to 100 MiB; goal: at most 10";
        assert_eq!(always.beside, beside);
        let guard = report.row("Redis: error of the forecast under guard");
        assert_eq!(guard.value, 4.0);
        assert!(!guard.beside.contains("range"), "{}", guard.beside);
    }

    #[test]
    fn a_range_is_wrong_only_outside_and_its_width_is_printed() {
        let forecast = forecast_mib(0, -20..=50);
        let less = ForecastRound { forecast, guard_bytes: 70 << 20, ..round(10, 0) };
        assert_eq!(GUARD.error_percent(&less), 10.0);
        let forecast = forecast_mib(0, 20..=50);
        let error = |guard_added| {
            GUARD.error_percent(&ForecastRound { forecast, ..round(10, guard_added) })
        };
        assert_eq!([17, 20, 50, 54].map(error), [3.0, 0.0, 0.0, -4.0]);
        let rounds = [ForecastRound { forecast, ..round(10, 30) }];
        let mut report = LiveReport::new("forecast");
        assert_eq!(GUARD.add_row_to_report("Redis", &rounds, &mut report), 0.0);
        let row = report.row("Redis: error of the forecast under guard");
        let beside = "+20 to +50 MiB, a range of 30 %, forecast, +30 MiB added to 100 MiB;";
        assert!(row.beside.contains(beside), "{}", row.beside);
    }

    #[test]
    fn a_killed_program_has_no_result() {
        assert!(unless_killed(Ok(7), 0).is_ok_and(|found| found == 7));
        let error = unless_killed(Ok(7), 1).expect_err("a kill").to_string();
        assert_eq!(error, "the kernel killed it at its limit");
    }

    #[test]
    fn rounds_of_sessions_with_one_build_add_up() {
        let origin = RunOrigin { commit: Some("bf449092".to_owned()), ..RunOrigin::default() };
        let mut kept = KeptRounds::load(None).expect("nothing to read");
        for (kind, arms) in [
            (ProgramKind::Redis, round(20, 10)),
            (ProgramKind::Redis, round(20, 25)),
            (ProgramKind::Mg, round(20, 10)),
        ] {
            let (program, origin) = (kind.name().to_owned(), origin.clone());
            kept.add_round(KeptRound { program, quick: false, origin, arms }).expect("kept");
        }
        let mut report = LiveReport::new("forecast");
        add_rows_of_programs(&kept, false, &origin, &mut report).expect("has rounds");
        let within = |what: &str| {
            let row = report.row(&format!("{what} within 10 % of the program's memory"));
            (row.value, row.beside.clone())
        };
        assert_eq!(within("forecasts"), (2.0, "of 2; goal: all".to_owned()));
        assert_eq!(within("forecasts under guard"), (1.0, "of 2; goal: all".to_owned()));
        let other_build = RunOrigin::default();
        let error = add_rows_of_programs(&kept, false, &other_build, &mut report);
        let error = error.expect_err("another build").to_string();
        assert!(error.contains("measure some with --rounds"), "{error}");
    }

    #[test]
    fn the_limit_makes_guard_act_and_holds_what_always_uses() {
        let percent = |bytes: u64, limit: u64| bytes as f64 * 100.0 / limit as f64;
        for (never, always) in [(1000 << 20, 1010 << 20), (1000 << 20, 2000 << 20)] {
            let limit = limit_for_guard(never, always);
            assert!(percent(always, limit) > 85.5 && percent(always, limit) < 93.0);
            assert!(percent(never, limit) < 85.01);
        }
    }

    #[test]
    fn the_first_cgroup_of_a_forecast_is_the_requested_one() {
        let json = r#"{"enabled":"never","read":2,"cgroups":[{"cgroup":"/a","processes":1,
            "anonymous_bytes":9,"always_added_bytes":4096,"guard_added_bytes":0},
            {"cgroup":"/a/b","always_added_bytes":1,"guard_added_bytes":1}]}"#;
        let forecast: MemoryForecast = serde_json::from_str(json).expect("a forecast");
        assert_eq!(forecast.cgroups[0].always_added_bytes, 4096);
    }
}
