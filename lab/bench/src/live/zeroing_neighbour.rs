//! Effect of prefault on a neighbour's caches and its share of memory bandwidth. Alias:
//! `figure-10`, after the HawkEye paper's Figure 10, which is about zeroing in advance.

use super::prefault::start_prefaulter_for_process;
use super::prelude::*;

/// The neighbours: their names, and the workload's options. The first two have all or much of their
/// memory in the caches. The third waits for memory, and the last is limited by its bandwidth.
const NEIGHBOURS: [(&str, &str); 4] = [
    ("random reads of 8 MiB", "random --mib 8 --pages huge"),
    ("random reads of 32 MiB", "random --mib 32 --pages huge"),
    ("random reads of 2 GiB", "random --mib 2048 --pages huge"),
    ("reads in order of 2 GiB", "sequential --mib 2048 --pages huge"),
];
/// Regions filled per second; the last is unlimited.
const RATES: [Option<f64>; 4] = [Some(128.0), Some(512.0), Some(2048.0), None];
const CORES: [usize; 2] = [0, 1];

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let turn = Duration::from_millis(scale.short_or_long(250, 500));
    let turns = scale.short_or_long(1, 9);
    let neighbours = scale.short_or_long(&NEIGHBOURS[1..3], &NEIGHBOURS[..]);
    let rates = scale.short_or_long(&RATES[2..], &RATES[..]);
    // An unlimited filler must not run out of memory within a turn.
    let mib = 8192;
    require_available_memory((mib + 2048) << 20)?;
    host.touch_free_memory_if_full_scale(scale)?;
    host.set_thp_setting("use_zero_page", "0")?;
    host.set_thp_enabled("always")?;
    for (name, options) in neighbours {
        let mut neighbour = host.start_workload_on_core(CORES[0], options)?;
        neighbour.wait_ready()?;
        neighbour.measure_rate(turn)?;
        for &rate in rates {
            let mut slower = Vec::new();
            let mut filled = Vec::new();
            for _ in 0..turns {
                let alone = neighbour.measure_rate(turn)?;
                let (beside, regions_per_s) =
                    speed_and_fill_rate_beside_filler(host, &mut neighbour, rate, mib, turn)?;
                let alone = (alone + neighbour.measure_rate(turn)?) / 2.0;
                slower.push((1.0 - beside / alone) * 100.0);
                filled.push(regions_per_s);
            }
            let filled = median(&filled);
            let what = match rate {
                Some(rate) => format!("{name}, {rate:.0} regions/s"),
                None => format!("{name}, no limit"),
            };
            let gib_per_s = filled * HUGE_PAGE_BYTES as f64 / f64::from(1 << 30);
            let beside = format!("filled: {filled:.0} regions/s, {gib_per_s:.2} GiB/s");
            report.add_row(what, median(&slower), "% slower", beside);
        }
    }
    report.add_note(format!(
        "The neighbour runs on one core, the filler on the other; median of {turns} turns of {} ms, each between two turns without a filler.",
        turn.as_millis()
    ));
    Ok(())
}

/// The neighbour's speed while an idle program's memory is filled, and regions filled per second.
fn speed_and_fill_rate_beside_filler(
    host: &BenchHost,
    neighbour: &mut WorkloadProcess,
    rate: Option<f64>,
    mib: u64,
    turn: Duration,
) -> BenchResult<(f64, f64)> {
    let mut owner = host.start_workload_on_core(CORES[1], &format!("touch --mib {mib}"))?;
    owner.wait_ready()?;
    // All of `RATES` are in range.
    let rate = rate.and_then(|rate| RatePerSecond::new(rate).ok());
    let filler = start_prefaulter_for_process(owner.pid(), rate, mib, mib)?;
    // Time for the filler's first read of the owner's mappings, and for what it may fill at once
    // after a rest.
    std::thread::sleep(Duration::from_millis(50));
    let before = filler.statistics().filled;
    let begun = Instant::now();
    let speed = neighbour.measure_rate(turn)?;
    let filled = filler.statistics().filled - before;
    Ok((speed, filled as f64 / begun.elapsed().as_secs_f64()))
}
