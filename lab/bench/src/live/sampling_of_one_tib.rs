//! How long sampling holds up a process with a huge address space.

use super::prelude::*;
use crate::clear_refs;

/// In milliseconds: `mmap`, `munmap` and page faults.
type LongestMapUnmapFaultMs = [f64; 3];

fn longest_call_ms(longest: &LongestMapUnmapFaultMs) -> f64 {
    longest.iter().copied().fold(0.0, f64::max)
}

/// Size of the page tables of each GiB of mapped base pages.
const TABLE_BYTES_PER_GIB: u64 = 2 << 20;
/// Values that clear access bits of all pages, and of anonymous pages only
/// (proc_pid_clear_refs(5)).
const CLEARS: [(&str, &str); 2] = [("1", "all pages"), ("2", "anonymous pages")];
const POLICY: &str = "hawkeye";
/// Shorter than the default, so that a turn holds several windows.
const PERIOD: Duration = Duration::from_secs(5);

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([256, 1, 3000, 0], [4096, 3, 30_000, 0]);
    let populated_gib = scale.short_or_long(32, 1024);
    // The mapped file has 256 MiB.
    let tables = populated_gib * TABLE_BYTES_PER_GIB;
    require_available_memory((sizes.mib << 20) + tables + (256 << 20))?;
    let mib = sizes.mib;
    let words = format!("one-tib --mapped-gib 1024 --populated-gib {populated_gib} --mib {mib}");
    let mut workload = host.start_workload(&words)?;
    let pid = workload.wait_ready()?.pid;
    let settings = Settings { max_promotions: Some(0), period: PERIOD, ..Settings::default() };
    let (mut left_alone, mut sampled) = (Vec::new(), Vec::new());
    let (mut windows, mut longest_call, mut cores) = (0, Duration::ZERO, Vec::new());
    for _ in 0..sizes.turns {
        left_alone.push(longest_calls_during(&mut workload, || {
            std::thread::sleep(sizes.turn);
            Ok(())
        })?);
        sampled.push(longest_calls_during(&mut workload, || {
            let means = host.new_kernel_backend()?;
            let done =
                manage_processes_until(means, &[pid], POLICY, settings, sizes.turn, |_| false)?;
            windows += done.journal.totals().samples;
            longest_call = longest_call.max(done.longest_call);
            cores.push(done.cpu_percent_of_core());
            Ok(())
        })?);
    }
    add_rows_to_report("left alone", &left_alone, "", report);
    add_rows_to_report("sampled", &sampled, "goal: at most 10", report);
    for (written, what) in CLEARS {
        let mut took = Duration::ZERO;
        let longest = longest_calls_during(&mut workload, || {
            let begun = Instant::now();
            clear_refs::write_clear_refs(pid, written)?;
            took = begun.elapsed();
            Ok(())
        })?;
        report.add_row(
            format!("one clear_refs of {what}"),
            longest_call_ms(&longest),
            "ms",
            format!("for comparison; it took {:.1} ms", took.as_secs_f64() * 1e3),
        );
    }
    report.add_row("manager", median(&cores), "% core", "budget: 2");
    report.add_row("windows", windows as f64, "", POLICY);
    let longest_ms = longest_call.as_secs_f64() * 1e3;
    report.add_row("the manager's longest call", longest_ms, "ms", "");
    report.add_note(format!(
        "The process has 1 TiB mapped, {populated_gib} GiB of it with page tables, and reads {mib} MiB of its own memory at random, in base pages. {} turns of {} s, sampled every {} s, without promotions. It calls mmap and munmap of 64 KiB and first writes to a page of its own memory every 0.2 ms each.",
        sizes.turns,
        sizes.turn.as_secs(),
        PERIOD.as_secs(),
    ));
    Ok(())
}

fn add_rows_to_report(
    name: &str,
    turns: &[LongestMapUnmapFaultMs],
    goal: &str,
    report: &mut LiveReport,
) {
    for (n, what) in ["mmap", "munmap", "page fault"].into_iter().enumerate() {
        let ms = turns.iter().map(|turn| turn[n]).fold(0.0, f64::max);
        report.add_row(format!("{name}: longest {what}"), ms, "ms", goal);
    }
    let each: Vec<String> =
        turns.iter().map(|turn| format!("{:.2}", longest_call_ms(turn))).collect();
    report.add_note(format!("{name}: longest call of each turn: {} ms.", each.join(", ")));
}

/// The longest calls of the process while `work` runs in this process.
fn longest_calls_during(
    workload: &mut WorkloadProcess,
    work: impl FnOnce() -> BenchResult<()>,
) -> BenchResult<LongestMapUnmapFaultMs> {
    take_longest_calls_of_workload(workload)?;
    work()?;
    take_longest_calls_of_workload(workload)
}

fn take_longest_calls_of_workload(
    workload: &mut WorkloadProcess,
) -> BenchResult<LongestMapUnmapFaultMs> {
    let (longest, half_a_minute) = (WorkloadRequest::Longest, Duration::from_secs(30));
    let longest = workload.request_value(longest, half_a_minute, |event| match event {
        WorkloadEvent::Longest { map_us, unmap_us, fault_us, .. } => {
            Some([map_us, unmap_us, fault_us])
        }
        _ => None,
    })?;
    Ok(longest.map(|us| us / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_all_turns_counts() {
        let mut report = LiveReport::new("one-tib");
        let turns = [[1.0, 5.0, 0.5], [2.0, 0.1, 0.25]];
        add_rows_to_report("sampled", &turns, "", &mut report);
        let values: Vec<f64> = report.rows.iter().map(|row| row.value).collect();
        assert_eq!(values, [2.0, 5.0, 0.5]);
        assert!(report.notes[0].contains("5.00, 2.00 ms"));
    }
}
