//! Properties of a machine: its page sizes, and what it can do to pages in one call.

use crate::page::{PageOrder, PageOrderSet};
use crate::saturating_cast::ratio_or_zero;
use std::time::Duration;

/// Properties that do not change while a machine is managed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachinePageProperties {
    /// Sizes that a TLB entry can have besides a base page. A page of another size takes as many
    /// entries of the next smaller size as it needs.
    pub tlb: PageOrderSet,
    /// Sizes that a promotion can produce.
    pub promotable: PageOrderSet,
    /// Sizes under [`PageOrder::HUGE`] that memory can get at its first touch, in processes for
    /// which the manager chooses sizes.
    pub at_faults: PageOrderSet,
    /// Number of cores.
    pub cores: f64,
    /// Memory, in bytes; 0 where unknown, in which case memory counts as free of charge.
    pub memory_bytes: u64,
    /// Cost of a fault that maps one base page, without zeroing it.
    pub base_fault: Duration,
    /// Cost of zeroing a base page.
    pub zero_base: Duration,
    /// Most huge pages of a process that are split together while memory is in danger (1: one by
    /// one).
    pub splits_per_call: usize,
}

impl Default for MachinePageProperties {
    /// Base and huge pages. Costs are those of a virtual machine with Linux 6.18 (512 base faults:
    /// 270 us; one huge fault: 125 us, nearly all of it zeroing).
    fn default() -> Self {
        Self {
            tlb: PageOrderSet::HUGE.with(PageOrder::GIANT),
            promotable: PageOrderSet::HUGE,
            at_faults: PageOrderSet::NONE,
            cores: 1.0,
            memory_bytes: 0,
            base_fault: Duration::from_nanos(300),
            zero_base: Duration::from_nanos(240),
            splits_per_call: 1,
        }
    }
}

impl MachinePageProperties {
    /// Value of one byte while it is held, in cores. All memory is worth as much as all cores. So
    /// one per cent more memory must save one per cent of the CPU time.
    pub fn byte_value_in_cores(&self) -> f64 {
        ratio_or_zero(self.cores, self.memory_bytes as f64)
    }

    /// The size of the TLB entries that hold pages of this size.
    pub fn tlb_entry_order(&self, order: PageOrder) -> PageOrder {
        self.tlb.up_to(order).largest().unwrap_or(PageOrder::BASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_between_two_sizes_take_entries_of_the_smaller() {
        let contiguous = MachinePageProperties {
            tlb: PageOrderSet::HUGE.with(PageOrder::CONTIGUOUS),
            ..MachinePageProperties::default()
        };
        let by = |order| PageOrder::new(order).map(|order| contiguous.tlb_entry_order(order));
        assert_eq!(by(2), Some(PageOrder::BASE));
        assert_eq!(by(5), Some(PageOrder::CONTIGUOUS));
        assert_eq!(by(18), Some(PageOrder::HUGE));
        let huge_only = MachinePageProperties::default();
        assert_eq!(huge_only.tlb_entry_order(PageOrder::CONTIGUOUS), PageOrder::BASE);
    }

    #[test]
    fn memory_costs_as_much_as_the_cores() {
        let shape = MachinePageProperties {
            cores: 4.0,
            memory_bytes: 1 << 30,
            ..MachinePageProperties::default()
        };
        assert!((shape.byte_value_in_cores() * f64::from(1 << 30) - 4.0).abs() < 1e-9);
        assert!(MachinePageProperties::default().byte_value_in_cores() < 1e-30);
    }
}
