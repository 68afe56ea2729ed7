//! The tables and figures with the measured values.

mod contention;
mod extremes;
mod fill;
mod mcf;
mod policies;
mod tlbcover;
mod transpose;
mod vortex;

use super::{Kernel, Layout, Measure, Row, Table};
use crate::simulated::paper::Published;
use hawkeye_itanium::workloads::Workload;

const NONE: Kernel = Kernel::NONE;
const SF: Kernel = Kernel::SF;
const LF: Kernel = Kernel::LF;
const SF_LP: Kernel = Kernel::SF_LP;
const LF_LP: Kernel = Kernel::LF_LP;

/// All of them.
pub const TABLES: [Table; 15] = [
    extremes::SPARSE,
    extremes::LINEAR,
    contention::CONTENTION,
    transpose::TRANSPOSE,
    tlbcover::COVERAGE,
    tlbcover::SPEED_UP,
    vortex::VORTEX,
    vortex::MISS_COST,
    vortex::PAGES,
    mcf::MCF,
    mcf::PAGES,
    fill::FILL,
    policies::POLICIES,
    policies::FRAGMENTED,
    policies::PUBLISHED,
];

/// Rows: one measure of one workload, for some kernels.
fn row(
    of: &str,
    workload: Workload,
    measure: Measure,
    values: &[(Kernel, Option<f64>)],
) -> Vec<Row> {
    let row = |(kernel, thesis): &(Kernel, Option<f64>)| Row {
        of: of.to_owned(),
        workload,
        kernel: *kernel,
        measure,
        thesis: thesis.map(Published::Value),
    };
    values.iter().map(row).collect()
}

/// The same for a table's only workload, if every value was measured.
fn measured(workload: Workload, measure: Measure, values: &[(Kernel, f64)]) -> Vec<Row> {
    let values: Vec<_> = values.iter().map(|(k, v)| (*k, Some(*v))).collect();
    row("", workload, measure, &values)
}

/// Shares of a program's memory on pages of each order, under the short format with large pages.
fn page_orders(workload: Workload, percent: &[(u8, f64)]) -> Vec<Row> {
    let share = |(order, percent): &(u8, f64)| {
        let measure = Measure::SpacePercent(*order);
        measured(workload, measure, &[(Kernel::SF_LP, *percent)])
    };
    percent.iter().flat_map(share).collect()
}
