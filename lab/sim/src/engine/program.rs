//! A program: its address space, as the kernel and as the processor see it, and its progress.

use super::EngineError;
use super::accesses::Source;
use super::course::Course;
use super::figures::{Moment, Outcome, PhaseFigures, ProgramFigures, Tally};
use super::layout::{Lot, lots};
use super::measuring::{Pace, Walks};
use super::neighbour::Slowed;
use super::playing::Player;
use super::sharing::Demand;
use super::sizes::SizesOverTime;
use super::swapping::Swapping;
use crate::bits::PageBits;
use crate::kernel::{Faults, Kernel, SpaceFigures, SpaceId};
use crate::mmu::translation::{LeafSize, Mappings, Tables, Translator, TranslatorSpec};
use crate::rng::Rng;
use crate::setup::Setup;
use crate::workloads::{DEFAULT_CPU_WEIGHT, Phase, Process};
use hawkeye_policy::{ProcessId, RegionAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    ToCome,
    Alive,
    Ended(Outcome, Duration),
}

#[derive(Debug)]
pub(super) enum Work {
    /// The phase begins at the next step.
    Begin,
    /// Regions of a lot, the next one first, in this round of the phase.
    Regions {
        lot: usize,
        next: usize,
        end: usize,
        round: u32,
    },
    /// Accesses left, from these sources.
    Accesses {
        left: f64,
        /// Idle time after each access.
        idle_ns: f64,
        sources: Vec<Source>,
    },
    /// A trace.
    Playing(Box<Player>),
    /// Nanoseconds left.
    Waiting(f64),
}

/// An observer of a program's accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Viewer {
    /// The manager of its own kernel.
    Manager,
    /// The manager of the host.
    Host,
    /// The reclaim that looks for pages to swap.
    Reclaim,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    pub(super) opened: Duration,
    /// Accesses by phase and stream.
    pub(super) accesses: BTreeMap<(usize, usize), Exposed>,
    /// Pages that are known to have been accessed: for the first time, or by a trace.
    pub(super) touched: BTreeMap<RegionAddr, PageBits>,
    /// Walks of a trace that ended at base pages.
    pub(super) walks: BTreeMap<RegionAddr, f64>,
    pub(super) tally: Tally,
    /// CPU time, in nanoseconds.
    pub(super) busy_ns: f64,
}

impl Window {
    pub(super) fn open(now: Duration) -> Self {
        Self {
            opened: now,
            ..Self::default()
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Exposed {
    pub(super) source: Source,
    pub(super) accesses: f64,
    pub(super) walks: Walks,
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) id: ProcessId,
    pub(super) spec: Process,
    pub(super) life: Life,
    pub(super) arrives: Duration,
    pub(super) space: SpaceId,
    pub(super) seen: Mappings,
    pub(super) core: Translator,
    pub(super) core_spec: TranslatorSpec,
    /// Whether its caches are empty. A sample made now would not show the cost in the long run.
    pub(super) cold: bool,
    pub(super) lots: Vec<Lot>,
    pub(super) rng: Rng,
    pub(super) phase: usize,
    pub(super) rounds: u32,
    pub(super) work: Work,
    /// Processor time that it owes: for faults, frees and its own work for them.
    pub(super) owed_ns: f64,
    pub(super) pace: Option<Pace>,
    pub(super) swapping: Swapping,
    /// The slowdown by the zeroing thread beside it.
    pub(super) slowed: Option<Slowed>,
    /// In a virtual machine: regions that were remapped since the host's mappings behind them were
    /// last read.
    pub(super) moved: BTreeSet<RegionAddr>,
    /// Whether the mappings have changed since its accesses were last measured.
    pub(super) changed: bool,
    /// In a virtual machine: the share of its accesses that goes where mappings have changed.
    pub(super) changed_share: f64,
    pub(super) windows: BTreeMap<Viewer, Window>,
    pub(super) total: Tally,
    in_phase: Tally,
    phase_began: Duration,
    /// The kernel's latest figures of it.
    pub(super) last: SpaceFigures,
    rss_peak_bytes: u64,
    huge_peak_bytes: u64,
    phases: Vec<PhaseFigures>,
    course: Course,
    sizes: SizesOverTime,
    /// Time in faults during its filling phases, in nanoseconds.
    pub(super) fault_ns: f64,
    /// Memory that held data before its end.
    pub(super) useful_end_bytes: u64,
}

impl Program {
    pub(super) fn new(
        id: ProcessId,
        spec: Process,
        arrives: Duration,
        setup: &Setup,
        hosted: bool,
        kernel: &mut Kernel,
    ) -> Result<Self, EngineError> {
        let seen = Mappings::with_groups(setup.processor.groups)?;
        let lots = lots(&spec.areas);
        let levels = setup.page_table_levels;
        let tables = if hosted {
            Tables::Nested {
                guest: levels,
                host: levels,
                tables_backed_by: LeafSize::Base,
            }
        } else {
            Tables::Native(levels)
        };
        let core = TranslatorSpec {
            tables,
            next_page_prefetch: setup.next_page_prefetch,
            ..TranslatorSpec::native(&setup.processor)
        };
        let space = kernel.create_space();
        for mapping in lots.iter().flat_map(Lot::mappings) {
            kernel.map(space, mapping)?;
        }
        Ok(Self {
            id,
            life: Life::ToCome,
            arrives,
            space,
            seen,
            core: Translator::new(&core)?,
            core_spec: core,
            cold: true,
            lots,
            rng: Rng::new(setup.seed, id.pid.into()),
            phase: 0,
            rounds: 1,
            work: Work::Begin,
            owed_ns: 0.0,
            pace: None,
            swapping: Swapping::default(),
            slowed: None,
            moved: BTreeSet::new(),
            changed: true,
            changed_share: 0.0,
            windows: BTreeMap::new(),
            total: Tally::default(),
            in_phase: Tally::default(),
            phase_began: arrives,
            last: SpaceFigures::default(),
            rss_peak_bytes: 0,
            huge_peak_bytes: 0,
            phases: Vec::new(),
            course: Course::new(),
            sizes: SizesOverTime::new(arrives),
            fault_ns: 0.0,
            useful_end_bytes: 0,
            spec,
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.life == Life::Alive
    }

    /// Whether it would use the processor now.
    pub(super) fn is_busy(&self) -> bool {
        self.is_alive() && (self.owed_ns > 0.0 || !matches!(self.work, Work::Waiting(_)))
    }

    /// The share of the cores that it would use now.
    pub(super) fn demand(&self) -> Demand {
        Demand {
            threads: if self.is_busy() { self.spec.threads } else { 0 },
            weight: f64::from(self.spec.cpu_weight) / f64::from(DEFAULT_CPU_WEIGHT),
        }
    }

    /// All its threads wait for this time.
    pub(super) fn held_up(&mut self, time: Duration) {
        self.owed_ns += time.as_nanos() as f64 * f64::from(self.spec.threads);
    }

    pub(super) fn current(&self) -> Option<&Phase> {
        self.spec.phases.get(self.phase)
    }

    pub(super) fn tally(&mut self, tally: Tally) {
        self.total.add(tally);
        self.in_phase.add(tally);
        for window in self.windows.values_mut() {
            window.tally.add(tally);
        }
    }

    /// Records that pages were accessed.
    pub(super) fn note_touched(&mut self, region: RegionAddr, pages: PageBits) {
        for window in self.windows.values_mut() {
            let touched = window.touched.entry(region).or_insert(PageBits::EMPTY);
            *touched = touched.or(pages);
        }
    }

    pub(super) fn is_hosted(&self) -> bool {
        matches!(self.core_spec.tables, Tables::Nested { .. })
    }

    /// The share of the current phase's accesses that goes to a region, on average over the regions
    /// of each stream.
    pub(super) fn share_of(&self, region: RegionAddr) -> f64 {
        let Work::Accesses { sources, .. } = &self.work else {
            return 0.0;
        };
        let shares = sources.iter().filter_map(|source| {
            let number = self.lots.get(source.lot)?.number(region)?;
            let there = source.regions.contains(&number);
            there.then(|| source.share / source.regions.len() as f64)
        });
        shares.sum()
    }

    pub(super) fn note(&mut self, kernel: &Kernel) {
        if let Ok(figures) = kernel.space_figures(self.space) {
            self.rss_peak_bytes = self.rss_peak_bytes.max(figures.rss_bytes);
            self.huge_peak_bytes = self.huge_peak_bytes.max(figures.huge_bytes);
            self.last = figures;
        }
    }

    /// Records its state, if the next moment is due.
    pub(super) fn chart(&mut self, kernel: &Kernel, now: Duration) {
        if self.course.is_due(now.as_secs_f64()) {
            self.note_sizes(kernel, now);
            self.course.push(Moment {
                at_s: now.as_secs_f64(),
                overhead_percent: self.pace.as_ref().map(Pace::overhead_percent),
                rss_bytes: self.last.rss_bytes,
                huge_bytes: self.last.huge_bytes,
            });
        }
    }

    /// Records the page sizes by which its memory is mapped.
    pub(super) fn note_sizes(&mut self, kernel: &Kernel, now: Duration) {
        if let Ok(mapped) = kernel.mapped_by_size(self.space) {
            self.sizes.note(now, mapped);
        }
    }

    pub(super) fn end_phase(&mut self, now: Duration) {
        let tally = std::mem::take(&mut self.in_phase);
        self.phases.push(PhaseFigures {
            phase: self.phase,
            start_s: self.phase_began.as_secs_f64(),
            end_s: now.as_secs_f64(),
            accesses: tally.accesses,
            overhead_percent: tally.overhead_percent(),
            rss_bytes: self.last.rss_bytes,
            huge_bytes: self.last.huge_bytes,
        });
        self.phase_began = now;
        self.work = Work::Begin;
        self.pace = None;
        self.slowed = None;
        self.phase += 1;
        if self.phase == self.spec.phases.len() && self.rounds < self.spec.repeat {
            self.rounds += 1;
            self.phase = 0;
        }
    }

    pub(super) fn figures(&self, now: Duration) -> ProgramFigures {
        let (outcome, ended) = match self.life {
            Life::Ended(outcome, at) => (outcome, at),
            Life::ToCome | Life::Alive => (Outcome::Unfinished, now),
        };
        ProgramFigures {
            name: self.spec.name.clone(),
            outcome,
            wall_s: ended.saturating_sub(self.arrives).as_secs_f64(),
            accesses: self.total.accesses,
            overhead_percent: self.total.overhead_percent(),
            faults: Faults::total(&self.last.faults),
            sizes: self.sizes.figures(&self.last.faults, ended),
            fault_s: self.fault_ns / 1e9,
            system_s: self.last.system_time.as_secs_f64(),
            rss_peak_bytes: self.rss_peak_bytes,
            huge_peak_bytes: self.huge_peak_bytes,
            useful_end_bytes: self.useful_end_bytes,
            phases: self.phases.clone(),
            course: self.course.moments().to_vec(),
        }
    }
}
