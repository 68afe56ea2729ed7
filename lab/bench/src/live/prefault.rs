//! Prefault beside base pages and THP=always: the speed of first touches, and the memory filled in
//! vain. Alias: `fault-ahead`.

use super::prelude::*;
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

const PROGRAMS: [(&str, &str); 7] = [
    ("in order", ""),
    ("200 us of work per region", "--work-us 200 --latencies --rounds 2"),
    ("1 ms of work per region", "--work-us 1000 --latencies --rounds 2"),
    ("descending", "--order descending"),
    ("4 threads", "--threads 4"),
    ("at random", "--order random"),
    ("1 page of each region", "--pages-per-region 1"),
];

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
    host.set_thp_setting("use_zero_page", "0")?;
    host.set_thp_setting("defrag", "defer+madvise")?;
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
