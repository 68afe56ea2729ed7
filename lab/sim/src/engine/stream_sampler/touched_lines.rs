//! Cache lines that a stream touches.

use super::zipf::zipf_rank_groups;
use super::{StreamSampler, StreamShape, touch_probability};
use crate::mmu::CACHE_LINE_BYTES;
use hawkeye_policy::BASE_PAGE_BYTES;

const LINES_PER_PAGE: f64 = (BASE_PAGE_BYTES / CACHE_LINE_BYTES) as f64;

impl StreamSampler {
    pub(in crate::engine) fn expected_touched_lines(&self, per_s: f64, time_s: f64) -> f64 {
        let used = self.used as f64 * LINES_PER_PAGE;
        match &self.shape {
            StreamShape::Random => used * touch_probability(per_s * time_s / used.max(1.0)),
            StreamShape::Stride { bytes, .. } => {
                let (all, each) = self.lines_of_stride(*bytes);
                (per_s * time_s * each).min(all)
            }
            StreamShape::Zipf { theta, total, .. } => {
                let pages = self.count_pages() as f64;
                let accesses = per_s * time_s * pages / self.used.max(1) as f64;
                let groups = zipf_rank_groups(pages, *theta).map(|(chance, width)| {
                    width * touch_probability(accesses * chance / total / LINES_PER_PAGE)
                });
                groups.sum::<f64>() / pages * used
            }
        }
    }

    /// Lines per access that it brings in, because a line stays in the cache for only `stays_s`.
    pub(in crate::engine) fn missed_lines_per_access(&self, per_s: f64, stays_s: f64) -> f64 {
        match &self.shape {
            StreamShape::Random => {
                let used = self.used.max(1) as f64 * LINES_PER_PAGE;
                (-per_s * stays_s / used).exp()
            }
            StreamShape::Stride { bytes, .. } => {
                let (all, each) = self.lines_of_stride(*bytes);
                if per_s * stays_s * each < all { each } else { 0.0 }
            }
            StreamShape::Zipf { theta, total, .. } => {
                let pages = self.count_pages() as f64;
                let accesses = per_s * stays_s * pages / self.used.max(1) as f64;
                let groups = zipf_rank_groups(pages, *theta).map(|(chance, width)| {
                    let share = chance / total;
                    width * share * (-accesses * share / LINES_PER_PAGE).exp()
                });
                groups.sum()
            }
        }
    }

    /// Lines in one round of a stride, and how many of them one access reaches.
    fn lines_of_stride(&self, bytes: u64) -> (f64, f64) {
        let line = CACHE_LINE_BYTES as f64;
        let used = (self.used * BASE_PAGE_BYTES) as f64;
        (used / line.max(bytes as f64), (bytes as f64 / line).min(1.0))
    }
}
