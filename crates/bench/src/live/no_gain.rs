//! Programs that gain nothing by huge pages, managed beside the same left alone: slower or larger by how much.

use super::Scale;
use super::error::BenchError;
use super::host::{Host, need_bytes};
use super::programs::speed::in_turn;
use super::programs::{Kind, Program, idle_redis};
use super::report::{Report, median};
use super::systems::{Pace, System};
use hawkeye_linux::process::rss_bytes;
use std::time::Duration;

#[derive(Clone, Copy)]
struct Sizes {
    mib: u64,
    turn: Duration,
    /// Before it is managed, and while it is.
    lengths: [Duration; 2],
}

/// What is started twice.
#[derive(Clone, Copy)]
enum Subject {
    Reader(Kind),
    IdleRedis,
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

/// 1 GiB each, 45 s under management with default settings.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            mib: 128,
            turn: Duration::from_millis(200),
            lengths: [Duration::from_millis(800), Duration::from_millis(1200)],
        },
        Scale::Full => Sizes {
            mib: 1024,
            turn: Duration::from_millis(500),
            lengths: [Duration::from_secs(15), Duration::from_secs(45)],
        },
    };
    need_bytes(3 * (sizes.mib << 20))?;
    let mut report = Report::new("no-gain");
    System::Hawkeye.prepare(host)?;
    for (name, subject) in SUBJECTS {
        compare(host, name, subject, sizes, &mut report)?;
    }
    System::Base.prepare(host)?;
    report.note(format!(
        "Two instances of {} MiB each, {} ms in turn; how much slower, by operations per second of CPU time, the one is beside the other from when it is managed (for {} s), than before. Default settings.",
        sizes.mib,
        sizes.turn.as_millis(),
        sizes.lengths[1].as_secs_f64(),
    ));
    Ok(report)
}

impl Subject {
    fn start(self, host: &Host, mib: u64) -> Result<Box<dyn Program>, BenchError> {
        match self {
            Self::Reader(kind) => kind.start(host, mib),
            Self::IdleRedis => idle_redis(host, mib),
        }
    }
}

fn compare(
    host: &mut Host,
    name: &str,
    subject: Subject,
    sizes: Sizes,
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut pair = [
        subject.start(host, sizes.mib)?,
        subject.start(host, sizes.mib)?,
    ];
    let (alone_pid, pid) = (pair[0].pid(), pair[1].pid());
    let mut ratios = |all| {
        let [alone, managed] = &mut pair;
        in_turn(alone.as_mut(), managed.as_mut(), sizes.turn, all)
    };
    let before = ratios(sizes.lengths[0])?;
    let promoter = System::Hawkeye.promoter(host)?;
    let (during, promoting) = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| ratios(sizes.lengths[1]));
        let length = 2 * sizes.lengths[1];
        let promoting = promoter.promote(pid, Pace::Own, length, || measuring.is_finished());
        let during = measuring
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, BenchError>((during?, promoting?))
    })?;
    report.managed(promoting.cpu, promoting.wall);
    let larger = rss_bytes(pid)? as f64 / rss_bytes(alone_pid)? as f64;
    report.row(
        format!("{name}: slower"),
        (1.0 - median(&during) / median(&before)) * 100.0,
        "%",
        format!(
            "larger by {:.2} %; {} promotions; {} turns before and {} while managed; goal: at most 1 each",
            (larger - 1.0) * 100.0,
            promoting.promoted,
            before.len(),
            during.len(),
        ),
    );
    Ok(())
}
