//! Compared measures, and how they are computed from runs.

use super::PaperValue;
use crate::statistics::geometric_mean;
use hawkeye_sim::engine::ProgramFigures;
use hawkeye_sim::simulate::SimulationResult;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// Base pages only: the baseline of speed-ups.
const BASE: &str = "linux-4k";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PaperMeasure {
    Seconds,
    /// Speed as a multiple of that under base pages (`linux-4k`).
    SpeedUp,
    /// Speed as a multiple of that under this system.
    Over(&'static str),
    /// Speed of this phase (counted from 0) as a multiple of that under this system.
    PhaseOver(&'static str, usize),
    /// How much longer this phase (counted from 0) takes than under this system, in per cent.
    SlowerPercent(&'static str, usize),
    /// Speed in this phase (counted from 0), in per cent of that under this system.
    SpeedPercent(&'static str, usize),
    /// Time that a promotion saves compared with `linux-4k`, as a multiple of what a promotion of
    /// this system saves.
    SavedOver(&'static str),
    /// Seconds from its start until its overhead stays under this percentage.
    SecondsUntilUnder(f64),
    /// Cycles in page walks, in per cent of all cycles.
    OverheadPercent,
    /// This program's share of the huge pages of all programs of the workload, at a time (s), in
    /// per cent.
    HugeShare(f64),
    MillionFaults,
    FaultSeconds,
    /// Mean duration of a fault, in microseconds.
    FaultMicroseconds,
    SystemSeconds,
    /// Resident memory at the end of this phase (counted from 0), in GiB.
    ResidentGib(usize),
    /// The same of all programs with these names, each at its end of this phase.
    TotalResidentGib(&'static [&'static str], usize),
    /// The geometric mean of [`Self::PhaseOver`] of the programs with these names.
    MeanPhaseOver(&'static [&'static str], &'static str, usize),
    /// Memory that held data at the end, in GiB.
    UsefulGib,
    /// Share of resident memory that is under huge pages at the end of this phase (counted from 0),
    /// in per cent.
    HugePercent(usize),
    /// Promotions of the manager, in all processes together.
    Promotions,
    /// Most memory of shared files, each page counted once, in GiB.
    SharedFileGib,
    /// Most memory under huge pages, in GiB.
    HugeGib,
    /// Requests per second in this phase, in thousands, with this number of accesses per request.
    ThousandPerS(usize, f64),
    /// Requests per second: this many requests, divided by the program's time.
    RequestsPerS(f64),
}

impl PaperMeasure {
    /// Systems that the measure needs runs of in addition.
    pub(super) fn reference_systems(self) -> Vec<&'static str> {
        match self {
            Self::SpeedUp => vec![BASE],
            Self::Over(system)
            | Self::PhaseOver(system, _)
            | Self::MeanPhaseOver(_, system, _)
            | Self::SlowerPercent(system, _)
            | Self::SpeedPercent(system, _) => vec![system],
            Self::SavedOver(system) => vec![BASE, system],
            _ => Vec::new(),
        }
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::SpeedUp => "x",
            Self::Over(_) | Self::PhaseOver(..) => "x over",
            Self::SlowerPercent(..) => "% slower",
            Self::SpeedPercent(..) => "% of that speed",
            Self::SavedOver(_) => "x saved a promotion",
            Self::SecondsUntilUnder(_) => "s until overhead ends",
            Self::OverheadPercent => "% overhead",
            Self::HugeShare(_) => "% of huge pages",
            Self::MillionFaults => "M faults",
            Self::FaultSeconds => "s in faults",
            Self::FaultMicroseconds => "us a fault",
            Self::SystemSeconds => "s system time",
            Self::ResidentGib(_) => "GiB",
            Self::TotalResidentGib(..) => "GiB together",
            Self::MeanPhaseOver(..) => "x over, mean",
            Self::UsefulGib => "GiB useful",
            Self::HugePercent(_) => "% huge",
            Self::Promotions => "promotions",
            Self::SharedFileGib => "GiB of files",
            Self::HugeGib => "GiB huge",
            Self::ThousandPerS(..) => "K/s",
            Self::RequestsPerS(_) => "/s",
        }
    }

    /// Its value; none if a program did not get that far.
    pub(super) fn compute_value(
        self,
        figure: &PaperValue,
        results: &[SimulationResult],
    ) -> Option<f64> {
        let seconds = |system| mean_over_programs(figure, system, results, |p, _| Some(p.wall_s));
        let in_phase =
            |system, n| mean_over_programs(figure, system, results, |p, _| phase_seconds(p, n));
        let saved = |system| {
            let run = find_run(figure, system, results)?;
            let promoted = run.promoted as f64;
            Some((seconds(BASE)? - seconds(system)?) / promoted)
        };
        let of_each = |names: &'static [&'static str], measure: Self| -> Option<Vec<f64>> {
            let value = |&program: &&'static str| {
                measure.compute_value(&PaperValue { program, ..*figure }, results)
            };
            names.iter().map(value).collect()
        };
        match self {
            Self::SpeedUp => Some(seconds(BASE)? / seconds(figure.system)?),
            Self::Over(other) => Some(seconds(other)? / seconds(figure.system)?),
            Self::PhaseOver(other, n) => Some(in_phase(other, n)? / in_phase(figure.system, n)?),
            Self::SlowerPercent(other, n) => {
                Some((in_phase(figure.system, n)? / in_phase(other, n)? - 1.0) * 100.0)
            }
            Self::SpeedPercent(other, n) => {
                Some(in_phase(other, n)? / in_phase(figure.system, n)? * 100.0)
            }
            Self::SavedOver(other) => Some(saved(figure.system)? / saved(other)?),
            Self::TotalResidentGib(names, n) => {
                Some(of_each(names, Self::ResidentGib(n))?.iter().sum())
            }
            Self::MeanPhaseOver(names, other, n) => {
                Some(geometric_mean(&of_each(names, Self::PhaseOver(other, n))?))
            }
            _ => mean_over_programs(figure, figure.system, results, |program, run| {
                self.compute_for_program(program, run)
            }),
        }
    }

    fn compute_for_program(self, program: &ProgramFigures, run: &SimulationResult) -> Option<f64> {
        let phase = |n: usize| program.phases.get(n);
        let gib = |bytes: u64| bytes as f64 / GIB;
        Some(match self {
            // These are of several runs or programs.
            Self::SpeedUp
            | Self::Over(_)
            | Self::PhaseOver(..)
            | Self::SlowerPercent(..)
            | Self::SpeedPercent(..)
            | Self::SavedOver(_)
            | Self::TotalResidentGib(..)
            | Self::MeanPhaseOver(..) => return None,
            Self::Seconds => program.wall_s,
            Self::SecondsUntilUnder(limit) => seconds_until_overhead_under(program, limit)?,
            Self::OverheadPercent => program.overhead_percent,
            Self::HugeShare(at_s) => {
                let all = run.figures.all_programs().map(|p| huge_bytes_at(p, at_s));
                huge_bytes_at(program, at_s) / all.sum::<f64>() * 100.0
            }
            Self::MillionFaults => program.faults as f64 / 1e6,
            Self::FaultSeconds => program.fault_s,
            Self::FaultMicroseconds => program.fault_s * 1e6 / program.faults as f64,
            Self::SystemSeconds => program.system_s,
            Self::ResidentGib(n) => gib(phase(n)?.rss_bytes),
            Self::UsefulGib => gib(program.useful_end_bytes),
            Self::HugePercent(n) => {
                let phase = phase(n)?;
                phase.huge_bytes as f64 / phase.rss_bytes as f64 * 100.0
            }
            Self::Promotions => run.promoted as f64,
            Self::SharedFileGib => gib(run.figures.shared_file_peak_bytes),
            Self::HugeGib => gib(program.huge_peak_bytes),
            Self::ThousandPerS(n, each) => {
                let phase = phase(n)?;
                phase.accesses / each / phase_seconds(program, n)? / 1e3
            }
            Self::RequestsPerS(requests) => requests / program.wall_s,
        })
    }
}

fn phase_seconds(program: &ProgramFigures, n: usize) -> Option<f64> {
    let phase = program.phases.get(n)?;
    Some(phase.end_s - phase.start_s)
}

fn find_run<'a>(
    figure: &PaperValue,
    system: &str,
    results: &'a [SimulationResult],
) -> Option<&'a SimulationResult> {
    let found = |r: &&SimulationResult| r.workload == figure.workload && r.system == system;
    results.iter().find(found)
}

/// The mean over the programs of a figure.
fn mean_over_programs(
    figure: &PaperValue,
    system: &str,
    results: &[SimulationResult],
    of: impl Fn(&ProgramFigures, &SimulationResult) -> Option<f64>,
) -> Option<f64> {
    let run = find_run(figure, system, results)?;
    let programs = run.figures.all_programs();
    let programs = (1..).zip(programs).filter(|(number, program)| {
        program.name == figure.program || format!("{}-{number}", program.name) == figure.program
    });
    let values: Vec<f64> = programs.map(|(_, program)| of(program, run)).collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Seconds from its start until its overhead stays under the limit.
fn seconds_until_overhead_under(program: &ProgramFigures, limit: f64) -> Option<f64> {
    let known = || {
        let known = program.course.iter().enumerate();
        known.filter_map(|(n, moment)| Some((n, moment.overhead_percent?)))
    };
    let from = match known().rfind(|(_, percent)| *percent >= limit) {
        Some((over, _)) => over + 1,
        None => known().next()?.0,
    };
    let start = program.course.first()?.at_s;
    Some(program.course.get(from)?.at_s - start)
}

fn huge_bytes_at(program: &ProgramFigures, at_s: f64) -> f64 {
    let before = program.course.iter().take_while(|m| m.at_s <= at_s);
    before.last().map_or(0.0, |moment| moment.huge_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::super::PublishedValue;
    use super::*;
    use hawkeye_sim::engine::{EngineFigures, PhaseFigures, ProgramMoment, ProgramOutcome};
    use std::collections::BTreeMap;

    /// Overheads 10 s apart from 5 s on; `huge` GiB from the start.
    fn program(wall_s: f64, overheads: &[Option<f64>], huge: f64) -> ProgramFigures {
        let moments = (0..).zip(overheads);
        ProgramFigures {
            name: "p".to_owned(),
            outcome: ProgramOutcome::Done,
            wall_s,
            accesses: 0.0,
            overhead_percent: 0.0,
            faults: 4,
            sizes: Vec::new(),
            fault_s: 2e-6,
            system_s: 0.0,
            rss_peak_bytes: 0,
            huge_peak_bytes: 0,
            useful_end_bytes: 0,
            phases: Vec::new(),
            course: moments
                .map(|(n, overhead)| ProgramMoment {
                    at_s: 5.0 + 10.0 * f64::from(n),
                    overhead_percent: *overhead,
                    rss_bytes: 0,
                    huge_bytes: (huge * GIB) as u64,
                })
                .collect(),
        }
    }

    fn ran(system: &str, promoted: u64, programs: Vec<ProgramFigures>) -> SimulationResult {
        SimulationResult {
            system: system.to_owned(),
            workload: "w".to_owned(),
            figures: EngineFigures {
                wall_s: 0.0,
                programs,
                guests: Vec::new(),
                shared_file_peak_bytes: 0,
                manager_cpu_s: 0.0,
                filled_ahead_bytes: 0,
                filling_cpu_s: 0.0,
                zeroing_cpu_s: 0.0,
                kswapd_cpu_s: 0.0,
                merging_cpu_s: 0.0,
            },
            promoted,
            split: 0,
            recovered_bytes: 0,
            errors: BTreeMap::new(),
        }
    }

    fn value(system: &'static str, program: &'static str, measure: PaperMeasure) -> Option<f64> {
        let results = [
            ran("linux-4k", 0, vec![program_of(100.0), program_of(200.0)]),
            ran("linux", 50, vec![program_of(90.0), program_of(190.0)]),
            ran("hawkeye-g", 10, vec![program_of(60.0), program_of(160.0)]),
        ];
        let figure = PaperValue {
            workload: "w",
            program,
            system,
            measure,
            paper: PublishedValue::Value(1.0),
        };
        measure.compute_value(&figure, &results)
    }

    fn program_of(wall_s: f64) -> ProgramFigures {
        program(wall_s, &[None, Some(9.0), Some(1.0)], wall_s)
    }

    #[test]
    fn means_and_single_instances() {
        let seconds = |program| value("linux-4k", program, PaperMeasure::Seconds);
        assert_eq!(seconds("p"), Some(150.0));
        assert_eq!(seconds("p-2"), Some(200.0));
        assert_eq!(seconds("p-3"), None);
        assert_eq!(
            value("linux", "p", PaperMeasure::FaultMicroseconds),
            Some(0.5),
            "2 us in 4 faults"
        );
        let share = value("linux-4k", "p-1", PaperMeasure::HugeShare(7.0));
        assert_eq!(share.map(f64::round), Some(33.0), "100 GiB of 300");
    }

    #[test]
    fn comparisons_are_of_the_same_programs() {
        assert_eq!(value("hawkeye-g", "p-2", PaperMeasure::SpeedUp), Some(1.25));
        assert_eq!(value("hawkeye-g", "p-1", PaperMeasure::Over("linux")), Some(1.5));
        // 40 s saved by 10 promotions, compared with 10 s by 50.
        assert_eq!(value("hawkeye-g", "p", PaperMeasure::SavedOver("linux")), Some(20.0));
    }

    #[test]
    fn programs_are_summed_up_by_name() {
        let with_phase = |name: &str, wall_s: f64, gib: f64| {
            let phase = PhaseFigures {
                phase: 0,
                start_s: 0.0,
                end_s: wall_s,
                accesses: 0.0,
                overhead_percent: 0.0,
                rss_bytes: (gib * GIB) as u64,
                huge_bytes: 0,
            };
            let phases = vec![phase];
            ProgramFigures { name: name.to_owned(), phases, ..program(wall_s, &[], 0.0) }
        };
        let other = || program(1.0, &[], 0.0);
        let results = [
            ran("paper", 0, vec![with_phase("a", 80.0, 3.0), with_phase("b", 10.0, 4.0), other()]),
            ran("ours", 0, vec![with_phase("a", 10.0, 5.0), with_phase("b", 20.0, 1.5), other()]),
        ];
        let value = |system, measure: PaperMeasure| {
            let paper = PublishedValue::Unknown;
            let figure = PaperValue { workload: "w", program: "both", system, measure, paper };
            measure.compute_value(&figure, &results)
        };
        assert_eq!(value("paper", PaperMeasure::TotalResidentGib(&["a", "b"], 0)), Some(7.0));
        assert_eq!(value("ours", PaperMeasure::TotalResidentGib(&["a", "b"], 0)), Some(6.5));
        assert_eq!(value("ours", PaperMeasure::TotalResidentGib(&["a", "p"], 0)), None);
        // 8 times and half the speed.
        let mean = value("ours", PaperMeasure::MeanPhaseOver(&["a", "b"], "paper", 0));
        assert!(mean.is_some_and(|mean| (mean - 2.0).abs() < 1e-9), "{mean:?}");
    }

    #[test]
    fn overhead_ends_when_it_stays_under_the_limit() {
        let until = |overheads: &[Option<f64>]| {
            seconds_until_overhead_under(&program(100.0, overheads, 0.0), 5.0)
        };
        assert_eq!(until(&[None, Some(9.0), Some(3.0)]), Some(20.0));
        let relapse = [Some(9.0), Some(3.0), Some(9.0), Some(3.0)];
        assert_eq!(until(&relapse), Some(30.0));
        assert_eq!(until(&[None, Some(3.0)]), Some(10.0));
        assert_eq!(until(&[Some(9.0), Some(5.0)]), None);
        assert_eq!(until(&[None, None]), None);
    }
}
