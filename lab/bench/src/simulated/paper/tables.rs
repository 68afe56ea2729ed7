//! The tables and figures with the published values.

mod faults;
mod ingens;
mod machines;
mod memory;
mod translation;

use super::{Figure, Measure, Published, Table};
use hawkeye_policy::Rate;
use hawkeye_sim::simulate::Setup;

/// All of them.
pub const TABLES: &[Table] = &[
    translation::TABLE_3,
    translation::TABLE_5,
    translation::TABLE_9,
    translation::FIGURE_5,
    translation::FIGURE_6,
    translation::FIGURE_7,
    faults::TABLE_1,
    faults::TABLE_8,
    memory::FIGURE_1,
    memory::TABLE_7,
    ingens::TABLE_3,
    ingens::TABLE_4,
    ingens::TABLE_5,
    ingens::TABLE_6,
    machines::TABLE_3,
    machines::FIGURE_8,
    machines::FIGURE_9_HOST,
    machines::FIGURE_9_GUEST,
    machines::FIGURE_9_BOTH,
    machines::FIGURE_10,
    machines::FIGURE_10_NON_TEMPORAL,
    machines::FIGURE_11,
];

/// A row: one measure of one program, for some systems.
fn row(
    workload: &'static str,
    program: &'static str,
    measure: Measure,
    values: &[(&'static str, f64)],
) -> Vec<Figure> {
    let figure = |(system, paper): &(&'static str, f64)| Figure {
        workload,
        program,
        system,
        measure,
        paper: Published::Value(*paper),
    };
    values.iter().map(figure).collect()
}

/// Values by system; both lists have the same order.
fn of_systems<const N: usize>(
    systems: [&'static str; N],
    values: [f64; N],
) -> Vec<(&'static str, f64)> {
    systems.into_iter().zip(values).collect()
}

/// A row of times or rates for some systems, and the speed-ups of the others over the first.
fn row_and_speed_ups(
    workload: &'static str,
    program: &'static str,
    measure: Measure,
    values: &[(&'static str, f64)],
) -> Vec<Figure> {
    let mut rows = row(workload, program, measure, values);
    if let [(_, base), others @ ..] = values {
        let speed_up = |(system, value): &(&'static str, f64)| match measure {
            Measure::Seconds => (*system, base / value),
            _ => (*system, value / base),
        };
        let faster: Vec<_> = others.iter().map(speed_up).collect();
        rows.extend(row(workload, program, Measure::SpeedUp, &faster));
    }
    rows
}

/// The same figures as lower bounds.
fn at_least(figures: Vec<Figure>) -> Vec<Figure> {
    let bounded = |figure: Figure| Figure {
        paper: match figure.paper {
            Published::Value(value) => Published::AtLeast(value),
            bound => bound,
        },
        ..figure
    };
    figures.into_iter().map(bounded).collect()
}

/// The paper's machine; every system promotes this many regions per second.
fn paced(regions_per_s: f64) -> Setup {
    Setup {
        rate: Rate::per_second(regions_per_s).ok(),
        ..Setup::default()
    }
}

/// The same machine, with file pages scattered over its memory.
fn fragmented(regions_per_s: f64) -> Setup {
    Setup {
        fragmented: 1.0,
        ..paced(regions_per_s)
    }
}
