//! Models of SPEC programs: vortex, slowest with large pages (section 6.3), and mcf, fastest
//! (section 6.3.5).

use super::ThesisMeasure::*;
use super::{
    LF, LF_LP, NONE, SF, SF_LP, TableLayout, ThesisTable, measured_values_of_kernels,
    page_order_shares, thesis_values_of_kernels,
};
use hawkeye_itanium::workloads::{McfWorkload, ThesisWorkload, VortexWorkload};

const VORTEX_WORKLOAD: ThesisWorkload = ThesisWorkload::Vortex(VortexWorkload::THESIS);

pub(super) const VORTEX: ThesisTable = ThesisTable {
    name: "vortex",
    shows: "a model of vortex: scattered small blocks (table 6.5, figures 4.6b, 6.8b and 6.13)",
    layout: TableLayout::Values,
    rows: || {
        let row =
            |measure, values: &[_]| measured_values_of_kernels(VORTEX_WORKLOAD, measure, values);
        [
            row(HitPercent, &[(SF, 99.65), (SF_LP, 99.75), (LF_LP, 99.75)]),
            row(WalkerPercent, &[(SF, 99.53), (SF_LP, 34.95), (LF_LP, 34.88)]),
            row(CyclesBetween, &[(SF, 622.0), (SF_LP, 922.0)]),
            row(Effectiveness, &[(SF, 0.97), (SF_LP, 0.9375)]),
            row(SpeedUpOver(NONE), &[(SF, 1.184), (LF, 1.168)]),
            row(SpeedUpOver(SF), &[(SF_LP, 0.966)]),
            row(SpeedUpOver(LF), &[(LF_LP, 0.960)]),
        ]
        .concat()
    },
    notes: &[
        "Chosen for table 6.6: lengths of blocks. Chosen for the cost of a miss and the walker's share with SF+LP: the program's own data (640 KiB) and how often it is accessed (20 %).",
        "Large pages reduce misses by a third here, and a miss costs three times as much: this is the loss.",
        "LF+LP: the thesis adds the first base page of a large page, and says that the walker filled 34.88 %, as with SF+LP. On pages of 64 KiB alone the walker would have found one miss in four, so more than that in all. Compare `fill`: a kernel that adds no large page at all comes nearest. The thesis attributes this to mappings that come and go, but its 8,802 page faults (table 6.6) are one for about 25,000 misses.",
    ],
};

pub(super) const MISS_COST: ThesisTable = ThesisTable {
    name: "miss-cost",
    shows: "cost of a miss on vortex, measured by pinning TLB entries (table 6.3)",
    layout: TableLayout::Values,
    rows: || {
        let further = [(SF, 19.23), (SF_LP, 61.47), (LF_LP, 80.27)];
        let counted = further.map(|(kernel, _)| (kernel, None));
        [
            measured_values_of_kernels(VORTEX_WORKLOAD, CyclesPerFurtherMiss, &further),
            thesis_values_of_kernels("", VORTEX_WORKLOAD, CyclesPerMiss, &counted),
        ]
        .concat()
    },
    notes: &[
        "Pinning measures the cost of one additional miss. This is the average cost of a miss only if additional misses are on pages of the same kinds. With large pages they are more often on large ones, because most base pages miss already.",
        "The unit costs are solved from these same figures on that assumption, so the table tests the mixture of misses. Chosen: as for `vortex`.",
    ],
};

pub(super) const VORTEX_PAGES: ThesisTable = ThesisTable {
    name: "vortex-pages",
    shows: "vortex: page sizes that it got (table 6.6)",
    layout: TableLayout::Values,
    rows: || page_order_shares(VORTEX_WORKLOAD, &[(0, 17.53), (2, 48.56), (4, 31.38), (6, 2.53)]),
    notes: &["Chosen: lengths of blocks, for this table. None is long enough for order 6."],
};

const MCF_WORKLOAD: ThesisWorkload = ThesisWorkload::Mcf(McfWorkload::THESIS);

pub(super) const MCF: ThesisTable = ThesisTable {
    name: "mcf",
    shows: "a model of mcf: large arrays from end to end (tables 6.7 and 6.8, figures 4.6b and 6.8b)",
    layout: TableLayout::Values,
    rows: || {
        let row = |measure, values: &[_]| measured_values_of_kernels(MCF_WORKLOAD, measure, values);
        [
            row(HitPercent, &[(SF, 97.21), (SF_LP, 100.0), (LF_LP, 100.0)]),
            row(WalkerPercent, &[(SF, 93.42), (SF_LP, 0.22), (LF_LP, 0.09)]),
            row(CyclesBetween, &[(SF, 218.0), (SF_LP, 383_171.0)]),
            row(SpeedUpOver(NONE), &[(SF, 1.453), (LF, 1.453)]),
            row(SpeedUpOver(SF), &[(SF_LP, 1.125)]),
            row(SpeedUpOver(LF), &[(LF_LP, 1.125)]),
        ]
        .concat()
    },
    notes: &[
        "Chosen for table 6.9: how memory is divided among arrays and small blocks. Chosen for the misses that remain with large pages: how often a small block is accessed.",
        "1.125 is from run times; the thesis' own cycles (table 6.7) give 1.082. In the thesis the walker fills 93 % of the misses; here it fills all except nested faults. Of the few misses with large pages it fills hardly any in the thesis. The thesis explains neither.",
    ],
};

pub(super) const MCF_PAGES: ThesisTable = ThesisTable {
    name: "mcf-pages",
    shows: "mcf: page sizes that it got (table 6.9)",
    layout: TableLayout::Values,
    rows: || {
        page_order_shares(
            MCF_WORKLOAD,
            &[(0, 20.20), (2, 15.11), (4, 5.65), (6, 9.17), (8, 15.99), (10, 33.87)],
        )
    },
    notes: &["Chosen: lengths of arrays and blocks, for this table."],
};
