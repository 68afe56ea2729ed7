//! The tables and figures with the measured values, as data.
//!
//! One file for each kind of workload:
//!
//! - `extremes`: the walkers' best and worst cases, and many processes. Read it first.
//! - `microbenchmarks`: matrix transposition and Tlbcover.
//! - `spec_programs`: models of vortex and mcf.
//! - `hashed_page_table_fill`: an ablation that the thesis does not have.
//! - `policies`: the systems that the thesis classifies.
//!
//! Each table is a [`ThesisTable`] constant in the list [`TABLES`]. The functions below make rows.

mod extremes;
mod hashed_page_table_fill;
mod microbenchmarks;
mod policies;
mod spec_programs;

use super::{TableLayout, ThesisKernel, ThesisMeasure, ThesisTable, ThesisValue};
use crate::simulated::paper::PublishedValue;
use hawkeye_itanium::workloads::ThesisWorkload;

const NONE: ThesisKernel = ThesisKernel::NONE;
const SF: ThesisKernel = ThesisKernel::SF;
const LF: ThesisKernel = ThesisKernel::LF;
const SF_LP: ThesisKernel = ThesisKernel::SF_LP;
const LF_LP: ThesisKernel = ThesisKernel::LF_LP;

/// All of them.
pub const TABLES: [ThesisTable; 15] = [
    extremes::SPARSE,
    extremes::LINEAR,
    extremes::CONTENTION,
    microbenchmarks::TRANSPOSE,
    microbenchmarks::COVERAGE,
    microbenchmarks::SPEED_UP,
    spec_programs::VORTEX,
    spec_programs::MISS_COST,
    spec_programs::VORTEX_PAGES,
    spec_programs::MCF,
    spec_programs::MCF_PAGES,
    hashed_page_table_fill::FILL,
    policies::POLICIES,
    policies::FRAGMENTED,
    policies::PUBLISHED,
];

fn thesis_values_of_kernels(
    of: &str,
    workload: ThesisWorkload,
    measure: ThesisMeasure,
    values: &[(ThesisKernel, Option<f64>)],
) -> Vec<ThesisValue> {
    let row = |(kernel, thesis): &(ThesisKernel, Option<f64>)| ThesisValue {
        of: of.to_owned(),
        workload,
        kernel: *kernel,
        measure,
        thesis: thesis.map(PublishedValue::Value),
    };
    values.iter().map(row).collect()
}

/// The same for a table's only workload, if every value was measured.
fn measured_values_of_kernels(
    workload: ThesisWorkload,
    measure: ThesisMeasure,
    values: &[(ThesisKernel, f64)],
) -> Vec<ThesisValue> {
    let values: Vec<_> = values.iter().map(|(k, v)| (*k, Some(*v))).collect();
    thesis_values_of_kernels("", workload, measure, &values)
}

/// Shares of a program's memory on pages of each order, under the short format with large pages.
fn page_order_shares(workload: ThesisWorkload, percent: &[(u8, f64)]) -> Vec<ThesisValue> {
    let share = |(order, percent): &(u8, f64)| {
        let measure = ThesisMeasure::SpacePercent(*order);
        measured_values_of_kernels(workload, measure, &[(ThesisKernel::SF_LP, *percent)])
    };
    percent.iter().flat_map(share).collect()
}
