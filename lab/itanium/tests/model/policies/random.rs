//! Random calls under every policy.

use super::*;
use hawkeye_itanium::kernel::Fragmentation;
use hawkeye_itanium::kernel::policies::{
    ApproxOnline, Asap, Cover, HalfReferenced, HpUx, HugeTlb, Irix, Navarro, PageReservation,
    Solaris, Winwood,
};
use hawkeye_itanium::mmu::{Fill, MADISON, Processor, Walker};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Call {
    Map(Option<u64>, u64),
    /// Of an earlier mapping: its index, the first page, and the number of pages.
    Unmap(usize, u64, u64),
    Protect(usize, u64, u64, bool),
    Remap(usize, u64, u64, u64),
    Touch(usize, u64, u64, bool),
    Populate(usize),
    Fork,
    Exit,
}

fn calls() -> impl Strategy<Value = Vec<(u32, Call)>> {
    let pages = || prop_oneof![1u64..8, 1u64..90];
    let which = || 0usize..8;
    let call = prop_oneof![
        5 => (proptest::option::weighted(0.3, 0u64..200), pages())
            .prop_map(|(at, n)| Call::Map(at, n)),
        2 => (which(), 0u64..20, pages()).prop_map(|(m, at, n)| Call::Unmap(m, at, n)),
        2 => (which(), 0u64..20, 1u64..10, any::<bool>())
            .prop_map(|(m, at, n, w)| Call::Protect(m, at, n, w)),
        1 => (which(), 0u64..20, 1u64..20, pages()).prop_map(|(m, at, n, to)| Call::Remap(m, at, n, to)),
        20 => (which(), 0u64..80, 1u64..40, any::<bool>())
            .prop_map(|(m, at, n, w)| Call::Touch(m, at, n, w)),
        1 => which().prop_map(Call::Populate),
        1 => Just(Call::Fork),
        1 => Just(Call::Exit),
    ];
    proptest::collection::vec((0u32..3, call), 1..80)
}

fn policies() -> impl Strategy<Value = Policy> {
    let quick = || {
        let mut daemon = Irix::default().daemon;
        daemon.every_faults = 3;
        daemon
    };
    prop_oneof![
        Just(Policy::Cover(Cover)),
        Just(Policy::HugeTlb(HugeTlb { order: 4, pages: 6 })),
        Just(Policy::Winwood(Winwood { order: 4, pages: 6 })),
        Just(Policy::Solaris(Solaris)),
        Just(Policy::HpUx(HpUx {
            ceiling: 4,
            growths: 2,
            short_percent: 20,
        })),
        Just(Policy::Irix(Irix { daemon: quick() })),
        (proptest::option::of(1u8..5), any::<bool>()).prop_map(move |(limit, daemon)| {
            Policy::Navarro(Navarro {
                limit,
                daemon: daemon.then(quick),
            })
        }),
        Just(Policy::Asap(Asap)),
        (1u32..4)
            .prop_map(|misses_per_page| Policy::ApproxOnline(ApproxOnline { misses_per_page })),
        (1u64..60).prop_map(|references| Policy::HalfReferenced(HalfReferenced {
            order: 2,
            references,
        })),
        (1u8..5).prop_map(|order| Policy::PageReservation(PageReservation { order })),
    ]
}

fn setups() -> impl Strategy<Value = Setup> {
    let walker = prop_oneof![
        1 => Just(Walker::None),
        2 => Just(Walker::ShortFormat),
        2 => prop_oneof![Just(Fill::First), Just(Fill::Missed), Just(Fill::All)]
            .prop_map(|fill| Walker::LongFormat { entries: 256, fill }),
    ];
    let fragmentation = proptest::option::of((1u8..4, 50u32..=100, 0u32..=100).prop_map(
        |(order, broken_percent, movable_percent)| Fragmentation {
            order,
            broken_percent,
            movable_percent,
        },
    ));
    let rest = (10u32..24, 0u8..=4, 2u64..12);
    (policies(), walker, fragmentation, rest).prop_map(|(policy, walker, fragmentation, rest)| {
        let (l2_entries, sub_block_order, memory) = rest;
        let mut setup = setup(policy);
        setup.kernel.memory_bytes = memory * MIB;
        Setup {
            processor: Processor {
                l2_entries,
                sub_block_order,
                ..MADISON
            },
            walker,
            fragmentation,
            advice: advice(20 * PAGE, 16 * PAGE),
            ..setup
        }
    })
}

/// Makes one call. This test ignores calls that fail.
fn call(machine: &mut Machine, maps: &mut Vec<(u64, u64)>, process: u32, call: &Call) {
    let at = |which: usize, page: u64| {
        let (start, _) = maps
            .get(which % maps.len().max(1))
            .copied()
            .unwrap_or((AT, 0));
        start + page * PAGE
    };
    match *call {
        Call::Map(place, pages) => {
            let place = place.map(|page| AT + page * PAGE);
            let bytes = pages * PAGE;
            if let Ok(start) = machine.mmap(process, bytes, place, Backing::Anonymous) {
                maps.push((start, bytes));
            }
        }
        Call::Unmap(which, page, pages) => {
            let _ = machine.munmap(process, at(which, page), pages * PAGE);
        }
        Call::Protect(which, page, pages, write) => {
            let _ = machine.mprotect(process, at(which, page), pages * PAGE, write);
        }
        Call::Remap(which, page, old, new) => {
            let moved = machine.mremap(process, at(which, page), old * PAGE, new * PAGE);
            maps.extend(moved.ok().map(|start| (start, new * PAGE)));
        }
        Call::Touch(which, page, pages, write) => {
            for number in page..page + pages {
                let _ = machine.access(process, at(which, number), write, 1);
            }
        }
        Call::Populate(which) => {
            let length = maps.get(which).map_or(PAGE, |(_, bytes)| *bytes);
            let _ = machine.populate(process, at(which, 0), length);
        }
        Call::Fork => {
            let _ = machine.fork(process);
        }
        Call::Exit => {
            let _ = machine.exit(process);
        }
    }
}

proptest! {
    #[test]
    fn no_calls_confuse_any_policy(setup in setups(), calls in calls()) {
        let machine = Machine::new(setup, 7);
        // A pool of more than half of memory.
        prop_assume!(machine.is_ok());
        let mut machine = machine.unwrap();
        let all = machine.free_frames();
        machine.spawn().unwrap();
        machine.spawn().unwrap();
        let mut maps = Vec::new();
        for (number, (process, next)) in calls.iter().enumerate() {
            call(&mut machine, &mut maps, *process, next);
            prop_assert_eq!(machine.check(), Ok(()), "call {}: {:?}", number, next);
        }
        for process in 0..machine.processes() {
            let _ = machine.exit(process);
        }
        prop_assert_eq!(machine.check(), Ok(()));
        prop_assert_eq!(machine.free_frames(), all);
    }
}

/// The random calls above include every action of a policy.
#[test]
fn what_is_tried_leaves_nothing_out() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut done = [0u64; 6];
    for _ in 0..600 {
        let setup = setups().new_tree(&mut runner).unwrap().current();
        let calls = calls().new_tree(&mut runner).unwrap().current();
        let Ok(mut machine) = Machine::new(setup, 7) else {
            continue;
        };
        machine.spawn().unwrap();
        machine.spawn().unwrap();
        let mut maps = Vec::new();
        for (process, next) in &calls {
            call(&mut machine, &mut maps, *process, next);
        }
        let statistics = machine.statistics();
        let large =
            |by: &hawkeye_itanium::kernel::ByOrder| (1..20).map(|order| by.of(order)).sum::<u64>();
        let pool = matches!(setup.kernel.policy, Policy::HugeTlb(_) | Policy::Winwood(_));
        let events = [
            large(&statistics.promoted),
            statistics.given_up,
            statistics.moved,
            machine.counters().counted_misses,
            large(&statistics.demoted),
            if pool { large(&statistics.faulted) } else { 0 },
        ];
        for (sum, event) in done.iter_mut().zip(events) {
            *sum += event;
        }
    }
    assert!(done.iter().all(|events| *events > 20), "{done:?}");
}
