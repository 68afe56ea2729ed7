//! What the reads of all rounds found, and the choice of those from which a rate follows.

use crate::page::PAGES_PER_REGION;
use crate::walk_rate::region_probe_plan::READS_AFTER;
use crate::walk_rate::walk_costs::TouchKind;

/// Fewer marks than this give no rate.
pub(super) const MARKS_NEEDED: u64 = 64;
/// This many give a rate to a few per cent.
pub(super) const MARKS_ENOUGH: u64 = 1000;
/// At least this many regions with ordered touches give a rate: a single stream is in one at a
/// time.
const ORDERED_REGIONS_NEEDED: u64 = 32;

/// What all rounds found at their `n`th read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeReadTotals {
    /// Sum over regions of base pages, in seconds.
    pub(super) exposed_s: f64,
    pub(super) regions: u64,
    /// Base pages touched, by [`TouchKind`].
    pub(super) touches: [u64; 3],
    /// Regions in which streamed or strided pages were seen. Such pages come in groups.
    pub(super) ordered_regions: u64,
    pub(super) huge_exposed_s: f64,
    pub(super) huge_regions: u64,
    pub(super) huge_touched: u64,
    pub(super) cpu_s: f64,
    pub(super) wall_s: f64,
}

impl ProbeReadTotals {
    pub(super) fn add(&mut self, other: &Self) {
        self.exposed_s += other.exposed_s;
        self.regions += other.regions;
        for (sum, touches) in self.touches.iter_mut().zip(other.touches) {
            *sum += touches;
        }
        self.ordered_regions += other.ordered_regions;
        self.huge_exposed_s += other.huge_exposed_s;
        self.huge_regions += other.huge_regions;
        self.huge_touched += other.huge_touched;
        self.cpu_s += other.cpu_s;
        self.wall_s += other.wall_s;
    }

    pub(super) fn count_touched_base_pages(&self) -> u64 {
        self.touches.iter().sum()
    }

    /// How many touches of a kind came independently of each other, and how many give a rate.
    pub(super) fn independent_touches_and_needed(&self, kind: TouchKind) -> (u64, u64) {
        match kind {
            TouchKind::Streamed | TouchKind::Strided => {
                (self.ordered_regions, ORDERED_REGIONS_NEEDED)
            }
            TouchKind::Scattered => (self.touches[kind as usize], MARKS_ENOUGH),
        }
    }
}

/// What one round found, or several, at each read.
pub(super) type ProbeTotalsByRead = [ProbeReadTotals; READS_AFTER.len()];

pub(super) fn last_read(reads: &ProbeTotalsByRead) -> &ProbeReadTotals {
    &reads[READS_AFTER.len() - 1]
}

/// The sums over rounds, without one of them.
pub(super) fn sum_rounds_without(
    rounds: &[ProbeTotalsByRead],
    left_out: Option<usize>,
) -> ProbeTotalsByRead {
    let mut sums = ProbeTotalsByRead::default();
    for (n, round) in rounds.iter().enumerate() {
        if Some(n) != left_out {
            sums.iter_mut().zip(round).for_each(|(sum, read)| sum.add(read));
        }
    }
    sums
}

/// The reads from which a kind's rate follows, by their number.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateReads {
    pub(super) kind: TouchKind,
    /// The first with enough touches.
    pub(super) telling: usize,
    /// The first after which the next one showed enough new touches.
    pub(super) before_new: Option<usize>,
}

impl RateReads {
    /// The choice for each kind.
    pub(super) fn choose_for_touch_kinds(reads: &ProbeTotalsByRead) -> [Self; 3] {
        TouchKind::ALL.map(|kind| Self::choose_for_touch_kind(kind, reads))
    }

    fn choose_for_touch_kind(kind: TouchKind, reads: &ProbeTotalsByRead) -> Self {
        let touches = |read: &ProbeReadTotals| read.touches[kind as usize];
        let enough = |read: &ProbeReadTotals| {
            let (independent, enough) = read.independent_touches_and_needed(kind);
            independent >= enough
        };
        let new = |pair: &[ProbeReadTotals]| {
            let new = touches(&pair[1]).saturating_sub(touches(&pair[0]));
            new >= MARKS_NEEDED && pair[1].exposed_s > pair[0].exposed_s
        };
        Self {
            kind,
            telling: reads.iter().position(enough).unwrap_or(reads.len() - 1),
            before_new: reads.windows(2).position(new),
        }
    }

    /// Whether all pages of this kind that the process uses were touched long before the last
    /// read. Their rate then is only a lower bound: each may have been touched several times.
    pub(super) fn is_all_touched_early(self, reads: &ProbeTotalsByRead) -> bool {
        /// Share of the pages from which on all count as touched.
        const FULL: f64 = 0.9;
        let touched = |read: &ProbeReadTotals| read.touches[self.kind as usize] as f64;
        let (first, last) = (&reads[0], last_read(reads));
        let full = touched(first) >= first.regions as f64 * f64::from(PAGES_PER_REGION) * FULL;
        let early = |read: &&ProbeReadTotals| last.exposed_s >= 2.0 * read.exposed_s;
        let no_more =
            reads.iter().rfind(early).is_some_and(|read| touched(read) >= touched(last) * FULL);
        touched(first) > 0.0 && (full || no_more)
    }
}
