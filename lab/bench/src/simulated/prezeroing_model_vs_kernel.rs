//! Free memory that is zeroed in advance: the simulator's free lists beside those of a kernel built
//! with this repository's patches. Both run the same sequence of allocations, frees and idle time.
//!
//! `kernel/test/programs/trace.c` runs the sequence on the kernel and prints its counters after
//! each step. Here each step runs on [`PhysicalMemory`] with as much free memory: idle time zeroes
//! pages at its rate, and nothing is fitted.

mod trace_recording;

use crate::error::{BenchError, BenchResult};
use crate::live::live_report::LiveReport;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use hawkeye_sim::memory::{AllocationReplay, FrameContent, HUGE_ORDER, PhysicalMemory};
use trace_recording::{StepKind, TraceRecording, TraceStep};

/// The release series of each recorded kernel, and what the program printed there.
pub const RECORDED: [(&str, &str); 1] =
    [("7.2", include_str!("../../testdata/prezeroing-7.2.txt"))];

/// Reasons for differences, from the kernel's patches and seen in the recordings.
const DIFFERENCES: [&str; 4] = [
    "The kernel zeroes no free block under 2 MiB. The model does, after all larger ones.",
    "If the kernel had nothing left to zero, it starts again 2 s after memory was freed (page reporting's delay). The model starts at once.",
    "Base pages: the kernel takes small blocks that are not zeroed before it splits a zeroed huge block, because clearing a page is better. Some pages also wait on per-CPU lists. The model, like the paper, prefers zeroed memory of any size. This explains the share after every other page was freed.",
    "In the kernel, a block that merges with one that is not zeroed loses its mark and is zeroed again. The model tracks each frame.",
];

#[derive(Clone, Copy, Debug, PartialEq)]
struct KernelAndModelPages {
    pages: u64,
    kernel: u64,
    model: u64,
}

impl KernelAndModelPages {
    fn percent_of_pages(self, of: u64) -> f64 {
        of as f64 * 100.0 / self.pages.max(1) as f64
    }

    fn add(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            kernel: self.kernel + other.kernel,
            model: self.model + other.model,
        }
    }
}

/// Replays a kernel's recording and compares. `text` is the output of `trace`.
pub fn compare_with_recording(text: &str) -> BenchResult<LiveReport> {
    let recording = TraceRecording::parse(text).map_err(BenchError::Impossible)?;
    let start = &recording.start;
    let mut model = model_with_free_memory(start.counted.free);
    let mut report = LiveReport::new("prezeroing");
    let (mut huge, mut base) = (Vec::new(), Vec::new());
    let mut before = start;
    for step in &recording.steps {
        let pages = step.allocated_pages();
        let counted = step.counted.since(&before.counted);
        before = step;
        let what = step.to_string();
        match step.kind {
            StepKind::Start => {}
            StepKind::Idle => {
                let most = step.rate * step.us / 1_000_000;
                let beside = KernelAndModelPages {
                    pages: most,
                    kernel: counted.zeroed,
                    model: model.zero_free_frames(most),
                };
                report.add_row(
                    format!("{what}: zeroed"),
                    beside.kernel as f64,
                    "pages",
                    format!("model {}; {most} by the rate", beside.model),
                );
            }
            StepKind::Huge | StepKind::Base => {
                let beside = KernelAndModelPages {
                    pages,
                    kernel: counted.served,
                    model: allocate_and_count_zeroed(&mut model, step, FrameContent::Zeroed),
                };
                add_percent_row(&mut report, format!("{what}: served zeroed"), beside);
                match step.kind {
                    StepKind::Huge => huge.push(beside),
                    _ => base.push(beside),
                }
            }
            StepKind::File | StepKind::Copy => {
                let beside = KernelAndModelPages {
                    pages,
                    kernel: counted.passed_over,
                    model: allocate_and_count_zeroed(&mut model, step, FrameContent::Dirty),
                };
                add_percent_row(&mut report, format!("{what}: took zeroed"), beside);
            }
            StepKind::Free => model.free_every_nth_page(&step.name, step.amount),
        }
    }
    for (pages, steps) in [("huge", huge), ("base", base)] {
        if let Some(sum) = steps.into_iter().reduce(KernelAndModelPages::add) {
            let what = format!("{pages} pages, all steps: served zeroed");
            add_percent_row(&mut report, what, sum);
        }
    }
    let all = before.counted.since(&start.counted);
    report.add_row(
        "zeroed pages that lost their mark",
        all.lost as f64 * 100.0 / all.zeroed.max(1) as f64,
        "%",
        "model 0: it tracks each frame",
    );
    for difference in DIFFERENCES {
        report.add_note(difference);
    }
    report.add_note(format!(
        "Linux {}, emulated; {:.0} MiB free at the start. The kernel's shares include the page tables that each step needed.",
        recording.kernel,
        (start.counted.free * BASE_PAGE_BYTES) as f64 / f64::from(1 << 20)
    ));
    Ok(report)
}

/// A model with as much free memory, none of it zeroed.
fn model_with_free_memory(free: u64) -> AllocationReplay {
    let region = u64::from(PAGES_PER_REGION);
    let regions = free.div_ceil(region);
    let mut model = AllocationReplay::new(PhysicalMemory::new(regions * region * BASE_PAGE_BYTES));
    model.allocate_all_but(free);
    model
}

/// Returns the zeroed pages among those that the step got.
fn allocate_and_count_zeroed(
    model: &mut AllocationReplay,
    step: &TraceStep,
    prefer: FrameContent,
) -> u64 {
    let order = match step.kind {
        StepKind::Huge => HUGE_ORDER,
        _ => 0,
    };
    let got = model.allocate(&step.name, step.amount, order, prefer);
    got.zeroed
}

fn add_percent_row(report: &mut LiveReport, what: String, beside: KernelAndModelPages) {
    let [kernel, model] = [beside.kernel, beside.model].map(|of| beside.percent_of_pages(of));
    let points = model - kernel;
    let beside = format!("model {model:.1} %: {points:+.1} points");
    report.add_row(what, kernel, "%", beside);
}

#[cfg(test)]
mod tests;
