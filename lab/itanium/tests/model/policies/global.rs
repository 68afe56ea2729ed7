//! Sizes that programs and administrators choose, and HP-UX's heaps.

use super::*;
use hawkeye_itanium::mmu::WalkerMode;

const HUGE: PageSizePolicy = PageSizePolicy::HugeTlb { order: 8, pages: 2 };

#[test]
fn huge_pages_are_in_a_region_where_the_walker_fills_them() {
    for walker in [WalkerMode::ShortFormat, WalkerMode::LONG] {
        let mut machine = machine(HUGE, |setup| {
            setup.advice = advice(MIB, 4 * MIB);
            setup.walker = walker;
        });
        let free = machine.count_free_frames();
        let at = map(&mut machine, None, 5 * MIB);
        let small = map(&mut machine, None, 64 * KIB);
        assert_eq!((at >> 61, small >> 61), (4, 1));
        write(&mut machine, pages(at, 8 * MIB));
        // Two faults, and two pages of the table: one for the walker, one for the kernel's own
        // notes.
        let counters = machine.counters();
        assert_eq!((counters.page_faults, counters.zeroed_bytes), (2, 8 * MIB));
        assert_eq!(machine.count_free_frames(), free - 513);
        // The walker refills what was replaced in the TLB.
        let software = counters.software + counters.nested;
        write(&mut machine, pages(small, 64 * KIB));
        let far = map(&mut machine, None, 4 * MIB - KIB * 1024 * 3 - 16 * KIB);
        write(&mut machine, pages(far, 1008 * KIB));
        let before = machine.counters();
        write(&mut machine, pages(at, 8 * MIB));
        let after = machine.counters();
        assert_eq!(
            (after.software + after.nested, after.page_faults),
            (before.software + before.nested, before.page_faults)
        );
        assert!(software > 0);
    }
}

#[test]
fn an_empty_pool_gives_no_other_page() {
    let mut machine = machine(HUGE, |setup| setup.advice = advice(MIB, 4 * MIB));
    let at = map(&mut machine, None, 12 * MIB);
    write(&mut machine, [at, at + 4 * MIB]);
    let third = machine.access_memory(P, at + 8 * MIB, true, 1);
    assert_eq!(third, Err(ItaniumError::OutOfMemory(P)));
    // No call may treat a part of a page differently.
    for part in [
        machine.munmap(P, at + MIB, MIB),
        machine.mprotect(P, at + MIB, MIB, false),
        machine.mremap(P, at, 4 * MIB, 8 * MIB).map(|_| ()),
    ] {
        assert!(matches!(part, Err(ItaniumError::Range { .. })));
    }
    // Memory that was given back is available again.
    machine.munmap(P, at, 100).unwrap();
    write(&mut machine, [at + 8 * MIB]);
    // A copy on write copies all of the page, too.
    let child = machine.fork(P).unwrap();
    let copy = machine.access_memory(child, at + 4 * MIB, true, 1);
    assert_eq!(copy, Err(ItaniumError::OutOfMemory(child)));
    machine.check_invariants().unwrap();
}

#[test]
fn an_empty_zone_gives_base_pages() {
    let zone = PageSizePolicy::Winwood { order: 6, pages: 1 };
    let mut machine = machine(zone, |setup| setup.advice = advice(MIB, MIB));
    map(&mut machine, Some(AT + MIB - 64 * KIB), 3 * MIB);
    // No whole page of the zone fits around this one in the mapping.
    write(&mut machine, [AT + MIB - PAGE]);
    assert_eq!(order(&machine, AT + MIB - PAGE), Some(0));
    write(&mut machine, [AT + MIB, AT + 2 * MIB]);
    assert_eq!(order(&machine, AT + MIB + 512 * KIB), Some(6));
    assert_eq!(order(&machine, AT + 2 * MIB), Some(0));
    // Mappings without advice get nothing from the zone.
    machine.munmap(P, AT + MIB, MIB).unwrap();
    map(&mut machine, Some(AT), 512 * KIB);
    write(&mut machine, [AT]);
    assert_eq!(order(&machine, AT), Some(0));
}

#[test]
fn a_preferred_size_is_the_largest_that_is_tried() {
    let mut machine = machine(PageSizePolicy::Solaris, |setup| {
        setup.advice = advice(MIB, MIB);
    });
    map(&mut machine, Some(AT + 768 * KIB), 4 * MIB);
    write(&mut machine, [AT + 768 * KIB, AT + MIB, AT + 5 * MIB - MIB]);
    assert_eq!(order(&machine, AT + 768 * KIB), Some(4));
    assert_eq!(order(&machine, AT + 2 * MIB - PAGE), Some(6));
    assert_eq!(machine.counters().page_faults, 3);
}

#[test]
fn invalid_pools_are_refused() {
    let huge = |order, pages| setup(PageSizePolicy::HugeTlb { order, pages });
    assert!(refused(huge(3, 1)) && refused(huge(0, 1)) && refused(huge(8, 0)));
    // More than half of memory.
    assert!(refused(huge(14, 5)) && !refused(huge(14, 4)));
    let zone = |order, pages| setup(PageSizePolicy::Winwood { order, pages });
    assert!(refused(zone(5, 1)) && refused(zone(6, 0)));
    for page_bytes in [0, 4 * KIB, 48 * KIB] {
        let setup =
            MachineSettings { advice: advice(0, page_bytes), ..setup(PageSizePolicy::Solaris) };
        assert!(refused(setup), "{page_bytes}");
    }
}

fn hp_ux(change: impl FnOnce(&mut MachineSettings)) -> ItaniumMachine {
    machine(PageSizePolicy::HP_UX, change)
}

#[test]
fn a_growing_heap_gets_larger_pages_and_surplus_memory() {
    let mut machine = hp_ux(|_| ());
    let mut touched = Vec::new();
    for _ in 0..40 {
        let at = map(&mut machine, None, 2 * PAGE);
        write(&mut machine, pages(at, 2 * PAGE));
        touched.push(at);
    }
    let orders: Vec<_> = touched.iter().map(|at| order(&machine, *at).unwrap()).collect();
    assert_eq!(orders[0], 0);
    // Larger pages come later, in steps and no further than the ceiling.
    assert!(orders.is_sorted() && orders[39] == 2, "{orders:?}");
    // Two blocks share a page, so the second needs no fault.
    assert!(machine.counters().page_faults < 2 * 40 - 20);
    // Each block is freed as it was mapped.
    for at in touched {
        machine.munmap(P, at, 2 * PAGE).unwrap();
        machine.check_invariants().unwrap();
    }
}

#[test]
fn a_hint_sets_the_size_of_all_mappings() {
    let mut machine = hp_ux(|setup| setup.advice = advice(0, MIB));
    let at = map(&mut machine, None, 3 * MIB);
    write(&mut machine, [at.next_multiple_of(MIB)]);
    assert_eq!(order(&machine, at.next_multiple_of(MIB)), Some(6));
}

#[test]
fn short_memory_makes_pages_smaller() {
    let mut machine = hp_ux(|setup| {
        setup.advice = advice(0, MIB);
        setup.kernel.memory_bytes = 64 * MIB;
    });
    map(&mut machine, Some(AT), 63 * MIB);
    write(&mut machine, pages(AT, 62 * MIB));
    assert_eq!(order(&machine, AT), Some(6));
    // Less than 5 % of 64 MiB.
    assert_eq!(order(&machine, AT + 62 * MIB - PAGE), Some(4));
}

#[test]
fn invalid_settings_are_refused() {
    let hp_ux = |ceiling, growths, short_percent| {
        refused(setup(PageSizePolicy::HpUx { ceiling, growths, short_percent }))
    };
    assert!(!hp_ux(2, 4, 5) && hp_ux(1, 4, 5) && hp_ux(2, 0, 5) && hp_ux(2, 4, 101));
}
