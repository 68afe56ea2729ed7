//! A program: its address space, as the kernel and as the processor see it, and its progress.

use super::EngineError;
use super::access_cost::{AccessCost, WalksByEntrySize};
use super::area_layout::{AreaLayout, lay_out_areas};
use super::core_shares::CpuDemand;
use super::figures::{AccessTally, PhaseFigures, ProgramFigures, ProgramMoment, ProgramOutcome};
use super::program_history::ProgramHistory;
use super::shared_files_by_name::SharedFilesByName;
use super::stream_sampler::StreamSampler;
use super::time_weighted_page_sizes::TimeWeightedPageSizes;
use super::trace_player::TracePlayer;
use super::zeroing_neighbour::EstimatedSlowdown;
use crate::kernel::{FaultCounts, SimulatedKernel, SpaceFigures, SpaceId};
use crate::mmu::translation::{LeafSize, Mappings, PageTableSetup, Translator, TranslatorSpec};
use crate::page_bits::PageBits;
use crate::rng::SimulationRng;
use crate::simulation_setup::SimulationSetup;
use crate::workloads::{DEFAULT_CPU_WEIGHT, Phase, Process};
use hawkeye_policy::{ProcessId, RegionAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramStatus {
    ToCome,
    Alive,
    Ended(ProgramOutcome, Duration),
}

#[derive(Debug)]
pub(super) enum PhaseProgress {
    Begin,
    /// Regions of a lot, the next one first, in this round of the phase.
    Regions {
        lot: usize,
        next: usize,
        end: usize,
        round: u32,
    },
    Accesses {
        left: f64,
        idle_ns: f64,
        sources: Vec<StreamSampler>,
    },
    Playing(Box<TracePlayer>),
    /// Nanoseconds left.
    Waiting(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WindowObserver {
    /// The manager of its own kernel.
    Manager,
    /// The manager of the host.
    Host,
    /// The reclaim that looks for pages to swap.
    Reclaim,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SamplingWindow {
    pub(super) opened: Duration,
    pub(super) accesses: BTreeMap<(usize, usize), StreamAccessCounts>,
    /// Pages that are known to have been accessed: for the first time, or by a trace.
    pub(super) touched: BTreeMap<RegionAddr, PageBits>,
    /// Walks of a trace that ended at base pages.
    pub(super) walks: BTreeMap<RegionAddr, f64>,
    pub(super) tally: AccessTally,
    pub(super) busy_ns: f64,
}

impl SamplingWindow {
    pub(super) fn open(now: Duration) -> Self {
        Self { opened: now, ..Self::default() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct StreamAccessCounts {
    pub(super) source: StreamSampler,
    pub(super) accesses: f64,
    pub(super) walks: WalksByEntrySize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SwapWaits {
    /// When the wait was last estimated; `None` if never in this phase.
    pub(super) at: Option<Duration>,
    /// Average wait of an access, in nanoseconds.
    pub(super) waits_ns: f64,
    pub(super) made: f64,
    /// Expected wait of these accesses, already spent, in nanoseconds.
    pub(super) waited_ns: f64,
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) id: ProcessId,
    pub(super) spec: Process,
    pub(super) life: ProgramStatus,
    pub(super) arrives: Duration,
    pub(super) space: SpaceId,
    pub(super) seen: Mappings,
    pub(super) core: Translator,
    pub(super) core_spec: TranslatorSpec,
    /// Whether its caches are empty. A sample made now would not show the cost in the long run.
    pub(super) cold: bool,
    pub(super) lots: Vec<AreaLayout>,
    pub(super) rng: SimulationRng,
    pub(super) phase: usize,
    pub(super) rounds: u32,
    pub(super) work: PhaseProgress,
    /// Processor time that it owes: for faults, frees and its own work for them.
    pub(super) owed_ns: f64,
    pub(super) pace: Option<AccessCost>,
    pub(super) swapping: SwapWaits,
    pub(super) slowed: Option<EstimatedSlowdown>,
    /// In a guest: regions remapped since the host's mappings behind them were last read.
    pub(super) moved: BTreeSet<RegionAddr>,
    /// Regions of shared memory that its page table lost to a promotion in another program.
    pub(super) emptied: BTreeSet<RegionAddr>,
    /// Whether the mappings have changed since its accesses were last measured.
    pub(super) changed: bool,
    /// In a virtual machine: the share of its accesses that goes where mappings have changed.
    pub(super) changed_share: f64,
    pub(super) windows: BTreeMap<WindowObserver, SamplingWindow>,
    pub(super) total: AccessTally,
    in_phase: AccessTally,
    phase_began: Duration,
    pub(super) last: SpaceFigures,
    rss_peak_bytes: u64,
    huge_peak_bytes: u64,
    phases: Vec<PhaseFigures>,
    course: ProgramHistory,
    sizes: TimeWeightedPageSizes,
    /// Time in faults during its filling phases, in nanoseconds.
    pub(super) fault_ns: f64,
    pub(super) useful_end_bytes: u64,
}

impl Program {
    pub(super) fn new(
        id: ProcessId,
        spec: Process,
        arrives: Duration,
        setup: &SimulationSetup,
        hosted: bool,
        (kernel, files): (&mut SimulatedKernel, &mut SharedFilesByName),
    ) -> Result<Self, EngineError> {
        let seen = Mappings::with_groups(setup.processor.groups)?;
        let lots = lay_out_areas(&spec.areas);
        let levels = setup.page_table_levels;
        let tables = if hosted {
            PageTableSetup::Nested { guest: levels, host: levels, tables_backed_by: LeafSize::Base }
        } else {
            PageTableSetup::Native(levels)
        };
        let core = TranslatorSpec {
            tables,
            next_page_prefetch: setup.next_page_prefetch,
            ..TranslatorSpec::native(&setup.processor)
        };
        let space = kernel.create_space();
        for (area, lot) in spec.areas.iter().zip(&lots) {
            match &area.file {
                Some(file) => files.map_file(kernel, space, (file, lot.byte_range()))?,
                None => {
                    for mapping in lot.mappings() {
                        kernel.map(space, mapping)?;
                    }
                }
            }
        }
        Ok(Self {
            id,
            life: ProgramStatus::ToCome,
            arrives,
            space,
            seen,
            core: Translator::new(&core)?,
            core_spec: core,
            cold: true,
            lots,
            rng: SimulationRng::new(setup.seed, id.pid.into()),
            phase: 0,
            rounds: 1,
            work: PhaseProgress::Begin,
            owed_ns: 0.0,
            pace: None,
            swapping: SwapWaits::default(),
            slowed: None,
            moved: BTreeSet::new(),
            emptied: BTreeSet::new(),
            changed: true,
            changed_share: 0.0,
            windows: BTreeMap::new(),
            total: AccessTally::default(),
            in_phase: AccessTally::default(),
            phase_began: arrives,
            last: SpaceFigures::default(),
            rss_peak_bytes: 0,
            huge_peak_bytes: 0,
            phases: Vec::new(),
            course: ProgramHistory::new(),
            sizes: TimeWeightedPageSizes::new(arrives),
            fault_ns: 0.0,
            useful_end_bytes: 0,
            spec,
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.life == ProgramStatus::Alive
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_alive() && (self.owed_ns > 0.0 || !matches!(self.work, PhaseProgress::Waiting(_)))
    }

    pub(super) fn cpu_demand(&self) -> CpuDemand {
        CpuDemand {
            threads: if self.is_busy() { self.spec.threads } else { 0 },
            weight: f64::from(self.spec.cpu_weight) / f64::from(DEFAULT_CPU_WEIGHT),
        }
    }

    /// All its threads wait for this time.
    pub(super) fn stall_for(&mut self, time: Duration) {
        self.owed_ns += time.as_nanos() as f64 * f64::from(self.spec.threads);
    }

    pub(super) fn current_phase(&self) -> Option<&Phase> {
        self.spec.phases.get(self.phase)
    }

    pub(super) fn add_access_tally(&mut self, tally: AccessTally) {
        self.total.add(tally);
        self.in_phase.add(tally);
        for window in self.windows.values_mut() {
            window.tally.add(tally);
        }
    }

    pub(super) fn record_touched_pages(&mut self, region: RegionAddr, pages: PageBits) {
        for window in self.windows.values_mut() {
            let touched = window.touched.entry(region).or_insert(PageBits::EMPTY);
            *touched = touched.or(pages);
        }
    }

    pub(super) fn runs_in_guest(&self) -> bool {
        matches!(self.core_spec.tables, PageTableSetup::Nested { .. })
    }

    /// The share of the phase's accesses that goes to a region, averaged over each stream's
    /// regions.
    pub(super) fn access_share_of_region(&self, region: RegionAddr) -> f64 {
        let PhaseProgress::Accesses { sources, .. } = &self.work else {
            return 0.0;
        };
        let shares = sources.iter().filter_map(|source| {
            let number = self.lots.get(source.lot)?.region_number(region)?;
            let there = source.regions.contains(&number);
            there.then(|| source.share / source.regions.len() as f64)
        });
        shares.sum()
    }

    pub(super) fn record_peaks(&mut self, kernel: &SimulatedKernel) {
        if let Ok(figures) = kernel.space_figures(self.space) {
            self.rss_peak_bytes = self.rss_peak_bytes.max(figures.rss_bytes);
            self.huge_peak_bytes = self.huge_peak_bytes.max(figures.huge_bytes);
            self.last = figures;
        }
    }

    pub(super) fn record_moment(&mut self, kernel: &SimulatedKernel, now: Duration) {
        if self.course.is_due(now.as_secs_f64()) {
            self.record_page_sizes(kernel, now);
            self.course.push(ProgramMoment {
                at_s: now.as_secs_f64(),
                overhead_percent: self.pace.as_ref().map(AccessCost::overhead_percent),
                rss_bytes: self.last.rss_bytes,
                huge_bytes: self.last.huge_bytes,
            });
        }
    }

    pub(super) fn record_page_sizes(&mut self, kernel: &SimulatedKernel, now: Duration) {
        if let Ok(mapped) = kernel.mapped_bytes_by_size(self.space) {
            self.sizes.record(now, mapped);
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
        self.work = PhaseProgress::Begin;
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
            ProgramStatus::Ended(outcome, at) => (outcome, at),
            ProgramStatus::ToCome | ProgramStatus::Alive => (ProgramOutcome::Unfinished, now),
        };
        ProgramFigures {
            name: self.spec.name.clone(),
            outcome,
            wall_s: ended.saturating_sub(self.arrives).as_secs_f64(),
            accesses: self.total.accesses,
            overhead_percent: self.total.overhead_percent(),
            faults: FaultCounts::total(&self.last.faults),
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
