//! Programs that gain nothing by huge pages, managed beside the same left alone: slower or larger by how much.

use super::Scale;
use super::host::{Host, need_bytes};
use super::programs::speed::in_turn;
use super::programs::{Kind, Program, idle_redis};
use super::report::Report;
use super::systems::{Pace, System};
use crate::error::BenchError;
use crate::statistics::{median, median_error};
use hawkeye_linux::processes::process::rss_bytes;
use std::time::Duration;

/// How long it is measured, in turns of how long.
#[derive(Clone, Copy)]
struct Times {
    turn: Duration,
    /// Before it is managed, and while it is.
    lengths: [Duration; 2],
}

/// What is started three times.
#[derive(Clone, Copy)]
enum Subject {
    Reader(Kind),
    IdleRedis,
}

impl Subject {
    fn start(self, host: &Host, mib: u64) -> Result<Box<dyn Program>, BenchError> {
        match self {
            Self::Reader(kind) => kind.start(host, mib),
            Self::IdleRedis => idle_redis(host, mib),
        }
    }

    /// A program that hardly works shows little in a turn: a batch of answers each 50 ms, of which the next may take twice as long. More
    /// and shorter turns are what brings the error under 1 %.
    fn times(self) -> Times {
        let (turn, [before_s, managed_s]) = match self {
            Self::Reader(_) => (Duration::from_millis(500), [15, 45]),
            Self::IdleRedis => (Duration::from_millis(200), [120, 180]),
        };
        Times {
            turn,
            lengths: [before_s, managed_s].map(Duration::from_secs),
        }
    }
}

const SUBJECTS: [(&str, Subject); 3] = [
    (
        "sequential reads",
        Subject::Reader(Kind::Reader {
            name: "sequential",
            words: "sequential",
        }),
    ),
    (
        "random reads in a hot 2 MiB",
        Subject::Reader(Kind::Reader {
            name: "small",
            words: "hot-spot --hot-mib 2 --hot-percent 100",
        }),
    ),
    ("idle Redis", Subject::IdleRedis),
];

/// 1 GiB each, under management with default settings.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let mib = match scale {
        Scale::Quick => 128,
        Scale::Full => 1024,
    };
    need_bytes(4 * (mib << 20))?;
    let mut report = Report::new("no-gain");
    System::Hawkeye.prepare(host)?;
    for (name, subject) in SUBJECTS {
        let times = match scale {
            Scale::Quick => Times {
                turn: Duration::from_millis(200),
                lengths: [800, 1200].map(Duration::from_millis),
            },
            Scale::Full => subject.times(),
        };
        let start = || subject.start(host, mib);
        let instances = [start()?, start()?, start()?];
        compare(host, name, instances, times, &mut report)?;
    }
    System::Base.prepare(host)?;
    report.note(format!(
        "Three instances of {mib} MiB each, in turn, one of them managed; how much slower it is beside the other two, by operations per second of CPU time, than before (± one standard error, if one turn told nothing of the next); the same of the second other beside the first, whom nobody manages, is what chance does here. Default settings.",
    ));
    Ok(report)
}

/// The first is managed, the others are not.
fn compare(
    host: &mut Host,
    name: &str,
    mut instances: [Box<dyn Program>; 3],
    times: Times,
    report: &mut Report,
) -> Result<(), BenchError> {
    let [pid, alone_pid] = [0, 1].map(|n: usize| instances[n].pid());
    let mut speeds = |all| in_turn(&mut instances, times.turn, all);
    let before = speeds(times.lengths[0])?;
    let promoter = System::Hawkeye.promoter(host)?;
    let (during, promoting) = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| speeds(times.lengths[1]));
        let length = 2 * times.lengths[1];
        let promoting = promoter.promote(pid, Pace::Own, length, || measuring.is_finished());
        let during = measuring
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, BenchError>((during?, promoting?))
    })?;
    report.managed(promoting.cpu, promoting.wall);
    let larger = rss_bytes(pid)? as f64 / rss_bytes(alone_pid)? as f64;
    let [managed, chance] =
        [beside_the_others, of_the_others].map(|ratio| Slower::of(&before, &during, ratio));
    report.row(
        format!("{name}: slower"),
        managed.percent,
        "%",
        format!(
            "± {:.2}, and {:.2} ± {:.2} where nobody manages; larger by {:.2} %; {} promotions; {} turns of {} ms before and {} while managed; goal: at most 1 each",
            managed.error_percent,
            chance.percent,
            chance.error_percent,
            (larger - 1.0) * 100.0,
            promoting.promoted,
            before.len(),
            times.turn.as_millis(),
            during.len(),
        ),
    );
    Ok(())
}

fn beside_the_others([managed, first, second]: &[f64; 3]) -> f64 {
    managed / (first * second).sqrt()
}

fn of_the_others([_, first, second]: &[f64; 3]) -> f64 {
    second / first
}

/// How much slower one is beside another than it was.
struct Slower {
    percent: f64,
    error_percent: f64,
}

impl Slower {
    fn of(before: &[[f64; 3]], during: &[[f64; 3]], ratio: fn(&[f64; 3]) -> f64) -> Self {
        let [before, during] =
            [before, during].map(|rounds| rounds.iter().map(ratio).collect::<Vec<_>>());
        let now = median(&during) / median(&before);
        let error = |ratios: &[f64]| median_error(ratios) / median(ratios);
        Self {
            percent: (1.0 - now) * 100.0,
            error_percent: error(&before).hypot(error(&during)) * now * 100.0,
        }
    }
}
