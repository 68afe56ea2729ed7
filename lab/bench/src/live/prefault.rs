//! Prefault beside base pages and THP=always: the speed of first touches, and the memory filled in
//! vain. Alias: `fault-ahead`.

use super::free_memory::{FreeMemory, FreeMemoryTouchTimes};
use super::prelude::*;
use super::shared_memory_arm::add_row_with_range;
use crate::statistics::MedianAndRange;
use hawkeye_linux::prefault::Prefaulter;

/// A way to get huge pages: its name, what faults get, and, if it prefaults, the index of the same
/// way without prefault.
const WAYS: [(&str, &str, Option<usize>); 4] = [
    ("base pages", "madvise", None),
    ("THP always", "always", None),
    // Faults get base pages.
    ("prefaulted by collapse", "madvise", Some(BASE)),
    // Filled by remote reads; faults get huge pages too.
    ("prefaulted, huge faults", "always", Some(ALWAYS)),
];
const BASE: usize = 0;
const ALWAYS: usize = 1;
const HUGE_FAULTS: usize = 3;

const PROGRAMS: [(&str, &str); 7] = [
    ("in order", ""),
    ("200 us of work per region", "--work-us 200 --latencies --rounds 2"),
    ("1 ms of work per region", "--work-us 1000 --latencies --rounds 2"),
    ("descending", "--order descending"),
    ("4 threads", "--threads 4"),
    ("at random", "--order random"),
    ("1 page of each region", "--pages-per-region 1"),
];

/// Options of the programs of [`run_pairs`].
const IN_ORDER: &str = "";
const WITH_WORK: &str = "--work-us 400 --latencies --rounds 2";
/// Prefault keeps up if it fills memory, and a touch of new memory takes at most this many times as
/// long as one of present memory.
const KEEPS_UP_WITHIN: f64 = 2.0;

#[derive(Clone, Debug)]
struct FirstAndRepeatTouchTimes {
    /// Seconds of all touches, and the mean and p99 of one in nanoseconds; then the same again once
    /// the memory is present.
    first: [f64; 3],
    again: [f64; 3],
    filled: u64,
    fill_cpu_s: f64,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let (mib, turns) = scale.short_or_long((512, 1), (8192, 5));
    require_available_memory(mib << 20)?;
    host.touch_free_memory_if_full_scale(scale)?;
    set_fault_settings(host)?;
    for (program, options) in PROGRAMS {
        // Each turn runs all ways one after the other, so that it is compared with itself.
        let turns = (0..turns)
            .map(|_| {
                WAYS.iter().map(|way| measure_first_touches(host, mib, options, *way)).collect()
            })
            .collect::<BenchResult<Vec<Vec<FirstAndRepeatTouchTimes>>, _>>()?;
        for (way, (name, _, without)) in WAYS.into_iter().enumerate() {
            let seen = |part: fn(&FirstAndRepeatTouchTimes) -> f64| {
                median_of_mapped(&turns, |turn| part(&turn[way]))
            };
            let mut beside = String::new();
            if let Some(without) = without {
                let over = |one: usize, other: usize| {
                    median_of_mapped(&turns, |turn| turn[one].first[0] / turn[other].first[0])
                };
                beside = format!(
                    "{:.2} times as fast as THP always; {:+.1} % time compared with {}; {:.0} of {} regions filled in {:.2} s of CPU; ",
                    over(ALWAYS, way),
                    (over(way, without) - 1.0) * 100.0,
                    WAYS[without].0,
                    seen(|seen| seen.filled as f64),
                    mib / 2,
                    seen(|seen| seen.fill_cpu_s),
                );
            }
            if options.contains("latencies") {
                beside += &format!(
                    "a touch takes {:.0} ns, p99 {:.0}; of present memory {:.0} and {:.0}",
                    seen(|seen| seen.first[1]),
                    seen(|seen| seen.first[2]),
                    seen(|seen| seen.again[1]),
                    seen(|seen| seen.again[2]),
                );
            }
            let seconds = seen(|seen| seen.first[0]);
            let beside = beside.trim_end_matches("; ");
            report.add_row(format!("{program}: {name}"), seconds, "s", beside);
        }
    }
    report.add_note(format!(
        "The program touches one byte of each base page of {mib} MiB; median of {turns}. The filler uses a second core."
    ));
    Ok(())
}

/// For huge pages that a remote read or a fault gets without compaction.
fn set_fault_settings(host: &mut BenchHost) -> BenchResult<()> {
    host.set_thp_setting("use_zero_page", "0")?;
    host.set_thp_setting("defrag", "defer+madvise")
}

/// A program under THP always, and prefaulted beside huge pages at faults.
#[derive(Clone, Debug)]
struct TouchPair {
    always: FirstAndRepeatTouchTimes,
    prefaulted: FirstAndRepeatTouchTimes,
    /// Prefaulted, with work after each region.
    with_work: FirstAndRepeatTouchTimes,
}

impl TouchPair {
    /// How many times as fast as THP always prefault was.
    fn speed_up(&self) -> f64 {
        self.always.first[0] / self.prefaulted.first[0]
    }

    /// The mean touch of new memory over that of present memory, with work.
    fn touch_ratio(&self) -> f64 {
        self.with_work.first[1] / self.with_work.again[1]
    }

    /// Whether prefault kept up with work. Where it filled nothing, huge faults alone were fast.
    fn kept_up(&self) -> bool {
        self.with_work.filled > 0 && self.touch_ratio() <= KEEPS_UP_WITHIN
    }
}

/// Touches in order, prefaulted and under THP always, in pairs: in memory that is backed, and in
/// memory that a hypervisor may have taken back.
pub fn run_pairs(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let (mib, pairs) = scale.short_or_long((512, 1), (8192, 15));
    require_available_memory(mib << 20)?;
    set_fault_settings(host)?;
    let touch_times = FreeMemoryTouchTimes::measure_and_report(host, report)?;
    for (memory, speed_up) in FreeMemory::ALL.into_iter().zip(["at least 1.25", "at least 1.6"]) {
        let mut measured = Vec::new();
        for pair in 1..=pairs {
            measured.push(measure_pair(host, memory, mib, pair % 2 == 0)?);
            eprintln!("hawkeye-lab: {}: {}: pair {pair} of {pairs}", report.name, memory.name());
        }
        let goals =
            [speed_up, "14 of 15"].map(|goal| touch_times.goal_or_not_decided(memory, goal));
        add_rows_of_pairs(memory.name(), &goals, &measured, report);
    }
    report.add_note(format!(
        "The program touches one byte of each base page of {mib} MiB in order, as fast as it can, and once more with 400 us of work after each region. Huge pages at faults in both of a pair (transparent_hugepage/enabled is always); the filler uses a second core, without the reserve of huge pages. The two of a pair alternate in which is first."
    ));
    for memory in FreeMemory::ALL {
        report.add_note(format!("With {}: {}", memory.name(), memory.describe()));
    }
    Ok(())
}

fn measure_pair(
    host: &mut BenchHost,
    memory: FreeMemory,
    mib: u64,
    prefault_first: bool,
) -> BenchResult<TouchPair> {
    let mut measure = |way: usize, options: &str| {
        memory.prepare(host, mib << 20)?;
        measure_first_touches(host, mib, options, WAYS[way])
    };
    let (always, prefaulted) = if prefault_first {
        let prefaulted = measure(HUGE_FAULTS, IN_ORDER)?;
        (measure(ALWAYS, IN_ORDER)?, prefaulted)
    } else {
        (measure(ALWAYS, IN_ORDER)?, measure(HUGE_FAULTS, IN_ORDER)?)
    };
    Ok(TouchPair { always, prefaulted, with_work: measure(HUGE_FAULTS, WITH_WORK)? })
}

/// `goals` are of the speed-up, and of the runs that kept up.
fn add_rows_of_pairs(
    memory: &str,
    goals: &[String; 2],
    pairs: &[TouchPair],
    report: &mut LiveReport,
) {
    let [speed_up_goal, kept_up_goal] = goals;
    let seen = |part: fn(&TouchPair) -> f64| median_of_mapped(pairs, part);
    let beside = format!(
        "{speed_up_goal}; {:.2} s instead of {:.2} s, {:.0} regions filled",
        seen(|pair| pair.prefaulted.first[0]),
        seen(|pair| pair.always.first[0]),
        seen(|pair| pair.prefaulted.filled as f64),
    );
    let what = format!("{memory}: in order, prefault against THP always");
    let speed_ups = pairs.iter().map(TouchPair::speed_up).collect();
    add_row_with_range(report, what, speed_ups, "times", &beside);
    let kept_up = pairs.iter().filter(|pair| pair.kept_up()).count();
    let ratios = pairs.iter().map(TouchPair::touch_ratio).collect();
    let MedianAndRange { median, low, high, .. } = MedianAndRange::from_figures(ratios);
    report.add_row(
        format!("{memory}: 400 us of work per region, runs that kept up"),
        kept_up as f64,
        "runs",
        format!(
            "{kept_up_goal}; here of {}: regions were filled, and a mean touch of new memory took at most {KEEPS_UP_WITHIN} times as long as one of present memory; {median:.2} times, {low:.2}-{high:.2}; {:.0} ns and {:.0} ns a touch, {:.0} regions filled",
            pairs.len(),
            seen(|pair| pair.with_work.first[1]),
            seen(|pair| pair.with_work.again[1]),
            seen(|pair| pair.with_work.filled as f64),
        ),
    );
}

/// Prefaults memory of a process: at most `room` regions, `warm` of them at once.
pub(super) fn start_prefaulter_for_process(
    pid: u32,
    rate: Option<RatePerSecond>,
    warm: u64,
    room: u64,
) -> BenchResult<Prefaulter> {
    let filler = Prefaulter::start_loading(rate, None)?.wait_until_ready()?;
    filler.follow(pid, warm)?;
    for process in filler.followed_processes() {
        filler.set_process_prefault_room(process, room * HUGE_PAGE_BYTES);
    }
    Ok(filler)
}

fn measure_first_touches(
    host: &mut BenchHost,
    mib: u64,
    options: &str,
    way: (&str, &str, Option<usize>),
) -> BenchResult<FirstAndRepeatTouchTimes> {
    let (_, enabled, without) = way;
    host.set_thp_enabled(enabled)?;
    let mut program = host.start_workload(&format!("touch --mib {mib} {options}"))?;
    program.wait_ready()?;
    let prefaulter = match without {
        Some(_) => Some(start_prefaulter_for_process(program.pid(), None, 0, mib)?),
        None => None,
    };
    program.send_request(WorkloadRequest::Go)?;
    let limit = Duration::from_secs(120);
    let mut touched = Vec::new();
    loop {
        match program.next_event(limit)? {
            WorkloadEvent::Touched { elapsed_s, mean_ns, p99_ns, .. } => {
                touched.push([elapsed_s, mean_ns, p99_ns])
            }
            WorkloadEvent::Verified { bad_bytes: 0, .. } => break,
            other => bail!("unexpected event of the workload: {other:?}"),
        }
    }
    let filled = prefaulter.map(|it| it.statistics()).unwrap_or_default();
    Ok(FirstAndRepeatTouchTimes {
        first: touched.first().copied().unwrap_or_default(),
        again: touched.last().copied().unwrap_or_default(),
        filled: filled.filled,
        fill_cpu_s: filled.cpu.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_compared_with_each_other_and_runs_that_keep_up_are_counted() {
        let times = |first_s, first_ns, again_ns| FirstAndRepeatTouchTimes {
            first: [first_s, first_ns, 0.0],
            again: [first_s, again_ns, 0.0],
            filled: 8,
            fill_cpu_s: 0.0,
        };
        let pair = |always_s, prefaulted_s, touch_ns| TouchPair {
            always: times(always_s, 0.0, 0.0),
            prefaulted: times(prefaulted_s, 0.0, 0.0),
            with_work: times(1.0, touch_ns, 20.0),
        };
        // Fast, but not by prefault.
        let mut nothing_filled = pair(2.0, 2.0, 20.0);
        nothing_filled.with_work.filled = 0;
        let pairs =
            [pair(3.0, 2.0, 40.0), pair(9.0, 3.0, 41.0), pair(2.0, 2.0, 20.0), nothing_filled];
        let goals = ["goal at least 1.25", "goal 14 of 15"].map(str::to_owned);
        let mut report = LiveReport::new("prefault-pairs");
        add_rows_of_pairs("memory backed", &goals, &pairs, &mut report);
        let against_always = report.row("memory backed: in order, prefault against THP always");
        assert_eq!(against_always.value, 1.25);
        assert!(against_always.beside.starts_with("1.00-3.00 in 4 rounds; goal at least 1.25"));
        let kept_up = report.row("memory backed: 400 us of work per region, runs that kept up");
        assert_eq!(kept_up.value, 2.0);
        assert!(kept_up.beside.starts_with("goal 14 of 15; here of 4"), "{}", kept_up.beside);
        let figures = "30 ns and 20 ns a touch, 8 regions filled";
        assert!(kept_up.beside.ends_with(figures), "{}", kept_up.beside);
    }
}
