//! Programs started while memory is fragmented: how soon each system has the memory that they use under huge pages, and them as fast as these
//! make them, and what each promotion was good for (after the paper's Figure 5).

pub mod curve;
mod fragmented;
mod in_use;
mod subject;
mod watch;

use super::Scale;
use super::host::{Host, need_bytes};
use super::programs::huge::{huge_percent, promote_all};
use super::report::Report;
use super::systems::{Pace, Promoting, System};
use crate::error::BenchError;
use crate::plot::{Content, Line, Panel};
use curve::{Curve, SMOOTHED, Shares};
use fragmented::Fragmented;
use hawkeye_linux::processes::process::rss_bytes;
use hawkeye_policy::HUGE_PAGE_BYTES;
use in_use::{InUse, WITHIN};
use std::sync::atomic::Ordering;
use std::time::Duration;
use subject::{Subject, subjects};
use watch::{Moment, TURN, Watched, YARDSTICK_TURN, Yardsticks};

/// With the same budget; where others wrote the program, the first two. The last, under which nobody promotes, is how wrong all of this can be.
const SAME: [System; 4] = [
    System::ThpPaced,
    System::Hawkeye,
    System::HawkeyeG,
    System::Base,
];
/// At their own pace.
const OWN: [System; 2] = [System::ThpPaced, System::Hawkeye];
/// A program has recovered when so much of the memory that it uses is huge, or when it has so much of what huge pages can gain, in per cent.
/// What is more of the gain takes a machine without neighbours to be told from noise, and policy `hawkeye` leaves 2 points of overhead, which
/// are much of a small gain.
const RECOVERED_PERCENT: f64 = 50.0;
/// A program is all huge from here on.
const ALL_HUGE_PERCENT: f64 = 95.0;
/// Told as well.
const NEARLY_ALL_PERCENT: f64 = 80.0;

#[derive(Clone, Copy)]
struct Sizes {
    /// Of the comparison with the same budget.
    regions_per_s: f64,
    /// Of the other one.
    length: Duration,
    /// Programs work for so long before anything is measured: after being filled a server has tidying to do, and a JVM compiles.
    warm_up: Duration,
    /// What comes before and after is measured for so long.
    around: Duration,
    /// Whether memory is fragmented first, which takes half a minute each time.
    fragmented: bool,
}

impl Sizes {
    /// As long as khugepaged needs for all of a program at this pace, and some more.
    fn length(self, pace: Pace, bytes: u64) -> Duration {
        match pace {
            Pace::Same(per_s) => {
                Duration::from_secs_f64(bytes as f64 / HUGE_PAGE_BYTES as f64 / per_s * 1.1)
            }
            Pace::Own => self.length,
        }
    }
}

/// 5 to 8 GiB each, a tenth or a seventh of it hot; 24 promotions a second, or each system's own pace.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            regions_per_s: 32.0,
            length: Duration::from_secs(5),
            warm_up: Duration::from_millis(100),
            around: Duration::from_secs(1),
            fragmented: false,
        },
        Scale::Full => Sizes {
            regions_per_s: 24.0,
            length: Duration::from_secs(40),
            warm_up: Duration::from_secs(15),
            around: Duration::from_secs(12),
            fragmented: true,
        },
    };
    let mut report = Report::new("recovery");
    for subject in &subjects(scale) {
        let raced = races(host, subject, scale, sizes, &mut report);
        match raced {
            // One that can't be had here says nothing about the others.
            Err(error) if !subject.of_ours() => {
                report.note(format!(
                    "{} could not be measured: {error}",
                    subject.kind.name()
                ));
            }
            other => other?,
        }
    }
    System::Base.prepare(host)?;
    report.note(format!(
        "Programs started while {}, watched while they are promoted. Memory in use: pages touched within {} ms before, while under base pages; how much of it is huge is looked at after each turn. Speed is by the program's own CPU time. Two more instances work between its turns of {} s, one under base pages and one all huge, {} s each in turn: its gain over the one is in shares of what the other gains about then; how fast the three are by themselves is told at the begin and, with all memory huge, at the end. Half of the gain: by the curve nearest to all medians of {SMOOTHED} turns that never falls, as promotions are not undone (which is drawn). A promotion had all of the memory in use huge for so long: the time that it was, in shares, by promotions, among runs of one length. Saved: time under base pages for the work done more, a promotion.",
        if sizes.fragmented {
            "free memory is in blocks smaller than huge pages (which compaction can move)"
        } else {
            "memory is as it is (the long form fragments it)"
        },
        WITHIN.as_millis(),
        TURN.as_secs_f64(),
        YARDSTICK_TURN.as_secs_f64(),
    ));
    Ok(report)
}

/// One program under all systems that it is tried with.
fn races(
    host: &mut Host,
    subject: &Subject,
    scale: Scale,
    sizes: Sizes,
    report: &mut Report,
) -> Result<(), BenchError> {
    need_bytes(subject.need_bytes())?;
    System::Base.prepare(host)?;
    let mut yardsticks = subject.start_yardsticks(host, sizes.warm_up)?;
    let systems = match (subject.of_ours(), scale) {
        (true, Scale::Full) => &SAME[..],
        _ => &SAME[..2],
    };
    let mut paces = vec![(Pace::Same(sizes.regions_per_s), systems)];
    if subject.of_ours() && scale == Scale::Full {
        paces.push((Pace::Own, &OWN));
    }
    for (pace, systems) in paces {
        compare(host, subject, &mut yardsticks, pace, systems, sizes, report)?;
    }
    Ok(())
}

fn compare(
    host: &mut Host,
    subject: &Subject,
    yardsticks: &mut Yardsticks,
    pace: Pace,
    systems: &[System],
    sizes: Sizes,
    report: &mut Report,
) -> Result<(), BenchError> {
    let (mut by_speed, mut by_memory) = (Vec::new(), Vec::new());
    let at_pace = match pace {
        Pace::Same(per_s) => format!("{per_s} regions/s"),
        Pace::Own => "own pace".to_owned(),
    };
    for system in systems {
        let (curve, promoting) = race(host, subject, yardsticks, *system, pace, sizes)?;
        let what = format!("{}, {at_pace}, {}", subject.kind.name(), system.name());
        let in_use = curve.by_memory_in_use();
        recovered(
            report,
            format!("{what}: half of memory in use huge after"),
            &in_use,
            format!(
                "{:.0} % in the end; a promotion had all of it huge for {:.0} ms",
                in_use.end_percent(),
                curve.in_use_huge_ms_per_promotion(),
            ),
        );
        let speed = curve.by_speed();
        recovered(
            report,
            format!("{what}: half of the gain after"),
            &speed,
            format!(
                "{:.0} % of {:.0} % in the end; {:.0} % of memory huge at the begin, {:.0} % for all of the gain; {} promotions saved {:.1} ms each; {:.1} % of a core",
                speed.end_percent(),
                curve.achievable_percent(),
                curve.huge_percent[0],
                curve.huge_percent[1],
                promoting.promoted,
                curve.saved_ms_per_promotion(),
                promoting.cpu_percent(),
            ),
        );
        if pace == Pace::Own && system.policy().is_some() {
            report.managed(promoting.cpu, promoting.wall);
        }
        for (lines, shares) in [(&mut by_memory, in_use), (&mut by_speed, speed)] {
            lines.push(Line {
                name: system.name().to_owned(),
                points: shares.points,
            });
        }
    }
    for (y_label, lines) in [
        ("memory in use that is huge (%)", by_memory),
        ("share of the gain (%)", by_speed),
    ] {
        report.panels.push(Panel {
            title: format!("{}, {at_pace}", subject.kind.name()),
            y_label: y_label.to_owned(),
            content: Content::Lines {
                x_label: "time (s)".to_owned(),
                lines,
            },
        });
    }
    Ok(())
}

/// When shares were so high that a program has recovered.
fn recovered(report: &mut Report, what: String, shares: &Shares, more: String) {
    let reached_s = shares.reached_s(RECOVERED_PERCENT);
    let nearly_all = shares.reached_s(NEARLY_ALL_PERCENT);
    let nearly_all = nearly_all.map_or("never".to_owned(), |at_s| format!("after {at_s:.1} s"));
    report.row(
        what,
        reached_s.unwrap_or(f64::INFINITY),
        "s",
        format!("{NEARLY_ALL_PERCENT} % {nearly_all}; {more}"),
    );
    report.tell_last();
}

/// One program under one system, from its start in fragmented memory to all of it huge.
fn race(
    host: &mut Host,
    subject: &Subject,
    yardsticks: &mut Yardsticks,
    system: System,
    pace: Pace,
    sizes: Sizes,
) -> Result<(Curve, Promoting), BenchError> {
    system.prepare(host)?;
    let fragmented = match sizes.fragmented {
        true => Some(Fragmented::new(host)?),
        false => None,
    };
    let mut program = subject.start(host, sizes.warm_up)?;
    let pid = program.pid();
    let mut watched = Watched {
        program: program.as_mut(),
        yardsticks,
    };
    let base = watched.settled(sizes.around, |moment| moment.speed)?;
    let huge_at_begin = huge_percent(pid)?;
    let length = sizes.length(pace, rss_bytes(pid)?);
    let mut in_use = InUse::of(watched.program)?;
    let promoter = system.promoter(host)?;
    let (promoting, seen) = watched.watch(Some(&mut in_use), |failed| {
        let enough = || failed.load(Ordering::Relaxed);
        promoter.promote(pid, pace, length, enough)
    })?;
    // What the gain is held against, in memory as it was until now.
    let huge_at_end = promote_all(pid)?;
    if huge_at_end < ALL_HUGE_PERCENT {
        let message = format!("only {huge_at_end:.0} % of its memory could be made huge");
        return Err(BenchError::Impossible(message));
    }
    let over_huge = |moment: &Moment| moment.speed / moment.huge_speed;
    let huge = watched.settled(sizes.around, over_huge)?;
    if let Some(fragmented) = fragmented {
        fragmented.end(host)?;
    }
    let curve = Curve {
        base,
        huge,
        seen,
        promoted: promoting.promoted,
        huge_percent: [huge_at_begin, huge_at_end],
    };
    Ok((curve, promoting))
}
