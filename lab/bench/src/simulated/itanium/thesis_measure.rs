//! Figures of runs that are compared with the thesis.

use super::{FinishedRuns, ThesisKernel, ThesisValue};
use hawkeye_itanium::{ItaniumRunFigures, MachineSettings};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThesisMeasure {
    /// Second-level TLB misses.
    Misses,
    Walker,
    Nested,
    HitPercent,
    MissPercent,
    WalkerPercent,
    /// Translation cycles per reference.
    CyclesPerReference,
    /// Cycles from one miss to the next.
    CyclesBetween,
    CyclesPerMiss,
    /// The cost of one additional miss: the thesis pins TLB entries, one after the other, and uses
    /// the slope of time over misses (section 6.3.2).
    CyclesPerFurtherMiss,
    /// Time without the program's misses, divided by time with them.
    Effectiveness,
    /// Misses, divided by those of this kernel.
    MissesOver(ThesisKernel),
    /// Speed as a multiple of this kernel's.
    SpeedUpOver(ThesisKernel),
    /// Share of memory on pages of this order, in per cent.
    SpacePercent(u8),
    /// Speed as a multiple of the same kernel's without large pages.
    SpeedUp,
    /// The same from the start of the program. It includes first touches, and the copying at that
    /// time, both before the thesis' measurements begin.
    SpeedUpFromStart,
    /// Most memory that others could not use, in MiB.
    HeldMib,
    /// Most memory that was reserved and not used, in MiB.
    ReservedMib,
    CopiedMib,
    LargestKib,
}

/// Numbers of pinned entries for [`ThesisMeasure::CyclesPerFurtherMiss`]: 0 to 32 in steps of four.
/// Chosen, because the thesis' figure 6.11 is lost.
const PINNED: [u32; 9] = [0, 4, 8, 12, 16, 20, 24, 28, 32];

const MIB: f64 = (1 << 20) as f64;

impl ThesisMeasure {
    /// Its description, and the digits after the decimal point.
    pub fn label_and_decimals(self) -> (String, usize) {
        let (name, decimals) = match self {
            Self::Misses => ("misses", 0),
            Self::Walker => ("filled by the walker", 0),
            Self::Nested => ("nested faults", 0),
            Self::HitPercent => ("references that hit (%)", 2),
            Self::MissPercent => ("references that miss (%)", 2),
            Self::WalkerPercent => ("misses filled by the walker (%)", 2),
            Self::CyclesPerReference => ("cycles per reference", 2),
            Self::CyclesBetween => ("cycles between misses", 0),
            Self::CyclesPerMiss => ("cycles per miss", 2),
            Self::CyclesPerFurtherMiss => ("cycles per miss, by pinning", 2),
            Self::Effectiveness => ("effectiveness", 3),
            Self::SpeedUp => ("speed-up", 3),
            Self::SpeedUpFromStart => ("from start", 3),
            Self::HeldMib => ("held MiB", 1),
            Self::ReservedMib => ("kept MiB", 1),
            Self::CopiedMib => ("copied MiB", 0),
            Self::LargestKib => ("largest KiB", 0),
            Self::MissesOver(kernel) => return (format!("misses over {kernel}'s"), 3),
            Self::SpeedUpOver(kernel) => return (format!("speed-up over {kernel}"), 3),
            Self::SpacePercent(order) => {
                return (format!("memory on pages of order {order} (%)"), 2);
            }
        };
        (name.to_owned(), decimals)
    }

    /// Whether it is in per cent.
    pub fn is_percentage(self) -> bool {
        matches!(
            self,
            Self::HitPercent | Self::MissPercent | Self::WalkerPercent | Self::SpacePercent(_)
        )
    }

    /// Machines that the measure needs runs of.
    pub fn needed_machine_settings(self, kernel: ThesisKernel) -> Vec<MachineSettings> {
        match self {
            Self::MissesOver(other) | Self::SpeedUpOver(other) => {
                vec![kernel.machine_settings(), other.machine_settings()]
            }
            Self::SpeedUp | Self::SpeedUpFromStart => {
                vec![kernel.machine_settings(), kernel.without_large_pages().machine_settings()]
            }
            Self::CyclesPerFurtherMiss => machine_settings_with_pinned(kernel).collect(),
            _ => vec![kernel.machine_settings()],
        }
    }

    /// Its value; none if it is undefined, such as cycles per miss without misses.
    pub fn compute_value(self, row: &ThesisValue, runs: &FinishedRuns) -> Option<f64> {
        let run = |kernel: ThesisKernel| runs.find_run(&row.workload, &kernel.machine_settings());
        let own = run(row.kernel)?;
        let counters = own.counters;
        let mib = |frames| (u64::from(frames) * row.kernel.page_bytes(0)) as f64 / MIB;
        let value = match self {
            Self::Misses => counters.misses as f64,
            Self::Walker => counters.walker as f64,
            Self::Nested => counters.nested as f64,
            Self::HitPercent => counters.l2_tlb_hit_percent()?,
            Self::MissPercent => 100.0 - counters.l2_tlb_hit_percent()?,
            Self::WalkerPercent => counters.walker_filled_percent()?,
            Self::CyclesPerReference => own.cycles / counters.references as f64,
            Self::CyclesBetween => own.cycles / counters.misses as f64,
            Self::CyclesPerMiss => own.cycles_per_miss()?,
            Self::CyclesPerFurtherMiss => {
                let figures = machine_settings_with_pinned(row.kernel)
                    .map(|setup| runs.find_run(&row.workload, &setup));
                cycles_per_further_miss(&figures.collect::<Option<Vec<_>>>()?)
            }
            Self::Effectiveness => (own.cycles - own.miss_cycles) / own.cycles,
            Self::MissesOver(other) => counters.misses as f64 / run(other)?.counters.misses as f64,
            Self::SpeedUpOver(other) => run(other)?.cycles / own.cycles,
            Self::SpacePercent(order) => own.statistics.faulted.memory_percent_of_order(order)?,
            Self::SpeedUp => run(row.kernel.without_large_pages())?.cycles / own.cycles,
            Self::SpeedUpFromStart => {
                run(row.kernel.without_large_pages())?.all_cycles / own.all_cycles
            }
            Self::HeldMib => mib(own.statistics.most_frames),
            Self::ReservedMib => mib(own.statistics.most_reserved),
            Self::CopiedMib => own.copied_bytes as f64 / MIB,
            Self::LargestKib => {
                let (faulted, promoted) = (&own.statistics.faulted, &own.statistics.promoted);
                let largest = faulted.largest_counted_order().max(promoted.largest_counted_order());
                row.kernel.page_bytes(largest?) as f64 / 1024.0
            }
        };
        Some(value).filter(|value| value.is_finite())
    }
}

fn machine_settings_with_pinned(kernel: ThesisKernel) -> impl Iterator<Item = MachineSettings> {
    PINNED.iter().map(move |fake_pinned| MachineSettings {
        fake_pinned: *fake_pinned,
        ..kernel.machine_settings()
    })
}

fn cycles_per_further_miss(figures: &[&ItaniumRunFigures]) -> f64 {
    let point = |figures: &&ItaniumRunFigures| (figures.counters.misses as f64, figures.cycles);
    let count = figures.len() as f64;
    let sum = figures.iter().map(point).fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x, sum.1 + y));
    let mean = (sum.0 / count, sum.1 / count);
    let (mut both, mut squares) = (0.0, 0.0);
    for (x, y) in figures.iter().map(point) {
        both += (x - mean.0) * (y - mean.1);
        squares += (x - mean.0).powi(2);
    }
    both / squares
}
