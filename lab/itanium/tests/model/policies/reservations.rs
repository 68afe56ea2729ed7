//! Navarro's reservations.

use super::*;

const NAVARRO: PageSizePolicy = PageSizePolicy::Navarro {
    limit: None,
    daemon: None,
};

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
    let limited = PageSizePolicy::Navarro {
        limit: Some(2),
        daemon: None,
    };
    let mut machine = super::machine(limited, |_| ());
    map(&mut machine, Some(AT), 16 * PAGE);
    write(&mut machine, pages(AT, 16 * PAGE));
    // The pages lie one after the other in empty memory, but grow no larger than the reservation.
    assert_eq!(machine.statistics().promoted.count(2), 4);
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
    assert_eq!(machine.statistics().given_up, 0);
    // The first one is used again, so the kernel gives up the second.
    write(&mut machine, [area(0) + PAGE, fourth + 3 * MIB]);
    assert_eq!(machine.statistics().given_up, 1);
    assert_eq!(frame(&machine, fourth + 3 * MIB) % 64, 0);
    write(&mut machine, pages(area(0), 4 * MIB));
    assert_eq!(order(&machine, area(0)), Some(8));
}

#[test]
fn unmap_and_exit_give_up_reservations() {
    let mut machine = machine(NAVARRO, |_| ());
    let free = machine.free_frames();
    map(&mut machine, Some(AT), MIB);
    write(&mut machine, [AT]);
    assert_eq!(machine.free_frames(), free - 64 - 1);
    machine.munmap(P, AT + MIB - PAGE, PAGE).unwrap();
    machine.check().unwrap();
    // The page and its table.
    assert_eq!(machine.free_frames(), free - 2);
    write(&mut machine, [AT + 8 * PAGE]);
    machine.exit(P).unwrap();
    machine.check().unwrap();
    assert_eq!(machine.free_frames(), free);
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
    machine.check().unwrap();
}
