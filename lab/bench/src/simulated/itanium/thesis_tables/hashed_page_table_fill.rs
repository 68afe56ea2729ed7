//! An ablation that the thesis does not have: what the kernel enters of a large page into the hash
//! table (section 5.4.1).

use super::ThesisMeasure::*;
use super::{TableLayout, ThesisKernel, ThesisTable, ThesisValue, thesis_values_of_kernels};
use hawkeye_itanium::mmu::LargePageHashFill;
use hawkeye_itanium::workloads::{ThesisWorkload, TlbcoverWorkload, VortexWorkload};

fn hash_fill_rule_rows() -> Vec<ThesisValue> {
    let fills = [
        LargePageHashFill::First,
        LargePageHashFill::Missed,
        LargePageHashFill::All,
        LargePageHashFill::BaseOnly,
    ];
    let kernels: Vec<_> = std::iter::once(ThesisKernel::SF_LP)
        .chain(fills.map(|fill| ThesisKernel::LF_LP.with_hash_fill_rule(fill)))
        .map(|kernel| (kernel, None))
        .collect();
    let vortex = ThesisWorkload::Vortex(VortexWorkload::THESIS);
    let churning = ThesisWorkload::Vortex(VortexWorkload {
        reallocated_per_million: 1000.0,
        ..VortexWorkload::THESIS
    });
    let tlbcover = ThesisWorkload::Tlbcover(TlbcoverWorkload::for_thesis_run(11));
    let over = SpeedUpOver(ThesisKernel::SF);
    [
        thesis_values_of_kernels("vortex", vortex, WalkerPercent, &kernels),
        thesis_values_of_kernels("vortex", vortex, CyclesPerMiss, &kernels),
        thesis_values_of_kernels("vortex", vortex, CyclesPerFurtherMiss, &kernels),
        thesis_values_of_kernels("vortex", vortex, over, &kernels),
        thesis_values_of_kernels("churning", churning, WalkerPercent, &kernels),
        thesis_values_of_kernels("churning", churning, over, &kernels),
        thesis_values_of_kernels("Tlbcover 11", tlbcover, over, &kernels),
    ]
    .concat()
}

pub(super) const FILL: ThesisTable = ThesisTable {
    name: "fill",
    shows: "entries of a large page that the kernel adds to the hash table: its first base page (as in the thesis), the missed one, all, or none",
    layout: TableLayout::Values,
    rows: hash_fill_rule_rows,
    notes: &[
        "Churning: 250 times as many blocks are freed and allocated as in the thesis' vortex. Large pages then also save page faults.",
        "The thesis rejects adding all entries because of cache pollution, collisions and slower faults. It does not consider adding the missed entry. With either, the walker fills nearly every miss, and large pages cost almost nothing even on its slowest program. The verdict on the long format depends on that choice. Each further entry costs 3.5 cycles here; the model has no caches to pollute.",
    ],
};
