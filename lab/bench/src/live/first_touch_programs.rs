//! Programs that touch much new memory at once, beside base pages and THP=always. Alias: `table-8`,
//! after the HawkEye paper's Table 8.
//!
//! Each runs on one core, and one core is spare, as for a program with one busy thread on a larger
//! machine. All are started as a user would start them: `hawkeye run --fault-ahead on
//! --huge-faults -- PROGRAM`.

mod redis_inserts;
mod timed_command;

use super::prelude::*;
use super::programs::hash_maps::CompiledProgram;
use crate::arch::QEMU_PACKAGE;
use crate::statistics::MedianAndRange;
use timed_command::{ReadySign, TimedCommand};

/// A way to get huge pages: its name, what faults get, and whether a spare core prefaults.
const WAYS: [(&str, &str, bool); 3] = [
    ("base pages", "never", false),
    ("THP always", "always", false),
    ("prefaulted", "always", true),
];
const ALWAYS: usize = 1;

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let (gib, turns) = scale.short_or_long((1, 1), (8, 3));
    require_available_memory((gib << 30) / 3 * 5)?;
    host.touch_free_memory_if_full_scale(scale)?;
    let hash_map = CompiledProgram::install_sparsehash_and_compile(include_str!(
        "first_touch_programs/inserts.cc"
    ))?;
    let programs = [
        ("JVM, heap touched at start", jvm_command(gib), Some(gib)),
        ("QEMU, memory preallocated", qemu_command(gib), Some(gib)),
        ("hash map, inserts", hash_map_command(&hash_map, gib), None),
    ];
    for (name, program, warm_gib) in programs {
        if let Some(package) = program.package {
            super::programs::debian_packages::install_program_if_missing(
                &program.words[0],
                package,
            )?;
        }
        let turns = measure_ways_in_turns(host, turns, |ahead| {
            program.measure_start_seconds(ahead, warm_gib)
        })?;
        for (way, (way_name, ..)) in WAYS.iter().enumerate() {
            let beside = describe_speed_beside_always(&turns, way, |seconds| 1.0 / seconds);
            let seconds = median_of_mapped(&turns, |turn| turn[way]);
            report.add_row(format!("{name}: {way_name}"), seconds, "s", beside);
        }
    }
    let redis_turns = measure_ways_in_turns(host, turns, |ahead| {
        redis_inserts::measure_redis_inserts(ahead, gib)
    })?;
    for (way, (way_name, ..)) in WAYS.iter().enumerate() {
        let [per_s, mean_ms, p99_ms] =
            [0, 1, 2].map(|n: usize| median_of_mapped(&redis_turns, |turn| turn[way][n]));
        let beside = describe_speed_beside_always(&redis_turns, way, |[per_s, ..]| *per_s);
        let beside = format!("p99 {p99_ms:.2} ms, mean {mean_ms:.2} ms; {beside}");
        report.add_row(format!("Redis, values of 2 MiB inserted: {way_name}"), per_s, "/s", beside);
    }
    host.set_thp_enabled("madvise")?;
    report.add_note(format!(
        "{gib} GiB each, medians of {turns} turns. Each turn has all three ways, one after the other; ratios are taken within a turn, with the lowest and the highest. The program (and Redis' client) stays on one core; the other core is spare. \
         The figures include the start of `hawkeye run`, with a warm start for the first two programs."
    ));
    Ok(())
}

/// Measures each of [`WAYS`] in each turn, so that a drift of the machine affects all of them.
fn measure_ways_in_turns<T>(
    host: &mut BenchHost,
    turns: usize,
    measure: impl Fn(bool) -> BenchResult<T>,
) -> BenchResult<Vec<Vec<T>>> {
    let mut measure_way = |(_, enabled, ahead): &(&str, &str, bool)| {
        host.set_thp_enabled(enabled)?;
        release_lease_if_prefaulting(host, *ahead, || measure(*ahead))
    };
    (0..turns).map(|_| WAYS.iter().map(&mut measure_way).collect()).collect()
}

/// The speed of a way beside THP always in the same turn: the median and the range of turns.
fn describe_speed_beside_always<T>(
    turns: &[Vec<T>],
    way: usize,
    speed: impl Fn(&T) -> f64,
) -> String {
    let ratios = turns.iter().map(|turn| speed(&turn[way]) / speed(&turn[ALWAYS]));
    let MedianAndRange { median, low, high, .. } = MedianAndRange::from_figures(ratios.collect());
    format!("{median:.2} times as fast as THP always, {low:.2}-{high:.2}")
}

/// `hawkeye run`, which prefaults, must have the machine for itself.
fn release_lease_if_prefaulting<T>(
    host: &mut BenchHost,
    prefault: bool,
    work: impl FnOnce() -> BenchResult<T>,
) -> BenchResult<T> {
    match prefault {
        true => host.release_lease_while(|_| work()),
        false => work(),
    }
}

fn jvm_command(gib: u64) -> TimedCommand {
    let words = format!("java -XX:+UseSerialGC -XX:+AlwaysPreTouch -Xms{gib}g -Xmx{gib}g -version");
    TimedCommand::from_package("default-jdk-headless", &words, ReadySign::Ended)
}

fn qemu_command(gib: u64) -> TimedCommand {
    let words = format!(
        "qemu-system-{} -accel tcg -machine none -nodefaults -display none -qmp stdio \
         -object memory-backend-ram,id=m,size={gib}G,prealloc=on,prealloc-threads=1",
        std::env::consts::ARCH
    );
    TimedCommand::from_package(QEMU_PACKAGE, &words, ReadySign::Line)
}

/// As many inserts into a hash map as make its table, which doubles repeatedly, `gib` GiB large.
fn hash_map_command(hash_map: &CompiledProgram, gib: u64) -> TimedCommand {
    const BUCKET_BYTES: u64 = 16;
    // The table doubles when it is half full, and is a quarter full then.
    let inserts = (gib << 30) / BUCKET_BYTES * 17 / 64;
    let program = hash_map.path().to_string_lossy().into_owned();
    TimedCommand {
        words: vec![program, inserts.to_string()],
        ready: ReadySign::Ended,
        package: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_compared_within_a_turn() {
        // Seconds of base pages, THP always and prefaulted; the machine slows down.
        let turns = [[4.0, 2.0, 1.0], [8.0, 4.0, 2.5], [16.0, 8.0, 8.0]].map(Vec::from);
        let beside = describe_speed_beside_always(&turns, 2, |seconds| 1.0 / seconds);
        assert_eq!(beside, "1.60 times as fast as THP always, 1.00-2.00");
        let beside = describe_speed_beside_always(&turns, ALWAYS, |seconds| 1.0 / seconds);
        assert!(beside.starts_with("1.00 times"), "{beside}");
    }
}
