//! Kernel samepage merging (KSM).

use crate::processes::mappings::vm;
use std::cell::OnceCell;

/// Whether KSM runs, read at most once.
#[derive(Default)]
pub(crate) struct KsmState(OnceCell<bool>);

impl KsmState {
    /// `VM_*` bits, without `VM_MERGEABLE` if KSM does not run: then nothing is merged.
    pub(crate) fn effective_vma_flags(&self, flags: u64) -> u64 {
        // 1: it runs; 0: it is stopped; 2: it is stopped and everything is unmerged.
        let run = || std::fs::read_to_string("/sys/kernel/mm/ksm/run");
        let is_running = || run().is_ok_and(|run| run.trim() == "1");
        if flags & vm::MERGEABLE == 0 || *self.0.get_or_init(is_running) {
            flags
        } else {
            flags & !vm::MERGEABLE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offered_memory_matters_while_it_is_merged() {
        let [on, off] = [true, false].map(|runs| KsmState(OnceCell::from(runs)));
        let offered = vm::WRITE | vm::MERGEABLE;
        assert_eq!(on.effective_vma_flags(offered), offered);
        assert_eq!(off.effective_vma_flags(offered), vm::WRITE);
        assert_eq!(off.effective_vma_flags(vm::WRITE), vm::WRITE);
    }
}
