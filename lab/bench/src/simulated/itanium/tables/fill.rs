//! An ablation that the thesis does not have: what the kernel enters of a large page into the hash
//! table (section 5.4.1).

use super::Measure::*;
use super::{Kernel, Layout, Row, Table, row};
use hawkeye_itanium::mmu::Fill;
use hawkeye_itanium::workloads::{Tlbcover, Vortex, Workload};

fn rows() -> Vec<Row> {
    let fills = [Fill::First, Fill::Missed, Fill::All, Fill::BaseOnly];
    let kernels: Vec<_> = std::iter::once(Kernel::SF_LP)
        .chain(fills.map(|fill| Kernel::LF_LP.filling(fill)))
        .map(|kernel| (kernel, None))
        .collect();
    let vortex = Workload::Vortex(Vortex::THESIS);
    let churning = Workload::Vortex(Vortex {
        reallocated_per_million: 1000.0,
        ..Vortex::THESIS
    });
    let tlbcover = Workload::Tlbcover(Tlbcover::run(11));
    let over = SpeedUpOver(Kernel::SF);
    [
        row("vortex", vortex, WalkerPercent, &kernels),
        row("vortex", vortex, CyclesPerMiss, &kernels),
        row("vortex", vortex, CyclesPerFurtherMiss, &kernels),
        row("vortex", vortex, over, &kernels),
        row("churning", churning, WalkerPercent, &kernels),
        row("churning", churning, over, &kernels),
        row("Tlbcover 11", tlbcover, over, &kernels),
    ]
    .concat()
}

pub(super) const FILL: Table = Table {
    name: "fill",
    shows: "what the kernel enters of a large page into the hash table: its first base page's entry (as in the thesis), that which was missed, all, none",
    layout: Layout::Values,
    rows,
    notes: &[
        "Churning: 250 times as many blocks are freed and allocated as in the thesis' vortex. Large pages then save page faults, too.",
        "The thesis rejects entering all for cache pollution, collisions and slower faults, and does not consider the entry that was missed. Either has the walker fill nearly every miss, and \
         large pages cost next to nothing even on its slowest program; the verdict on the long format rests on that choice. A further entry costs 3.5 cycles here; there are no caches to pollute.",
    ],
};
