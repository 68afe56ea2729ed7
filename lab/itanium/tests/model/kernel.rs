//! Page sizes under the rules of the thesis' kernel.

use super::policies::*;
use hawkeye_itanium::address::BasePageSize;
use hawkeye_itanium::kernel::policies::PageSizePolicy;
use hawkeye_itanium::kernel::{InitialFragmentation, LargePageCopyOnWrite, MappingBacking};
use hawkeye_itanium::mmu::WalkerMode;
use hawkeye_itanium::{ItaniumError, ItaniumMachine, MachineSettings};

fn thesis(change: impl FnOnce(&mut MachineSettings)) -> ItaniumMachine {
    machine(PageSizePolicy::Cover, change)
}

fn sized(machine: &ItaniumMachine, process: u32, offset: u64) -> Option<u8> {
    let table = &machine.process_space(process).unwrap().table;
    let entry = table.get_entry(BasePageSize::Kib16.page_of_address(AT + offset));
    entry.map(|entry| entry.order)
}

#[test]
fn one_fault_fills_a_large_page() {
    let mut machine = thesis(|_| ());
    map(&mut machine, Some(AT), 256 * MIB);
    machine.access_memory(P, AT + 100 * MIB, true, 1).unwrap();
    machine.access_memory(P, AT + 200 * MIB, true, 1).unwrap();
    let counters = machine.counters();
    // The second is in the TLB.
    assert_eq!((counters.page_faults, counters.zeroed_bytes), (1, 256 * MIB));
    assert_eq!((counters.sized_entries, counters.misses), (16384, 2));
    assert_eq!(machine.large_page_statistics().faulted.count_of_order(14), 1);
    machine.check_invariants().unwrap();
}

#[test]
fn without_contiguous_memory_a_page_gets_the_next_smaller_size() {
    let mut machine =
        thesis(|setup| setup.fragmentation = Some(InitialFragmentation::with_all_blocks_broken(5)));
    map(&mut machine, Some(AT), 4 * MIB);
    machine.access_memory(P, AT + 3 * MIB, true, 1).unwrap();
    let statistics = machine.large_page_statistics();
    assert_eq!((statistics.failed.count_of_order(8), statistics.failed.count_of_order(6)), (1, 1));
    assert_eq!((statistics.failed.count_of_order(4), statistics.faulted.count_of_order(4)), (0, 1));
    // The page of order 8 was split to 6, and one of those to 4.
    assert_eq!(sized(&machine, P, 0), Some(6));
    assert_eq!(sized(&machine, P, 3 * MIB), Some(4));
    machine.check_invariants().unwrap();
}

#[test]
fn a_cut_page_is_covered_again_on_both_sides() {
    for walker in [WalkerMode::ShortFormat, WalkerMode::LONG] {
        let mut machine = thesis(|setup| setup.walker = walker);
        map(&mut machine, Some(AT), 4 * MIB);
        machine.access_memory(P, AT, true, 1).unwrap();
        // In the third MiB, 16 KiB from its beginning.
        let hole = AT + 2 * MIB + (16 << 10);
        machine.mprotect(P, hole, 64 << 10, false).unwrap();
        machine.check_invariants().unwrap();
        let orders = [0, 2 * MIB, 2 * MIB + (16 << 10), 2 * MIB + (80 << 10), 3 * MIB];
        let found = orders.map(|offset| sized(&machine, P, offset).unwrap());
        assert_eq!(found, [6, 0, 0, 0, 6]);
        let denied = machine.access_memory(P, hole, true, 1);
        assert!(matches!(denied, Err(ItaniumError::ReadOnly(..))));
        machine.access_memory(P, AT + 3 * MIB, true, 1).unwrap();
        // Writable again, it stays split.
        machine.mprotect(P, hole, 64 << 10, true).unwrap();
        machine.access_memory(P, hole, true, 1).unwrap();
        assert_eq!(sized(&machine, P, 0), Some(6));
        machine.munmap(P, AT, 3 * MIB).unwrap();
        assert!(machine.access_memory(P, AT, false, 1).is_err());
        machine.check_invariants().unwrap();
    }
}

#[test]
fn a_write_after_a_fork_splits_or_copies_all() {
    for (how, copied, kept) in
        [(LargePageCopyOnWrite::Demote, 16 << 10, 0), (LargePageCopyOnWrite::CopyLarge, 4 * MIB, 8)]
    {
        let mut machine = thesis(|setup| setup.kernel.copy_on_write = how);
        map(&mut machine, Some(AT), 4 * MIB);
        machine.access_memory(P, AT, true, 1).unwrap();
        let child = machine.fork(P).unwrap();
        machine.access_memory(child, AT + MIB, true, 1).unwrap();
        assert_eq!(machine.counters().copied_bytes, copied);
        assert_eq!(sized(&machine, child, 0), Some(kept));
        assert_eq!(sized(&machine, P, 0), Some(8));
        machine.check_invariants().unwrap();
        machine.exit(child).unwrap();
        // No other process shares it any more, so the parent has it unchanged.
        machine.access_memory(P, AT, true, 1).unwrap();
        assert_eq!(machine.counters().copied_bytes, copied);
        assert_eq!(sized(&machine, P, 0), Some(8));
        machine.exit(P).unwrap();
        machine.check_invariants().unwrap();
        let all = machine.settings().kernel.memory_bytes >> 14;
        assert_eq!(u64::from(machine.count_free_frames()), all);
    }
}

#[test]
fn moved_pages_keep_their_size_where_the_new_place_is_aligned() {
    let mut machine = thesis(|setup| setup.kernel.vm_align_bytes = MIB);
    map(&mut machine, Some(AT), 4 * MIB);
    machine.access_memory(P, AT, true, 1).unwrap();
    map(&mut machine, Some(AT + 4 * MIB), MIB);
    let to = machine.mremap(P, AT, 4 * MIB, 5 * MIB).unwrap();
    assert_eq!(to % MIB, 0);
    assert_ne!(to % (4 * MIB), 0);
    let table = &machine.process_space(P).unwrap().table;
    let mut orders =
        (0..5).map(|mib| table.get_entry(BasePageSize::Kib16.page_of_address(to + mib * MIB)));
    assert!(orders.all(|entry| entry.unwrap().order == 6));
    machine.access_memory(P, to + MIB, true, 1).unwrap();
    assert_eq!(machine.counters().page_faults, 1);
    machine.check_invariants().unwrap();
}

#[test]
fn files_have_no_large_pages() {
    let mut machine = thesis(|_| ());
    machine.mmap(P, MIB, Some(AT), MappingBacking::File).unwrap();
    machine.access_memory(P, AT, true, 1).unwrap();
    assert_eq!(sized(&machine, P, 0), Some(0));
    machine.check_invariants().unwrap();
}

#[test]
fn bad_calls_are_refused() {
    let mut machine = thesis(|_| ());
    map(&mut machine, Some(AT), MIB);
    let mut map = |at, bytes| machine.mmap(P, bytes, Some(at), MappingBacking::Anonymous);
    assert!(matches!(map(AT, MIB), Err(ItaniumError::Occupied(..))));
    for (at, bytes) in [(AT, 0), (AT, u64::MAX), (AT - MIB, MIB), (u64::MAX, MIB)] {
        assert!(matches!(map(at, bytes), Err(ItaniumError::Range { .. })), "{at:#x}");
    }
    assert!(matches!(machine.munmap(P, AT + 1, MIB), Err(ItaniumError::Range { .. })));
    assert!(matches!(machine.mprotect(P, AT, 2 * MIB, false), Err(ItaniumError::NotMapped(..))));
    assert_eq!(machine.exit(7), Err(ItaniumError::Process(7)));
    assert!(refused(MachineSettings { fake_pinned: 200, ..MachineSettings::default() }));
}

#[test]
fn a_mapping_without_memory_for_its_page_tables_is_not_made() {
    let mut machine = thesis(|setup| setup.kernel.memory_bytes = 2 * MIB);
    map(&mut machine, Some(AT), 2 * MIB - 2 * PAGE);
    write(&mut machine, [AT, AT + MIB, AT + MIB + MIB / 2, AT + MIB + 3 * (MIB / 4)]);
    machine.populate_range(P, AT, 2 * MIB - 2 * PAGE).unwrap();
    // One frame is left, for one of the two tables.
    let reach = 32 * MIB;
    let at = Some(AT + 2 * reach - PAGE);
    let refused = machine.mmap(P, 2 * PAGE, at, MappingBacking::Anonymous);
    assert_eq!(refused, Err(ItaniumError::OutOfMemory(P)));
    let first_page = BasePageSize::Kib16.page_of_address(AT + reach);
    assert!(machine.process_space(P).unwrap().is_range_unmapped(first_page, 4096));
    machine.check_invariants().unwrap();
}
