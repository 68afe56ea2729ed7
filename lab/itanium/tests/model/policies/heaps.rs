//! HP-UX's heaps, and its hints.

use super::*;

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
    let orders: Vec<_> = touched
        .iter()
        .map(|at| order(&machine, *at).unwrap())
        .collect();
    assert_eq!(orders[0], 0);
    // Larger pages come later, in steps and no further than the ceiling.
    assert!(orders.is_sorted() && orders[39] == 2, "{orders:?}");
    // Two blocks share a page, so the second needs no fault.
    assert!(machine.counters().page_faults < 2 * 40 - 20);
    // Each block is freed as it was mapped.
    for at in touched {
        machine.munmap(P, at, 2 * PAGE).unwrap();
        machine.check().unwrap();
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
        refused(setup(PageSizePolicy::HpUx {
            ceiling,
            growths,
            short_percent,
        }))
    };
    assert!(!hp_ux(2, 4, 5) && hp_ux(1, 4, 5) && hp_ux(2, 0, 5) && hp_ux(2, 4, 101));
}
