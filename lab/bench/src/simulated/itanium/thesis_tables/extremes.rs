//! The walkers' best and worst cases, and many processes (section 4.3).

use super::ThesisMeasure::*;
use super::{TableLayout, ThesisKernel, ThesisTable, ThesisValue, thesis_values_of_kernels};
use hawkeye_itanium::workloads::{
    LinearWorkload, SparseWorkload, ThesisWorkload, TlbContentionWorkload,
};

pub(super) const SPARSE: ThesisTable = ThesisTable {
    name: "sparse",
    shows: "512 pages, one every 32 MiB, accessed three times (figure 4.1), and until only misses count",
    layout: TableLayout::Values,
    rows: || {
        let thesis = ThesisWorkload::Sparse(SparseWorkload::THESIS);
        let aliased =
            ThesisWorkload::Sparse(SparseWorkload { perturbed: false, ..SparseWorkload::THESIS });
        let long =
            ThesisWorkload::Sparse(SparseWorkload { loops: 10_000, ..SparseWorkload::THESIS });
        let (sf, lf) = (ThesisKernel::SF, ThesisKernel::LF);
        let walker = [(sf, Some(0.0)), (lf, Some(1024.0))];
        let cycles = [(sf, Some(129.5)), (lf, Some(82.0))];
        [
            thesis_values_of_kernels("3 loops", thesis, Walker, &walker),
            thesis_values_of_kernels("3 loops", thesis, Nested, &[(sf, None)]),
            thesis_values_of_kernels("not perturbed", aliased, Walker, &[(lf, None)]),
            thesis_values_of_kernels("10,000 loops", long, CyclesPerReference, &cycles),
        ]
        .concat()
    },
    notes: &[
        "Nested faults: one for each of three passes, and one more after each of 512 page faults, because the access is repeated.",
        "10,000 loops: the thesis has 4.42 and 2.80 s for 100,000 loops of 512 references at 1.5 GHz. These include the cache misses of the program and of the walker. The model has translation alone, and its walker finds its entry in the cache; here each of 512 entries is in a cache line of its own.",
    ],
};

pub(super) const LINEAR: ThesisTable = ThesisTable {
    name: "linear",
    shows: "a GiB, page by page (table 4.2)",
    layout: TableLayout::Values,
    rows: || {
        let linear = ThesisWorkload::Linear(LinearWorkload::THESIS);
        let (sf, lf) = (ThesisKernel::SF, ThesisKernel::LF);
        let misses = [(sf, Some(65_619.0)), (lf, Some(65_619.0))];
        let walker = [(sf, Some(65_570.0)), (lf, Some(19.0))];
        let others = [ThesisKernel::NONE, ThesisKernel::SF_LP, ThesisKernel::LF_LP]
            .map(|kernel| (kernel, None));
        [
            thesis_values_of_kernels("", linear, Misses, &misses),
            thesis_values_of_kernels("", linear, Walker, &walker),
            thesis_values_of_kernels("", linear, Nested, &[(sf, Some(32.0))]),
            thesis_values_of_kernels("", linear, Misses, &others),
        ]
        .concat()
    },
    notes: &[
        "The thesis' counts include the program's start: it expects 65,536 misses. The 32 nested faults are from its text.",
        "Chosen: the GiB begins where a page of the linear table begins. Otherwise there are 33 nested faults.",
    ],
};

const PROCESSES: [u32; 6] = [8, 11, 12, 13, 16, 64];

fn contention_rows() -> Vec<ThesisValue> {
    let of = |processes: u32| {
        let workload = ThesisWorkload::Contention(TlbContentionWorkload::with_processes(processes));
        let name = format!("{processes} processes");
        let kernels = [(ThesisKernel::SF, None), (ThesisKernel::LF, None)];
        [
            thesis_values_of_kernels(&name, workload, MissPercent, &kernels),
            thesis_values_of_kernels(&name, workload, WalkerPercent, &kernels),
        ]
        .concat()
    };
    PROCESSES.into_iter().flat_map(of).collect()
}

pub(super) const CONTENTION: ThesisTable = ThesisTable {
    name: "contention",
    shows: "processes that access ten pages each, in turn (figure 4.5; its values are lost)",
    layout: TableLayout::Values,
    rows: contention_rows,
    notes: &[
        "The text says, and the model shows: the long format leaves more TLB entries to programs, so its misses begin with more processes, and its walker fills all of them. The text says, and the model does not show: beyond that, too, far fewer of its references miss. Here all pages miss by then, once in each turn, because LRU keeps none from the turn before. The model has no caches, so it does not show the short format's knee at 64 processes either, which the thesis attributes to page tables in the L1 cache.",
        "Chosen: ten rounds over the pages in each turn. This sets the share of misses, not where they begin.",
    ],
};
