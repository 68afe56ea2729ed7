//! Estimates of overhead beside what hardware counters count (`hawkeye-lab verify`).
//!
//! We have never run this on hardware with counters. What it computes is tested on made-up
//! readings, in the form in which the kernel's counters are read.

use super::overhead_estimates::{
    OVERHEAD_CLASSES, estimate_overhead_while_working, overhead_class_index,
};
use super::prelude::*;
use super::programs::NINE_ESTIMATED_PROGRAMS;
use super::programs::program_speed::measure_turn;
use hawkeye_linux::arch;
use hawkeye_linux::name_value_lines::find_value_by_name;
use hawkeye_linux::processes::process::{CpuTimeAndFaults, cpu_time_and_faults};
use hawkeye_linux::sample::counters::overhead_meter::{EventCounts, OverheadMeter, ThreadCounts};
use hawkeye_linux::sample::counters::{
    CountableWalkEvents, CountersUnavailable, EventCodeOverrides, WalkEventSet,
};
use hawkeye_policy::TranslationOverhead;
use serde::Serialize;
use std::fmt;

/// Memory of each program.
const PROGRAM_MIB: u64 = 3072;
/// Work before the counting, for compilers and caches.
const WARM_UP: Duration = Duration::from_secs(2);
const COUNTING: Duration = Duration::from_secs(5);
const WINDOWS: usize = 10;
const WINDOWS_WITHIN: Duration = Duration::from_secs(30);

/// The results, and the file to send. Nothing in it identifies the machine or a user.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EstimateVerification {
    /// Version of this program.
    hawkeye: &'static str,
    /// Vendor, family and model of the processor.
    cpu: String,
    /// The name that the processor reports; empty if it reports none.
    cpu_name: String,
    /// Version of the kernel, without the suffix of its build, which may be a user's own.
    kernel: String,
    events: WalkEventDescription,
    /// Memory of each program, in MiB.
    program_mib: u64,
    /// The programs that could be measured.
    programs: Vec<EstimatedAndCountedProgram>,
    /// Names of the programs that could not be measured.
    not_measured: Vec<&'static str>,
}

/// The events that were counted. Raw codes are hexadecimal, as for `perf stat -e rXXXX`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WalkEventDescription {
    /// Their names in the vendor's manuals.
    name: &'static str,
    /// Raw code of the event for loads.
    loads: String,
    /// Raw code of the event for stores; `None` if one event counts both.
    stores: Option<String>,
    /// Cycles per count: 1 where cycles are counted, assumed where walks are counted.
    cycles_per_count: f64,
}

/// A program's estimate beside its count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EstimatedAndCountedProgram {
    program: &'static str,
    /// The median of several windows' estimates.
    estimate: TranslationOverhead,
    estimate_class: &'static str,
    /// Walk cycles in user mode, in per cent of the program's CPU time.
    counted: TranslationOverhead,
    /// The class of `counted.percent`.
    counted_class: &'static str,
    /// Whether the estimate's class is among those of the counted interval. An "at least" estimate
    /// may be in a lower class.
    agrees: bool,
    /// What the counters of all threads counted, in user mode.
    counts: EventCounts,
    /// The program's CPU time in user mode while it was counted, in per cent of all its CPU time.
    user_percent: f64,
}

/// Two readings of a program's counters and CPU time, some seconds apart.
#[derive(Clone, Debug)]
struct CounterReadings {
    counts: [ThreadCounts; 2],
    cpu: [CpuTimeAndFaults; 2],
}

impl CounterReadings {
    /// Reads twice with `reader`, and lets the program work in between with `work`.
    fn read_before_and_after(
        mut reader: impl FnMut() -> BenchResult<(ThreadCounts, CpuTimeAndFaults)>,
        work: impl FnOnce(),
    ) -> BenchResult<Self> {
        let (counts, cpu) = reader()?;
        work();
        let (counts_after, cpu_after) = reader()?;
        Ok(Self { counts: [counts, counts_after], cpu: [cpu, cpu_after] })
    }

    /// What was counted between the readings. Threads that began since count from their start.
    fn counted_between(&self) -> EventCounts {
        let [before, after] = &self.counts;
        let mut total = EventCounts::default();
        for (thread, now) in after {
            let then = before.get(thread).copied().unwrap_or_default();
            total.loads += now.loads.saturating_sub(then.loads);
            total.stores += now.stores.saturating_sub(then.stores);
            total.cycles += now.cycles.saturating_sub(then.cycles);
            total.enabled_ns += now.enabled_ns.saturating_sub(then.enabled_ns);
            total.running_ns += now.running_ns.saturating_sub(then.running_ns);
        }
        total
    }

    /// Share of the CPU time in between that was in user mode, from 0 to 1.
    fn user_time_share(&self) -> f64 {
        let [user, system] =
            [self.cpu[1].user_s - self.cpu[0].user_s, self.cpu[1].system_s - self.cpu[0].system_s];
        if user + system > 0.0 { user / (user + system) } else { 1.0 }
    }

    /// Walk cycles of user mode over cycles of all modes. Estimates, too, are shares of all CPU
    /// time, but counters count user mode alone.
    fn counted_overhead(&self, events: &WalkEventSet) -> BenchResult<TranslationOverhead> {
        let counted = self.counted_between();
        if counted.loads + counted.stores == 0 {
            bail!(
                "the counters show no page walks: this machine accepts the events without counting them"
            );
        }
        let mut meter = OverheadMeter::default();
        let [before, after] = self.counts.clone();
        meter.overhead_since_last_counts(before, events);
        let none = || impossible!("the counters show no cycles: the program did not run");
        let of_user_time = meter.overhead_since_last_counts(after, events).ok_or_else(none)?;
        let share = self.user_time_share();
        Ok(TranslationOverhead {
            percent: of_user_time.percent * share,
            low_percent: of_user_time.low_percent * share,
            high_percent: of_user_time.high_percent * share,
            ..of_user_time
        })
    }
}

impl EstimatedAndCountedProgram {
    fn from_estimate_and_readings(
        program: &'static str,
        estimate: TranslationOverhead,
        readings: &CounterReadings,
        events: &WalkEventSet,
    ) -> BenchResult<Self> {
        let counted = readings.counted_overhead(events)?;
        let class = overhead_class_index(estimate.percent);
        let [low, high] = [counted.low_percent, counted.high_percent].map(overhead_class_index);
        Ok(Self {
            program,
            estimate,
            estimate_class: OVERHEAD_CLASSES[class],
            counted,
            counted_class: OVERHEAD_CLASSES[overhead_class_index(counted.percent)],
            agrees: class <= high && (class >= low || estimate.at_least),
            counts: readings.counted_between(),
            user_percent: readings.user_time_share() * 100.0,
        })
    }
}

impl EstimateVerification {
    /// Results without any program yet, on the machine that these texts of the kernel describe.
    fn new_without_programs(cpuinfo: &str, osrelease: &str, events: &WalkEventSet) -> Self {
        let code = |raw: u64| format!("{raw:#x}");
        let version = osrelease.split(|c: char| !c.is_ascii_digit() && c != '.');
        Self {
            hawkeye: env!("CARGO_PKG_VERSION"),
            cpu: arch::processor_model(cpuinfo),
            cpu_name: find_value_by_name(cpuinfo, "model name").unwrap_or_default().to_owned(),
            kernel: version.into_iter().next().unwrap_or_default().to_owned(),
            events: WalkEventDescription {
                name: events.name,
                loads: code(events.walks.0),
                stores: events.walks.1.map(code),
                cycles_per_count: events.cycles_per_count,
            },
            program_mib: PROGRAM_MIB,
            programs: Vec::new(),
            not_measured: Vec::new(),
        }
    }
}

impl fmt::Display for EstimateVerification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}), Linux {}", self.cpu, self.cpu_name, self.kernel)?;
        let (counted, estimate) = ("counted", "estimated");
        writeln!(f, "{:14} {counted:32} {estimate}", "program")?;
        for one in &self.programs {
            let counted = format!("{}, {}", one.counted, one.counted_class);
            let verdict = if one.agrees { "agrees" } else { "DIFFERS" };
            let (estimate, class) = (one.estimate, one.estimate_class);
            let name = one.program;
            writeln!(f, "{name:14} {counted:32} {estimate}, {class}: {verdict}")?;
        }
        for name in &self.not_measured {
            writeln!(f, "{name:14} not measured")?;
        }
        let agree = self.programs.iter().filter(|one| one.agrees).count();
        write!(f, "The class agrees for {agree} of {}.", self.programs.len())?;
        if self.events.cycles_per_count != 1.0 {
            write!(
                f,
                " This processor counts walks, not their cycles; {} cycles for each are assumed, within a factor of 2.",
                self.events.cycles_per_count
            )?;
        }
        Ok(())
    }
}

/// Counters of page walks that work on this machine.
///
/// # Errors
/// There are none, or their events are not known. The error says what to do.
pub fn find_walk_counters() -> BenchResult<CountableWalkEvents> {
    CountableWalkEvents::find(EventCodeOverrides::default())
        .map_err(|none| impossible!("{}", missing_counters_advice(&none)))
}

/// Why nothing is counted, and what to do.
fn missing_counters_advice(none: &CountersUnavailable) -> String {
    match none {
        CountersUnavailable::UnknownProcessor(cpu) => format!(
            "the events that count page walks on this processor ({cpu}) are not known: add them to crates/linux/src/arch/, or report the processor to HawkEye's developers"
        ),
        other => format!(
            "{other}; run this as root on hardware, or in a virtual machine with counters (QEMU: -cpu host,pmu=on)"
        ),
    }
}

/// Runs the nine programs one after the other, and counts and estimates each. A program that cannot
/// run here is reported on standard error and left out.
pub fn count_and_estimate_nine_programs(
    host: &BenchHost,
    counters: &CountableWalkEvents,
) -> BenchResult<EstimateVerification> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (cpuinfo, osrelease) = (read("/proc/cpuinfo"), read("/proc/sys/kernel/osrelease"));
    let mut results =
        EstimateVerification::new_without_programs(&cpuinfo, &osrelease, counters.events());
    for kind in NINE_ESTIMATED_PROGRAMS {
        match count_then_estimate_program(host, counters, kind) {
            Ok(program) => results.programs.push(program),
            Err(error) => {
                eprintln!("hawkeye-lab: {} was not measured: {error}", kind.name());
                results.not_measured.push(kind.name());
            }
        }
    }
    if results.programs.is_empty() {
        bail!("none of the programs could be measured");
    }
    Ok(results)
}

fn count_then_estimate_program(
    host: &BenchHost,
    counters: &CountableWalkEvents,
    kind: ProgramKind,
) -> BenchResult<EstimatedAndCountedProgram> {
    require_available_memory(kind.expected_resident_bytes(PROGRAM_MIB))?;
    let mut program = kind.start(host, PROGRAM_MIB)?;
    measure_turn(program.as_mut(), WARM_UP)?;
    let pid = program.pid();
    let mut bound = counters.bind(pid)?;
    // First the count, because estimating clears access bits, which causes page walks.
    program.start_work()?;
    let readings = CounterReadings::read_before_and_after(
        || Ok((bound.read_counts()?, cpu_time_and_faults(pid)?)),
        || std::thread::sleep(COUNTING),
    );
    program.pause_work()?;
    let readings = readings?;
    let windows = estimate_overhead_while_working(host, program.as_mut(), WINDOWS, WINDOWS_WITHIN)?;
    let estimate = windows[windows.len() / 2];
    EstimatedAndCountedProgram::from_estimate_and_readings(
        kind.name(),
        estimate,
        &readings,
        counters.events(),
    )
}

#[cfg(test)]
mod tests;
