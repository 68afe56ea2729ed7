//! The tables and figures with the published values, as data.
//!
//! One file for each subject:
//!
//! - `translation`: the cost of translation, and how soon promotion removes it. Read it first.
//! - `first_touches`: the cost of page faults. `bloat`: memory of Redis.
//! - `machines`: several programs, virtual machines, and a neighbour of the zeroing thread.
//! - `shared_memory`: a file that several processes read, beside our live experiment.
//! - `recovery_orders`: which huge pages are split first, beside EMD.
//! - `ingens_paper`: the tables of the Ingens paper.
//!
//! Each table is a [`PaperTable`] constant in the list [`TABLES`]. Its `notes` name every parameter
//! that was chosen for some of its values. The functions below make rows of a table.

mod bloat;
mod first_touches;
mod ingens_paper;
mod machines;
mod recovery_orders;
mod shared_memory;
mod translation;

use super::{PaperMeasure, PaperTable, PaperValue, PublishedValue};
use crate::experiment_name::ExperimentName;
use hawkeye_policy::RatePerSecond;
use hawkeye_sim::simulate::SimulationSetup;

/// All of them.
pub const TABLES: &[PaperTable] = &[
    translation::NPB_SPEEDUP,
    translation::FAIRNESS,
    translation::MIXED_SENSITIVITY,
    translation::FRAGMENTED_SPEEDUP,
    translation::TIME_TO_LOW_OVERHEAD,
    translation::HUGE_PAGE_SHARES,
    first_touches::FIRST_TOUCH_COSTS,
    first_touches::FIRST_TOUCH_PROGRAMS,
    bloat::REDIS_REFILL,
    bloat::REDIS_BLOAT,
    recovery_orders::RECOVERY_ORDERS,
    shared_memory::SHARED_READERS,
    ingens_paper::VIRTUAL_SPEEDUP,
    ingens_paper::ASYNC_PROMOTION,
    ingens_paper::REDIS_MONGODB_MEMORY,
    ingens_paper::FREEBSD_SPEEDUP,
    machines::NPB_VIRTUAL_SPEEDUP,
    machines::START_ORDER,
    machines::HAWKEYE_IN_HOST,
    machines::HAWKEYE_IN_GUEST,
    machines::HAWKEYE_IN_HOST_AND_GUEST,
    machines::ZEROING_NEIGHBOUR,
    machines::ZEROING_NEIGHBOUR_NON_TEMPORAL,
    machines::OVERCOMMITTED_GUESTS,
];

/// A row: one measure of one program, for some systems.
fn paper_values_of_systems(
    workload: &'static str,
    program: &'static str,
    measure: PaperMeasure,
    values: impl IntoIterator<Item = (&'static str, f64)>,
) -> Vec<PaperValue> {
    let figure = |(system, paper)| PaperValue {
        workload,
        program,
        system,
        measure,
        paper: PublishedValue::Value(paper),
    };
    values.into_iter().map(figure).collect()
}

/// A row of times or rates for some systems, and the speed-ups of the others over the first.
fn values_and_speed_ups<const N: usize>(
    workload: &'static str,
    program: &'static str,
    measure: PaperMeasure,
    systems: [&'static str; N],
    values: [f64; N],
) -> Vec<PaperValue> {
    let all = || systems.into_iter().zip(values);
    let speed_up = |(system, value): (&'static str, f64)| match measure {
        PaperMeasure::Seconds => (system, values[0] / value),
        _ => (system, value / values[0]),
    };
    let faster = all().skip(1).map(speed_up);
    let mut rows = paper_values_of_systems(workload, program, measure, all());
    rows.extend(paper_values_of_systems(workload, program, PaperMeasure::SpeedUp, faster));
    rows
}

fn as_lower_bounds(figures: Vec<PaperValue>) -> Vec<PaperValue> {
    let bounded = |figure: PaperValue| PaperValue {
        paper: match figure.paper {
            PublishedValue::Value(value) => PublishedValue::AtLeast(value),
            bound => bound,
        },
        ..figure
    };
    figures.into_iter().map(bounded).collect()
}

/// The paper's machine; every system promotes this many regions per second.
fn setup_at_promotion_rate(regions_per_s: f64) -> SimulationSetup {
    SimulationSetup { rate: RatePerSecond::new(regions_per_s).ok(), ..SimulationSetup::default() }
}

/// The same machine, with file pages scattered over its memory.
fn fragmented_setup_at_rate(regions_per_s: f64) -> SimulationSetup {
    SimulationSetup { fragmented: 1.0, ..setup_at_promotion_rate(regions_per_s) }
}
