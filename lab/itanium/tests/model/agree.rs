//! The machine and the plain machine agree after any sequence of operations.

use super::plain::Plain;
use hawkeye_itanium::address::{BasePage, Orders};
use hawkeye_itanium::kernel::{Backing, ByOrder, CopyOnWrite, Fragmentation, KernelSettings};
use hawkeye_itanium::mmu::{Fill, MADISON, Processor, Replacement, Walker};
use hawkeye_itanium::{Machine, Setup};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

#[derive(Clone, Debug)]
enum Step {
    Spawn,
    Map(u32, u64, Option<u64>),
    Unmap(u32, u64, u64),
    Protect(u32, u64, u64, bool),
    Remap(u32, u64, u64, u64),
    Populate(u32, u64, u64),
    Fork(u32),
    Exit(u32),
    /// Neighbouring pages, one after the other, and the number of references to each.
    Access(u32, u64, u64, bool, u8),
}

/// Base pages in each range under test. One range is where the kernel maps first. The other is
/// around the end of what one page of a table has entries for.
const WINDOW: u64 = 96;

fn page(base: BasePage, number: u64) -> u64 {
    let region = base.page_of(1 << 61);
    let reach = 1 << base.table_shift();
    match number / WINDOW {
        0 => region + base.page_of(0x25_0000) + number,
        _ => 2 * region + 4 * reach - WINDOW / 2 + number % WINDOW,
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let process = || prop_oneof![4 => Just(0u32), 1 => 1u32..4];
    let place = || 0..2 * WINDOW;
    let pages = || prop_oneof![1u64..6, 1u64..70];
    let few = || 1u64..12;
    let step = prop_oneof![
        1 => Just(Step::Spawn),
        6 => (process(), pages(), proptest::option::of(place()))
            .prop_map(|(p, n, at)| Step::Map(p, n, at)),
        2 => (process(), place(), pages()).prop_map(|(p, at, n)| Step::Unmap(p, at, n)),
        3 => (process(), place(), few(), any::<bool>())
            .prop_map(|(p, at, n, w)| Step::Protect(p, at, n, w)),
        3 => (process(), place(), few(), pages()).prop_map(|(p, at, n, m)| Step::Remap(p, at, n, m)),
        1 => (process(), place(), pages()).prop_map(|(p, at, n)| Step::Populate(p, at, n)),
        1 => process().prop_map(Step::Fork),
        1 => process().prop_map(Step::Exit),
        24 => (process(), place(), 1u64..20, any::<bool>(), 1u8..3)
            .prop_map(|(p, at, n, w, times)| Step::Access(p, at, n, w, times)),
    ];
    // Mappings to begin with, in both ranges.
    (pages(), pages(), proptest::collection::vec(step, 1..120)).prop_map(|(one, other, steps)| {
        let maps = [
            Step::Map(0, one, Some(3)),
            Step::Map(0, other, Some(WINDOW + 9)),
        ];
        maps.into_iter().chain(steps).collect()
    })
}

fn setups() -> impl Strategy<Value = Setup> {
    let fill = prop_oneof![
        Just(Fill::First),
        Just(Fill::Missed),
        Just(Fill::All),
        Just(Fill::BaseOnly)
    ];
    let walker = prop_oneof![
        1 => Just(Walker::None),
        3 => Just(Walker::ShortFormat),
        3 => (fill, 5u32..12).prop_map(|(fill, bits)| Walker::LongFormat { entries: 1 << bits, fill }),
    ];
    let replacement = prop_oneof![Just(Replacement::Lru), Just(Replacement::Fifo)];
    let base = prop_oneof![Just(BasePage::Kib4), Just(BasePage::Kib16)];
    let bitmap = prop_oneof![Just(0u32), Just(u32::MAX), any::<u32>()];
    let rest = (12u32..24, 0u32..3, 1u32..8, proptest::option::of(1u8..7));
    let kernel = (
        base,
        bitmap,
        prop_oneof![Just(0u64), Just(1 << 16)],
        any::<bool>(),
    );
    (walker, replacement, kernel, rest).prop_map(|(walker, replacement, kernel, rest)| {
        let (base, bitmap, vm_align_bytes, copy_large) = kernel;
        let (l2_entries, fake_pinned, l1_entries, fragmented) = rest;
        Setup {
            processor: Processor {
                l1_entries,
                l2_entries,
                replacement,
                ..MADISON
            },
            walker,
            kernel: KernelSettings {
                orders: Orders::allowed(bitmap, base),
                vm_align_bytes,
                copy_on_write: if copy_large {
                    CopyOnWrite::CopyLarge
                } else {
                    CopyOnWrite::Demote
                },
                memory_bytes: 64 << 20,
                ..KernelSettings::plain(base)
            },
            fake_pinned,
            fragmentation: fragmented.map(Fragmentation::complete),
            advice: None,
        }
    })
}

/// Applies one step to both machines. Returns whether it succeeded, and the place afterwards.
fn both(machine: &mut Machine, plain: &mut Plain, step: &Step) -> (Option<u64>, Option<u64>) {
    let base = machine.setup().kernel.base;
    let at = |number: u64| page(base, number);
    let address = |number: u64| base.address_of(at(number));
    let bytes = |pages: u64| base.address_of(pages);
    match *step {
        Step::Spawn => (
            machine.spawn().ok().map(u64::from),
            Some(plain.spawn().into()),
        ),
        Step::Map(process, pages, place) => (
            machine
                .mmap(
                    process,
                    bytes(pages),
                    place.map(address),
                    Backing::Anonymous,
                )
                .ok()
                .map(|address| base.page_of(address)),
            plain.mmap(process, pages, place.map(at)).ok(),
        ),
        Step::Unmap(process, place, pages) => (
            machine
                .munmap(process, address(place), bytes(pages))
                .ok()
                .map(|()| 0),
            plain.munmap(process, at(place), pages).ok().map(|()| 0),
        ),
        Step::Protect(process, place, pages, write) => (
            machine
                .mprotect(process, address(place), bytes(pages), write)
                .ok()
                .map(|()| 0),
            plain
                .mprotect(process, at(place), pages, write)
                .ok()
                .map(|()| 0),
        ),
        Step::Remap(process, place, old, new) => (
            machine
                .mremap(process, address(place), bytes(old), bytes(new))
                .ok()
                .map(|address| base.page_of(address)),
            plain.mremap(process, at(place), old, new).ok(),
        ),
        Step::Populate(process, place, pages) => (
            machine
                .populate(process, address(place), bytes(pages))
                .ok()
                .map(|()| 0),
            plain.populate(process, at(place), pages).ok().map(|()| 0),
        ),
        Step::Fork(process) => (
            machine.fork(process).ok().map(u64::from),
            plain.fork(process).ok().map(u64::from),
        ),
        Step::Exit(process) => (
            machine.exit(process).ok().map(|()| 0),
            plain.exit(process).ok().map(|()| 0),
        ),
        Step::Access(process, place, pages, write, times) => {
            let mut done = (Some(0), Some(0));
            for _ in 0..times {
                for number in place..place + pages {
                    let own = machine.access(process, address(number), write, 1);
                    let other = plain.access(process, at(number), write);
                    if own.is_err() {
                        done.0 = None;
                    }
                    if other.is_err() {
                        done.1 = None;
                    }
                }
            }
            done
        }
    }
}

proptest! {
    #[test]
    fn machine_and_plain_model_agree(setup in setups(), steps in steps()) {
        let mut machine = Machine::new(setup, 1).unwrap();
        let mut plain = Plain::new(setup);
        machine.spawn().unwrap();
        plain.spawn();
        for (number, step) in steps.iter().enumerate() {
            let (own, other) = both(&mut machine, &mut plain, step);
            prop_assert_eq!(own, other, "step {}: {:?}", number, step);
            prop_assert_eq!(machine.counters(), plain.counters, "step {}: {:?}", number, step);
            prop_assert_eq!(machine.check(), Ok(()), "step {}: {:?}", number, step);
        }
    }
}

/// The random steps above include every kind of event.
#[test]
fn what_is_tried_leaves_nothing_out() {
    let mut runner = TestRunner::deterministic();
    let mut done = [0; 3];
    let mut counted = [0; 8];
    for _ in 0..200 {
        let setup = setups().new_tree(&mut runner).unwrap().current();
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let mut machine = Machine::new(setup, 1).unwrap();
        let mut plain = Plain::new(setup);
        machine.spawn().unwrap();
        plain.spawn();
        for step in &steps {
            let worked = both(&mut machine, &mut plain, step).0.is_some();
            let kind = match step {
                Step::Remap(..) => 0,
                Step::Protect(..) => 1,
                Step::Fork(..) => 2,
                _ => continue,
            };
            done[kind] += u32::from(worked);
        }
        let counters = machine.counters();
        let statistics = machine.statistics();
        let large = |by: &ByOrder| (1..20).map(|order| by.of(order)).sum::<u64>();
        let events = [
            counters.walker,
            counters.software,
            counters.nested,
            counters.copied_bytes,
            counters.hash_collisions,
            large(&statistics.faulted),
            large(&statistics.failed),
            large(&statistics.demoted),
        ];
        for (sum, events) in counted.iter_mut().zip(events) {
            *sum += events;
        }
    }
    assert!(done.iter().all(|times| *times > 50), "{done:?}");
    assert!(counted.iter().all(|events| *events > 100), "{counted:?}");
}
