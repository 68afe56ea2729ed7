//! A service that is busy at its start and idle afterwards, in a container: its memory without huge
//! pages, with them, and with guard. A published case with other programs of that kind.

mod connected_mariadb;
mod mimalloc_programs;

use super::guard_arm::{GuardArm, khugepaged_pace_note};
use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::programs::disable_huge_pages_in_child;
use super::running_daemon::RunningDaemon;
use crate::statistics::MedianAndRange;
use mimalloc_programs::{IdleProgram, KEPT_KIB, PreparedIdleProgram};

/// A way to run the machine and a container on it.
struct IdleArm {
    arm: GuardArm,
    /// Whether the container has a limit.
    limited: bool,
    /// Whether the program runs with `PR_SET_THP_DISABLE`, the published remedy.
    thp_disabled: bool,
}

/// A daemon that finds these programs soon after their start, the synthetic one too.
const GUARD: GuardArm = GuardArm {
    config: Some(
        "profile = \"guard\"\n[selection]\nlook_every = \"1 s\"\nmin_resident = \"8 MiB\"\n",
    ),
    ..GuardArm::GUARD
};

const NEVER: usize = 0;
const ALWAYS: usize = 1;
/// The first one must be without a limit: the limit of the others is a share of its memory.
const ARMS: [IdleArm; 7] = [
    IdleArm { arm: GuardArm::NEVER, limited: false, thp_disabled: false },
    IdleArm { arm: GuardArm::ALWAYS, limited: false, thp_disabled: false },
    IdleArm {
        arm: GuardArm { name: "THP always, PR_SET_THP_DISABLE", ..GuardArm::ALWAYS },
        limited: false,
        thp_disabled: true,
    },
    // Whether the limit suffices without huge pages.
    IdleArm {
        arm: GuardArm { name: "THP never, limit", ..GuardArm::NEVER },
        limited: true,
        thp_disabled: false,
    },
    IdleArm {
        arm: GuardArm { name: "THP always, limit", ..GuardArm::ALWAYS },
        limited: true,
        thp_disabled: false,
    },
    IdleArm {
        arm: GuardArm { name: "THP always, guard, limit", ..GUARD },
        limited: true,
        thp_disabled: false,
    },
    IdleArm {
        arm: GuardArm { name: "THP always, guard, no limit", ..GUARD },
        limited: false,
        thp_disabled: false,
    },
];

/// The limit, as a share of the memory without huge pages and without files.
const LIMIT_PERCENT: u64 = 110;
/// Share of the threads that start before the daemon has found the program.
const FIRST_THREADS: usize = 4;
/// THP always needs at least this much more memory than THP never where the case is reproduced.
const REPRODUCED_FROM: f64 = 1.2;

/// The course of a run.
#[derive(Clone, Copy)]
struct IdleCourse {
    /// Clients that connect, or threads.
    threads: usize,
    /// Time after the first of them, in which a daemon finds the program.
    settle: Duration,
    /// Time without any work before memory is measured.
    idle: Duration,
}

/// A run that the kernel did not end.
#[derive(Clone, Copy)]
struct IdleRun {
    /// Memory of the cgroup without files, and how much of it is huge.
    used_bytes: u64,
    huge_bytes: u64,
    /// Memory of files in the cgroup.
    file_bytes: u64,
    limit_bytes: Option<u64>,
    /// Memory that guard took back.
    recovered_bytes: u64,
    /// CPU time of the daemon while the program was idle, in per cent of a core.
    daemon_cpu_percent: f64,
    /// Time for its first work afterwards.
    first_work_ms: f64,
}

/// The runs of a program under each of [`ARMS`]; `None`: killed at the limit.
type ArmRuns = [Vec<Option<IdleRun>>; ARMS.len()];

struct MeasuredIdleProgram {
    program: IdleProgram,
    prepared: PreparedIdleProgram,
    /// Known after its first run.
    limit_bytes: Option<u64>,
    runs: ArmRuns,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let course = IdleCourse {
        threads: scale.short_or_long(40, 150),
        settle: Duration::from_secs(scale.short_or_long(1, 3)),
        idle: Duration::from_secs(scale.short_or_long(2, 15)),
    };
    let rounds = scale.short_or_long(1, 3);
    require_available_memory(scale.short_or_long(1_u64, 3) << 30)?;
    let mut measured = prepare_programs(report);
    for first in 0..rounds {
        for n in 0..ARMS.len() {
            let number = (first + n) % ARMS.len();
            ARMS[number].arm.run_under_arm(host, |_, daemon| {
                for program in &mut measured {
                    program.run_under(number, course, daemon, report);
                }
                Ok(())
            })?;
        }
        eprintln!("hawkeye-lab: {}: a round is done", report.name);
    }
    for measured in &measured {
        add_rows_to_report(measured.program.name(), &measured.runs, report);
    }
    if report.rows.is_empty() {
        bail!("no program could be measured: {}", report.notes.join("; "));
    }
    add_notes(course, rounds, report);
    Ok(())
}

/// The programs that can run here. One that cannot does not affect the others.
fn prepare_programs(report: &mut LiveReport) -> Vec<MeasuredIdleProgram> {
    let mut measured = Vec::new();
    for program in IdleProgram::ALL {
        match program.prepare() {
            Ok(prepared) => measured.push(MeasuredIdleProgram {
                program,
                prepared,
                limit_bytes: None,
                runs: ArmRuns::default(),
            }),
            Err(error) => {
                report.add_note(format!("{} could not be prepared: {error}", program.name()));
            }
        }
    }
    measured
}

impl MeasuredIdleProgram {
    /// Runs it once under the arm of this number. A run that fails does not count.
    fn run_under(
        &mut self,
        number: usize,
        course: IdleCourse,
        daemon: Option<&RunningDaemon>,
        report: &mut LiveReport,
    ) {
        let arm = &ARMS[number];
        match self.run_in_cgroup(arm, course, daemon) {
            Ok(run) => {
                if let (NEVER, Some(run)) = (number, run) {
                    self.limit_bytes.get_or_insert(limit_by_reference(&run));
                }
                self.runs[number].push(run);
            }
            Err(error) => report.add_note(format!(
                "A run of {} under {} failed and does not count: {error}",
                self.program.name(),
                arm.arm.name
            )),
        }
    }

    /// `None` if the kernel killed it at its limit.
    fn run_in_cgroup(
        &self,
        arm: &IdleArm,
        course: IdleCourse,
        daemon: Option<&RunningDaemon>,
    ) -> BenchResult<Option<IdleRun>> {
        let group = MemoryCgroup::without_limit("hawkeye-bench-idle-service")?;
        let limit_bytes = match arm.limited {
            true => Some(self.limit_bytes.ok_or_else(|| {
                impossible!("its memory without huge pages is not known, so it has no limit")
            })?),
            false => None,
        };
        if let Some(bytes) = limit_bytes {
            group.set_limit(bytes)?;
        }
        let within = |command: &Command| {
            let mut command = group.wrap_command(command);
            if arm.thp_disabled {
                disable_huge_pages_in_child(&mut command);
            }
            command
        };
        match self.measure(&group, &within, course, daemon) {
            Ok(run) => Ok(Some(IdleRun { limit_bytes, ..run })),
            Err(error) if group.count_oom_kills()? == 0 => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn measure(
        &self,
        group: &MemoryCgroup,
        within: &dyn Fn(&Command) -> Command,
        course: IdleCourse,
        daemon: Option<&RunningDaemon>,
    ) -> BenchResult<IdleRun> {
        let recovered_bytes = || -> BenchResult<u64> {
            daemon.map_or(Ok(0), |daemon| Ok(daemon.fetch_status()?.totals.recovered_bytes))
        };
        let daemon_cpu = || daemon.map_or(Duration::ZERO, RunningDaemon::cpu_time);
        let recovered_before = recovered_bytes()?;
        let mut program = self.prepared.start(within)?;
        let first = course.threads.div_ceil(FIRST_THREADS);
        for _ in 0..first {
            program.add_thread()?;
        }
        std::thread::sleep(course.settle);
        if let Some(daemon) = daemon {
            daemon.wait_until_managed(program.pid())?;
        }
        for _ in first..course.threads {
            program.add_thread()?;
        }
        let (begun, cpu_before) = (Instant::now(), daemon_cpu());
        std::thread::sleep(course.idle);
        let cpu = daemon_cpu().saturating_sub(cpu_before);
        let daemon_cpu_percent = cpu.as_secs_f64() * 100.0 / begun.elapsed().as_secs_f64();
        let (used_bytes, huge_bytes) = (group.used_bytes_without_files()?, group.huge_bytes()?);
        let file_bytes = group.file_bytes()?;
        let recovered_bytes = recovered_bytes()? - recovered_before;
        let begun = Instant::now();
        program.work_once()?;
        let first_work_ms = begun.elapsed().as_secs_f64() * 1000.0;
        Ok(IdleRun {
            used_bytes,
            huge_bytes,
            file_bytes,
            limit_bytes: None,
            recovered_bytes,
            daemon_cpu_percent,
            first_work_ms,
        })
    }
}

/// The limit, by a run without huge pages. The kernel counts files, too.
fn limit_by_reference(never: &IdleRun) -> u64 {
    never.used_bytes / 100 * LIMIT_PERCENT + never.file_bytes
}

fn add_rows_to_report(program: &str, runs: &ArmRuns, report: &mut LiveReport) {
    let survived =
        |number: usize| -> Vec<IdleRun> { runs[number].iter().flatten().copied().collect() };
    let never = survived(NEVER);
    if never.is_empty() {
        report.add_note(format!("{program} has no run under THP never to compare with."));
        return;
    }
    let never_bytes = median_of_mapped(&never, |run| run.used_bytes as f64);
    let never_ms = median_of_mapped(&never, |run| run.first_work_ms);
    for (number, IdleArm { arm, limited, .. }) in ARMS.iter().enumerate() {
        let alive = survived(number);
        let mut rows = report.prefixed_row_writer(format!("{program}, {}", arm.name));
        let guarded = arm.config.is_some();
        let goal = |goal: &'static str| if guarded && *limited { goal } else { "" };
        if *limited {
            let beside = format!("of {}{}", runs[number].len(), goal("; goal: all"));
            rows.add_row("survived", alive.len() as f64, "runs", beside);
        }
        if alive.is_empty() {
            continue;
        }
        let mib =
            |part: fn(&IdleRun) -> u64| median_of_mapped(&alive, |run| bytes_to_mib(part(run)));
        let range = |part: fn(&IdleRun) -> f64| {
            MedianAndRange::from_figures(alive.iter().map(part).collect())
        };
        let used = range(|run| run.used_bytes as f64);
        let limit = match limited {
            true => format!("; limit {:.0} MiB", mib(|run| run.limit_bytes.unwrap_or(0))),
            false => String::new(),
        };
        let recovered = match guarded {
            true => format!("; it took {:.0} MiB back", mib(|run| run.recovered_bytes)),
            false => String::new(),
        };
        let beside = format!(
            "{:.2}-{:.2}, of THP never: {:.0} MiB, {:.0} MiB of it huge{limit}{recovered}{}",
            used.low / never_bytes,
            used.high / never_bytes,
            mib(|run| run.used_bytes),
            mib(|run| run.huge_bytes),
            goal("; goal: at most 1.03"),
        );
        rows.add_row("memory while idle", used.median / never_bytes, "times", beside);
        let work = range(|run| run.first_work_ms);
        let beside = format!("{:.1}-{:.1}; THP never: {never_ms:.1}", work.low, work.high);
        rows.add_row("first work afterwards", work.median, "ms", beside);
        if guarded {
            let cpu = range(|run| run.daemon_cpu_percent);
            let beside = format!("{:.2}-{:.2}, while the program is idle", cpu.low, cpu.high);
            rows.add_row("daemon's CPU time", cpu.median, "% of a core", beside);
        }
    }
    let always = survived(ALWAYS);
    let ratio = median_of_mapped(&always, |run| run.used_bytes as f64) / never_bytes;
    if !always.is_empty() && ratio < REPRODUCED_FROM {
        report.add_note(format!(
            "These packages did not reproduce the published case with {program}: THP always needs {ratio:.2} times the memory of THP never, less than {REPRODUCED_FROM}."
        ));
    }
}

fn add_notes(course: IdleCourse, rounds: usize, report: &mut LiveReport) {
    report.add_note(
        "Published: an idle server (TrailBase) with an empty database and mimalloc, on a host with THP always. Its cgroup had 944 MB, 792 MB of it huge, and 621 MB with PR_SET_THP_DISABLE: 1.52 times (yurvon-screamo/origa, pull request 568). That is another program on other hardware.",
    );
    report.add_note(format!(
        "MariaDB has no stored data. {} clients connect one after the other. Each makes a temporary table, sorts another, stays connected and is idle. The synthetic program was written for this experiment. It has as many threads; each allocates blocks of 16 B to 256 KiB until it keeps {KEPT_KIB} KiB, frees 70 % at random, and sleeps. A quarter of the clients or threads start {} s before the others; the daemon finds the program meanwhile.",
        course.threads,
        course.settle.as_secs(),
    ));
    report.add_note(format!(
        "Memory is that of the cgroup without files, {} s after the last client or thread. Medians of {rounds} runs, and their range. First work is a sort over an open connection, or a read of all blocks. The limit is {LIMIT_PERCENT} % of the memory of the first run under THP never, and the files of that run. Without a limit guard takes nothing back while the machine has memory.",
        course.idle.as_secs(),
    ));
    report.add_note(format!(
        "{} Here guard also has look_every = \"1 s\" and min_resident = \"8 MiB\".",
        khugepaged_pace_note()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_that_uses(mib: u64) -> IdleRun {
        IdleRun {
            used_bytes: mib << 20,
            huge_bytes: (mib - 100) << 20,
            file_bytes: 30 << 20,
            limit_bytes: Some(110 << 20),
            recovered_bytes: 7 << 20,
            daemon_cpu_percent: 0.5,
            first_work_ms: 4.0,
        }
    }

    fn report_with_always_at(mib: u64) -> LiveReport {
        let runs: ArmRuns = [100, mib, 100, 100, 0, 102, mib].map(|mib| match mib {
            0 => vec![None; 2],
            mib => vec![Some(run_that_uses(mib)); 2],
        });
        let mut report = LiveReport::new("idle-container");
        add_rows_to_report("MariaDB", &runs, &mut report);
        report
    }

    #[test]
    fn arms_are_compared_with_never_and_only_guard_with_a_limit_has_goals() {
        assert_eq!((ARMS[NEVER].arm.name, ARMS[ALWAYS].arm.name), ("THP never", "THP always"));
        assert!(!ARMS[NEVER].limited && !ARMS[ALWAYS].limited);
        let report = report_with_always_at(152);
        let memory = |arm: &str| report.row(&format!("MariaDB, {arm}: memory while idle"));
        assert_eq!(memory("THP always").value, 1.52);
        assert_eq!(memory("THP always, PR_SET_THP_DISABLE").value, 1.0);
        let guard = memory("THP always, guard, limit");
        assert_eq!(guard.value, 1.02);
        let beside = "1.02-1.02, of THP never: 102 MiB, 2 MiB of it huge; limit 110 MiB; it took 7 MiB back; goal: at most 1.03";
        assert_eq!(guard.beside, beside);
        let goals = report.rows.iter().filter(|row| row.beside.contains("goal"));
        assert!(goals.clone().count() == 2, "{report}");
        assert!(goals.clone().all(|row| row.what.contains("guard, limit")), "{report}");
        assert!(report.notes.is_empty(), "{report}");
    }

    #[test]
    fn files_fit_into_the_limit_beside_the_rest() {
        let never = run_that_uses(100);
        assert_eq!(limit_by_reference(&never), (110 + 30) << 20);
    }

    #[test]
    fn a_killed_container_has_no_memory_and_counts_as_killed() {
        let report = report_with_always_at(152);
        let killed = report.row("MariaDB, THP always, limit: survived");
        assert_eq!((killed.value, killed.beside.as_str()), (0.0, "of 2"));
        let figures = report.rows.iter().filter(|row| row.what.contains("always, limit: "));
        assert_eq!(figures.count(), 1, "{report}");
    }

    #[test]
    fn a_case_that_is_not_reproduced_is_reported_as_such() {
        let report = report_with_always_at(119);
        assert!(report.notes[0].contains("did not reproduce"), "{report}");
        assert!(report.notes[0].contains("1.19 times"), "{report}");
    }
}
