//! Matrix transposition (section 6.2.1) and Tlbcover (section 6.2.2).

use super::ThesisMeasure::*;
use super::{TableLayout, ThesisKernel, ThesisTable, ThesisValue, thesis_values_of_kernels};
use hawkeye_itanium::address::BasePageSize;
use hawkeye_itanium::workloads::{ThesisWorkload, TlbcoverWorkload, TransposeWorkload};

/// Figure 6.4b, run 1 to 11.
const WALKER_PERCENT: [f64; 11] =
    [99.98, 99.98, 99.98, 99.96, 99.90, 99.85, 99.73, 99.58, 99.50, 99.30, 99.10];
/// Table 6.2, 4 KiB.
const SPEED_UP_4K: [f64; 11] = [1.00, 1.14, 1.38, 1.18, 1.12, 1.10, 1.11, 1.17, 1.24, 1.30, 1.45];
/// Table 6.2, 16 KiB.
const SPEED_UP_16K: [f64; 11] = [1.00, 1.17, 1.15, 1.12, 1.09, 1.09, 1.08, 1.08, 1.07, 1.07, 1.09];

fn rows_of_tlbcover_runs(
    row: impl Fn(&str, ThesisWorkload, usize) -> Vec<ThesisValue>,
) -> Vec<ThesisValue> {
    let run = |number: u32| {
        let tlbcover = TlbcoverWorkload::for_thesis_run(number);
        let name = match tlbcover.bytes >> 20 {
            0 => format!("{number}: {} KiB", tlbcover.bytes >> 10),
            mib => format!("{number}: {mib} MiB"),
        };
        row(&name, ThesisWorkload::Tlbcover(tlbcover), number as usize - 1)
    };
    (1..=11).flat_map(run).collect()
}

pub(super) const COVERAGE: ThesisTable = ThesisTable {
    name: "tlbcover-coverage",
    shows: "Tlbcover: misses that the short format's walker fills (figure 6.4b)",
    layout: TableLayout::Values,
    rows: || {
        rows_of_tlbcover_runs(|name, workload, run| {
            let thesis = WALKER_PERCENT.get(run).copied();
            thesis_values_of_kernels(name, workload, WalkerPercent, &[(ThesisKernel::SF, thesis)])
        })
    },
    notes: &[
        "A dash: no misses. The model has no start-up; the thesis counts its page faults, too. In both, more pages of the linear table leave the TLB before their next use as the table grows.",
    ],
};

pub(super) const SPEED_UP: ThesisTable = ThesisTable {
    name: "tlbcover",
    shows: "Tlbcover: speed-up of large pages, over the kernel with the same base page (table 6.2)",
    layout: TableLayout::Values,
    rows: || {
        rows_of_tlbcover_runs(|name, workload, run| {
            let over = |base, thesis: Option<f64>| {
                let kernel = ThesisKernel::SF.on_base_page(base);
                let measure = SpeedUpOver(kernel);
                let values = [(kernel.with_large_pages(), thesis)];
                thesis_values_of_kernels(name, workload, measure, &values)
            };
            [
                over(BasePageSize::Kib4, SPEED_UP_4K.get(run).copied()),
                over(BasePageSize::Kib16, SPEED_UP_16K.get(run).copied()),
                over(BasePageSize::Kib64, None),
            ]
            .concat()
        })
    },
    notes: &[
        "Chosen: 200 cycles between references, for the times of run 11 on 16 KiB pages (114 and 104 s); 512 KiB for run 1.",
        "On 4 KiB pages, more and more misses are nested: 512 MiB need 256 pages of the linear table, twice as many as the TLB has entries. Runs 2 to 4 of the thesis show effects of caches or of the location of memory, which the model does not have.",
        "64 KiB (figure 6.7; its values are lost): \"no further benefits\".",
    ],
};

pub(super) const TRANSPOSE: ThesisTable = ThesisTable {
    name: "transpose",
    shows: "matrices, read by rows and written by columns (table 6.1)",
    layout: TableLayout::Values,
    rows: || {
        let workload = ThesisWorkload::Transpose(TransposeWorkload { step: 128, pairs: 11 });
        let all = |values: [f64; 5]| {
            let kernels = ThesisKernel::COMPARED;
            let values = values.map(Some);
            kernels.into_iter().zip(values).collect::<Vec<_>>()
        };
        let hits = all([78.0, 72.0, 72.0, 100.0, 100.0]);
        let walker = all([0.0, 99.73, 99.93, 56.1, 19.71]);
        [
            thesis_values_of_kernels("", workload, HitPercent, &hits),
            thesis_values_of_kernels("", workload, WalkerPercent, &walker),
        ]
        .concat()
    },
    notes: &[
        "Chosen for 72 % of hits: elements of 8 bytes, and dimensions of 128 to 1,408 in steps of 128; the thesis has neither. Once a matrix exceeds the TLB, every write to a new row misses if a row is as long as a page, and half of all references are writes.",
        "Without a walker the thesis counts 78 %, because it includes the kernel's own references, all of which hit.",
        "With large pages only the first touches miss: a few thousand of 11 * 10^9 references in the thesis, hundreds here. The walker's part in these, in the thesis, comes from the start-up.",
    ],
};
