//! Times of page faults, as reported by the workload and evaluated by its starter.

use serde::{Deserialize, Serialize};

/// Times of page faults; of `read-stalls`, the longest times of reads with and without page faults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageFaultTimes {
    /// Nanoseconds, to three digits, and the number of faults with that time; ascending. A fault
    /// that lasted longer than the distance to the next one also stands for the faults that were
    /// due meanwhile.
    pub counts: Vec<(u64, u64)>,
    /// The longest fault, in nanoseconds.
    pub longest_ns: u64,
    /// Page faults, as the kernel counts them.
    pub faults: u64,
    /// Touches of pages that were already present, for instance because of a huge page.
    pub present: u64,
}

impl PageFaultTimes {
    /// Adds the times of another measurement.
    pub fn merge(&mut self, other: &Self) {
        self.counts.extend(&other.counts);
        self.counts.sort_unstable();
        self.counts.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.faults += other.faults;
        self.present += other.present;
    }

    /// The time that a share of all faults (0-1) did not exceed, in nanoseconds; 0 without faults.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let all: u64 = self.counts.iter().map(|(_, count)| count).sum();
        let wanted = (all as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, |(ns, _)| (*ns).min(self.longest_ns))
    }
}
