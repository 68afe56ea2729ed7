//! Duration of a managed program's page faults, by policy and with unmanaged memory beside it. It
//! shows the stalls that a manager causes, not the time of its own calls.

use super::manager_runs::{DENSE_SAMPLING_PERIOD, POLICIES, dense_sampling_settings};
use super::prelude::*;
use crate::statistics::median_standard_error;
use hawkeye_workload::PageFaultTimes;

/// Sides without a manager. The difference between them is chance.
const UNMANAGED: [&str; 2] = ["unmanaged", "unmanaged again"];
/// Memory of the program, 16 GiB and 8 GiB beside it, if the machine has enough.
const WANTED_MIB: u64 = 24 << 10;
/// Share of the machine's memory that the experiment uses on smaller machines.
const MACHINE_PERCENT: u64 = 65;
/// Memory in which the program touches a new page every 100 us.
const TOUCHED_MIB: u64 = 128;
const ANSWER: Duration = Duration::from_secs(30);

struct ComparedPolicySide {
    name: &'static str,
    managed: bool,
    rounds: Vec<PageFaultTimes>,
    windows: u64,
    longest_call: Duration,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let machine = hawkeye_linux::memory::system_memory::machine_memory_use()?;
    let mib = WANTED_MIB.min((machine.total_bytes >> 20) / 100 * MACHINE_PERCENT);
    let (own_mib, beside_mib) = scale.short_or_long((256, 128), (mib / 3 * 2, mib / 3));
    // Short, because the host's behaviour changes from second to second, and should affect all
    // sides alike.
    let turn = Duration::from_millis(scale.short_or_long(400, 1000));
    require_available_memory((own_mib + beside_mib + TOUCHED_MIB) << 20)?;
    for (beside_mib, rounds) in
        [(0, scale.short_or_long(1, 4)), (beside_mib, scale.short_or_long(2, 100))]
    {
        let sides = measure_policy_sides(host, own_mib, beside_mib, rounds, turn, scale)?;
        add_rows_to_report(beside_mib, &sides, report);
    }
    report.add_note(format!(
        "One thread reads {own_mib} MiB in base pages at random. Each side has turns of {} s, in turn, in one process. Rows with \"beside\": the process has {beside_mib} MiB of MADV_NOHUGEPAGE memory beside it.",
        turn.as_secs_f64(),
    ));
    report.add_note(format!(
        "Managers sample every {} s, regardless of the cost, and may use a whole core. Page faults come every 100 us, in a real-time thread: waits for a processor are not in the figures. A fault that lasts longer than this interval also stands for the faults that were due meanwhile.",
        DENSE_SAMPLING_PERIOD.as_secs_f64(),
    ));
    report.add_note(
        "\"unmanaged again\" is a second side without a manager: its difference from the first is chance. Times unmanaged: median of the rounds, ± one standard error.",
    );
    Ok(())
}

fn measure_policy_sides(
    host: &BenchHost,
    mib: u64,
    beside_mib: u64,
    rounds: usize,
    turn: Duration,
    scale: Scale,
) -> BenchResult<Vec<ComparedPolicySide>> {
    let policies = scale.short_or_long(&["hawkeye-g"][..], &POLICIES);
    let names = UNMANAGED.iter().chain(policies).enumerate();
    let mut sides: Vec<ComparedPolicySide> = names
        .map(|(n, name)| ComparedPolicySide {
            name,
            managed: n >= UNMANAGED.len(),
            rounds: Vec::new(),
            windows: 0,
            longest_call: Duration::ZERO,
        })
        .collect();
    let settings = Settings { max_promotions: Some(0), ..dense_sampling_settings()? };
    host.touch_memory_once((mib + beside_mib) << 20)?;
    let words = format!("stalls --mib {mib} --beside-mib {beside_mib} --touched-mib {TOUCHED_MIB}");
    let mut program = host.start_workload(&words)?;
    let pid = program.wait_ready()?.pid;
    let places = sides.len();
    for n in 0..rounds * places {
        // Another order each round, so that no side always follows the same one.
        let side = &mut sides[(n / places + n) % places];
        let means = match side.managed {
            true => Some(host.new_kernel_backend()?),
            false => None,
        };
        take_fault_times(&mut program)?;
        match means {
            Some(means) => {
                let done =
                    manage_processes_until(means, &[pid], side.name, settings, turn, |_| false)?;
                side.windows += done.journal.totals().samples;
                side.longest_call = side.longest_call.max(done.longest_call);
            }
            None => std::thread::sleep(turn),
        }
        side.rounds.push(take_fault_times(&mut program)?);
    }
    if let Some(side) = sides.iter().find(|side| side.managed && side.windows == 0) {
        bail!("policy {} took no sample, so its stalls were not measured", side.name);
    }
    Ok(sides)
}

/// The times since the last such request to the workload.
pub(super) fn take_fault_times(program: &mut WorkloadProcess) -> BenchResult<PageFaultTimes> {
    Ok(program.request_value(WorkloadRequest::Faults, ANSWER, |event| match event {
        WorkloadEvent::Faults(times) => Some(times),
        _ => None,
    })?)
}

fn add_rows_to_report(beside_mib: u64, sides: &[ComparedPolicySide], report: &mut LiveReport) {
    let beside = if beside_mib == 0 { "" } else { " beside" };
    for side in sides {
        let mut all = PageFaultTimes::default();
        side.rounds.iter().for_each(|round| all.merge(round));
        let mut done = String::new();
        if side.managed {
            let longest_ms = side.longest_call.as_secs_f64() * 1e3;
            done = format!("{} windows, longest call {longest_ms:.1} ms", side.windows);
        }
        let name = format!("sampled{beside}: {}", side.name);
        let worst_ms = all.longest_ns as f64 / 1e6;
        report.add_row(format!("{name}: worst fault"), worst_ms, "ms", done);
        report.print_last_row_to_stderr();
        let us = |share| all.quantile_ns(share) as f64 / 1e3;
        let (times, error) = p999_ratio_and_error(&side.rounds, &sides[0].rounds);
        report.add_row(
            format!("{name}: p99.9"),
            us(0.999),
            "us",
            format!(
                "{times:.3} ± {error:.3} times unmanaged; p50 {:.1}, p99 {:.1} us; {} faults, {} touches of present pages",
                us(0.5),
                us(0.99),
                all.faults,
                all.present,
            ),
        );
        report.print_last_row_to_stderr();
    }
}

/// Returns the ratio and its standard error, from rounds just before or after each other.
fn p999_ratio_and_error(rounds: &[PageFaultTimes], unmanaged: &[PageFaultTimes]) -> (f64, f64) {
    let p999 = |round: &PageFaultTimes| round.quantile_ns(0.999).max(1) as f64;
    let rounds = rounds.iter().zip(unmanaged);
    let ratios: Vec<f64> = rounds.map(|(one, other)| p999(one) / p999(other)).collect();
    (median(&ratios), median_standard_error(&ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_with_those_beside_them() {
        // The host is slower in every second round, which cancels out.
        let rounds = |slow_ns: u64| -> Vec<PageFaultTimes> {
            let round = |n: u64| PageFaultTimes {
                counts: vec![(1000, 1996), (slow_ns * (1 + n % 2), 4)],
                longest_ns: 2 * slow_ns,
                faults: 2000,
                present: 0,
            };
            (0..8).map(round).collect()
        };
        assert_eq!(p999_ratio_and_error(&rounds(15_000), &rounds(10_000)), (1.5, 0.0));
        assert_eq!(p999_ratio_and_error(&rounds(10_000), &rounds(10_000)), (1.0, 0.0));
    }
}
