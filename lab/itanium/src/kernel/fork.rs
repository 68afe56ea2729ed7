//! `fork` and `exit`.

use super::ItaniumMachine;
use crate::error::{ItaniumError, Result};
use crate::mmu::Pte;

impl ItaniumMachine {
    /// Copies a process and returns the copy's number. Both share all memory until one writes. The
    /// parent's translations that allow writes must go. The parent therefore gets new region ids,
    /// as on Linux (`flush_tlb_mm`, `asm-ia64/tlbflush.h`).
    ///
    /// # Errors
    /// No such process; no memory for page tables; no region ids.
    pub fn fork(&mut self, parent: u32) -> Result<u32> {
        let space = self.space(parent)?;
        let leaves = space.table.frames().count();
        if leaves > self.available_frames() as usize {
            return Err(ItaniumError::OutOfMemory(parent));
        }
        let entries: Vec<(u64, Pte)> = space.table.entries().collect();
        let (mappings, heap) = (space.mappings.clone(), space.heap);
        self.space_mut(parent)?.registers = self.next_context()?;
        let child = self.spawn()?;
        let copy = self.space_mut(child)?;
        copy.mappings = mappings;
        copy.heap = heap;
        for (page, entry) in entries {
            self.ensure_leaf(child, page)?;
            let both = Pte {
                writable: false,
                ..entry
            };
            if entry.present {
                *self.shared.entry(entry.frame).or_default() += 1;
            }
            self.space_mut(parent)?.table.set(page, Some(both));
            self.space_mut(child)?.table.set(page, Some(both));
        }
        self.update_peak_use();
        Ok(child)
    }

    /// Ends a process. Its translations stay in the TLB and the hash table until others need the
    /// room, because no process gets its region ids again.
    ///
    /// # Errors
    /// No such process.
    pub fn exit(&mut self, process: u32) -> Result {
        let space = self.spaces.get_mut(process as usize).and_then(Option::take);
        let space = space.ok_or(ItaniumError::Process(process))?;
        self.release_reservations(process, 0, u64::MAX);
        for (_, entry) in space.table.entries().filter(|(_, entry)| entry.present) {
            self.release_frame(entry.frame);
        }
        for frame in space.table.frames() {
            self.buddy.free(frame, 1);
        }
        Ok(())
    }
}
