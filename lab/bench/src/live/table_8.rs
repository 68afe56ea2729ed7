//! Programs that touch much new memory at once, beside base pages and THP=always (the paper's Table 8).
//!
//! Each has one core of its own and one core is spare, as where a program with one busy thread runs on a machine
//! with more. All are started as a person would: `hawkeye run --fault-ahead on -- PROGRAM`.

mod hash_map;
mod inserts;
mod launch;

use super::Scale;
use super::host::{Host, need_bytes};
use super::report::Report;
use crate::error::BenchError;
use crate::statistics::median;
use launch::{Launch, Ready};

/// Who provides huge pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Base,
    Always,
    /// Faults get huge pages, and a spare core fills ahead of them.
    Ahead,
}

impl Way {
    const ALL: [Self; 3] = [Self::Base, Self::Always, Self::Ahead];

    fn name(self) -> &'static str {
        match self {
            Self::Base => "base pages",
            Self::Always => "THP always",
            Self::Ahead => "filled ahead",
        }
    }

    fn enabled(self) -> &'static str {
        match self {
            Self::Base => "never",
            Self::Always | Self::Ahead => "always",
        }
    }
}

/// Each program in each way.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let (gib, turns) = match scale {
        Scale::Quick => (1, 1),
        Scale::Full => (8, 3),
    };
    need_bytes((gib << 30) / 3 * 5)?;
    host.warm_up_for(scale)?;
    let hash_map = hash_map::build()?;
    let mut report = Report::new("table-8");
    let programs = [
        ("JVM, its heap touched at start", jvm(gib), Some(gib)),
        ("QEMU, its memory preallocated", qemu(gib), Some(gib)),
        ("hash map, inserts", hash_map.inserts(gib), None),
    ];
    for (name, (package, program), warm_gib) in programs {
        if let Some((program, package)) = package {
            super::programs::packages::need(program, package)?;
        }
        let mut all = Vec::new();
        for way in Way::ALL {
            host.set_enabled(way.enabled())?;
            let seconds = (0..turns)
                .map(|_| program.seconds(host, way == Way::Ahead, warm_gib))
                .collect::<Result<Vec<_>, _>>()?;
            all.push(median(&seconds));
        }
        for (way, seconds) in Way::ALL.iter().zip(&all) {
            report.row(
                format!("{name}: {}", way.name()),
                *seconds,
                "s",
                format!("{:.2} times as fast as THP always", all[1] / seconds),
            );
        }
    }
    let mut always = None;
    for way in Way::ALL {
        host.set_enabled(way.enabled())?;
        let runs = (0..turns)
            .map(|_| inserts::run(host, way == Way::Ahead, gib))
            .collect::<Result<Vec<_>, _>>()?;
        let of =
            |part: fn(&inserts::Inserts) -> f64| median(&runs.iter().map(part).collect::<Vec<_>>());
        let (per_s, p99_ms) = (of(|r| r.per_s), of(|r| r.p99_ms));
        if way == Way::Always {
            always = Some(per_s);
        }
        let beside = always.map_or(String::new(), |a| {
            format!(", {:.2} times THP always", per_s / a)
        });
        report.row(
            format!("Redis, values of 2 MiB inserted: {}", way.name()),
            per_s,
            "/s",
            format!(
                "p99 {p99_ms:.2} ms, mean {:.2} ms{beside}",
                of(|r| r.mean_ms)
            ),
        );
    }
    host.set_enabled("madvise")?;
    report.note(format!(
        "{gib} GiB each, median of {turns}. The program (Redis with its client) is kept on one core, the other is spare. \
         The time of `hawkeye run` to start is in the figures, with a warm start for the first two."
    ));
    Ok(report)
}

type Needed = Option<(&'static str, &'static str)>;

fn jvm(gib: u64) -> (Needed, Launch) {
    let heap = [format!("-Xms{gib}g"), format!("-Xmx{gib}g")];
    let words = ["java", "-XX:+UseSerialGC", "-XX:+AlwaysPreTouch"].map(String::from);
    let launch = Launch {
        words: words
            .into_iter()
            .chain(heap)
            .chain(["-version".into()])
            .collect(),
        ready: Ready::Ended,
    };
    (Some(("java", "default-jdk-headless")), launch)
}

fn qemu(gib: u64) -> (Needed, Launch) {
    let memory = format!("memory-backend-ram,id=m,size={gib}G,prealloc=on,prealloc-threads=1");
    let words = "qemu-system-x86_64 -accel tcg -machine none -nodefaults -display none -qmp stdio";
    let words = words.split(' ').chain(["-object", &memory]);
    let launch = Launch {
        words: words.map(String::from).collect(),
        ready: Ready::Line,
    };
    (Some(("qemu-system-x86_64", "qemu-system-x86")), launch)
}
