//! What of a run is held against the thesis.

use super::{Kernel, Row, Runs};
use hawkeye_itanium::{Figures, Setup};

/// A figure of a run, or of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// Second-level TLB misses.
    Misses,
    /// Misses that the walker filled.
    Walker,
    /// Nested faults.
    Nested,
    /// References without a miss, in per cent.
    HitPercent,
    /// References with one, in per cent.
    MissPercent,
    /// Misses that the walker filled, in per cent.
    WalkerPercent,
    /// Cycles of translation, for each reference.
    CyclesPerReference,
    /// Cycles from one miss to the next.
    CyclesBetween,
    /// Cycles of an average miss.
    CyclesPerMiss,
    /// What one miss more costs: the thesis pins TLB entries, one after the other, and takes the slope of time over misses
    /// (section 6.3.2).
    CyclesPerFurtherMiss,
    /// Time without the program's misses, over time with them.
    Effectiveness,
    /// Misses, over those of this kernel.
    MissesOver(Kernel),
    /// How often as fast as on this kernel.
    SpeedUpOver(Kernel),
    /// Share of memory that is on pages of this order, in per cent.
    SpacePercent(u8),
    /// How often as fast as the same kernel without large pages.
    SpeedUp,
    /// The same from the beginning, before the thesis' programs are measured: with first touches, and what is copied then.
    SpeedUpFromStart,
    /// Memory out of others' reach, at the most, in MiB.
    HeldMib,
    /// Memory that was reserved and not used, at the most, in MiB.
    ReservedMib,
    /// Memory that was copied, from the beginning, in MiB.
    CopiedMib,
    /// The largest page there was, in KiB.
    LargestKib,
}

/// Entries that are pinned for [`Measure::CyclesPerFurtherMiss`]: 0 to 32 in steps of four, chosen; the thesis' figure 6.11 is lost.
const PINNED: [u32; 9] = [0, 4, 8, 12, 16, 20, 24, 28, 32];

const MIB: f64 = (1 << 20) as f64;

impl Measure {
    /// In words.
    pub fn name(self) -> String {
        let fixed = match self {
            Self::Misses => "misses",
            Self::Walker => "filled by the walker",
            Self::Nested => "nested faults",
            Self::HitPercent => "references that hit (%)",
            Self::MissPercent => "references that miss (%)",
            Self::WalkerPercent => "misses filled by the walker (%)",
            Self::CyclesPerReference => "cycles per reference",
            Self::CyclesBetween => "cycles between misses",
            Self::CyclesPerMiss => "cycles per miss",
            Self::CyclesPerFurtherMiss => "cycles per miss, by pinning",
            Self::Effectiveness => "effectiveness",
            Self::MissesOver(kernel) => return format!("misses over {kernel}'s"),
            Self::SpeedUpOver(kernel) => return format!("speed-up over {kernel}"),
            Self::SpacePercent(order) => return format!("memory on pages of order {order} (%)"),
            Self::SpeedUp => "speed-up",
            Self::SpeedUpFromStart => "from start",
            Self::HeldMib => "held MiB",
            Self::ReservedMib => "kept MiB",
            Self::CopiedMib => "copied MiB",
            Self::LargestKib => "largest KiB",
        };
        fixed.to_owned()
    }

    /// Whether it is in per cent.
    pub fn is_share(self) -> bool {
        matches!(
            self,
            Self::HitPercent | Self::MissPercent | Self::WalkerPercent | Self::SpacePercent(_)
        )
    }

    /// Digits after the point that it is shown with.
    pub fn decimals(self) -> usize {
        match self {
            Self::Misses
            | Self::Walker
            | Self::Nested
            | Self::CyclesBetween
            | Self::CopiedMib
            | Self::LargestKib => 0,
            Self::HeldMib | Self::ReservedMib => 1,
            Self::SpeedUpOver(_)
            | Self::SpeedUp
            | Self::SpeedUpFromStart
            | Self::Effectiveness
            | Self::MissesOver(_) => 3,
            Self::HitPercent
            | Self::MissPercent
            | Self::WalkerPercent
            | Self::CyclesPerReference
            | Self::CyclesPerMiss
            | Self::CyclesPerFurtherMiss
            | Self::SpacePercent(_) => 2,
        }
    }

    /// Machines whose runs it needs.
    pub fn setups(self, kernel: Kernel) -> Vec<Setup> {
        match self {
            Self::MissesOver(other) | Self::SpeedUpOver(other) => {
                vec![kernel.setup(), other.setup()]
            }
            Self::SpeedUp | Self::SpeedUpFromStart => {
                vec![kernel.setup(), kernel.without_large_pages().setup()]
            }
            Self::CyclesPerFurtherMiss => pinned(kernel).collect(),
            _ => vec![kernel.setup()],
        }
    }

    /// Its value; none where there is none, as of misses where nothing misses.
    pub fn of(self, row: &Row, runs: &Runs) -> Option<f64> {
        let run = |kernel: Kernel| runs.of(&row.workload, &kernel.setup());
        let own = run(row.kernel)?;
        let counters = own.counters;
        let value = match self {
            Self::Misses => counters.misses as f64,
            Self::Walker => counters.walker as f64,
            Self::Nested => counters.nested as f64,
            Self::HitPercent => counters.hit_percent()?,
            Self::MissPercent => 100.0 - counters.hit_percent()?,
            Self::WalkerPercent => counters.walker_percent()?,
            Self::CyclesPerReference => own.cycles / counters.references as f64,
            Self::CyclesBetween => own.cycles / counters.misses as f64,
            Self::CyclesPerMiss => own.cycles_per_miss()?,
            Self::CyclesPerFurtherMiss => {
                let figures = pinned(row.kernel).map(|setup| runs.of(&row.workload, &setup));
                slope(&figures.collect::<Option<Vec<_>>>()?)
            }
            Self::Effectiveness => (own.cycles - own.miss_cycles) / own.cycles,
            Self::MissesOver(other) => counters.misses as f64 / run(other)?.counters.misses as f64,
            Self::SpeedUpOver(other) => run(other)?.cycles / own.cycles,
            Self::SpacePercent(order) => own.statistics.faulted.percent(order)?,
            Self::SpeedUp => run(row.kernel.without_large_pages())?.cycles / own.cycles,
            Self::SpeedUpFromStart => {
                run(row.kernel.without_large_pages())?.all_cycles / own.all_cycles
            }
            Self::HeldMib => {
                let frames = u64::from(own.statistics.most_frames);
                (frames * row.kernel.page_bytes(0)) as f64 / MIB
            }
            Self::ReservedMib => {
                let frames = u64::from(own.statistics.most_reserved);
                (frames * row.kernel.page_bytes(0)) as f64 / MIB
            }
            Self::CopiedMib => own.copied_bytes as f64 / MIB,
            Self::LargestKib => {
                let statistics = &own.statistics;
                let largest = statistics
                    .faulted
                    .largest()
                    .max(statistics.promoted.largest());
                row.kernel.page_bytes(largest?) as f64 / 1024.0
            }
        };
        Some(value).filter(|value| value.is_finite())
    }
}

fn pinned(kernel: Kernel) -> impl Iterator<Item = Setup> {
    PINNED.iter().map(move |fake_pinned| Setup {
        fake_pinned: *fake_pinned,
        ..kernel.setup()
    })
}

/// That of the line of least squares of cycles over misses.
fn slope(figures: &[&Figures]) -> f64 {
    let point = |figures: &&Figures| (figures.counters.misses as f64, figures.cycles);
    let count = figures.len() as f64;
    let sum = figures
        .iter()
        .map(point)
        .fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x, sum.1 + y));
    let mean = (sum.0 / count, sum.1 / count);
    let (mut both, mut squares) = (0.0, 0.0);
    for (x, y) in figures.iter().map(point) {
        both += (x - mean.0) * (y - mean.1);
        squares += (x - mean.0).powi(2);
    }
    both / squares
}
