//! How long servers take to answer while they grow, by system: what zeroing 2 MiB in a page fault costs, and what managing does.

use super::Scale;
use super::host::{Host, need_bytes};
use super::polling::Polling;
use super::programs::Kind;
use super::programs::speed::turn;
use super::report::Report;
use super::systems::{Pace, System};
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_workload::Latencies;
use std::time::Duration;

const SYSTEMS: [System; 5] = [
    System::Base,
    System::Madvise,
    System::ThpShipped,
    System::ThpPaced,
    System::Hawkeye,
];
const SERVERS: [Kind; 2] = [Kind::Redis, Kind::Memcached];
/// Of the questions; the others read.
const WRITES_PERCENT: u8 = 20;
/// Questions come at so much of the pace at which a server under base pages answers what waits for it already, in per cent: single
/// questions cost more than those that come in batches.
const LOAD_PERCENT: f64 = 10.0;

#[derive(Clone, Copy)]
struct Sizes {
    mib: u64,
    length: Duration,
    rounds: usize,
}

/// 512 MiB each at the begin, 6 s of questions, eleven times.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            mib: 64,
            length: Duration::from_secs(1),
            rounds: 1,
        },
        Scale::Full => Sizes {
            mib: 512,
            length: Duration::from_secs(6),
            rounds: 11,
        },
    };
    let polling = Polling::begin()?;
    let mut report = Report::new("latency");
    for kind in SERVERS {
        need_bytes(2 * kind.resident_bytes(sizes.mib))?;
        let per_s = affordable_per_s(host, kind, sizes)?;
        let mut all = vec![Vec::new(); SYSTEMS.len()];
        // Each round has all of them, so that a drift of the machine meets all.
        for _ in 0..sizes.rounds {
            for (system, all) in SYSTEMS.iter().zip(&mut all) {
                all.push(measure(host, kind, *system, per_s, sizes, &mut report)?);
            }
        }
        describe(kind, &all, &mut report);
        report.note(format!(
            "{}: {per_s} questions a second, {WRITES_PERCENT} % of them insert.",
            kind.name()
        ));
    }
    System::Base.prepare(host)?;
    report.note(format!(
        "{} MiB stored at the begin; single questions at equal distances for {} s, timed from when they were due; median of {} rounds. p99.9 is of the answers in whose time neither server nor client waited for a core: with two cores, both of them busy, what else runs is in the tail of the others. Each system at its own pace from the first question on. Idle processors {}.",
        sizes.mib,
        sizes.length.as_secs(),
        sizes.rounds,
        match polling {
            Some(_) => "polled instead of halting",
            None => "did as they do here",
        },
    ));
    Ok(report)
}

/// So many questions a second leave a server under base pages most of its time.
fn affordable_per_s(host: &mut Host, kind: Kind, sizes: Sizes) -> Result<u32, BenchError> {
    System::Base.prepare(host)?;
    let mut program = kind.start(host, sizes.mib)?;
    let length = sizes.length.min(Duration::from_secs(3));
    Ok((turn(program.as_mut(), length)?.per_s * LOAD_PERCENT / 100.0) as u32)
}

fn measure(
    host: &mut Host,
    kind: Kind,
    system: System,
    questions_per_s: u32,
    sizes: Sizes,
    report: &mut Report,
) -> Result<Latencies, BenchError> {
    system.prepare(host)?;
    let mut program = kind.start(host, sizes.mib)?;
    let pid = program.pid();
    let questions = hawkeye_workload::Pace {
        length: sizes.length,
        questions_per_s,
        writes_percent: WRITES_PERCENT,
    };
    let promoter = system.promoter(host)?;
    let (asked, promoting) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| program.latencies(questions));
        let at_most = 4 * sizes.length;
        let promoting = promoter.promote(pid, Pace::Own, at_most, || asking.is_finished());
        let asked = asking
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, BenchError>((asked?, promoting?))
    })?;
    if system.policy().is_some() {
        report.managed(promoting.cpu, promoting.wall);
    }
    asked.ok_or_else(|| BenchError::Impossible(format!("{} answers no questions", kind.name())))
}

fn describe(kind: Kind, all: &[Vec<Latencies>], report: &mut Report) {
    let of = |rounds: &[Latencies], part: fn(&Latencies) -> f64| {
        median(&rounds.iter().map(part).collect::<Vec<_>>())
    };
    let tail = |l: &Latencies| {
        l.with_cores
            .map_or(l.p999_us, |with_cores| with_cores.p999_us)
    };
    let base = all.first().map(|base| of(base, tail));
    for (system, rounds) in SYSTEMS.iter().zip(all) {
        let p999 = of(rounds, tail);
        let (least, most) = rounds
            .iter()
            .map(tail)
            .fold((f64::MAX, 0.0_f64), |(least, most), tail| {
                (least.min(tail), most.max(tail))
            });
        let percent = |l: &Latencies| l.with_cores.map_or(100.0, |with_cores| with_cores.percent);
        report.row(
            format!("{}, {}: p99.9", kind.name(), system.name()),
            p999,
            "us",
            format!(
                "{:.2} times base pages'; rounds of {least:.0} to {most:.0} us, of {:.1} % of the answers; of all: p50 {:.0}, p99 {:.0}, p99.9 {:.0}, longest {:.0} us; {} keys inserted",
                p999 / base.unwrap_or(f64::NAN),
                of(rounds, percent),
                of(rounds, |l| l.p50_us),
                of(rounds, |l| l.p99_us),
                of(rounds, |l| l.p999_us),
                of(rounds, |l| l.longest_us),
                rounds.last().map_or(0, |l| l.inserted),
            ),
        );
    }
}
