//! How far a program gets in a given time, and which pages it touches.

use crate::costs::Costs;
use crate::marks::touched;
use crate::process::{PartState, SimProcess};

/// Pages whose first touch costs extra, and the chance that one access goes to a given one of them.
struct Unmarked {
    pages: f64,
    chance: f64,
}

impl SimProcess {
    /// Accesses per second under the present mapping, no first touches or faults included; 0 for a
    /// process that is not there or accesses nothing.
    pub fn access_rate(&self, costs: &Costs) -> f64 {
        self.mean_access_ns(costs).map_or(0.0, |ns| 1e9 / ns)
    }

    /// The share of its time that goes into page walks under the present mapping, in per cent (0-100),
    /// first touches and faults not included: what hardware counters would show. `None` for a
    /// process that is not there or accesses nothing.
    pub fn overhead_percent(&self, costs: &Costs) -> Option<f64> {
        let mean = self.mean_access_ns(costs)?;
        Some(((1.0 - costs.huge_access_ns / mean) * 100.0).max(0.0))
    }

    fn total_weight(&self) -> f64 {
        self.parts.iter().map(PartState::live_weight).sum()
    }

    /// `None` when it accesses nothing.
    fn mean_access_ns(&self, costs: &Costs) -> Option<f64> {
        let total = self.total_weight();
        let walks_ns = self.walk_share * (costs.base_access_ns - costs.huge_access_ns);
        (total > 0.0).then(|| {
            let weighted = self.parts.iter().filter(|p| p.live_weight() > 0.0);
            let ns: f64 = weighted
                .map(|part| {
                    let huge = f64::from(part.huge) / part.regions.len() as f64;
                    part.live_weight() * (costs.huge_access_ns + (1.0 - huge) * walks_ns)
                })
                .sum();
            ns / total
        })
    }

    fn unmarked(&self) -> Vec<Unmarked> {
        let total = self.total_weight();
        let mut all = Vec::new();
        for part in self.parts.iter().filter(|p| p.live_weight() > 0.0) {
            let (base, huge) = part.chances(total);
            all.push(Unmarked {
                pages: part.marks.base.unmarked,
                chance: base,
            });
            all.push(Unmarked {
                pages: part.marks.huge.unmarked,
                chance: huge,
            });
        }
        all.retain(|u| u.pages > 0.0);
        all
    }

    /// How long it needs for so many accesses, in nanoseconds; `None`: it never does them.
    pub(crate) fn time_for(&self, accesses: f64, costs: &Costs) -> Option<f64> {
        let mean = self.mean_access_ns(costs)?;
        Some(self.stalled_ns + busy_ns(accesses, mean, &self.unmarked(), costs))
    }

    /// Runs for `elapsed_ns`: does as many accesses as fit in, and marks what it touches.
    pub(crate) fn run(&mut self, elapsed_ns: f64, costs: &Costs) {
        let stalled = self.stalled_ns.min(elapsed_ns);
        self.stalled_ns -= stalled;
        let Some(mean) = self.mean_access_ns(costs) else {
            return;
        };
        let unmarked = self.unmarked();
        let accesses = accesses_in(elapsed_ns - stalled, mean, &unmarked, costs);
        self.accesses += accesses;
        self.mark(accesses);
    }

    fn mark(&mut self, accesses: f64) {
        let total = self.total_weight();
        for part in self.parts.iter_mut().filter(|p| p.live_weight() > 0.0) {
            let (base, huge) = part.chances(total);
            part.marks.base.expose(accesses * base);
            part.marks.huge.expose(accesses * huge);
        }
    }
}

impl PartState {
    /// Its weight, if there is anything in it to access.
    fn live_weight(&self) -> f64 {
        if self.regions.is_empty() || self.used.is_empty() {
            0.0
        } else {
            self.spec.weight
        }
    }

    /// The chances that one access goes to a given base page in use, and to a given region.
    fn chances(&self, total_weight: f64) -> (f64, f64) {
        let region = self.live_weight() / total_weight / self.regions.len() as f64;
        (region / f64::from(self.used.count()), region)
    }
}

/// The time for so many accesses: it rises with them, ever more slowly as first touches are done.
fn busy_ns(accesses: f64, mean_ns: f64, unmarked: &[Unmarked], costs: &Costs) -> f64 {
    let touches: f64 = unmarked
        .iter()
        .map(|u| u.pages * touched(accesses * u.chance))
        .sum();
    accesses * mean_ns + touches * costs.first_touch.as_nanos() as f64
}

/// The inverse of [`busy_ns`].
fn accesses_in(ns: f64, mean_ns: f64, unmarked: &[Unmarked], costs: &Costs) -> f64 {
    let (mut low, mut high) = (0.0, ns / mean_ns);
    if unmarked.is_empty() {
        return high;
    }
    while high - low > 1e-9 * high {
        let middle = low + (high - low) / 2.0;
        if busy_ns(middle, mean_ns, unmarked, costs) < ns {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_and_time_are_each_others_inverse() {
        let costs = Costs::default();
        let unmarked = [
            Unmarked {
                pages: 1e6,
                chance: 1e-6,
            },
            Unmarked {
                pages: 100.0,
                chance: 1e-3,
            },
        ];
        for accesses in [0.0, 1.0, 1e3, 1e6, 1e9] {
            let ns = busy_ns(accesses, 300.0, &unmarked, &costs);
            let back = accesses_in(ns, 300.0, &unmarked, &costs);
            assert!(
                (back - accesses).abs() <= 1e-6 * accesses,
                "{accesses}: {back}"
            );
        }
    }
}
