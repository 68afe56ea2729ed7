//! The size of pages at the first touch of memory.

use super::{
    bytes_added_by_promotion, estimated_present_runs, expected_touched_blocks, saved_walk_share,
};
use crate::machine_page_properties::MachinePageProperties;
use crate::observation::{MemoryOutsideRegions, RegionSample};
use crate::page::{BASE_PAGE_BYTES, PageOrder, PageOrderSet};
use crate::promotion::FaultSizes;
use crate::reason::Reason;
use crate::saturating_cast::u64_from_f64;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// What is known of a process's memory outside huge pages.
#[derive(Clone, Copy, Debug)]
pub struct FaultSizeInputs<'a> {
    /// Its regions, each with the value of its page walks, in cores: 0 where a huge page will spare
    /// them.
    pub regions: &'a [(RegionSample, f64)],
    /// Memory outside all regions.
    pub outside: &'a MemoryOutsideRegions,
    /// Page faults per second.
    pub faults_per_s: f64,
}

/// What the size saves at first touches, against the memory that it takes.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "fault-size")]
pub(crate) struct FaultSizeReason {
    pub(crate) order: PageOrder,
    /// Share of page faults that it spares, in per cent.
    pub(crate) faults_percent: f64,
    /// CPU time that it is expected to save in page walks, in microseconds per second.
    pub(crate) saved_us_per_s: f64,
    /// Memory that it takes beyond what is used, in bytes.
    pub(crate) added_bytes: u64,
}

impl fmt::Display for FaultSizeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order, faults_percent, saved_us_per_s, added_bytes } = self;
        write!(
            f,
            "{order} at first touches avoids {faults_percent:.0} % of the page faults, saves {saved_us_per_s:.0} us/s of page walks, takes {} KiB more",
            added_bytes >> 10
        )
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct FaultBlockSums {
    /// Present base pages: the number of faults so far.
    pages: f64,
    /// Blocks that contain them: the number of faults with this size.
    blocks: f64,
    added_bytes: f64,
    saved_cores: f64,
}

impl FaultSizeInputs<'_> {
    fn sums_for_page_order(
        &self,
        order: PageOrder,
        machine: &MachinePageProperties,
    ) -> FaultBlockSums {
        let mut sums = FaultBlockSums::default();
        // Memory that already has larger pages does not show which of its pages were touched.
        let base = self.regions.iter();
        for (sample, walks_cores) in base.filter(|(r, _)| r.order == PageOrder::BASE) {
            sums.pages += f64::from(sample.present);
            sums.blocks +=
                expected_touched_blocks(sample.present, estimated_present_runs(sample), order);
            sums.added_bytes += bytes_added_by_promotion(sample, order);
            sums.saved_cores += walks_cores * saved_walk_share(sample, order, machine);
        }
        let mapped: u64 = self.outside.mapped_bytes.iter().sum();
        let share = self.outside.resident_bytes as f64 / mapped.max(1) as f64;
        let share = share.clamp(0.0, 1.0);
        for (fits, bytes) in (0..).zip(&self.outside.mapped_bytes) {
            let size = order.min(PageOrder::new(fits).unwrap_or_default());
            // Each page is equally likely to be present, which gives more blocks than pages that
            // lie together.
            let touched = 1.0 - (1.0 - share).powf(size.pages() as f64);
            let bytes = *bytes as f64;
            sums.pages += share * bytes / BASE_PAGE_BYTES as f64;
            sums.blocks += touched * bytes / size.bytes() as f64;
            sums.added_bytes += (touched - share) * bytes;
        }
        sums
    }

    /// Value of a size, in cores: faults, zeroing and page walks spared, minus the value of the
    /// memory.
    fn value_cores(
        &self,
        sums: &FaultBlockSums,
        machine: &MachinePageProperties,
        horizon: Duration,
    ) -> f64 {
        if sums.pages < 1.0 {
            return 0.0;
        }
        let spared = 1.0 - sums.blocks / sums.pages;
        let zeroed = sums.added_bytes / BASE_PAGE_BYTES as f64 / sums.pages;
        let each_s =
            spared * machine.base_fault.as_secs_f64() - zeroed * machine.zero_base.as_secs_f64();
        // This share of it is new within the time.
        let renewed = (self.faults_per_s * horizon.as_secs_f64() / sums.pages).min(1.0);
        self.faults_per_s * each_s
            + renewed * (sums.saved_cores - machine.byte_value_in_cores() * sums.added_bytes)
    }

    /// The size of the highest value, with the smaller ones for where it doesn't fit. Empty where
    /// base pages are worth more. `None` without evidence: no memory is touched for the first time,
    /// or there are no base pages to judge by.
    pub fn choose_fault_size(
        &self,
        machine: &MachinePageProperties,
        horizon: Duration,
    ) -> Option<FaultSizes> {
        let offered = machine.at_faults;
        let base = self.sums_for_page_order(PageOrder::BASE, machine);
        if self.faults_per_s <= 0.0 || base.pages < 1.0 {
            return None;
        }
        let weighed = offered.iter().map(|order| {
            let sums = self.sums_for_page_order(order, machine);
            (order, sums, self.value_cores(&sums, machine, horizon))
        });
        let best = weighed.reduce(|best, next| if next.2 > best.2 { next } else { best })?;
        let (order, sums, orders) = if best.2 > 0.0 {
            (best.0, best.1, offered.up_to(best.0))
        } else {
            (PageOrder::BASE, base, PageOrderSet::NONE)
        };
        Some(FaultSizes {
            orders,
            reason: Reason::new(FaultSizeReason {
                order,
                faults_percent: (1.0 - sums.blocks / sums.pages).max(0.0) * 100.0,
                saved_us_per_s: sums.saved_cores * 1e6,
                added_bytes: u64_from_f64(sums.added_bytes),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{sample, sample_in_runs};

    const K64: PageOrder = PageOrder::CONTIGUOUS;
    const MINUTE: Duration = Duration::from_secs(60);

    fn machine() -> MachinePageProperties {
        MachinePageProperties {
            at_faults: (2..9).filter_map(PageOrder::new).collect(),
            cores: 2.0,
            memory_bytes: 24 << 30,
            ..MachinePageProperties::default()
        }
    }

    fn blocks_of_128_kib(resident_percent: u64) -> MemoryOutsideRegions {
        let bytes = 100 << 20;
        let mut mapped_bytes = [0; 9];
        mapped_bytes[5] = bytes;
        MemoryOutsideRegions { mapped_bytes, resident_bytes: bytes * resident_percent / 100 }
    }

    fn chosen(
        outside: &MemoryOutsideRegions,
        regions: &[RegionSample],
        faults_per_s: f64,
    ) -> Option<PageOrderSet> {
        let regions: Vec<_> = regions.iter().map(|r| (*r, 0.0)).collect();
        let evidence = FaultSizeInputs { regions: &regions, outside, faults_per_s };
        evidence.choose_fault_size(&machine(), MINUTE).map(|chosen| chosen.orders)
    }

    #[test]
    fn small_mappings_that_are_used_get_the_largest_that_fits() {
        let orders = chosen(&blocks_of_128_kib(100), &[], 1000.0);
        let k128 = PageOrder::new(5).unwrap_or_default();
        assert_eq!(orders, Some(machine().at_faults.up_to(k128)));
    }

    #[test]
    fn memory_that_is_hardly_used_stays_with_base_pages() {
        let orders = chosen(&blocks_of_128_kib(3), &[], 1000.0);
        assert_eq!(orders, Some(PageOrderSet::NONE));
    }

    #[test]
    fn scattered_pages_of_large_mappings_stay_base_pages() {
        let alone = sample_in_runs(40, 40);
        let outside = MemoryOutsideRegions::default();
        let orders = chosen(&outside, &[alone; 50], 1000.0);
        assert_eq!(orders, Some(PageOrderSet::NONE));
        // The same in runs of 16 pages: 64 KiB or less.
        let runs = sample_in_runs(160, 10);
        let orders = chosen(&outside, &[runs; 50], 50_000.0).unwrap_or_default();
        assert!(!orders.is_empty() && orders.largest() <= Some(K64), "{orders}");
    }

    #[test]
    fn no_size_is_chosen_without_evidence() {
        let outside = blocks_of_128_kib(100);
        // Nothing is touched for the first time.
        assert_eq!(chosen(&outside, &[], 0.0), None);
        let given = RegionSample { order: K64, ..sample(0, 512) };
        assert_eq!(chosen(&MemoryOutsideRegions::default(), &[given], 1000.0), None);
    }

    #[test]
    fn walks_count_where_the_tlb_holds_the_size() {
        let sparse = sample_in_runs(96, 16);
        let outside = MemoryOutsideRegions::default();
        let evidence = FaultSizeInputs {
            regions: &[(sparse, 0.01); 20],
            outside: &outside,
            faults_per_s: 100.0,
        };
        let without = evidence.choose_fault_size(&machine(), MINUTE);
        let holds_it = MachinePageProperties { tlb: PageOrderSet::HUGE.with(K64), ..machine() };
        let with = evidence.choose_fault_size(&holds_it, MINUTE);
        let largest = |chosen: Option<FaultSizes>| chosen.and_then(|c| c.orders.largest());
        assert!(without.is_some() && largest(without) < Some(K64));
        assert!(largest(with) >= Some(K64));
    }
}
