//! Cost of a daemon with the profile `guard` on a node with many idle containers.

use super::guard_arm::GuardArm;
use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::running_daemon::RunningDaemon;

/// Memory of each process, and the limit of each container.
const PROCESS_MIB: u64 = 4;
const LIMIT_MIB: u64 = 64;

/// The daemon manages all processes. By default it manages none of this size.
const MANAGE_ALL: GuardArm = GuardArm {
    config: Some("profile = \"guard\"\n[selection]\nmin_resident = \"2 MiB\"\n"),
    ..GuardArm::GUARD
};

/// A node and the daemon on it.
struct NodeArm {
    name: String,
    daemon: GuardArm,
    containers: usize,
    /// For how long the daemon's CPU time is measured.
    length: Duration,
    /// Whether the goals are for this one.
    has_goals: bool,
}

/// What a daemon uses.
struct DaemonUse {
    cpu_percent: f64,
    pss_bytes: u64,
    rss_bytes: u64,
    managed: usize,
}

/// A container with one or two processes.
struct IdleContainer {
    // Dropped first: the cgroup must be empty then.
    processes: Vec<WorkloadProcess>,
    _group: MemoryCgroup,
}

impl IdleContainer {
    fn start(host: &BenchHost, number: usize) -> BenchResult<Self> {
        let group = MemoryCgroup::new(&format!("hawkeye-bench-idle-{number}"), LIMIT_MIB << 20)?;
        let words = format!("burner --mib {PROCESS_MIB} --pages default");
        let start = |_| group.start_workload(host.workload_program_path(), &words);
        let processes = (0..process_count(number)).map(start).collect::<BenchResult<_>>()?;
        Ok(Self { processes, _group: group })
    }
}

/// Processes of the container with this number.
fn process_count(number: usize) -> usize {
    1 + number % 2
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let (rounds, containers) = scale.short_or_long((1, 100), (3, 300));
    // A process is sampled in two windows, 30 s apart, before it counts as idle.
    let (settle_s, length_s) = scale.short_or_long((6, 10), (75, 60));
    // An idle process is read again in the next window after 300 s, so about once in this time.
    let managing_length_s = scale.short_or_long(10, 330);
    let settle = Duration::from_secs(settle_s);
    require_available_memory(8 << 30)?;
    let arm = |name, daemon, containers, length_s, has_goals| {
        let length = Duration::from_secs(length_s);
        NodeArm { name, daemon, containers, length, has_goals }
    };
    let by_default = format!("{containers} containers, by default none managed");
    let all = format!("{containers} containers, all managed");
    let arms = [
        arm("no containers".to_owned(), GuardArm::GUARD, 0, length_s, false),
        arm(by_default, GuardArm::GUARD, containers, length_s, false),
        arm(all, MANAGE_ALL, containers, managing_length_s, true),
    ];
    let mut uses = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        for (arm, uses) in arms.iter().zip(&mut uses) {
            uses.push(arm.daemon.run_under_arm(host, |host, daemon| {
                let daemon = daemon.ok_or_else(|| impossible!("{} has no daemon", arm.name))?;
                measure_daemon_use(host, daemon, arm.containers, [settle, arm.length])
            })?);
        }
    }
    for (arm, uses) in arms.iter().zip(&uses) {
        let processes: usize = (0..arm.containers).map(process_count).sum();
        let managed = median_of_mapped(uses, |one| one.managed as f64);
        let goal = |goal| if arm.has_goals { goal } else { "" };
        let mut rows = report.prefixed_row_writer(&arm.name);
        rows.add_row(
            "daemon's CPU time",
            median_of_mapped(uses, |one| one.cpu_percent),
            "% of a core",
            format!(
                "{processes} processes, {managed:.0} managed{}",
                goal("; goal with 300: at most 0.5")
            ),
        );
        rows.add_row(
            "daemon's memory (PSS)",
            median_of_mapped(uses, |one| bytes_to_mib(one.pss_bytes)),
            "MiB",
            format!(
                "with its helpers; RSS without them {:.1} MiB{}",
                median_of_mapped(uses, |one| bytes_to_mib(one.rss_bytes)),
                goal("; goal with 300: at most 60")
            ),
        );
    }
    report.add_note(format!(
        "Each container is a cgroup with a limit of {LIMIT_MIB} MiB and one or two idle processes of {PROCESS_MIB} MiB, under THP always. The daemon has the profile guard; all managed: also min_resident = \"2 MiB\". It runs before the containers start. Measured for {length_s} s, {settle_s} s after they started; where all are managed for {managing_length_s} s, because the daemon reads an idle process again after 300 s. Median of {rounds} runs.",
    ));
    Ok(())
}

fn measure_daemon_use(
    host: &BenchHost,
    daemon: &RunningDaemon,
    containers: usize,
    [settle, length]: [Duration; 2],
) -> BenchResult<DaemonUse> {
    let started = (0..containers).map(|number| IdleContainer::start(host, number));
    let mut started = started.collect::<BenchResult<Vec<_>>>()?;
    for process in started.iter_mut().flat_map(|container| &mut container.processes) {
        process.wait_ready()?;
    }
    std::thread::sleep(settle);
    let (begun, before) = (Instant::now(), daemon.cpu_time());
    std::thread::sleep(length);
    let cpu = daemon.cpu_time().saturating_sub(before);
    Ok(DaemonUse {
        cpu_percent: cpu.as_secs_f64() * 100.0 / begun.elapsed().as_secs_f64(),
        pss_bytes: daemon.pss_bytes()?,
        rss_bytes: daemon.rss_bytes()?,
        managed: daemon.fetch_status()?.managed,
    })
}
