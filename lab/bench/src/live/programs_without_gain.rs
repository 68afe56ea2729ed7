//! Programs that gain nothing from huge pages, managed and unmanaged: how much slower or larger are
//! they when managed?

use super::prelude::*;
use crate::statistics::median_standard_error;

/// What is managed, and milliseconds of a turn, of all turns before and of all while managed.
///
/// Redis answers a batch each 50 ms, and the next one may take twice as long. Only more and shorter
/// turns bring the error under 1 %.
const SUBJECTS: [(&str, Option<ProgramKind>, [u64; 3]); 3] = [
    ("sequential reads", Some(reader_kind("sequential", "sequential")), [500, 15_000, 45_000]),
    ("random reads in a hot 2 MiB", Some(IN_2_MIB), [500, 15_000, 45_000]),
    ("idle Redis", None, [200, 120_000, 180_000]),
];
const IN_2_MIB: ProgramKind = reader_kind("small", "hot-spot --hot-mib 2 --hot-percent 100");

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let mib = scale.short_or_long(128, 1024);
    require_available_memory(4 * (mib << 20))?;
    HugePageSystem::Hawkeye.prepare_kernel(host)?;
    for (name, reader, times) in SUBJECTS {
        let times = scale.short_or_long([200, 800, 1200], times);
        let start = || {
            reader
                .map_or_else(|| start_lightly_loaded_redis(host, mib), |kind| kind.start(host, mib))
        };
        let instances = [start()?, start()?, start()?];
        let times = times.map(Duration::from_millis);
        compare_managed_with_unmanaged(host, name, instances, times, report)?;
    }
    HugePageSystem::Base.prepare_kernel(host)?;
    report.add_note(format!(
        "Three instances of {mib} MiB each run in turn; one of them is managed, with default settings. Slower: compared with the other two and with the time before, by operations per second of CPU time (± one standard error, if turns are independent). The same figure for the second unmanaged instance compared with the first shows the effect of chance.",
    ));
    Ok(())
}

fn compare_managed_with_unmanaged(
    host: &mut BenchHost,
    name: &str,
    mut instances: [Box<dyn MeasuredProgram>; 3],
    [turn, before, managed]: [Duration; 3],
    report: &mut LiveReport,
) -> BenchResult<()> {
    let [pid, alone_pid] = [0, 1].map(|n: usize| instances[n].pid());
    let mut speeds = |all| -> BenchResult<Vec<[f64; 3]>> {
        let begun = Instant::now();
        let goes_on = |rounds| rounds == 0 || begun.elapsed() < all;
        let rounds = measure_rounds(instances.each_mut(), turn, goes_on)?;
        Ok(rounds.into_iter().map(|round| round.map(|speed| speed.per_cpu_s)).collect())
    };
    let before = speeds(before)?;
    let promoter = HugePageSystem::Hawkeye.new_promoter(host)?;
    let measuring = || speeds(managed);
    let (during, promoting) = promoter.promote_during(pid, 2 * managed, report, measuring)?;
    let during = during?;
    let larger = rss_bytes(pid)? as f64 / rss_bytes(alone_pid)? as f64;
    let [(percent, error), (by_chance, chance_error)] =
        [managed_to_unmanaged_ratio, second_to_first_unmanaged_ratio]
            .map(|ratio| percent_slower_and_error(&before, &during, ratio));
    report.add_row(
        format!("{name}: slower"),
        percent,
        "%",
        format!(
            "± {error:.2}; unmanaged {by_chance:.2} ± {chance_error:.2}; larger by {:.2} %; {} promotions; {} turns of {} ms before and {} while managed; goal: at most 1 each",
            (larger - 1.0) * 100.0,
            promoting.promoted,
            before.len(),
            turn.as_millis(),
            during.len(),
        ),
    );
    Ok(())
}

fn managed_to_unmanaged_ratio([managed, first, second]: &[f64; 3]) -> f64 {
    managed / (first * second).sqrt()
}

fn second_to_first_unmanaged_ratio([_, first, second]: &[f64; 3]) -> f64 {
    second / first
}

/// How much slower one program became beside another, and the standard error of that, both in %.
fn percent_slower_and_error(
    before: &[[f64; 3]],
    during: &[[f64; 3]],
    ratio: fn(&[f64; 3]) -> f64,
) -> (f64, f64) {
    let [before, during] =
        [before, during].map(|rounds| rounds.iter().map(ratio).collect::<Vec<_>>());
    let now = median(&during) / median(&before);
    let error = |ratios: &[f64]| median_standard_error(ratios) / median(ratios);
    let error = error(&before).hypot(error(&during)) * now;
    ((1.0 - now) * 100.0, error * 100.0)
}
