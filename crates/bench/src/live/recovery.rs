//! Programs started while memory is fragmented: how soon each system has them as fast as huge pages make them, and what
//! each promotion was good for (after the paper's Figure 5).

pub mod curve;
mod fragmented;

use super::Scale;
use super::error::BenchError;
use super::host::{Host, need_bytes};
use super::programs::huge::promote_all;
use super::programs::speed::measure;
use super::programs::{Kind, Program};
use super::report::{Report, median};
use super::systems::{Pace, Promoting, System};
use super::watch::watch;
use crate::plot::{Content, Line, Panel};
use crate::workload::Hot;
use curve::Curve;
use fragmented::Fragmented;
use hawkeye_policy::HUGE_PAGE_BYTES;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// With the same budget; of programs that others wrote, the first two.
const SAME: [System; 4] = [
    System::ThpPaced,
    System::Hawkeye,
    System::HawkeyeG,
    System::Ingens,
];
/// At their own pace.
const OWN: [System; 2] = [System::ThpPaced, System::Hawkeye];
/// A program has recovered when it has so much of what huge pages can gain, in per cent.
const RECOVERED_PERCENT: f64 = 80.0;
const STEP: Duration = Duration::from_millis(300);

#[derive(Clone, Copy)]
struct Sizes {
    /// Of the comparison with the same budget.
    regions_per_s: f64,
    /// Of the other one.
    length: Duration,
    /// What comes before and after is measured so many steps long.
    steps: usize,
    /// Whether memory is fragmented first, which takes half a minute each time.
    fragmented: bool,
}

impl Sizes {
    /// As long as khugepaged needs for all of a program at this pace, and some more.
    fn length(self, pace: Pace, mib: u64) -> Duration {
        match pace {
            Pace::Same(per_s) => {
                Duration::from_secs_f64((mib << 20) as f64 / HUGE_PAGE_BYTES as f64 / per_s * 1.1)
            }
            Pace::Own => self.length,
        }
    }
}

/// 2 or 3 GiB each, a tenth or an eighth of it hot; 16 promotions a second, or each system's own pace.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            regions_per_s: 32.0,
            length: Duration::from_secs(5),
            steps: 3,
            fragmented: false,
        },
        Scale::Full => Sizes {
            regions_per_s: 16.0,
            length: Duration::from_secs(40),
            steps: 11,
            fragmented: true,
        },
    };
    let mut report = Report::new("recovery");
    for subject in &subjects(scale) {
        need_bytes(subject.kind.resident_bytes(subject.mib))?;
        let same = Pace::Same(sizes.regions_per_s);
        if subject.of_ours() {
            let systems = match scale {
                Scale::Quick => &SAME[..2],
                Scale::Full => &SAME,
            };
            compare(host, subject, same, systems, sizes, &mut report)?;
            if scale == Scale::Full {
                compare(host, subject, Pace::Own, &OWN, sizes, &mut report)?;
            }
        } else if let Err(error) = compare(host, subject, same, &SAME[..2], sizes, &mut report) {
            // One that can't be had here says nothing about the others.
            report.note(format!(
                "{} could not be measured: {error}",
                subject.kind.name()
            ));
        }
    }
    System::Base.prepare(host)?;
    report.note(format!(
        "Programs started while {}, watched while they are promoted. Gain: speed (by the program's own CPU time) over that at the begin, in shares of what the same process gains with all memory huge at the end. Recovered: {RECOVERED_PERCENT} % of that, median of five looks. Saved: time under base pages for the work done more, a promotion.",
        if sizes.fragmented {
            "free memory is in blocks smaller than huge pages (which compaction can move)"
        } else {
            "memory is as it is (the long form fragments it)"
        },
    ));
    Ok(report)
}

fn compare(
    host: &mut Host,
    subject: &Subject,
    pace: Pace,
    systems: &[System],
    sizes: Sizes,
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut lines = Vec::new();
    let at_pace = match pace {
        Pace::Same(per_s) => format!("{per_s} regions/s"),
        Pace::Own => "own pace".to_owned(),
    };
    for system in systems {
        let (curve, promoting) = race(host, subject, *system, pace, sizes)?;
        let what = format!("{}, {at_pace}, {}", subject.kind.name(), system.name());
        let reached = curve.reached_s(RECOVERED_PERCENT);
        report.row(
            format!("{what}: recovered after"),
            reached.unwrap_or(f64::INFINITY),
            "s",
            format!(
                "{:.0} % of {:.0} % in the end ({:.0} % of memory huge for that); {} promotions saved {:.1} ms each; {:.1} % of a core",
                curve.end_percent(),
                curve.achievable_percent(),
                curve.huge_percent,
                promoting.promoted,
                curve.saved_ms_per_promotion(),
                promoting.cpu_percent(),
            ),
        );
        report.tell_last();
        if pace == Pace::Own && system.policy().is_some() {
            report.managed(promoting.cpu, promoting.wall);
        }
        lines.push(Line {
            name: system.name().to_owned(),
            points: curve.shares_percent(),
        });
    }
    report.panels.push(Panel {
        title: format!("{}, {at_pace}", subject.kind.name()),
        y_label: "share of the gain (%)".to_owned(),
        content: Content::Lines {
            x_label: "time (s)".to_owned(),
            lines,
        },
    });
    Ok(())
}

/// One program under one system, from its start in fragmented memory to all of it huge.
fn race(
    host: &mut Host,
    subject: &Subject,
    system: System,
    pace: Pace,
    sizes: Sizes,
) -> Result<(Curve, Promoting), BenchError> {
    system.prepare(host)?;
    let fragmented = match sizes.fragmented {
        true => Some(Fragmented::new(host)?),
        false => None,
    };
    let mut program = subject.start(host)?;
    program.go()?;
    let base_per_cpu_s = steady(program.as_mut(), sizes.steps)?;
    let pid = program.pid();
    let length = sizes.length(pace, subject.mib);
    let (promoting, moments) = watch(program.as_mut(), STEP, |failed| {
        let enough = || failed.load(Ordering::Relaxed);
        system.promote(host, pid, pace, length, enough)
    })?;
    // What follows is the yardstick: nothing may keep it from being all huge.
    drop(fragmented);
    let huge_percent = promote_all(pid)?;
    let huge_per_cpu_s = steady(program.as_mut(), sizes.steps)?;
    let curve = Curve {
        base_per_cpu_s,
        huge_per_cpu_s,
        moments,
        promoted: promoting.promoted,
        huge_percent,
    };
    Ok((curve, promoting))
}

/// Its speed, the median of so many steps.
fn steady(program: &mut dyn Program, steps: usize) -> Result<f64, BenchError> {
    let rates: Result<Vec<f64>, BenchError> = (0..steps)
        .map(|_| Ok(measure(program, STEP)?.per_cpu_s))
        .collect();
    Ok(median(&rates?))
}

/// Nearly all questions are about a tenth of the keys: where a tenth of them went elsewhere, their page walks would cost more than those of the hot
/// part, because less of the page tables is in the caches.
const HOT: Hot = Hot {
    keys_percent: 10,
    questions_percent: 99,
};

/// A program to watch.
struct Subject {
    kind: Kind,
    /// Which of its keys are asked for, where it is asked for keys.
    hot: Option<Hot>,
    /// How large it is.
    mib: u64,
}

/// Programs of which a part is hot: one of ours, some with nearly all questions about a tenth of their keys, and some that are as they are (a
/// solver's vectors beside its matrix, a graph's ranks beside its edges).
fn subjects(scale: Scale) -> Vec<Subject> {
    let ours = |mib, words| Subject {
        kind: Kind::Reader {
            name: "pointer chase",
            words,
        },
        hot: None,
        mib,
    };
    let others = |kind, hot| Subject {
        kind,
        hot,
        mib: 2048,
    };
    match scale {
        Scale::Quick => vec![ours(256, "chase --hot-mib 32 --hot-percent 99")],
        Scale::Full => vec![
            ours(3072, "chase --hot-mib 384 --hot-percent 99"),
            others(Kind::Redis, Some(HOT)),
            others(Kind::Memcached, Some(HOT)),
            others(Kind::JavaHashMap, Some(HOT)),
            others(Kind::Sparsehash, Some(HOT)),
            others(Kind::Cg, None),
            others(Kind::Graph, None),
        ],
    }
}

impl Subject {
    fn of_ours(&self) -> bool {
        matches!(self.kind, Kind::Reader { .. })
    }

    fn start(&self, host: &Host) -> Result<Box<dyn Program>, BenchError> {
        match self.hot {
            None => self.kind.start(host, self.mib),
            Some(hot) => self.kind.start_hot(host, self.mib, hot),
        }
    }
}
