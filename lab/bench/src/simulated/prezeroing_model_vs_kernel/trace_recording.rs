//! Parses the output of `kernel/test/programs/trace.c`.

use hawkeye_policy::PAGES_PER_REGION;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    Start,
    Idle,
    Huge,
    Base,
    File,
    /// Base pages were copied on write.
    Copy,
    Free,
}

const KINDS: [(&str, StepKind); 7] = [
    ("start", StepKind::Start),
    ("idle", StepKind::Idle),
    ("huge", StepKind::Huge),
    ("base", StepKind::Base),
    ("file", StepKind::File),
    ("copy", StepKind::Copy),
    ("free", StepKind::Free),
];

/// The kernel's counters, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ZeroingCounters {
    pub(super) zeroed: u64,
    pub(super) served: u64,
    pub(super) passed_over: u64,
    pub(super) lost: u64,
    pub(super) free: u64,
}

impl ZeroingCounters {
    /// The counts since an earlier reading; free memory as it is now.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            zeroed: self.zeroed.saturating_sub(before.zeroed),
            served: self.served.saturating_sub(before.served),
            passed_over: self.passed_over.saturating_sub(before.passed_over),
            lost: self.lost.saturating_sub(before.lost),
            free: self.free,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceStep {
    pub(super) kind: StepKind,
    /// What it allocates or gives back.
    pub(super) name: String,
    /// Milliseconds, huge pages, base pages, or N for every N-th page.
    pub(super) amount: u64,
    pub(super) us: u64,
    /// Base pages that the kernel may zero per second.
    pub(super) rate: u64,
    pub(super) counted: ZeroingCounters,
}

impl TraceStep {
    pub(super) fn allocated_pages(&self) -> u64 {
        match self.kind {
            StepKind::Huge => self.amount * u64::from(PAGES_PER_REGION),
            StepKind::Base | StepKind::File | StepKind::Copy => self.amount,
            StepKind::Start | StepKind::Idle | StepKind::Free => 0,
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let kind = words.next()?;
        let (_, kind) = *KINDS.iter().find(|(name, _)| *name == kind)?;
        let name = words.next()?.to_owned();
        let amount = words.next()?.parse().ok()?;
        let rest: Vec<(&str, &str)> = words.map(|w| w.split_once('=')).collect::<Option<_>>()?;
        let number = |key: &str| {
            let (_, value) = rest.iter().find(|(found, _)| *found == key)?;
            value.parse::<u64>().ok()
        };
        Some(Self {
            kind,
            name,
            amount,
            us: number("us")?,
            rate: number("rate")?,
            counted: ZeroingCounters {
                zeroed: number("zeroed")?,
                served: number("served")?,
                passed_over: number("passed_over")?,
                lost: number("lost")?,
                free: number("free")?,
            },
        })
    }
}

impl fmt::Display for TraceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = self.amount;
        match self.kind {
            StepKind::Start => f.write_str("start"),
            StepKind::Idle => write!(f, "{:.1} s idle", self.us as f64 / 1e6),
            StepKind::Huge => write!(f, "{amount} huge pages"),
            StepKind::Base => write!(f, "{amount} base pages"),
            StepKind::File => write!(f, "{amount} pages of a file"),
            StepKind::Copy => write!(f, "{amount} copies on write"),
            StepKind::Free if amount > 1 => write!(f, "every {amount}. page freed"),
            StepKind::Free => f.write_str("freed"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceRecording {
    pub(super) kernel: String,
    pub(super) start: TraceStep,
    pub(super) steps: Vec<TraceStep>,
}

impl TraceRecording {
    /// The error is a sentence. Lines with other beginnings (of a console, comments) are ignored.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut kernel = None;
        let mut steps = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if let Some(release) = line.strip_prefix("kernel ") {
                kernel = Some(release.to_owned());
            } else if let Some(step) = line.strip_prefix("step ") {
                let step = TraceStep::parse(step);
                let invalid = || format!("line {number} is not a valid step: {line}");
                steps.push(step.ok_or_else(invalid)?);
            }
        }
        let mut steps = steps.into_iter();
        let start = steps.next().filter(|step| step.kind == StepKind::Start);
        Ok(Self {
            kernel: kernel.ok_or("the recording has no line `kernel RELEASE`")?,
            start: start.ok_or("the recording does not begin with a step `start`")?,
            steps: steps.collect(),
        })
    }
}
