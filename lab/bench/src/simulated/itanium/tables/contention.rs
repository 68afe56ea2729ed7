//! Many processes (section 4.3.3).

use super::ThesisMeasure::*;
use super::{TableLayout, ThesisKernel, ThesisTable, ThesisValue, row};
use hawkeye_itanium::workloads::{ContentionWorkload, ThesisWorkload};

const PROCESSES: [u32; 6] = [8, 11, 12, 13, 16, 64];

fn rows() -> Vec<ThesisValue> {
    let of = |processes: u32| {
        let workload = ThesisWorkload::Contention(ContentionWorkload::of(processes));
        let name = format!("{processes} processes");
        let kernels = [(ThesisKernel::SF, None), (ThesisKernel::LF, None)];
        [
            row(&name, workload, MissPercent, &kernels),
            row(&name, workload, WalkerPercent, &kernels),
        ]
        .concat()
    };
    PROCESSES.into_iter().flat_map(of).collect()
}

pub(super) const CONTENTION: ThesisTable = ThesisTable {
    name: "contention",
    shows: "processes that access ten pages each, in turn (figure 4.5; its values are lost)",
    layout: TableLayout::Values,
    rows,
    notes: &[
        "The text says, and the model shows: the long format leaves more TLB entries to programs, so its misses begin with more processes, and its walker fills all of them. The text says, and the model does not show: beyond that, too, far fewer of its references miss. Here all pages miss by then, once in each turn, because LRU keeps none from the turn before. The model has no caches, so it does not show the short format's knee at 64 processes either, which the thesis attributes to page tables in the L1 cache.",
        "Chosen: ten rounds over the pages in each turn. This sets the share of misses, not where they begin.",
    ],
};
