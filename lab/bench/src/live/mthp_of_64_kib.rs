//! Pages of 64 KiB beside base pages and huge pages, for a program that randomly uses allocations
//! of 128 KiB: measured and predicted.

use super::prelude::*;
use super::programs::start_reader_workload;
use crate::calibrate;
use crate::simulated::block_layout::{BlockLayout, simulate_block_reads};
use hawkeye_linux::arch::tlb_page_sizes_of_this_machine;
use hawkeye_linux::page_sizes::{
    available_mthp_sizes, page_size_enabled_file, read_mapped_page_sizes,
};
use hawkeye_linux::probe::mthp_sizes::FirstTouchCosts;
use hawkeye_linux::processes::process;
use hawkeye_policy::{PageOrder, PageOrderSet};
use hawkeye_sim::mmu::HugePageGain;

/// Page sizes that faults may use: their name and their orders.
const WAYS: [(&str, PageOrderSet); 3] = [
    ("4 KiB", PageOrderSet::NONE),
    ("64 KiB", PageOrderSet::NONE.with(PageOrder::CONTIGUOUS)),
    ("2 MiB", PageOrderSet::HUGE),
];

struct AllocationCase {
    name: &'static str,
    words: &'static str,
    apart: bool,
    /// Share of the blocks that the program unmaps once all are filled.
    free_percent: u64,
}

const CASES: [AllocationCase; 2] = [
    AllocationCase { name: "one mapping", words: "--fill-late", apart: false, free_percent: 0 },
    AllocationCase {
        name: "mappings apart",
        words: "--guards --free-percent 20",
        apart: true,
        free_percent: 20,
    },
];

/// The mapping of glibc's malloc for 128 KiB.
const BLOCK_PAGES: u64 = 33;
/// Pages of a block that the program fills and uses: three quarters.
const USED_PAGES: u64 = 25;
/// Instructions for each read, counted in the loop of the optimised build.
const INSTRUCTIONS: u32 = 35;
/// One access finds the block's address, the other reads the block.
const ACCESSES_PER_READ: f64 = 2.0;
const ACCESSES: u64 = 4_000_000;
/// A program that uses one page of each block, too few for caches or translation to slow it down.
const SMALL_MIB: u64 = 4;
const SMALL_BLOCKS: f64 = 31.0;
const TURN: Duration = Duration::from_millis(350);

#[derive(Clone, Copy, Default)]
struct PageSizeFigures {
    fill_s: f64,
    rss_bytes: f64,
    faults: f64,
    /// Share of its memory under pages of this size, in per cent.
    share_percent: f64,
    ns: f64,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let (mib, rounds, turns) = scale.short_or_long((256, 1, 1), (2048, 9, 4));
    let thp = Path::new(THP_DIR);
    if !available_mthp_sizes(thp).contains(PageOrder::CONTIGUOUS) {
        bail!("this kernel has no pages of 64 KiB: Linux 6.8 or later is needed");
    }
    require_available_memory(4 * (mib << 20))?;
    host.touch_free_memory_if_full_scale(scale)?;
    let here = calibrate::measure_processor_once()?;
    let costs = host.measure_first_touch_costs()?;
    for case in &CASES {
        let layout = BlockLayout {
            blocks: (mib << 20) / (BLOCK_PAGES * BASE_PAGE_BYTES),
            block_pages: BLOCK_PAGES,
            used_pages: USED_PAGES,
            apart: case.apart,
        };
        let (live, own_ns) = measure_page_sizes(host, case, mib, rounds, turns)?;
        let left =
            BlockLayout { blocks: layout.blocks * (100 - case.free_percent) / 100, ..layout };
        let truth = simulate_block_reads(&here, &left, INSTRUCTIONS, own_ns, ACCESSES)?;
        // Separate blocks give all of their memory back.
        let kept = left.blocks as f64 / layout.blocks as f64;
        let predicted = |sizes| predicted_figures(&layout, sizes, &truth, &costs, kept);
        let base_pages = (shown_figures(&live[0]), predicted(PageOrderSet::NONE));
        for ((name, sizes), seen) in WAYS.into_iter().zip(&live) {
            let is_base = sizes == PageOrderSet::NONE;
            let mut rows = report.prefixed_row_writer(format!("{}: {name}", case.name));
            let (now, model) = (shown_figures(seen), predicted(sizes));
            for (n, (what, factor, unit)) in SHOWN.into_iter().enumerate() {
                // Relative to base pages, from which both sides start.
                let (times, expected) = (now[n] / base_pages.0[n], model[n] / base_pages.1[n]);
                let beside = match is_base {
                    true => format!("predicted {}", rounded_text(model[n] * factor)),
                    false => format!(
                        "{times:.2} times that of 4 KiB, predicted {expected:.2}: {:+.1} %",
                        (expected / times - 1.0) * 100.0
                    ),
                };
                rows.add_row(what, now[n] * factor, unit, beside);
            }
            if !is_base {
                rows.add_row("memory under such pages", seen.share_percent, "%", "");
            }
        }
    }
    report.add_note("Goal: the predicted effect of a page size within 15 % of the measured one. Values beside 4 KiB are predicted from the program's own time alone, without other measurements of it.");
    report.add_note(format!(
        "{mib} MiB in blocks of {} KiB; the first {} KiB of each are filled and read at random. One mapping: as with glibc's malloc, all blocks are mapped before they are filled. Mappings apart: each block is filled when it is mapped, and 20 % are freed. Speed: median of {turns} turns of {} s by CPU time; filling: median of {rounds} programs. Here a fault takes {:.0} ns, zeroing a base page {:.0} ns and a first touch of a mapped page {:.0} ns.",
        BLOCK_PAGES * 4,
        USED_PAGES * 4,
        TURN.as_secs_f64(),
        costs.fault_ns,
        costs.zero_base_ns,
        costs.touch_ns,
    ));
    if tlb_page_sizes_of_this_machine().iter().any(|order| order <= PageOrder::CONTIGUOUS) {
        report.add_note("One TLB entry of this processor can hold up to 64 KiB; the predicted speed ignores this.");
    }
    Ok(())
}

const SHOWN: [(&str, f64, &str); 4] = [
    ("reads", 1.0, "M/s"),
    ("resident", 1.0 / (1 << 20) as f64, "MiB"),
    ("filling", 1e3, "ms"),
    ("faults", 1.0, ""),
];

fn shown_figures(seen: &PageSizeFigures) -> [f64; 4] {
    [1e3 / seen.ns, seen.rss_bytes, seen.fill_s, seen.faults]
}

/// The predicted figures when this share of the blocks is kept.
fn predicted_figures(
    layout: &BlockLayout,
    sizes: PageOrderSet,
    truth: &HugePageGain,
    costs: &FirstTouchCosts,
    kept: f64,
) -> [f64; 4] {
    let filled = layout.simulate_filling(sizes);
    let run = match filled.faults.contains_key(&PageOrder::HUGE) {
        true => &truth.huge,
        false => &truth.base,
    };
    [
        1e3 / (run.access_ns() * ACCESSES_PER_READ),
        filled.resident_bytes() * kept,
        filled.fill_seconds(layout.blocks * layout.used_pages, costs),
        filled.faults.values().sum(),
    ]
}

fn rounded_text(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Measures each size, and the time of a read that nothing slows down.
fn measure_page_sizes(
    host: &mut BenchHost,
    case: &AllocationCase,
    mib: u64,
    rounds: usize,
    turns: usize,
) -> BenchResult<([PageSizeFigures; 3], f64)> {
    let mut seen: [Vec<PageSizeFigures>; 3] = Default::default();
    let mut programs: Vec<Box<dyn MeasuredProgram>> = Vec::new();
    for round in 0..rounds {
        for ((_, sizes), seen) in WAYS.into_iter().zip(&mut seen) {
            set_fault_page_sizes(host, sizes)?;
            let words = format!(
                "blocks --mib {mib} --block-kib {} --used-kib {} {} --pages default --report-ms 100 --wait",
                BLOCK_PAGES * 4,
                USED_PAGES * 4,
                case.words
            );
            let (program, found) = start_and_read_figures(host, &words, sizes)?;
            seen.push(found);
            // Only the last ones are measured.
            if round + 1 == rounds {
                programs.push(program);
            }
        }
    }
    set_fault_page_sizes(host, PageOrderSet::NONE)?;
    let small = format!("blocks --mib {SMALL_MIB} --used-kib 4 --pages default");
    let small = start_reader_workload(host.workload_program_path(), &small)?;
    // Start-up faults of any program of ours: all faults except those of its blocks.
    let started = process::cpu_time_and_faults(small.pid())?.minor_faults as f64 - SMALL_BLOCKS;
    programs.push(small);
    let mut reads: [Vec<f64>; 4] = Default::default();
    // The first turn of each program only warms up caches.
    for number in 0..=turns {
        for (program, reads) in programs.iter_mut().zip(&mut reads) {
            let speed = measure_turn(program.as_mut(), TURN)?;
            if number > 0 {
                reads.push(1e9 / speed.per_cpu_s);
            }
        }
    }
    let [base, small, huge, own] = reads.map(|reads| median(&reads));
    let of = |seen: &[PageSizeFigures], ns: f64| {
        let of = |part: fn(&PageSizeFigures) -> f64| median_of_mapped(seen, part);
        PageSizeFigures {
            fill_s: of(|seen| seen.fill_s),
            rss_bytes: of(|seen| seen.rss_bytes),
            faults: of(|seen| seen.faults) - started,
            share_percent: of(|seen| seen.share_percent),
            ns,
        }
    };
    let [a, b, c] = &seen;
    Ok(([of(a, base), of(b, small), of(c, huge)], own))
}

fn set_fault_page_sizes(host: &mut BenchHost, sizes: PageOrderSet) -> BenchResult<()> {
    let or = |on: bool, otherwise| if on { "always" } else { otherwise };
    host.set_thp_enabled(or(sizes == PageOrderSet::HUGE, "madvise"))?;
    let thp = Path::new(THP_DIR);
    for order in available_mthp_sizes(thp).iter().filter(|order| *order < PageOrder::HUGE) {
        let on = sizes.contains(order);
        host.set_kernel_setting(&page_size_enabled_file(thp, order), or(on, "never"))?;
    }
    Ok(())
}

fn start_and_read_figures(
    host: &BenchHost,
    words: &str,
    sizes: PageOrderSet,
) -> BenchResult<(Box<dyn MeasuredProgram>, PageSizeFigures)> {
    let mut workload = host.start_workload(words)?;
    let pid = workload.wait_ready()?.pid;
    let fill_s = match workload.next_event(Duration::from_secs(1))? {
        WorkloadEvent::Touched { elapsed_s, .. } => elapsed_s,
        other => bail!("unexpected event of the workload: {other:?}"),
    };
    let rss_bytes = process::anonymous_rss_bytes(pid)? as f64;
    let pages = read_mapped_page_sizes(pid)?.pages;
    let bytes: u64 = pages
        .iter()
        .filter(|(order, _)| sizes.contains(**order))
        .map(|(order, pages)| order.bytes() * pages)
        .sum();
    let seen = PageSizeFigures {
        fill_s,
        rss_bytes,
        faults: process::cpu_time_and_faults(pid)?.minor_faults as f64,
        share_percent: bytes as f64 * 100.0 / rss_bytes.max(1.0),
        ns: 0.0,
    };
    Ok((super::programs::wrap_ready_workload(workload, pid), seen))
}
