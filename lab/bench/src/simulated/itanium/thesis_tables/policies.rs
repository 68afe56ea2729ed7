//! The systems that the thesis classifies (section 2.4), side by side.

use super::ThesisMeasure::*;
use super::{
    TableLayout, ThesisKernel, ThesisMeasure, ThesisTable, ThesisValue, thesis_values_of_kernels,
};
use crate::simulated::itanium::thesis_system::{ThesisAdvice, ThesisSystem};
use hawkeye_itanium::PageSizeAdvice;
use hawkeye_itanium::workloads::{
    McfWorkload, SparseWorkload, ThesisWorkload, TlbcoverWorkload, VortexWorkload,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const MEASURES: [ThesisMeasure; 7] =
    [Misses, SpeedUp, SpeedUpFromStart, HeldMib, ReservedMib, CopiedMib, LargestKib];

const VORTEX: ThesisWorkload = ThesisWorkload::Vortex(VortexWorkload::THESIS);
const CHURNING: ThesisWorkload = ThesisWorkload::Vortex(VortexWorkload {
    reallocated_per_million: 1000.0,
    ..VortexWorkload::THESIS
});
const MCF: ThesisWorkload = ThesisWorkload::Mcf(McfWorkload::THESIS);
const TLBCOVER: ThesisWorkload = ThesisWorkload::Tlbcover(TlbcoverWorkload::for_thesis_run(8));

const fn page_size_advice(from_bytes: u64, page_bytes: u64, pages: u32) -> ThesisAdvice {
    ThesisAdvice { advice: PageSizeAdvice { from_bytes, page_bytes }, pages }
}

/// For all of vortex' blocks.
const BLOCKS: ThesisAdvice = page_size_advice(64 * KIB, 64 * KIB, 640);
/// For mcf's arrays and Tlbcover's table.
const ARRAYS: ThesisAdvice = page_size_advice(2 * MIB, 4 * MIB, 16);

fn rows_of_kernel(of: &str, workload: ThesisWorkload, kernel: ThesisKernel) -> Vec<ThesisValue> {
    let rows =
        MEASURES.map(|measure| thesis_values_of_kernels(of, workload, measure, &[(kernel, None)]));
    rows.concat()
}

/// Romer's miss-counting systems see all misses, because no walker fills any.
fn rows_of_all_systems(
    of: &str,
    workload: ThesisWorkload,
    told: ThesisAdvice,
    on: impl Fn(ThesisKernel) -> ThesisKernel,
) -> Vec<ThesisValue> {
    let counting = [
        ThesisSystem::approx_online("approx-online", 100),
        ThesisSystem::approx_online("approx-online 3 %", 3),
    ];
    let all = ThesisSystem::all_with_unchanged_walker(told).into_iter();
    let kernels = std::iter::once(ThesisKernel::SF)
        .chain(all.map(|system| ThesisKernel::SF.with_policy_system(system)))
        .chain(std::iter::once(ThesisKernel::NONE))
        .chain(counting.map(|system| ThesisKernel::NONE.with_policy_system(system)));
    kernels.flat_map(|kernel| rows_of_kernel(of, workload, on(kernel))).collect()
}

pub(super) const POLICIES: ThesisTable = ThesisTable {
    name: "policies",
    shows: "the systems that the thesis classifies, on its workloads: misses, speed-up over the same kernel without large pages, memory, copies, page sizes",
    layout: TableLayout::Kernels,
    rows: || {
        let same = |kernel| kernel;
        let sparse =
            ThesisWorkload::Sparse(SparseWorkload { loops: 100, ..SparseWorkload::THESIS });
        [
            rows_of_all_systems("vortex", VORTEX, BLOCKS, same),
            rows_of_all_systems("churning", CHURNING, BLOCKS, same),
            rows_of_all_systems("mcf", MCF, ARRAYS, same),
            rows_of_all_systems("Tlbcover 64 MiB", TLBCOVER, ARRAYS, same),
            rows_of_all_systems("sparse", sparse, ARRAYS, same),
        ]
        .concat()
    },
    notes: &[
        "Global, static and dynamic are the thesis' classes (section 2.4); its own rule is also that of Shimizu and Takatori.",
        "From start: includes first touches, and the copying and zeroing during them. Programs are otherwise measured from when they have filled their memory. They run for a second or less here; the longer they run, the nearer it is to \"speed-up\".",
        "Held: most memory that other programs could not use, including unused memory of a pool. Kept: most memory that was reserved and not used; other programs can take it.",
        "Systems that use advice on page sizes get 64 KiB for all of vortex' blocks, and 4 MiB for mappings of 2 MiB and more of the others. HP-UX gets it for whole programs.",
        "approx-online must see misses: there is no walker, and speed-ups are over the kernel without a walker.",
        "Talluri and Hill's processor has 16 pages for each entry of its TLB. \"half-referenced\" sees references, which no kernel sees.",
    ],
};

pub(super) const FRAGMENTED: ThesisTable = ThesisTable {
    name: "policies-fragmented",
    shows: "the same systems where another program holds a page of every 64 or 256 KiB",
    layout: TableLayout::Kernels,
    rows: || {
        let on = ThesisKernel::on_fragmented_machine;
        [
            rows_of_all_systems("churning, 64 KiB", CHURNING, BLOCKS, |kernel| on(kernel, 2)),
            rows_of_all_systems("mcf, 64 KiB", MCF, ARRAYS, |kernel| on(kernel, 2)),
            rows_of_all_systems("mcf, 256 KiB", MCF, ARRAYS, |kernel| on(kernel, 4)),
        ]
        .concat()
    },
    notes: &[
        "Chosen: 512 MiB of memory; 19 of 20 of those pages can be moved.",
        "Pools were set aside before. The thesis and others that use only free memory have base pages. The daemon of IRIX and Navarro makes room while memory is filled.",
    ],
};

pub(super) const PUBLISHED: ThesisTable = ThesisTable {
    name: "policies-published",
    shows: "the same systems beside values published for other machines (tables 6.10 to 6.12)",
    layout: TableLayout::Values,
    rows: || {
        let navarro_to =
            |name, order| ThesisKernel::SF.with_policy_system(ThesisSystem::navarro(name, order));
        let navarro = navarro_to("Navarro", None);
        let winwood = |advice| ThesisKernel::SF.with_policy_system(ThesisSystem::winwood(advice));
        let limits = [("to 64 KiB", 2), ("to 256 KiB", 4), ("to 1 MiB", 6), ("to 4 MiB", 8)];
        let limited = limits.map(|(name, order)| (navarro_to(name, Some(order)), None));
        let rents = [("rent 100 %", 100), ("rent 30 %", 30), ("rent 10 %", 10), ("rent 3 %", 3)];
        let rented = rents.map(|(name, percent)| {
            let system = ThesisSystem::approx_online(name, percent);
            (ThesisKernel::NONE.with_policy_system(system), None)
        });
        let over = SpeedUpOver(navarro);
        let longer = ThesisWorkload::Tlbcover(TlbcoverWorkload {
            accesses: 10_000_000,
            ..TlbcoverWorkload::for_thesis_run(8)
        });
        let both = |of, workload, navarro_gain, winwood_gain, advice| {
            let values = [(navarro, Some(navarro_gain)), (winwood(advice), Some(winwood_gain))];
            thesis_values_of_kernels(of, workload, SpeedUp, &values)
        };
        let over_sf = MissesOver(ThesisKernel::SF);
        [
            both("vortex", VORTEX, 1.125, 1.222, BLOCKS),
            both("mcf", MCF, 1.707, 1.094, ARRAYS),
            thesis_values_of_kernels("64 MiB", TLBCOVER, over_sf, &[(navarro, Some(0.0435))]),
            thesis_values_of_kernels("64 MiB", TLBCOVER, over, &limited),
            thesis_values_of_kernels("64 MiB longer", longer, SpeedUpFromStart, &rented),
        ]
        .concat()
    },
    notes: &[
        "vortex and mcf: SPEC, on FreeBSD on the first Itanium (table 6.10) and on Linux on x86 with 4 MiB pages (table 6.12). The thesis attributes Navarro's gains to a kernel and a compiler that made misses expensive.",
        "64 MiB: Tlbcover's table. Fhourstones' hash table has the same size, and Navarro reports 95.65 % fewer misses (table 6.11). The model measures from when the table is filled, so no misses remain.",
        "Page sizes up to a limit, over all page sizes: \"for one benchmark, Navarro found a slowdown of 47 %\" without the largest one (section 2.4.3). The text names neither the benchmark nor the size.",
        "Rent: the share of a page's price after which approx-online buys it, with ten times as many references and none before; 100 % is Romer's. Fang et al. found a low share better. Their programs and prices are not known here, so there is no published value.",
        "No comparable program can be run for HugeTLB's 5 % on orabm, a database. Nor for the working sets of Talluri et al. (1992: 60 % larger on 32 KiB pages, 10 % on two sizes): programs here fill all memory that they map.",
    ],
};
