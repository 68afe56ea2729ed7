//! How fairly equal programs are treated during promotion. Alias: `table-5`, after the HawkEye
//! paper's Table 5.

use super::prelude::*;
use super::programs::program_speed::{measure_relative_speeds, pause_all_work, start_all_work};

const POLICIES: [&str; 3] = ["hawkeye", "hawkeye-g", "linux"];
const PROGRAMS: usize = 3;
const MIB: u64 = 1024;
const HOT_SPOT: ProgramKind = reader_kind("hot-spot", "hot-spot --hot-mib 256");
/// Promotions at the measurements: up to all of the hot regions (384), then all others (1536).
const BUDGETS: [u64; 5] = [96, 192, 384, 768, 1536];
/// Slow enough to measure close to each budget.
const PROMOTIONS_PER_S: f64 = 200.0;
/// Short enough that the programs do not touch all of their cold parts within it.
const WINDOW: Duration = Duration::from_millis(100);
const PERIOD: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq)]
struct RelativeSpeedsAtBudget {
    promoted: u64,
    /// Speed of each as a share of its all-huge speed.
    relative: [f64; PROGRAMS],
}

impl RelativeSpeedsAtBudget {
    /// Remaining cost of base pages for each, in per cent of its time.
    fn overheads_percent(&self) -> [f64; PROGRAMS] {
        self.relative.map(|share| (1.0 - share) * 100.0)
    }

    /// Difference between the fastest and the slowest, in points.
    fn overhead_spread_points(&self) -> f64 {
        let overheads = self.overheads_percent();
        let most = overheads.into_iter().fold(f64::MIN, f64::max);
        let least = overheads.into_iter().fold(f64::MAX, f64::min);
        most - least
    }

    /// Average speed gained since `begin`, in per cent.
    fn mean_gain_percent_since(&self, begin: &Self) -> f64 {
        let faster = self.relative.iter().zip(&begin.relative);
        let gains: f64 = faster.map(|(now, then)| (now / then - 1.0) * 100.0).sum();
        gains / PROGRAMS as f64
    }
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([MIB, 1, 200, 1000], [MIB, 5, 1000, 240_000]);
    require_available_memory(2 * PROGRAMS as u64 * (MIB << 20))?;
    let mut huge = start_hot_spot_programs(host)?;
    for program in &huge {
        promote_whole_process(program.pid())?;
    }
    for policy in POLICIES {
        let points = measure_policy_at_budgets(host, policy, &mut huge, sizes)?;
        add_rows_to_report(policy, &points, report);
    }
    report.add_note(format!(
        "{PROGRAMS} programs of {MIB} MiB run at the same time on the same cores, with 90 % of the reads in the top 256 MiB and at most {PROMOTIONS_PER_S} promotions per second. Overhead: speed lost compared with the same programs all huge, in turn, by reads per second of CPU time; median of {} turns of {} s. Gain: over base pages.",
        sizes.turns,
        sizes.turn.as_secs_f64(),
    ));
    Ok(())
}

fn start_hot_spot_programs(host: &BenchHost) -> BenchResult<Vec<Box<dyn MeasuredProgram>>> {
    (0..PROGRAMS).map(|_| HOT_SPOT.start(host, MIB)).collect()
}

fn measure_policy_at_budgets(
    host: &BenchHost,
    policy: &str,
    huge: &mut [Box<dyn MeasuredProgram>],
    sizes: TurnSettings,
) -> BenchResult<Vec<RelativeSpeedsAtBudget>> {
    let mut managed = start_hot_spot_programs(host)?;
    let pids: Vec<u32> = managed.iter().map(|program| program.pid()).collect();
    let mut points = vec![measure_speeds_at_budget(0, &mut managed, huge, sizes)?];
    let settings = Settings {
        max_promotions: BUDGETS.last().copied(),
        rate: Some(RatePerSecond::new(PROMOTIONS_PER_S)?),
        window: WINDOW,
        period: PERIOD,
        cpu: CpuBudget::new(100.0)?,
        ..Settings::default()
    };
    let mut failed = None;
    let means = host.new_kernel_backend()?;
    start_all_work(&mut managed)?;
    manage_processes_until(means, &pids, policy, settings, sizes.at_most, |journal| {
        let promoted = journal.totals().promoted;
        // A promotion just happened, so no window is open: nothing is sampled while the other
        // programs run.
        if BUDGETS.get(points.len() - 1).is_some_and(|budget| promoted >= *budget) {
            let looked = measure_speeds_at_budget(promoted, &mut managed, huge, sizes);
            match looked.and_then(|point| start_all_work(&mut managed).map(|()| point)) {
                Ok(point) => points.push(point),
                Err(error) => failed = Some(error),
            }
        }
        failed.is_some() || points.len() > BUDGETS.len()
    })?;
    pause_all_work(&mut managed)?;
    failed.map_or(Ok(points), Err)
}

fn measure_speeds_at_budget(
    promoted: u64,
    managed: &mut [Box<dyn MeasuredProgram>],
    huge: &mut [Box<dyn MeasuredProgram>],
    sizes: TurnSettings,
) -> BenchResult<RelativeSpeedsAtBudget> {
    Ok(RelativeSpeedsAtBudget {
        promoted,
        relative: measure_relative_speeds(managed, huge, sizes)?,
    })
}

fn add_rows_to_report(policy: &str, points: &[RelativeSpeedsAtBudget], report: &mut LiveReport) {
    let Some((begin, later)) = points.split_first() else {
        return;
    };
    for point in later {
        let budget = largest_reached_budget(point);
        report.add_row(
            format!("{policy}: mean gain after {budget} promotions"),
            point.mean_gain_percent_since(begin),
            "%",
            format!(
                "overheads {}: spread {:.1} points; {} promotions",
                format_percent_list(point.overheads_percent()),
                point.overhead_spread_points(),
                point.promoted
            ),
        );
    }
    let spreads = later.iter().map(RelativeSpeedsAtBudget::overhead_spread_points);
    if let Some(widest) = spreads.reduce(f64::max) {
        let (points, each) =
            (begin.overhead_spread_points(), format_percent_list(begin.overheads_percent()));
        let beside = format!("goal for hawkeye: at most 2; under base pages {points:.1} ({each})");
        let what = format!("{policy}: widest spread of overheads");
        report.add_row(what, widest, "points", beside);
    }
    if later.len() < BUDGETS.len() {
        let missed = BUDGETS[later.len()];
        report.add_note(format!(
            "{policy} made fewer than {missed} promotions before its time limit."
        ));
    }
}

fn largest_reached_budget(point: &RelativeSpeedsAtBudget) -> u64 {
    let reached = BUDGETS.into_iter().take_while(|budget| *budget <= point.promoted);
    reached.last().unwrap_or(0)
}

fn format_percent_list(percent: [f64; PROGRAMS]) -> String {
    percent.map(|p| format!("{p:.1}")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(promoted: u64, relative: [f64; 3]) -> RelativeSpeedsAtBudget {
        RelativeSpeedsAtBudget { promoted, relative }
    }

    #[test]
    fn spread_lies_between_the_best_and_the_worst_served() {
        let spread = point(0, [0.5, 0.75, 1.0]).overhead_spread_points();
        assert!((spread - 50.0).abs() < 1e-9);
        assert_eq!(point(0, [0.5; 3]).overhead_spread_points(), 0.0);
    }

    #[test]
    fn gain_is_over_the_begin_and_averaged() {
        let gain = point(9, [1.0, 0.5, 0.75]).mean_gain_percent_since(&point(0, [0.5; 3]));
        assert!((gain - 50.0).abs() < 1e-9, "{gain}");
    }

    #[test]
    fn a_point_belongs_to_the_last_budget_that_it_has_reached() {
        assert_eq!(largest_reached_budget(&point(95, [1.0; 3])), 0);
        assert_eq!(largest_reached_budget(&point(99, [1.0; 3])), 96);
        assert_eq!(largest_reached_budget(&point(1536, [1.0; 3])), 1536);
    }

    #[test]
    fn a_report_names_the_budget_that_was_not_reached() {
        let mut report = LiveReport::new("fairness");
        let points = [point(0, [0.5; 3]), point(100, [0.6, 0.6, 0.6])];
        add_rows_to_report("hawkeye-g", &points, &mut report);
        assert_eq!(report.rows.len(), 2);
        add_rows_to_report("linux", &points[..1], &mut report);
        assert_eq!(report.rows.len(), 2, "no row without a later point");
        let note = &report.notes[0];
        assert!(note.contains("fewer than 192"), "{note}");
    }
}
