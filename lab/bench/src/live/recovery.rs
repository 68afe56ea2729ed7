//! Programs started while memory is fragmented (after the paper's Figure 5). For each system it
//! measures:
//! - how soon the memory in use is under huge pages
//! - how soon the program is as fast as these make it
//! - the benefit of each promotion

pub mod curve;
mod fragmented;
mod in_use;
mod subject;
mod watch;

use super::prelude::*;
use super::systems::Promoting;
use crate::plot::{Line, Panel};
use curve::{Curve, SMOOTHED, end_percent, reached_s};
use fragmented::Fragmented;
use in_use::{InUse, WITHIN};
use std::sync::atomic::Ordering;
use subject::{Subject, subjects};
use watch::{Moment, TURN, Watched, YARDSTICK_TURN, Yardsticks};

/// Systems with the same budget; programs that others wrote run under the first two. The last one
/// promotes nothing, so it shows the error of all these figures.
const SAME: [System; 4] = [
    System::ThpPaced,
    System::Hawkeye,
    System::HawkeyeG,
    System::Base,
];
/// Systems at their own pace.
const OWN: [System; 2] = [System::ThpPaced, System::Hawkeye];
/// A program has recovered when this share of its used memory is huge, or when it has this share of
/// the possible gain (per cent). Larger shares of the gain can be distinguished from noise only on
/// a machine without neighbours. Also, policy `hawkeye` leaves 2 points of overhead, which are much
/// of a small gain.
const RECOVERED_PERCENT: f64 = 50.0;
/// From this share on a program counts as all huge.
const ALL_HUGE_PERCENT: f64 = 95.0;
/// A second share that is reported.
const NEARLY_ALL_PERCENT: f64 = 80.0;

#[derive(Clone, Copy)]
struct Sizes {
    /// Promotion rate of the comparison with the same budget.
    regions_per_s: f64,
    /// Duration of the comparison at the systems' own pace.
    length: Duration,
    /// How long programs work before the measurement starts: a newly filled server tidies up, and a
    /// JVM compiles.
    warm_up: Duration,
    /// How long the speed before and after is measured.
    around: Duration,
    /// Whether memory is fragmented first, which takes half a minute each time.
    fragmented: bool,
}

impl Sizes {
    /// The time that khugepaged needs for a whole program at this pace, with a margin.
    fn length(self, pace: Pace, bytes: u64) -> Duration {
        match pace {
            Pace::Same(per_s) => {
                Duration::from_secs_f64(bytes as f64 / HUGE_PAGE_BYTES as f64 / per_s * 1.1)
            }
            Pace::Own => self.length,
        }
    }
}

/// Programs have 5 to 8 GiB each, a tenth or a seventh of it hot. There are 24 promotions per
/// second, or each system has its own pace.
pub fn run(host: &mut Host, scale: Scale, report: &mut Report) -> Result<()> {
    let seconds = |quick, full| Duration::from_secs_f64(scale.pick(quick, full));
    let sizes = Sizes {
        regions_per_s: scale.pick(32.0, 24.0),
        length: seconds(5.0, 40.0),
        warm_up: seconds(0.1, 15.0),
        around: seconds(1.0, 12.0),
        fragmented: scale == Scale::Full,
    };
    for subject in &subjects(scale) {
        match races(host, subject, scale, sizes, report) {
            // One program that can't run here does not affect the others.
            Err(error) if !subject.of_ours() => {
                let name = subject.kind.name();
                report.note(format!("{name} could not be measured: {error}"));
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
    Ok(())
}

/// Runs one program under all systems that it is tested with.
fn races(
    host: &mut Host,
    subject: &Subject,
    scale: Scale,
    sizes: Sizes,
    report: &mut Report,
) -> Result<()> {
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
) -> Result<()> {
    let (mut by_speed, mut by_memory) = (Vec::new(), Vec::new());
    let at_pace = match pace {
        Pace::Same(per_s) => format!("{per_s} regions/s"),
        Pace::Own => "own pace".to_owned(),
    };
    for system in systems {
        let (curve, promoting) = race(host, subject, yardsticks, *system, pace, sizes)?;
        let what = format!("{}, {at_pace}, {}", subject.kind.name(), system.name());
        let in_use = curve.seen.in_use_huge.clone();
        recovered(
            report,
            format!("{what}: half of memory in use huge after"),
            &in_use,
            format!(
                "{:.0} % in the end; a promotion had all of it huge for {:.0} ms",
                end_percent(&in_use),
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
                end_percent(&speed),
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
                points: shares,
            });
        }
    }
    for (y_label, lines) in [
        ("memory in use that is huge (%)", by_memory),
        ("share of the gain (%)", by_speed),
    ] {
        let title = format!("{}, {at_pace}", subject.kind.name());
        report.panels.push(Panel::over_time(title, y_label, lines));
    }
    Ok(())
}

/// Reports when the shares were high enough to count as recovered.
fn recovered(report: &mut Report, what: String, shares: &[(f64, f64)], more: String) {
    let nearly_all = reached_s(shares, NEARLY_ALL_PERCENT);
    let nearly_all = nearly_all.map_or("never".to_owned(), |at_s| format!("after {at_s:.1} s"));
    report.row(
        what,
        reached_s(shares, RECOVERED_PERCENT).unwrap_or(f64::INFINITY),
        "s",
        format!("{NEARLY_ALL_PERCENT} % {nearly_all}; {more}"),
    );
    report.tell_last();
}

/// Runs one program under one system, from its start in fragmented memory to all of it huge.
fn race(
    host: &mut Host,
    subject: &Subject,
    yardsticks: &mut Yardsticks,
    system: System,
    pace: Pace,
    sizes: Sizes,
) -> Result<(Curve, Promoting)> {
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
    let (promoting, seen) = watched.watch(&mut in_use, |failed| {
        let enough = || failed.load(Ordering::Relaxed);
        promoter.promote(pid, pace, length, enough)
    })?;
    // The gain is compared with this speed, in memory as it was until now.
    let huge_at_end = promote_all(pid)?;
    if huge_at_end < ALL_HUGE_PERCENT {
        bail!("only {huge_at_end:.0} % of its memory could be made huge");
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
