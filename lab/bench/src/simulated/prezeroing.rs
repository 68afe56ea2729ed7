//! Free memory that is zeroed in advance: the simulator's free lists beside those of a kernel built with this repository's patches,
//! by the same sequence of allocations, frees and idle time.
//!
//! `kernel/test/programs/trace.c` does the sequence on the kernel and prints what it counted after each step. Here each step is done on
//! [`PhysicalMemory`] of as much free memory: idle time is worth its rate, and nothing is fitted.

mod recording;

use crate::error::BenchError;
use crate::live::report::Report;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use hawkeye_sim::memory::{Content, PhysicalMemory, Replay, Replayed};
use recording::{Kind, Recording, Step};

/// What a kernel was recorded to do, and where that is from.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The kernel's series.
    pub kernel: &'static str,
    /// What the program printed.
    pub text: &'static str,
}

/// All that come with the program.
pub const RECORDED: [Recorded; 1] = [Recorded {
    kernel: "7.2",
    text: include_str!("../../testdata/prezeroing-7.2.txt"),
}];

/// Why they differ, where they do: by what the kernel's patches say, and seen in the recordings.
const DIFFERENCES: [&str; 4] = [
    "The kernel zeroes no free block under 2 MiB; the model does, after all others.",
    "Where it had nothing left to zero, the kernel begins 2 s after memory was freed (page reporting's delay); the model at once.",
    "Base pages: the kernel takes small blocks that are not zeroed before it breaks up a huge one that is, as to clear a page is better; and some wait on per-CPU lists. The model, like the paper, prefers \
     what is zeroed at any size: hence the share after every other page was freed.",
    "A block that merges with one that is not zeroed loses its mark in the kernel, and is zeroed again; the model knows each frame.",
];

/// One step on both.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Beside {
    /// Base pages that the step was about.
    pages: u64,
    kernel: u64,
    model: u64,
}

impl Beside {
    fn percent(self, of: u64) -> f64 {
        of as f64 * 100.0 / self.pages.max(1) as f64
    }

    fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.kernel += other.kernel;
        self.model += other.model;
    }
}

/// Replays what a kernel did, and compares. `text`: what `trace` printed.
///
/// # Errors
/// A text that is no such recording.
pub fn compare(text: &str) -> Result<Report, BenchError> {
    let recording = Recording::parse(text).map_err(BenchError::Impossible)?;
    let start = &recording.start;
    let mut model = model_of(start.counted.free);
    let mut report = Report::new("prezeroing");
    let (mut huge, mut base) = (Sum::default(), Sum::default());
    let mut before = start;
    for step in &recording.steps {
        let wanted = step.pages();
        let counted = step.counted.since(&before.counted);
        before = step;
        let what = step.to_string();
        match step.kind {
            Kind::Start => {}
            Kind::Idle => {
                let most = step.rate * step.us / 1_000_000;
                let beside = Beside {
                    pages: most,
                    kernel: counted.zeroed,
                    model: model.zero(most),
                };
                report.row(
                    format!("{what}: zeroed"),
                    beside.kernel as f64,
                    "pages",
                    format!("model {}; {most} by the rate", beside.model),
                );
            }
            Kind::Huge | Kind::Base => {
                let got = allocate(&mut model, step, Content::Zeroed);
                let beside = beside(wanted, counted.served, got);
                row(&mut report, format!("{what}: served zeroed"), beside);
                let sum = if step.kind == Kind::Huge {
                    &mut huge
                } else {
                    &mut base
                };
                sum.add(beside);
            }
            Kind::File | Kind::Copy => {
                let got = allocate(&mut model, step, Content::Dirty);
                let beside = beside(wanted, counted.passed_over, got);
                row(&mut report, format!("{what}: took zeroed"), beside);
            }
            Kind::Free => model.free(&step.name, step.amount),
        }
    }
    huge.report(&mut report, "huge pages, all steps: served zeroed");
    base.report(&mut report, "base pages, all steps: served zeroed");
    let all = before.counted.since(&start.counted);
    report.row(
        "zeroed pages that lost their mark",
        all.lost as f64 * 100.0 / all.zeroed.max(1) as f64,
        "%",
        "model 0: a merge forgets nothing",
    );
    for difference in DIFFERENCES {
        report.note(difference);
    }
    report.note(format!(
        "Linux {}, emulated; {:.0} MiB free at the start. Kernel's shares count page tables that the step needed as well.",
        recording.kernel,
        (start.counted.free * BASE_PAGE_BYTES) as f64 / f64::from(1 << 20)
    ));
    Ok(report)
}

/// As much free memory, none of it zeroed.
fn model_of(free: u64) -> Replay {
    let region = u64::from(PAGES_PER_REGION);
    let regions = free.div_ceil(region);
    let mut model = Replay::new(PhysicalMemory::new(regions * region * BASE_PAGE_BYTES));
    model.leave_free(free);
    model
}

fn allocate(model: &mut Replay, step: &Step, prefer: Content) -> Replayed {
    match step.kind {
        Kind::Huge => model.allocate_huge(&step.name, step.amount, prefer),
        _ => model.allocate_base(&step.name, step.amount, prefer),
    }
}

fn beside(pages: u64, kernel: u64, model: Replayed) -> Beside {
    Beside {
        pages,
        kernel,
        model: model.zeroed,
    }
}

fn row(report: &mut Report, what: String, beside: Beside) {
    let (kernel, model) = (beside.percent(beside.kernel), beside.percent(beside.model));
    let points = model - kernel;
    report.row(
        what,
        kernel,
        "%",
        format!("model {model:.1} %: {points:+.1} points"),
    );
}

/// Of several steps.
#[derive(Default)]
struct Sum(Option<Beside>);

impl Sum {
    fn add(&mut self, one: Beside) {
        match &mut self.0 {
            Some(sum) => sum.add(one),
            None => self.0 = Some(one),
        }
    }

    fn report(self, report: &mut Report, what: &str) {
        if let Some(sum) = self.0 {
            row(report, what.to_owned(), sum);
        }
    }
}

#[cfg(test)]
mod tests;
