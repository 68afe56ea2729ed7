//! Page sizes at first touches that the managed machine offers.

use crate::arch::tlb_page_sizes_of_this_machine;
use crate::error::Result;
use crate::machine_lease::thp_settings::THP_DIR;
use crate::memory::system_memory;
use crate::page_sizes::{
    MappedPageSizeSampler, ObservedPageSizes, PageSizeSwitches, ThpMode, read_page_size_settings,
};
use crate::probe::mthp_sizes::FirstTouchCosts;
use crate::processes::mappings::EligibleRanges;
use crate::processes::process;
use hawkeye_policy::saturating_cast::u64_from_f64;
use hawkeye_policy::{
    MachinePageProperties, MemoryOutsideRegions, PageOrder, PageOrderSet, ProcessId, ProcessSample,
};
use std::path::Path;
use std::time::Duration;

/// The sizes on offer, their switches, and the pages that result.
pub(crate) struct PageSizeControl {
    pub(crate) shape: MachinePageProperties,
    switches: Option<PageSizeSwitches>,
    /// Set where any process may get pages other than base and huge pages.
    pub(crate) mapped_sizes: Option<MappedPageSizeSampler>,
}

impl PageSizeControl {
    /// No size may be chosen. Page sizes are looked at only if some are switched on already.
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let thp = Path::new(THP_DIR);
        let given = read_page_size_settings(thp)
            .iter()
            .any(|size| size.order < PageOrder::HUGE && size.given_to > Some(ThpMode::Never));
        Self {
            shape: MachinePageProperties {
                tlb: tlb_page_sizes_of_this_machine(),
                cores: cores as f64,
                memory_bytes: system_memory::machine_memory_use()
                    .map_or(0, |memory| memory.total_bytes),
                ..MachinePageProperties::default()
            },
            switches: None,
            mapped_sizes: given.then(|| MappedPageSizeSampler::new(thp.into())),
        }
    }

    pub(crate) fn enable_page_size_choice(
        &mut self,
        switches: PageSizeSwitches,
        costs: Option<FirstTouchCosts>,
    ) {
        self.shape.at_faults = switches.switchable_sizes();
        if let Some(costs) = costs {
            self.shape.base_fault = Duration::from_secs_f64(costs.fault_ns * 1e-9);
            self.shape.zero_base = Duration::from_secs_f64(costs.zero_base_ns * 1e-9);
        }
        self.mapped_sizes.get_or_insert_with(|| MappedPageSizeSampler::new(THP_DIR.into()));
        self.switches = Some(switches);
    }

    /// Switches on the sizes that a process should get, and off those that no process needs.
    /// Fails if a setting cannot be changed.
    pub(crate) fn request_fault_sizes(
        &mut self,
        process: ProcessId,
        orders: PageOrderSet,
    ) -> Result<()> {
        match &mut self.switches {
            Some(switches) => switches.request_fault_sizes(process, orders),
            None => Ok(()),
        }
    }

    pub(crate) fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool + Copy) {
        if let Some(looks) = &mut self.mapped_sizes {
            looks.retain_processes(there);
        }
        if let Some(switches) = &mut self.switches {
            if let Err(error) = switches.retain_processes(there) {
                tracing::warn!("a page size could not be switched off: {error}");
            }
        }
    }

    /// Adds to a sample the data for the choice among sizes. Where sizes are switched on for
    /// advised memory only, only such memory counts. Its share of the memory that is resident
    /// outside of regions is assumed to be its share of the mapped memory there.
    pub(crate) fn add_page_size_choice_inputs(
        &self,
        sample: &mut ProcessSample,
        eligible: &EligibleRanges,
    ) {
        let Some(switches) = &self.switches else {
            return;
        };
        let used = process::cpu_time_and_faults(sample.process.pid).ok();
        sample.faults = used.map(|used| used.minor_faults);
        let outside = &eligible.outside;
        let mapped_bytes = match switches.target_thp_mode() {
            ThpMode::Always => outside.mapped_bytes,
            ThpMode::Madvise => outside.advised_bytes,
            ThpMode::Never => return,
        };
        let sum = |bytes: &[u64; 9]| bytes.iter().sum::<u64>();
        let (all, ours) = (sum(&outside.mapped_bytes), sum(&mapped_bytes));
        // The kernel counts it in batches per core, and it is read a moment later than the regions.
        let anonymous = process::anonymous_rss_bytes(sample.process.pid).unwrap_or(0);
        let elsewhere = sample.resident_bytes_in_regions() + eligible.refused_bytes;
        let resident = anonymous.saturating_sub(elsewhere).min(all);
        sample.outside = MemoryOutsideRegions {
            mapped_bytes,
            resident_bytes: u64_from_f64(resident as f64 * ours as f64 / all.max(1) as f64),
        };
        if let Some(looks) = &self.mapped_sizes {
            for region in sample.regions.iter_mut().filter(|r| !r.is_huge()) {
                let seen = looks.dominant_order_of_region(sample.process, region.region);
                let smaller = seen.filter(|order| *order < PageOrder::HUGE);
                region.order = smaller.unwrap_or(region.order);
            }
        }
    }

    pub(crate) fn observed_page_sizes(&self, now: Duration) -> Option<ObservedPageSizes> {
        Some(self.mapped_sizes.as_ref()?.observed_page_sizes(now))
    }
}
