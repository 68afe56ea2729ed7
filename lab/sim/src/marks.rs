//! Access bits, set by chance.
//!
//! Accesses are independent, so a page that is hit with a small chance by each of many has been hit
//! with a chance of `1 - exp(-exposure)`, where exposure is the number of hits to be expected. It is
//! summed up as the program runs; whether a given page was hit is drawn when somebody looks.

use crate::bits::PageBits;
use crate::process::{PartState, SimProcess};
use crate::region::Region;
use crate::rng::Rng;

/// Access bits of one kind of page in a part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// Clear bits of pages in use, as is to be expected.
    pub(crate) unmarked: f64,
    /// Since the bits were cleared.
    exposure: f64,
}

/// Access bits of a part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// Of base pages in use.
    pub(crate) base: Mark,
    /// Of huge pages.
    pub(crate) huge: Mark,
}

/// The chance that something was hit at least once.
pub(crate) fn touched(exposure: f64) -> f64 {
    -(-exposure).exp_m1()
}

impl Mark {
    pub(crate) fn expose(&mut self, exposure: f64) {
        self.exposure += exposure;
        self.unmarked *= 1.0 - touched(exposure);
    }

    fn add(&mut self, unmarked: f64) {
        // What rounding leaves may be under 0.
        self.unmarked = (self.unmarked + unmarked).max(0.0);
    }
}

impl Marks {
    fn of(&mut self, region: &Region) -> &mut Mark {
        if region.huge {
            &mut self.huge
        } else {
            &mut self.base
        }
    }

    /// Draws which bits of a region were set since it was last brought up to date.
    fn update(&mut self, region: &mut Region, used: PageBits, rng: &mut Rng) {
        let mark = self.of(region);
        let chance = touched(mark.exposure - region.seen);
        region.seen = mark.exposure;
        let before = f64::from(region.unmarked(used));
        if before == 0.0 || chance == 0.0 {
            return;
        }
        if region.huge {
            if rng.chance(chance) {
                region.accessed = PageBits::FULL;
            }
        } else {
            let mut hits = used.minus(region.accessed);
            hits.retain(|| rng.chance(chance));
            region.accessed = region.accessed.or(hits);
        }
        mark.add(f64::from(region.unmarked(used)) - before * (1.0 - chance));
    }
}

impl PartState {
    /// Changes the region at `index` in which the pages `used` are in use afterwards, and keeps count
    /// of huge pages and clear access bits; returns what `change` does.
    pub(crate) fn change(
        &mut self,
        index: usize,
        used: PageBits,
        rng: &mut Rng,
        change: impl FnOnce(&mut Region) -> i32,
    ) -> i32 {
        let Some(region) = self.regions.get_mut(index) else {
            return 0;
        };
        self.marks.update(region, self.used, rng);
        let unmarked = f64::from(region.unmarked(self.used));
        self.marks.of(region).add(-unmarked);
        self.huge -= u32::from(region.huge);
        let changed = change(region);
        self.huge += u32::from(region.huge);
        let mark = self.marks.of(region);
        mark.add(f64::from(region.unmarked(used)));
        region.seen = mark.exposure;
        changed
    }
}

impl SimProcess {
    /// Clears all access bits.
    pub(crate) fn clear_bits(&mut self) {
        self.cleared = true;
        for part in &mut self.parts {
            part.marks = Marks::default();
            for region in &mut part.regions {
                region.accessed = PageBits::EMPTY;
                region.seen = 0.0;
                let unmarked = f64::from(region.unmarked(part.used));
                part.marks.of(region).add(unmarked);
            }
        }
    }

    /// Brings all access bits up to date.
    pub(crate) fn update_bits(&mut self) {
        for part in &mut self.parts {
            for region in &mut part.regions {
                part.marks.update(region, part.used, &mut self.rng);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::spec::{Part, ProcessSpec};
    use hawkeye_policy::{ProcessId, RegionAddr};

    fn running() -> SimProcess {
        let id = ProcessId {
            pid: 1,
            start_ticks: 0,
        };
        let part = Part {
            regions: 64,
            ..Part::default()
        };
        let spec = ProcessSpec {
            parts: vec![part],
            ..ProcessSpec::default()
        };
        let mut process = SimProcess::new(id, spec, 1);
        process.arrive();
        process
    }

    fn clear(process: &SimProcess) -> f64 {
        let used = |p: &PartState| -> f64 {
            let unmarked = p.regions.iter().map(|r| f64::from(r.unmarked(p.used)));
            unmarked.sum()
        };
        process.parts.iter().map(used).sum()
    }

    #[test]
    fn as_many_bits_are_set_as_is_to_be_expected_however_often_they_are_read() {
        let costs = Costs::default();
        for reads in [1u32, 7, 50] {
            let mut process = running();
            process.clear_bits();
            assert_eq!(clear(&process), 32_768.0);
            for _ in 0..reads {
                process.run(20e6 / f64::from(reads), &costs);
                let expected: f64 = process.parts.iter().map(|p| p.marks.base.unmarked).sum();
                process.update_bits();
                assert!((clear(&process) - expected).abs() < 400.0, "{reads}");
            }
            let untouched = 32_768.0 * (-process.accesses / 32_768.0).exp();
            assert!((clear(&process) - untouched).abs() < 500.0, "{reads}");
        }
    }

    #[test]
    fn first_touches_are_paid_once() {
        let costs = Costs::default();
        let (mut never, mut sampled) = (running(), running());
        sampled.clear_bits();
        for process in [&mut never, &mut sampled] {
            for _ in 0..10 {
                process.run(1e8, &costs);
            }
        }
        let lost_ns = (never.accesses - sampled.accesses) * costs.base_access_ns;
        let paid_ns = 32_768.0 * costs.first_touch.as_nanos() as f64;
        assert!(
            (lost_ns / paid_ns - 1.0).abs() < 1e-3,
            "{lost_ns} of {paid_ns}"
        );
    }

    #[test]
    fn a_change_of_the_mapping_keeps_count_of_clear_bits() {
        let costs = Costs::default();
        let mut process = running();
        process.clear_bits();
        for index in 0..64u64 {
            process.run(1e5, &costs);
            let address = process
                .parts
                .first()
                .map(|p| p.spec.start.start() + (index << 21));
            let address = RegionAddr::containing(address.unwrap_or(0));
            process.change_region(address, |region| i32::from(region.collapse()));
        }
        let part = process
            .parts
            .first()
            .map(|p| (p.huge, p.marks.base.unmarked));
        assert!(
            part.is_some_and(|(huge, base)| huge == 64 && base < 1e-6),
            "{part:?}"
        );
        assert!(process.walk(true).iter().all(|r| r.accessed == 512));
    }
}
