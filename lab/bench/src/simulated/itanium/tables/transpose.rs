//! Matrix transposition (section 6.2.1).

use super::ThesisMeasure::*;
use super::{TableLayout, ThesisKernel, ThesisTable, row};
use hawkeye_itanium::workloads::{ThesisWorkload, TransposeWorkload};

pub(super) const TRANSPOSE: ThesisTable = ThesisTable {
    name: "transpose",
    shows: "matrices, read by rows and written by columns (table 6.1)",
    layout: TableLayout::Values,
    rows: || {
        let workload = ThesisWorkload::Transpose(TransposeWorkload {
            step: 128,
            pairs: 11,
        });
        let all = |values: [f64; 5]| {
            let kernels = ThesisKernel::COMPARED;
            let values = values.map(Some);
            kernels.into_iter().zip(values).collect::<Vec<_>>()
        };
        let hits = all([78.0, 72.0, 72.0, 100.0, 100.0]);
        let walker = all([0.0, 99.73, 99.93, 56.1, 19.71]);
        [
            row("", workload, HitPercent, &hits),
            row("", workload, WalkerPercent, &walker),
        ]
        .concat()
    },
    notes: &[
        "Chosen for 72 % of hits: elements of 8 bytes, and dimensions of 128 to 1,408 in steps of 128; the thesis has neither. Once a matrix exceeds the TLB, every write to a new row misses if a row is as long as a page, and half of all references are writes.",
        "Without a walker the thesis counts 78 %, because it includes the kernel's own references, all of which hit.",
        "With large pages only the first touches miss: a few thousand of 11 * 10^9 references in the thesis, hundreds here. The walker's part in these, in the thesis, comes from the start-up.",
    ],
};
