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
        let mut all = Vec::new();
        for (_, enabled, ahead) in WAYS {
            host.set_thp_enabled(enabled)?;
            let seconds = (0..turns).map(|_| {
                release_lease_if_prefaulting(host, ahead, || {
                    program.measure_start_seconds(ahead, warm_gib)
                })
            });
            all.push(median(&seconds.collect::<BenchResult<Vec<_>>>()?));
        }
        for ((way, ..), seconds) in WAYS.iter().zip(&all) {
            let faster = format!("{:.2} times as fast as THP always", all[ALWAYS] / seconds);
            report.add_row(format!("{name}: {way}"), *seconds, "s", faster);
        }
    }
    let mut all: Vec<f64> = Vec::new();
    for (way, enabled, ahead) in WAYS {
        host.set_thp_enabled(enabled)?;
        let runs = (0..turns).map(|_| {
            release_lease_if_prefaulting(host, ahead, || {
                redis_inserts::measure_redis_inserts(ahead, gib)
            })
        });
        let runs = runs.collect::<BenchResult<Vec<_>>>()?;
        let [per_s, mean_ms, p99_ms] =
            [0, 1, 2].map(|n: usize| median_of_mapped(&runs, |run| run[n]));
        all.push(per_s);
        let mut beside = format!("p99 {p99_ms:.2} ms, mean {mean_ms:.2} ms");
        if let Some(always) = all.get(ALWAYS) {
            beside += &format!(", {:.2} times THP always", per_s / always);
        }
        let what = format!("Redis, values of 2 MiB inserted: {way}");
        report.add_row(what, per_s, "/s", beside);
    }
    host.set_thp_enabled("madvise")?;
    report.add_note(format!(
        "{gib} GiB each, median of {turns}. The program (and Redis' client) stays on one core; the other core is spare. \
         The figures include the start of `hawkeye run`, with a warm start for the first two programs."
    ));
    Ok(())
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
        "qemu-system-x86_64 -accel tcg -machine none -nodefaults -display none -qmp stdio \
         -object memory-backend-ram,id=m,size={gib}G,prealloc=on,prealloc-threads=1"
    );
    TimedCommand::from_package("qemu-system-x86", &words, ReadySign::Line)
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
