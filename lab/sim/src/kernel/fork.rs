//! Fork: a child with the same memory, copied when either writes.

use super::costs::times;
use super::payer::{Paid, Payer};
use super::{Kernel, KernelError, SpaceId};

impl Kernel {
    /// A copy of an address space. Its pages are shared until one of both writes to them; reservations stay with the
    /// parent, which pays for copying the page table.
    ///
    /// # Errors
    /// No such address space.
    pub fn fork(&mut self, parent: SpaceId) -> Result<(SpaceId, Paid), KernelError> {
        let found = self.space_mut(parent)?;
        let mut regions = 0;
        for (_, region) in found.table.iter_mut() {
            region.shared = region.present;
            regions += 1;
        }
        let (family, table) = (found.family, found.table.copied());
        let mappings = found.mappings.clone();
        let (resident, huge, swapped) = (found.resident, found.huge, found.swapped);
        let (fault_sizes, many_sizes) = (found.fault_sizes, found.many_sizes);
        let child = self.spaces.add(family);
        let copy = self.space_mut(child)?;
        (copy.table, copy.mappings) = (table, mappings);
        (copy.fault_sizes, copy.many_sizes) = (fault_sizes, many_sizes);
        (copy.resident, copy.huge, copy.swapped) = (resident, huge, swapped);
        self.reclaim_state.swap.used += swapped;
        let paid = self.pay(
            Payer::Program(parent),
            times(regions, self.costs.fork_region_ns),
        );
        self.debug_check();
        Ok((child, paid))
    }
}
