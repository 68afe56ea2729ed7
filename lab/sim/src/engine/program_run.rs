//! Runs a program phase after phase, while it has the processor.

use super::EngineError;
use super::access_cost::WalksByEntrySize;
use super::error::Result;
use super::program::{PhaseProgress, Program, StreamAccessCounts};
use super::stream_sampler::StreamSampler;
use super::trace_player::TracePlayer;
use super::zeroing_neighbour::ZeroingNeighbour;
use crate::kernel::SimulatedKernel;
use crate::workloads::Phase;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct MeasurementSettings {
    pub(super) accesses: u32,
    pub(super) ghz: f64,
    pub(super) neighbour: ZeroingNeighbour,
}

/// Shortest time between two measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// In a virtual machine, either side changes mappings all the time, and walks take four times as
/// long to simulate. There a measurement is made when this share of the program's accesses (0-1)
/// goes where mappings have changed. The error of its overhead is less than this share. At the
/// latest, one is made `MEASURE_AFTER` after the last.
const CHANGED_SHARE: f64 = 0.005;
const MEASURE_AFTER: Duration = Duration::from_secs(10);
/// Time too short to do anything in, in nanoseconds.
const NOTHING_NS: f64 = 1e-3;

#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramStep {
    pub(super) now: Duration,
    pub(super) step: Duration,
    /// Processor time that its threads have together per elapsed time (over 0).
    pub(super) speed: f64,
}

impl ProgramStep {
    fn budget_ns(&self) -> f64 {
        self.step.as_nanos() as f64 * self.speed
    }

    /// The time at which this much of the processor time is left.
    pub(super) fn time_at_budget_left(&self, left_ns: f64) -> Duration {
        let ran = (self.budget_ns() - left_ns) / self.speed;
        self.now + Duration::from_nanos(ran as u64)
    }
}

impl Program {
    /// Runs the program; returns the processor time that is left if it ends before, in nanoseconds.
    pub(super) fn run(
        &mut self,
        kernel: &mut SimulatedKernel,
        turn: ProgramStep,
        measuring: MeasurementSettings,
    ) -> Result<f64> {
        let mut left_ns = turn.budget_ns();
        while left_ns > NOTHING_NS {
            if self.owed_ns > 0.0 {
                let paid = self.owed_ns.min(left_ns);
                self.owed_ns -= paid;
                left_ns -= paid;
                for window in self.windows.values_mut() {
                    window.busy_ns += paid;
                    // These cycles are unhalted, and in no page walk.
                    window.tally.cycles += paid * measuring.ghz;
                }
                continue;
            }
            let at = turn.time_at_budget_left(left_ns);
            let Some(phase) = self.current_phase() else {
                return Ok(left_ns);
            };
            if matches!(self.work, PhaseProgress::Begin) {
                let phase = phase.clone();
                self.begin_phase(&phase, measuring)?;
                continue;
            }
            let (spent, over) = match self.work {
                PhaseProgress::Begin => (0.0, false),
                PhaseProgress::Regions { .. } => (0.0, self.fill_or_free_next_region(kernel)?),
                PhaseProgress::Accesses { .. } => {
                    self.make_accesses(kernel, at, left_ns, measuring)?
                }
                PhaseProgress::Playing(_) => self.play_trace(kernel, at, left_ns, measuring.ghz)?,
                PhaseProgress::Waiting(ref mut wait) => {
                    let waited = wait.min(left_ns / turn.speed);
                    *wait -= waited;
                    (waited * turn.speed, *wait <= 0.0)
                }
            };
            left_ns -= spent;
            if over && self.owed_ns <= 0.0 {
                self.record_peaks(kernel);
                self.end_phase(turn.time_at_budget_left(left_ns));
            }
        }
        Ok(0.0)
    }

    pub(super) fn record_busy_time(&mut self, ns: f64) {
        for window in self.windows.values_mut() {
            window.busy_ns += ns;
        }
    }

    fn is_measurement_due(&self, now: Duration) -> bool {
        let Some(pace) = &self.pace else {
            return true;
        };
        let much = !self.runs_in_guest() || self.changed_share >= CHANGED_SHARE;
        let pause = if much { MEASURE_EVERY } else { MEASURE_AFTER };
        self.changed && now >= pace.at + pause
    }

    fn begin_phase(
        &mut self,
        phase: &Phase,
        measuring: MeasurementSettings,
    ) -> Result<(), EngineError> {
        self.work = match phase {
            Phase::Fill { area, .. } | Phase::Free { area, .. } => {
                let part = match phase {
                    Phase::Fill { part, .. } => *part,
                    _ => [0.0, 1.0],
                };
                let mut lots = self.lots.iter().enumerate();
                let found = lots.find(|(_, lot)| lot.name == *area);
                found.map_or(PhaseProgress::Waiting(0.0), |(lot, held)| {
                    let regions = held.region_numbers_of_part(part);
                    PhaseProgress::Regions { lot, next: regions.start, end: regions.end, round: 0 }
                })
            }
            Phase::Wait { seconds } => PhaseProgress::Waiting(seconds * 1e9),
            Phase::Play(tape) => {
                PhaseProgress::Playing(Box::new(TracePlayer::open(&self.spec.name, tape)?))
            }
            Phase::Access { ideal_s, accesses, idle_ns, streams } => {
                let total: f64 = streams.iter().map(|stream| stream.weight).sum();
                let mut sources = Vec::new();
                for stream in streams {
                    let source = StreamSampler::new(stream, total, &self.lots, &mut self.rng);
                    let source = source.filter(|source| !source.has_no_used_pages());
                    sources.push(source.ok_or_else(|| EngineError::NothingThere {
                        program: self.spec.name.clone(),
                        area: stream.area.clone(),
                    })?);
                }
                let cycles: f64 = sources.iter().map(|s| s.share * s.cycles).sum();
                let by_time = |s: f64| s * 1e9 * measuring.ghz / cycles;
                let left = accesses.or(ideal_s.map(by_time)).unwrap_or(0.0);
                PhaseProgress::Accesses { left, idle_ns: *idle_ns, sources }
            }
        };
        if matches!(self.work, PhaseProgress::Accesses { .. }) {
            self.cold = true;
            self.changed = true;
        }
        Ok(())
    }

    /// Makes accesses while there is time; returns their duration and whether they were the last.
    fn make_accesses(
        &mut self,
        kernel: &mut SimulatedKernel,
        now: Duration,
        left_ns: f64,
        measuring: MeasurementSettings,
    ) -> Result<(f64, bool)> {
        if self.is_measurement_due(now) {
            if std::mem::take(&mut self.cold) {
                let accesses = self.needed_warm_up_accesses(measuring.accesses);
                self.measure_access_cost(kernel, now, accesses)?;
            }
            self.changed = false;
            self.changed_share = 0.0;
            let pace = self.measure_access_cost(kernel, now, measuring.accesses)?;
            self.pace = Some(pace);
            if self.owed_ns > 0.0 {
                return Ok((0.0, false));
            }
        }
        let waits_ns = self.fetch_and_estimate_swap_waits(kernel, now, false)?;
        let (Some(pace), PhaseProgress::Accesses { left, idle_ns, sources }) =
            (&self.pace, &mut self.work)
        else {
            return Ok((0.0, true));
        };
        let neighbour = &measuring.neighbour;
        let threads = self.spec.threads;
        let slowed = neighbour.estimate_slowdown(sources, threads, pace.cycles, self.slowed);
        self.slowed = Some(slowed);
        let ns = (pace.cycles + slowed.by) / measuring.ghz;
        let spent_ns = ns + *idle_ns;
        let made = left.min(left_ns / (spent_ns + waits_ns));
        *left -= made;
        for (stream, source) in sources.iter_mut().enumerate() {
            let of_stream = made * source.share;
            source.skip_stride_accesses(of_stream);
            for window in self.windows.values_mut() {
                let walks = pace.walks.get(stream).copied().unwrap_or_default();
                let exposed = window.accesses.entry((self.phase, stream)).or_insert_with(|| {
                    StreamAccessCounts {
                        source: source.clone(),
                        accesses: 0.0,
                        walks: WalksByEntrySize::default(),
                    }
                });
                exposed.accesses += of_stream;
                for (sum, walks) in exposed.walks.iter_mut().zip(walks) {
                    *sum += of_stream * walks;
                }
                exposed.source = source.clone();
            }
        }
        // Less than half an access is left: a fraction from rounding.
        let over = *left < 0.5;
        let mut tally = pace.tally_of_accesses(made);
        tally.cycles += made * slowed.by;
        self.add_access_tally(tally);
        let spent = made * (spent_ns + waits_ns);
        self.record_busy_time(made * ns);
        self.swapping.made += made;
        self.swapping.waited_ns += made * self.swapping.waits_ns;
        self.map_accessed_shared_memory(kernel, made)?;
        if over {
            self.fetch_and_estimate_swap_waits(kernel, now, true)?;
        }
        Ok((spent, over))
    }
}
