//! Random calls under every policy.

use super::classes::all;
use super::*;
use crate::calls::{Call, Step, WINDOW, events, make, steps, walkers};
use crate::large;
use hawkeye_itanium::kernel::InitialFragmentation;
use hawkeye_itanium::kernel::policies::CompactionDaemonSettings;
use hawkeye_itanium::mmu::{ItaniumProcessorSpec, MADISON};
use proptest::prelude::*;

/// Every policy, with settings for which a few calls are enough to act.
fn policies() -> impl Strategy<Value = PageSizePolicy> {
    let any = (proptest::sample::select(all()), 1u8..5, any::<bool>(), 1u64..60);
    any.prop_map(|(policy, order, flag, references)| {
        let mut daemon = CompactionDaemonSettings::IRIX;
        daemon.every_faults = 3;
        match policy {
            PageSizePolicy::HugeTlb { .. } => PageSizePolicy::HugeTlb { order: 4, pages: 6 },
            PageSizePolicy::Winwood { .. } => PageSizePolicy::Winwood { order: 4, pages: 6 },
            PageSizePolicy::HpUx { .. } => {
                PageSizePolicy::HpUx { ceiling: 4, growths: 2, short_percent: 20 }
            }
            PageSizePolicy::Irix(_) => PageSizePolicy::Irix(daemon),
            PageSizePolicy::Navarro { .. } => PageSizePolicy::Navarro {
                limit: (references % 2 == 0).then_some(order),
                daemon: flag.then_some(daemon),
            },
            PageSizePolicy::ApproxOnline { .. } => {
                PageSizePolicy::ApproxOnline { misses_per_page: u32::from(order.min(3)) }
            }
            PageSizePolicy::HalfReferenced { .. } => {
                PageSizePolicy::HalfReferenced { order: 2, references }
            }
            PageSizePolicy::PageReservation { .. } => PageSizePolicy::PageReservation { order },
            PageSizePolicy::Cover | PageSizePolicy::Solaris | PageSizePolicy::Asap => policy,
        }
    })
}

fn setups() -> impl Strategy<Value = MachineSettings> {
    let fragmentation = proptest::option::of((1u8..4, 50u32..=100, 0u32..=100).prop_map(
        |(order, broken_percent, movable_percent)| InitialFragmentation {
            order,
            broken_percent,
            movable_percent,
        },
    ));
    let rest = (10u32..24, 0u8..=4, 2u64..12);
    (policies(), walkers(), fragmentation, rest).prop_map(
        |(policy, walker, fragmentation, rest)| {
            let (l2_entries, sub_block_order, memory) = rest;
            let mut setup = setup(policy);
            setup.kernel.memory_bytes = memory * MIB;
            MachineSettings {
                processor: ItaniumProcessorSpec { l2_entries, sub_block_order, ..MADISON },
                walker,
                fragmentation,
                advice: advice(20 * PAGE, 16 * PAGE),
                ..setup
            }
        },
    )
}

/// It may fail. Places are in earlier mappings, of which `maps` has the first pages.
fn call(machine: &mut ItaniumMachine, maps: &mut Vec<u64>, step: &Step) {
    let at = |place: u64| {
        let which = place / WINDOW % (maps.len() as u64).max(1);
        let first = maps.get(which as usize).copied().unwrap_or(AT / PAGE);
        first + place % WINDOW
    };
    let done = make(machine, step, at);
    if let (_, Call::Map(..) | Call::Remap(..)) = step {
        maps.extend(done);
    }
}

proptest! {
    #[test]
    fn the_state_is_consistent_after_any_calls_under_every_policy(setup in setups(), steps in steps()) {
        let machine = ItaniumMachine::new(setup, 7);
        // A pool of more than half of memory.
        prop_assume!(machine.is_ok());
        let mut machine = machine.unwrap();
        let all = machine.count_free_frames();
        machine.spawn_process().unwrap();
        machine.spawn_process().unwrap();
        let mut maps = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            call(&mut machine, &mut maps, step);
            prop_assert_eq!(machine.check_invariants(), Ok(()), "call {}: {:?}", number, step);
        }
        for process in 0..machine.count_started_processes() {
            let _ = machine.exit(process);
        }
        prop_assert_eq!(machine.check_invariants(), Ok(()));
        prop_assert_eq!(machine.count_free_frames(), all);
    }
}

#[test]
fn the_random_calls_cause_every_kind_of_event() {
    let events = events(600, &setups(), |setup: MachineSettings, steps: Vec<Step>| {
        let Ok(mut machine) = ItaniumMachine::new(setup, 7) else {
            return [0; 6];
        };
        machine.spawn_process().unwrap();
        machine.spawn_process().unwrap();
        let mut maps = Vec::new();
        for step in &steps {
            call(&mut machine, &mut maps, step);
        }
        let statistics = machine.large_page_statistics();
        let pool = matches!(
            setup.kernel.policy,
            PageSizePolicy::HugeTlb { .. } | PageSizePolicy::Winwood { .. }
        );
        [
            large(&statistics.promoted),
            statistics.given_up,
            statistics.moved,
            machine.counters().counted_misses,
            large(&statistics.demoted),
            if pool { large(&statistics.faulted) } else { 0 },
        ]
    });
    assert!(events.iter().all(|events| *events > 20), "{events:?}");
}
