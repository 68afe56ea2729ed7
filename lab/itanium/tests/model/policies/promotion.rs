//! Pages that grow by copying or in reservations, memory that the kernel moves for them, and TLB
//! entries with sub-blocks.

use super::*;
use hawkeye_itanium::kernel::InitialFragmentation;
use hawkeye_itanium::kernel::policies::CompactionDaemonSettings;
use hawkeye_itanium::mmu::{RX2600_COSTS, WalkerMode};

#[test]
fn asap_promotes_when_all_of_a_page_has_memory() {
    let mut machine = machine(PageSizePolicy::Asap, |_| ());
    map(&mut machine, Some(AT), 17 * PAGE);
    write(&mut machine, pages(AT, 3 * PAGE));
    assert_eq!(order(&machine, AT), Some(0));
    write(&mut machine, [AT + 3 * PAGE]);
    assert_eq!(order(&machine, AT), Some(2));
    assert_eq!(machine.counters().copied_bytes, 4 * PAGE);
    write(&mut machine, pages(AT, 17 * PAGE));
    assert_eq!(order(&machine, AT), Some(4));
    assert_eq!(order(&machine, AT + 16 * PAGE), Some(0));
    // Four pages of order 2, and one of order 4.
    assert_eq!(machine.counters().copied_bytes, 32 * PAGE);
    assert_eq!(machine.counters().remaps, 5);
    // Shared pages stay as they are.
    let child = machine.fork(P).unwrap();
    machine.munmap(child, AT, 4 * PAGE).unwrap();
    machine.check_invariants().unwrap();
    assert_eq!(machine.counters().copied_bytes, 32 * PAGE);
}

/// A threshold of two misses for each base page: eight for a page of order 2.
fn approx(misses_per_page: u32) -> ItaniumMachine {
    machine(PageSizePolicy::ApproxOnline { misses_per_page }, |setup| {
        setup.walker = WalkerMode::None;
        setup.processor.l2_entries = 8;
    })
}

#[test]
fn misses_that_a_larger_page_would_prevent_are_counted() {
    let mut machine = approx(2);
    map(&mut machine, Some(AT), 64 * PAGE);
    // Of 64 pages in turn, each finds the one before it in the TLB, if both are in the same page of
    // order 2. The first of four finds none.
    write(&mut machine, pages(AT, 64 * PAGE));
    let before = machine.counters();
    write(&mut machine, pages(AT, 64 * PAGE));
    let counted = machine.counters().counted_misses - before.counted_misses;
    // 48 of 64 for order 2, 60 for order 4 (16 pages), 63 for order 6. With the
    // rest from the round before, its first page makes that 64.
    assert!((48 + 60 + 63..=48 + 60 + 64).contains(&counted), "{counted}");
    assert_eq!(order(&machine, AT), Some(0));
    // 128 misses are enough for all 64 pages, before 8 are enough for four of them.
    write(&mut machine, pages(AT, 64 * PAGE));
    assert_eq!(machine.large_page_statistics().promoted.count_of_order(2), 0);
    assert_eq!(order(&machine, AT), Some(6));
    assert_eq!(machine.counters().copied_bytes, 64 * PAGE);
}

#[test]
fn a_small_mapping_gets_the_page_that_fits() {
    let mut machine = approx(2);
    map(&mut machine, Some(AT), 4 * PAGE);
    let others = (1..=8).map(|number| AT + number * 64 * PAGE);
    for other in others.clone() {
        map(&mut machine, Some(other), PAGE);
    }
    for order_after in [0, 0, 2] {
        write(&mut machine, pages(AT, 4 * PAGE).chain(others.clone()));
        assert_eq!(order(&machine, AT), Some(order_after));
    }
}

#[test]
fn single_pages_are_not_promoted() {
    let mut machine = approx(1);
    map_and_write(&mut machine, AT, 256 * PAGE);
    let promoted = |machine: &ItaniumMachine| machine.large_page_statistics().promoted.clone();
    let before = promoted(&machine);
    let far = (0..8).map(|number| AT + number * 32 * PAGE);
    for _ in 0..20 {
        write(&mut machine, far.clone());
    }
    assert!(before.count_of_order(2) <= promoted(&machine).count_of_order(2));
    assert_eq!(before.count_of_order(4), promoted(&machine).count_of_order(4));
}

#[test]
fn the_threshold_is_the_cost_of_a_copy_in_misses() {
    let bought = |percent| {
        PageSizePolicy::approx_online_ski_rental(
            &RX2600_COSTS,
            WalkerMode::None,
            BasePageSize::Kib16,
            percent,
        )
    };
    // 16,384 bytes at 2.08 cycles each, and 110 cycles for a miss.
    let after = |misses_per_page| PageSizePolicy::ApproxOnline { misses_per_page };
    assert_eq!([100, 10, 0].map(bought), [310, 31, 1].map(after));
    assert!(refused(setup(after(0))));
}

#[test]
fn half_referenced_pages_become_large() {
    let rule = PageSizePolicy::HalfReferenced { order: 2, references: 8 };
    let mut machine = machine(rule, |_| ());
    map(&mut machine, Some(AT), 16 * PAGE);
    // Half of the first chunk, and a quarter of the second.
    let window = [0, 0, 0, 0, 1, 1, 4, 4].map(|page| AT + page * PAGE);
    write(&mut machine, window);
    assert_eq!(order(&machine, AT + 3 * PAGE), Some(2));
    assert_eq!(order(&machine, AT + 4 * PAGE), Some(0));
    let counters = machine.counters();
    assert_eq!((counters.copied_bytes, counters.zeroed_bytes), (2 * PAGE, 5 * PAGE));
    let window = [8; 8].map(|page| AT + page * PAGE);
    write(&mut machine, window);
    assert_eq!(order(&machine, AT), Some(0));
    for (order, references) in [(3, 8), (0, 8), (2, 0)] {
        let rule = PageSizePolicy::HalfReferenced { order, references };
        assert!(refused(setup(rule)));
    }
}

/// Each 64 KiB has a page of other memory, movable in all but about the last eighth.
fn fragmented(daemon: CompactionDaemonSettings, movable_percent: u32) -> ItaniumMachine {
    machine(PageSizePolicy::Irix(daemon), |setup| {
        setup.advice = advice(0, 64 * KIB);
        setup.kernel.memory_bytes = 32 * MIB;
        setup.fragmentation = Some(InitialFragmentation {
            movable_percent,
            ..InitialFragmentation::with_all_blocks_broken(2)
        });
    })
}

#[test]
fn the_daemon_frees_blocks_for_failed_requests() {
    let daemon = CompactionDaemonSettings::IRIX;
    for (movable, moved) in [(100, true), (0, false)] {
        let mut machine = fragmented(daemon, movable);
        map_and_write(&mut machine, AT, 8 * MIB);
        assert_eq!(order(&machine, AT), Some(0));
        let statistics = machine.large_page_statistics();
        assert_eq!(statistics.moved > 0, moved);
        assert_eq!(statistics.faulted.count_of_order(2) > 0, moved);
        let copied = machine.counters().copied_bytes;
        assert_eq!(copied, statistics.moved * PAGE);
    }
}

#[test]
fn moved_pages_stay_mapped() {
    let mut machine = fragmented(CompactionDaemonSettings::IRIX, 100);
    map(&mut machine, Some(AT), 24 * MIB);
    // One page in five, so that the process's own pages are in the way of each other.
    write(&mut machine, pages(AT, 24 * MIB).step_by(5));
    let some = pages(AT, 24 * MIB).step_by(5).collect::<Vec<_>>();
    let faults = machine.counters().page_faults;
    write(&mut machine, some);
    assert_eq!(machine.counters().page_faults, faults);
}

#[test]
fn invalid_daemons_are_refused() {
    let with = |change: fn(&mut CompactionDaemonSettings)| {
        let mut daemon = CompactionDaemonSettings::IRIX;
        change(&mut daemon);
        refused(setup(PageSizePolicy::Irix(daemon)))
    };
    assert!(!with(|_| ()));
    assert!(with(|d| d.every_faults = 0));
    assert!(with(|d| d.strong_percent = 101) && with(|d| d.mild_percent = 99));
}

const NAVARRO: PageSizePolicy = PageSizePolicy::Navarro { limit: None, daemon: None };

#[test]
fn reserved_pages_get_their_frames_and_grow_size_by_size() {
    let mut machine = machine(NAVARRO, |_| ());
    map(&mut machine, Some(AT), MIB);
    write(&mut machine, [AT + 5 * PAGE]);
    let there = frame(&machine, AT + 5 * PAGE);
    assert_eq!(there % 64, 5);
    write(&mut machine, pages(AT + 4 * PAGE, 4 * PAGE));
    assert_eq!(order(&machine, AT + 5 * PAGE), Some(2));
    assert_eq!(frame(&machine, AT + 5 * PAGE), there);
    write(&mut machine, pages(AT, 16 * PAGE));
    assert_eq!(order(&machine, AT), Some(4));
    write(&mut machine, pages(AT, MIB));
    assert_eq!(order(&machine, AT), Some(6));
    let counters = machine.counters();
    assert_eq!((counters.copied_bytes, counters.page_faults), (0, 64));
}

#[test]
fn reservations_are_aligned_and_stay_in_the_mapping() {
    let mut machine = machine(NAVARRO, |_| ());
    map(&mut machine, Some(AT + 4 * PAGE), 16 * PAGE);
    // The largest page around this one that is in the mapping has four.
    write(&mut machine, [AT + 17 * PAGE]);
    write(&mut machine, pages(AT + 16 * PAGE, 4 * PAGE));
    assert_eq!(order(&machine, AT + 16 * PAGE), Some(2));
    let limited = PageSizePolicy::Navarro { limit: Some(2), daemon: None };
    let mut machine = super::machine(limited, |_| ());
    map_and_write(&mut machine, AT, 16 * PAGE);
    // The pages lie one after the other in empty memory, but grow no larger than the reservation.
    assert_eq!(machine.large_page_statistics().promoted.count_of_order(2), 4);
    assert_eq!(order(&machine, AT), Some(2));
}

#[test]
fn the_oldest_reservation_is_given_up_first() {
    let mut machine = machine(NAVARRO, |setup| setup.kernel.memory_bytes = 16 * MIB);
    let area = |number: u64| AT + number * 4 * MIB;
    for number in 0..4 {
        map(&mut machine, Some(area(number)), 4 * MIB);
    }
    // Three get 4 MiB each. Tables have a page of the rest, so the fourth gets 1 MiB, three times.
    write(&mut machine, (0..3).map(area));
    let fourth = area(3);
    write(&mut machine, (0..3).map(|mib| fourth + mib * MIB));
    assert_eq!(machine.large_page_statistics().given_up, 0);
    // The first one is used again, so the kernel gives up the second.
    write(&mut machine, [area(0) + PAGE, fourth + 3 * MIB]);
    assert_eq!(machine.large_page_statistics().given_up, 1);
    assert_eq!(frame(&machine, fourth + 3 * MIB) % 64, 0);
    write(&mut machine, pages(area(0), 4 * MIB));
    assert_eq!(order(&machine, area(0)), Some(8));
}

#[test]
fn unmap_and_exit_give_up_reservations() {
    let mut machine = machine(NAVARRO, |_| ());
    let free = machine.count_free_frames();
    map(&mut machine, Some(AT), MIB);
    write(&mut machine, [AT]);
    assert_eq!(machine.count_free_frames(), free - 64 - 1);
    machine.munmap(P, AT + MIB - PAGE, PAGE).unwrap();
    machine.check_invariants().unwrap();
    // The page and its table.
    assert_eq!(machine.count_free_frames(), free - 2);
    write(&mut machine, [AT + 8 * PAGE]);
    machine.exit(P).unwrap();
    machine.check_invariants().unwrap();
    assert_eq!(machine.count_free_frames(), free);
}

#[test]
fn a_copy_on_write_leaves_the_reservation() {
    let mut machine = machine(NAVARRO, |_| ());
    map(&mut machine, Some(AT), 4 * PAGE);
    write(&mut machine, pages(AT, 3 * PAGE));
    let child = machine.fork(P).unwrap();
    write(&mut machine, [AT + PAGE]);
    machine.exit(child).unwrap();
    write(&mut machine, pages(AT, 4 * PAGE));
    assert_eq!(order(&machine, AT), Some(0));
    machine.munmap(P, AT, 4 * PAGE).unwrap();
    machine.check_invariants().unwrap();
}

fn talluri_and_hill(walker: WalkerMode) -> ItaniumMachine {
    machine(PageSizePolicy::PageReservation { order: 4 }, |setup| {
        setup.processor.sub_block_order = 4;
        setup.walker = walker;
    })
}

fn entries(machine: &ItaniumMachine) -> usize {
    let entries = machine.mmu().tlb.entries_with_pinned_flag();
    entries.filter(|(_, pinned)| !pinned).count()
}

#[test]
fn one_entry_holds_a_block_of_base_pages() {
    let mut machine = talluri_and_hill(WalkerMode::ShortFormat);
    map_and_write(&mut machine, AT, 64 * PAGE);
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
        let mut machine = talluri_and_hill(walker);
        map(&mut machine, Some(AT), 48 * PAGE);
        machine.populate_range(P, AT, 24 * PAGE).unwrap();
        write(&mut machine, pages(AT, 24 * PAGE));
        // Two blocks.
        assert_eq!(machine.counters().misses, 2);
    }
}

#[test]
fn pages_outside_their_block_have_their_own_entries() {
    let mut machine = talluri_and_hill(WalkerMode::ShortFormat);
    map_and_write(&mut machine, AT, 16 * PAGE);
    let child = machine.fork(P).unwrap();
    // The copy has any place.
    write(&mut machine, [AT + 3 * PAGE]);
    write(&mut machine, pages(AT, 16 * PAGE));
    assert!(machine.mmu().tlb.entries_with_pinned_flag().count() > 3);
    machine.exit(child).unwrap();
    machine.munmap(P, AT + PAGE, PAGE).unwrap();
    write(&mut machine, pages(AT + 2 * PAGE, 14 * PAGE));
}

#[test]
fn large_pages_need_no_sub_blocks() {
    let mut machine = machine(PageSizePolicy::Cover, |setup| {
        setup.processor.sub_block_order = 2;
    });
    map_and_write(&mut machine, AT, 22 * PAGE);
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
