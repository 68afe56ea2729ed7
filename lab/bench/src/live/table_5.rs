//! How evenly equal programs are served while promotion goes on (after the paper's Table 5).

use super::host::{Host, need_bytes};
use super::programs::huge::promote_all;
use super::programs::speed::{go, stop, turn_together};
use super::programs::{Kind, Program};
use super::report::Report;
use super::{Scale, is_known, manage_all};
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_manager::Settings;
use hawkeye_policy::{CpuBudget, Rate};
use std::time::Duration;

const POLICIES: [&str; 3] = ["hawkeye", "hawkeye-g", "linux"];
const PROGRAMS: usize = 3;
/// Of each program.
const MIB: u64 = 1024;
const HOT_SPOT: Kind = Kind::Reader {
    name: "hot-spot",
    words: "hot-spot --hot-mib 256",
};
/// Where it is looked how the programs fare, in promotions: up to all of the hot regions (384), then all
/// of the others (1536).
const BUDGETS: [u64; 5] = [96, 192, 384, 768, 1536];
/// Slow enough that it can be looked close to each budget.
const PROMOTIONS_PER_S: f64 = 200.0;
/// Short enough that the cold parts are not all touched within it.
const WINDOW: Duration = Duration::from_millis(100);
const PERIOD: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
struct Sizes {
    turns: usize,
    turn: Duration,
    at_most: Duration,
}

/// How the programs fare after so many promotions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    promoted: u64,
    /// Speed of each in shares of its all-huge speed.
    relative: [f64; PROGRAMS],
}

impl Point {
    /// What base pages still cost each, in per cent of its time.
    fn overheads_percent(&self) -> [f64; PROGRAMS] {
        self.relative.map(|share| (1.0 - share) * 100.0)
    }

    /// Between the best and the worst served, in points.
    fn spread_points(&self) -> f64 {
        let overheads = self.overheads_percent();
        let most = overheads.into_iter().fold(f64::MIN, f64::max);
        let least = overheads.into_iter().fold(f64::MAX, f64::min);
        most - least
    }

    /// Speed gained since `begin`, on average, in per cent.
    fn mean_gain_percent(&self, begin: &Self) -> f64 {
        let faster = self.relative.iter().zip(&begin.relative);
        let gains: f64 = faster.map(|(now, then)| (now / then - 1.0) * 100.0).sum();
        gains / PROGRAMS as f64
    }
}

/// Three programs of 1 GiB, a quarter of it hot, looked at while they are promoted.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            turns: 1,
            turn: Duration::from_millis(200),
            at_most: Duration::from_secs(1),
        },
        Scale::Full => Sizes {
            turns: 5,
            turn: Duration::from_secs(1),
            at_most: Duration::from_secs(240),
        },
    };
    need_bytes(2 * PROGRAMS as u64 * (MIB << 20))?;
    let mut report = Report::new("table-5");
    let mut huge = programs(host)?;
    for program in &huge {
        promote_all(program.pid())?;
    }
    for policy in POLICIES {
        if !is_known(policy) {
            report.note(format!("There is no policy {policy} in this build."));
            continue;
        }
        let points = measure(host, policy, &mut huge, sizes)?;
        describe(policy, &points, &mut report);
    }
    report.note(format!(
        "{PROGRAMS} programs of {MIB} MiB, 90 % of the reads in the top 256 MiB, all at the same time on the same cores; at most {PROMOTIONS_PER_S} promotions a second. Overhead: speed lost to the same programs all huge, in turn, by reads per second of CPU time; median of {} turns of {} s. Gain: over base pages.",
        sizes.turns,
        sizes.turn.as_secs_f64(),
    ));
    Ok(report)
}

fn programs(host: &Host) -> Result<Vec<Box<dyn Program>>, BenchError> {
    (0..PROGRAMS).map(|_| HOT_SPOT.start(host, MIB)).collect()
}

/// How the programs fare at the begin and at each budget that was reached.
fn measure(
    host: &Host,
    policy: &str,
    huge: &mut [Box<dyn Program>],
    sizes: Sizes,
) -> Result<Vec<Point>, BenchError> {
    let mut managed = programs(host)?;
    let pids: Vec<u32> = managed.iter().map(|program| program.pid()).collect();
    let mut points = vec![look(0, &mut managed, huge, sizes)?];
    let settings = Settings {
        max_promotions: BUDGETS.last().copied(),
        rate: Some(Rate::per_second(PROMOTIONS_PER_S)?),
        window: WINDOW,
        period: PERIOD,
        cpu: CpuBudget::new(100.0)?,
        ..Settings::default()
    };
    let mut failed = None;
    let means = host.means()?;
    go(&mut managed)?;
    manage_all(means, &pids, policy, settings, sizes.at_most, |journal| {
        let promoted = journal.totals().promoted;
        // Just promoted means not in a window: nothing is sampled while the others run.
        if BUDGETS
            .get(points.len() - 1)
            .is_some_and(|budget| promoted >= *budget)
        {
            let looked = look(promoted, &mut managed, huge, sizes);
            match looked.and_then(|point| go(&mut managed).map(|()| point)) {
                Ok(point) => points.push(point),
                Err(error) => failed = Some(error),
            }
        }
        failed.is_some() || points.len() > BUDGETS.len()
    })?;
    stop(&mut managed)?;
    failed.map_or(Ok(points), Err)
}

fn look(
    promoted: u64,
    managed: &mut [Box<dyn Program>],
    huge: &mut [Box<dyn Program>],
    sizes: Sizes,
) -> Result<Point, BenchError> {
    let mut relative = [const { Vec::new() }; PROGRAMS];
    for _ in 0..sizes.turns {
        let ours = turn_together(managed, sizes.turn)?;
        let theirs = turn_together(huge, sizes.turn)?;
        for (at, shares) in relative.iter_mut().enumerate() {
            shares.push(ours[at].per_cpu_s / theirs[at].per_cpu_s);
        }
    }
    Ok(Point {
        promoted,
        relative: relative.map(|shares| median(&shares)),
    })
}

fn describe(policy: &str, points: &[Point], report: &mut Report) {
    let Some((begin, later)) = points.split_first() else {
        return;
    };
    for point in later {
        report.row(
            format!(
                "{policy}: mean gain after {} promotions",
                nearest_budget(point)
            ),
            point.mean_gain_percent(begin),
            "%",
            format!(
                "overheads {}: spread {:.1} points; {} promotions",
                listed(point.overheads_percent()),
                point.spread_points(),
                point.promoted
            ),
        );
    }
    let widest = later.iter().map(Point::spread_points).reduce(f64::max);
    if let Some(points) = widest {
        report.row(
            format!("{policy}: widest spread of overheads"),
            points,
            "points",
            format!(
                "goal for hawkeye: at most 2; under base pages {:.1} ({})",
                begin.spread_points(),
                listed(begin.overheads_percent())
            ),
        );
    }
    if later.len() < BUDGETS.len() {
        report.note(format!(
            "{policy} was still under {} promotions when its time was up.",
            BUDGETS[later.len()]
        ));
    }
}

/// The budget that a point was taken at.
fn nearest_budget(point: &Point) -> u64 {
    let reached = BUDGETS
        .into_iter()
        .take_while(|budget| *budget <= point.promoted);
    reached.last().unwrap_or(0)
}

fn listed(percent: [f64; PROGRAMS]) -> String {
    percent.map(|p| format!("{p:.1}")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(promoted: u64, relative: [f64; 3]) -> Point {
        Point { promoted, relative }
    }

    #[test]
    fn spread_lies_between_the_best_and_the_worst_served() {
        let spread = point(0, [0.5, 0.75, 1.0]).spread_points();
        assert!((spread - 50.0).abs() < 1e-9);
        assert_eq!(point(0, [0.5; 3]).spread_points(), 0.0);
    }

    #[test]
    fn gain_is_over_the_begin_and_averaged() {
        let gain = point(9, [1.0, 0.5, 0.75]).mean_gain_percent(&point(0, [0.5; 3]));
        assert!((gain - 50.0).abs() < 1e-9, "{gain}");
    }

    #[test]
    fn a_point_belongs_to_the_last_budget_that_it_has_reached() {
        assert_eq!(nearest_budget(&point(95, [1.0; 3])), 0);
        assert_eq!(nearest_budget(&point(99, [1.0; 3])), 96);
        assert_eq!(nearest_budget(&point(1536, [1.0; 3])), 1536);
    }

    #[test]
    fn a_report_names_what_was_not_reached() {
        let mut report = Report::new("table-5");
        let points = [point(0, [0.5; 3]), point(100, [0.6, 0.6, 0.6])];
        describe("hawkeye-g", &points, &mut report);
        assert_eq!(report.rows.len(), 2);
        describe("linux", &points[..1], &mut report);
        assert_eq!(report.rows.len(), 2, "nothing was seen, so nothing is told");
        assert!(report.notes[0].contains("under 192"), "{:?}", report.notes);
    }
}
