//! Short constructors of scripted machines, programs and managers.

pub use crate::scripted_machine::{ProgramPart, ScriptedMachine, ScriptedProgram};

use hawkeye_manager::{LoopWakeReason, Machine, Manager, Settings};
use hawkeye_policy::{CpuBudget, HUGE_PAGE_BYTES, ProcessId, RatePerSecond, RegionAddr, policies};
use std::time::Duration;

/// Bytes of a gibibyte.
pub const GIB: u64 = 1 << 30;
/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// The first program of a scripted machine.
pub const FIRST_PROCESS: ProcessId = ProcessId { pid: 1001, start_ticks: 1 };

/// Seconds.
pub fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// The `index`th region of the programs.
pub fn region_at_index(index: u32) -> RegionAddr {
    RegionAddr::containing(GIB + u64::from(index) * HUGE_PAGE_BYTES)
}

/// Several of them.
pub fn regions_at(indices: impl IntoIterator<Item = u32>) -> Vec<RegionAddr> {
    indices.into_iter().map(region_at_index).collect()
}

/// A machine with this much memory, in bytes, and one program: [`FIRST_PROCESS`].
pub fn machine_running(total_bytes: u64, program: ScriptedProgram) -> ScriptedMachine {
    let mut machine = ScriptedMachine::new(total_bytes);
    machine.add_program(program);
    machine
}

/// The same with a program of these parts.
pub fn machine_running_parts(total_bytes: u64, parts: &[ProgramPart]) -> ScriptedMachine {
    machine_running(total_bytes, program_of_parts(parts))
}

/// Fully used regions under base pages.
pub fn base_page_part(first: u32, regions: u32, weight: f64) -> ProgramPart {
    ProgramPart::new(region_at_index(first), regions, false, weight)
}

/// Huge pages with 100 of 512 base pages in use.
pub fn bloated_part(first: u32, regions: u32, weight: f64) -> ProgramPart {
    ProgramPart::new(region_at_index(first), regions, true, weight).using(100)
}

/// A program with these parts. Every access to a base page needs a walk.
pub fn program_of_parts(parts: &[ProgramPart]) -> ScriptedProgram {
    ScriptedProgram { parts: parts.to_vec(), ..ScriptedProgram::default() }
}

/// The same in a cgroup.
pub fn program_in_group(name: &'static str, parts: &[ProgramPart]) -> ScriptedProgram {
    ScriptedProgram { group: Some(name), ..program_of_parts(parts) }
}

/// A program of this many regions in which only this share of accesses to base pages needs a walk.
pub fn program_with_walk_share(regions: u32, walk_share: f64) -> ScriptedProgram {
    let program = program_of_parts(&[base_page_part(0, regions, 1.0)]);
    ScriptedProgram { walkless_share: 1.0 - walk_share, ..program }
}

/// Settings with a window of 0.1 s every 5 s.
pub fn frequent_sampling_settings() -> Settings {
    Settings { period: seconds(5.0), window: seconds(0.1), ..Settings::default() }
}

/// [`frequent_sampling_settings`] with at most this many promotions.
pub fn settings_with_max_promotions(promotions: u64) -> Settings {
    Settings { max_promotions: Some(promotions), ..frequent_sampling_settings() }
}

/// [`frequent_sampling_settings`] with at most this many promotions per second.
///
/// # Panics
/// The rate is not over 0.
pub fn settings_with_promotion_rate(rate: f64) -> Settings {
    Settings {
        rate: Some(RatePerSecond::new(rate).expect("a rate over 0")),
        ..frequent_sampling_settings()
    }
}

/// [`frequent_sampling_settings`] with this share of one core for the manager, in per cent.
///
/// # Panics
/// It is not over 0 and at most 100.
pub fn settings_with_cpu_percent(percent: f64) -> Settings {
    Settings {
        cpu: CpuBudget::new(percent).expect("a valid CPU budget"),
        ..frequent_sampling_settings()
    }
}

/// A manager of a scripted machine.
pub type ScriptedManager = Manager<ScriptedMachine>;

/// A manager of this machine with this policy.
///
/// # Panics
/// There is no such policy, or a setting is out of range.
pub fn manager_of(machine: ScriptedMachine, policy: &str, settings: Settings) -> ScriptedManager {
    let policy = policies::make_policy_by_name(policy, &settings.policy_settings());
    let policy = policy.expect("an existing policy");
    Manager::new(machine, policy, settings).expect("valid settings")
}

/// The manager of such a machine after it has run until `end`.
pub fn run_manager_of(
    machine: ScriptedMachine,
    policy: &str,
    settings: Settings,
    end: Duration,
) -> ScriptedManager {
    let mut manager = manager_of(machine, policy, settings);
    run_manager_until(&mut manager, end);
    manager
}

/// Steps until `end` or until all processes have ended. A loop without progress fails.
pub fn run_manager_until(manager: &mut ScriptedManager, end: Duration) -> LoopWakeReason {
    run_manager_watching(manager, end, |_| {})
}

/// The same as [`run_manager_until`], and calls `look` after each step.
pub fn run_manager_watching(
    manager: &mut ScriptedManager,
    end: Duration,
    mut look: impl FnMut(&ScriptedManager),
) -> LoopWakeReason {
    let most = 1000.0 + 100.0 * end.as_secs_f64();
    let mut steps = 0.0;
    while manager.machine().now() < end {
        let wake = manager.run_due_work_and_wait();
        look(manager);
        if wake == LoopWakeReason::Stop {
            return wake;
        }
        steps += 1.0;
        assert!(
            steps < most,
            "the manager made {steps} steps by {:?}, at most {most} are allowed",
            manager.machine().now()
        );
    }
    LoopWakeReason::Deadline
}

fn events_of_kind(manager: &ScriptedManager, kind: &str) -> Vec<(Duration, ProcessId, RegionAddr)> {
    let entries = manager.journal().entries().filter(|entry| entry.event.kind() == kind);
    let known = entries.map(|it| Some((it.at, it.event.process()?, it.event.region()?)));
    known.flatten().collect()
}

/// Time, process and region of each promotion.
pub fn promotions(manager: &ScriptedManager) -> Vec<(Duration, ProcessId, RegionAddr)> {
    events_of_kind(manager, "promoted")
}

/// Time of the first promotion; zero if there was none.
pub fn first_promotion_time(manager: &ScriptedManager) -> Duration {
    let promoted = promotions(manager);
    promoted.first().map_or(Duration::ZERO, |(at, ..)| *at)
}

/// Number of promoted regions of a process.
pub fn count_promotions_of(manager: &ScriptedManager, process: ProcessId) -> usize {
    let promoted = promotions(manager);
    promoted.iter().filter(|(_, p, _)| *p == process).count()
}

/// The promoted regions, in order.
pub fn promoted_regions(manager: &ScriptedManager) -> Vec<RegionAddr> {
    promotions(manager).iter().map(|(_, _, region)| *region).collect()
}

/// Time, process and region of each refusal.
pub fn refused_promotions(manager: &ScriptedManager) -> Vec<(Duration, ProcessId, RegionAddr)> {
    events_of_kind(manager, "refused")
}

/// Time, process and region of each recovery.
pub fn recoveries(manager: &ScriptedManager) -> Vec<(Duration, ProcessId, RegionAddr)> {
    events_of_kind(manager, "recovered")
}

/// Memory in use on the machine, in bytes.
pub fn used_bytes(manager: &ScriptedManager) -> u64 {
    manager.machine().memory_use(None).used_bytes
}

/// Resident memory of a process, in bytes.
pub fn rss_bytes_of(manager: &ScriptedManager, process: ProcessId) -> u64 {
    manager.machine().program(process).map_or(0, ScriptedProgram::rss_bytes)
}

/// Memory of a process under huge pages, in bytes.
pub fn huge_bytes_of(manager: &ScriptedManager, process: ProcessId) -> u64 {
    manager.machine().program(process).map_or(0, ScriptedProgram::huge_bytes)
}
