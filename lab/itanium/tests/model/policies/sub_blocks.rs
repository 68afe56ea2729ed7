//! Talluri and Hill's TLB entries with sub-blocks, and page reservation for them.

use super::*;
use hawkeye_itanium::mmu::WalkerMode;

fn talluri_and_hill() -> ItaniumMachine {
    machine(PageSizePolicy::PageReservation { order: 4 }, |setup| {
        setup.processor.sub_block_order = 4
    })
}

fn entries(machine: &ItaniumMachine) -> usize {
    let entries = machine.mmu().tlb.entries();
    entries.filter(|(_, pinned)| !pinned).count()
}

#[test]
fn one_entry_holds_a_block_of_base_pages() {
    let mut machine = talluri_and_hill();
    map(&mut machine, Some(AT), 64 * PAGE);
    write(&mut machine, pages(AT, 64 * PAGE));
    // And one for their table.
    assert_eq!(entries(&machine), 5);
    let counters = machine.counters();
    // Each page misses on its own when it gets its memory: before that and after it.
    assert_eq!((counters.misses, counters.page_faults), (128, 64));
    assert_eq!(counters.copied_bytes, 0);
    write(&mut machine, pages(AT, 64 * PAGE));
    assert_eq!(machine.counters().misses, 128);
}

#[test]
fn a_miss_fills_all_present_pages_of_its_block() {
    for walker in [WalkerMode::None, WalkerMode::ShortFormat] {
        let mut machine = talluri_and_hill();
        let mut setup = *machine.setup();
        setup.walker = walker;
        machine = ItaniumMachine::new(setup, 1).unwrap();
        machine.spawn().unwrap();
        map(&mut machine, Some(AT), 48 * PAGE);
        machine.populate(P, AT, 24 * PAGE).unwrap();
        write(&mut machine, pages(AT, 24 * PAGE));
        // Two blocks.
        assert_eq!(machine.counters().misses, 2);
    }
}

#[test]
fn pages_outside_their_block_have_their_own_entries() {
    let mut machine = talluri_and_hill();
    map(&mut machine, Some(AT), 16 * PAGE);
    write(&mut machine, pages(AT, 16 * PAGE));
    let child = machine.fork(P).unwrap();
    // The copy has any place.
    write(&mut machine, [AT + 3 * PAGE]);
    write(&mut machine, pages(AT, 16 * PAGE));
    assert!(machine.mmu().tlb.entries().count() > 3);
    machine.exit(child).unwrap();
    machine.munmap(P, AT + PAGE, PAGE).unwrap();
    write(&mut machine, pages(AT + 2 * PAGE, 14 * PAGE));
}

#[test]
fn large_pages_need_no_sub_blocks() {
    let mut machine = machine(PageSizePolicy::Cover, |setup| {
        setup.processor.sub_block_order = 2;
    });
    map(&mut machine, Some(AT), 22 * PAGE);
    write(&mut machine, pages(AT, 22 * PAGE));
    // Orders 4 and 2, their table, and two base pages, in one entry if they lie in place.
    let frames = [20, 21].map(|page| frame(&machine, AT + page * PAGE));
    let together = frames[0] % 4 == 0 && frames[1] == frames[0] + 1;
    assert_eq!(entries(&machine), if together { 4 } else { 5 });
}

#[test]
fn invalid_blocks_are_refused() {
    for order in [0, 9] {
        let policy = PageSizePolicy::PageReservation { order };
        assert!(refused(setup(policy)));
    }
    let mut setup = setup(PageSizePolicy::PageReservation { order: 4 });
    setup.processor.sub_block_order = 5;
    assert!(refused(setup));
}
