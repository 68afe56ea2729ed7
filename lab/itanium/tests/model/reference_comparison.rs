//! The machine and the plain machine agree after any sequence of operations.

use super::calls::{Call, Step, WINDOW, events, make, steps, walkers};
use super::large;
use super::reference_machine::ReferenceMachine;
use hawkeye_itanium::address::{BasePageSize, KernelPageOrders};
use hawkeye_itanium::kernel::{InitialFragmentation, KernelSettings, LargePageCopyOnWrite};
use hawkeye_itanium::mmu::{ItaniumProcessorSpec, MADISON, TlbReplacement};
use hawkeye_itanium::{ItaniumMachine, MachineSettings};
use proptest::prelude::*;

/// Every other range is where the kernel maps first, the others where a page of a table ends.
fn page(base: BasePageSize, place: u64) -> u64 {
    let region = base.page_of_address(1 << 61);
    let reach = 1 << base.table_entries_shift();
    match place / WINDOW % 2 {
        0 => region + base.page_of_address(0x25_0000) + place % WINDOW,
        _ => 2 * region + 4 * reach - WINDOW / 2 + place % WINDOW,
    }
}

fn setups() -> impl Strategy<Value = MachineSettings> {
    let replacement = prop_oneof![Just(TlbReplacement::Lru), Just(TlbReplacement::Fifo)];
    let tlbs = (12u32..24, 0u32..3, 1u32..8, replacement);
    let base = prop_oneof![Just(BasePageSize::Kib4), Just(BasePageSize::Kib16)];
    let bitmap = prop_oneof![Just(0u32), Just(u32::MAX), any::<u32>()];
    let align = prop_oneof![Just(0u64), Just(1 << 16)];
    let copy =
        prop_oneof![Just(LargePageCopyOnWrite::Demote), Just(LargePageCopyOnWrite::CopyLarge)];
    let kernel = (base, bitmap, align, copy);
    let fragmented = proptest::option::of(1u8..7);
    (walkers(), tlbs, kernel, fragmented).prop_map(|(walker, tlbs, kernel, fragmented)| {
        let (base, bitmap, vm_align_bytes, copy_on_write) = kernel;
        let (l2_entries, fake_pinned, l1_entries, replacement) = tlbs;
        MachineSettings {
            processor: ItaniumProcessorSpec { l1_entries, l2_entries, replacement, ..MADISON },
            walker,
            kernel: KernelSettings {
                orders: KernelPageOrders::from_order_bitmap(bitmap, base),
                vm_align_bytes,
                copy_on_write,
                memory_bytes: 64 << 20,
                ..KernelSettings::with_base_pages_only(base)
            },
            fake_pinned,
            fragmentation: fragmented.map(InitialFragmentation::with_all_blocks_broken),
            advice: None,
        }
    })
}

proptest! {
    #[test]
    fn machine_and_plain_model_agree(setup in setups(), steps in steps()) {
        let at = |place| page(setup.kernel.base, place);
        let mut machine = ItaniumMachine::new(setup, 1).unwrap();
        let mut plain = ReferenceMachine::new(setup);
        machine.spawn_process().unwrap();
        plain.spawn();
        for (number, step) in steps.iter().enumerate() {
            let (own, other) = (make(&mut machine, step, at), plain.make(step, at));
            prop_assert_eq!(own, other, "step {}: {:?}", number, step);
            prop_assert_eq!(machine.counters(), plain.counters, "step {}: {:?}", number, step);
            prop_assert_eq!(machine.check_invariants(), Ok(()), "step {}: {:?}", number, step);
        }
    }
}

#[test]
fn the_random_calls_cause_every_kind_of_event() {
    let events = events(200, &setups(), |setup: MachineSettings, steps: Vec<Step>| {
        let mut machine = ItaniumMachine::new(setup, 1).unwrap();
        machine.spawn_process().unwrap();
        let mut done = [0; 3];
        for step in &steps {
            let at = |place| page(setup.kernel.base, place);
            let worked = make(&mut machine, step, at).is_some();
            let kind = match step.1 {
                Call::Remap(..) => 0,
                Call::Protect(..) => 1,
                Call::Fork => 2,
                _ => continue,
            };
            done[kind] += u64::from(worked);
        }
        let counters = machine.counters();
        let statistics = machine.large_page_statistics();
        [
            // At least 50 of each call are enough.
            2 * done[0],
            2 * done[1],
            2 * done[2],
            counters.walker,
            counters.software,
            counters.nested,
            counters.copied_bytes,
            counters.hash_collisions,
            large(&statistics.faulted),
            large(&statistics.failed),
            large(&statistics.demoted),
        ]
    });
    assert!(events.iter().all(|events| *events > 100), "{events:?}");
}
