//! The reserve of huge pages, where huge pages cost little, and where they cost much.

use hawkeye_manager::{Event, HugePageReserveControl, Machine, Settings};
use hawkeye_policy::{HugePageReservePlanner, ReserveLimit, ReserveState};
use hawkeye_test_support::builders::*;
use std::time::Duration;

/// What a huge page costs on a host that must back its memory first (measured on a virtual
/// machine with free page reporting).
const EXPENSIVE: Duration = Duration::from_micros(4600);
const CHEAP: Duration = Duration::from_micros(90);

fn machine_with_fill_cost(cost: Duration) -> ScriptedMachine {
    let mut machine = machine_running_parts(64 * GIB, &[base_page_part(0, 400, 1.0)]);
    machine.huge_page_fill_cost = cost;
    machine
}

fn reserve_of(manager: &ScriptedManager) -> ReserveState {
    manager.machine().reserve_state()
}

/// Durations of all promotions.
fn durations(manager: &ScriptedManager) -> Vec<Duration> {
    let entries = manager.journal().entries();
    let took = entries.filter_map(|entry| match entry.event {
        Event::Promoted { took, .. } => Some(took),
        _ => None,
    });
    took.collect()
}

#[test]
fn where_huge_pages_are_expensive_promotions_take_them_from_the_reserve() {
    let machine = machine_with_fill_cost(EXPENSIVE);
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    let mut most = 0;
    run_manager_watching(&mut manager, seconds(120.0), |manager| {
        most = most.max(reserve_of(manager).held);
    });
    assert_eq!(manager.memory().reserve.is_worthwhile(), Some(true));
    assert!((64..=128).contains(&most), "{most}");
    let durations = durations(&manager);
    assert_eq!(durations.len(), 400);
    let quick = durations.iter().filter(|took| **took < EXPENSIVE).count();
    assert_eq!(quick as u64, reserve_of(&manager).served);
    assert!(quick >= 128, "{quick}");
    // Nothing is left to promote.
    assert_eq!(reserve_of(&manager).held, 0);
}

#[test]
fn pages_that_prefault_takes_count_for_no_promotion() {
    let mut machine = machine_with_fill_cost(EXPENSIVE);
    machine.prefault_empties_reserve = true;
    let manager =
        run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(120.0));
    let durations = durations(&manager);
    assert!(!durations.is_empty() && durations.iter().all(|took| *took >= EXPENSIVE));
    // A promotion that was taken for one from the reserve would make the reserve seem useless.
    assert_eq!(manager.memory().reserve.is_worthwhile(), Some(true));
}

#[test]
fn a_promotion_that_waits_for_its_program_does_not_make_it_seem_useless() {
    let mut machine = machine_with_fill_cost(EXPENSIVE);
    machine.promotion_answers = [(seconds(10.0), None)].into();
    let manager =
        run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(120.0));
    assert_eq!(manager.memory().reserve.is_worthwhile(), Some(true));
    let state = reserve_of(&manager);
    assert!(state.served >= 128, "{state:?}");
}

#[test]
fn without_use_it_is_emptied() {
    let machine = machine_with_fill_cost(EXPENSIVE);
    let mut manager = manager_of(machine, "none", frequent_sampling_settings());
    run_manager_until(&mut manager, HugePageReservePlanner::UNUSED_AFTER - seconds(1.0));
    assert_eq!(reserve_of(&manager).held, 128);
    run_manager_until(&mut manager, HugePageReservePlanner::UNUSED_AFTER + seconds(2.0));
    assert_eq!(reserve_of(&manager).held, 0);
}

#[test]
fn where_huge_pages_cost_little_it_stays_empty() {
    let machine = machine_with_fill_cost(CHEAP);
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(30.0));
    assert_eq!(manager.memory().reserve.is_worthwhile(), Some(false));
    let state = reserve_of(&manager);
    assert_eq!(state.held, 0);
    assert!((1..=8).contains(&state.filled), "{state:?}");
    assert!(!durations(&manager).is_empty());
}

#[test]
fn it_is_empty_whenever_memory_is_short_or_management_pauses() {
    for (other_bytes, pressure_percent) in [(60 * GIB, 0.0), (0, 50.0)] {
        let mut machine = machine_with_fill_cost(EXPENSIVE);
        machine.schedule(seconds(3.0), move |machine| {
            (machine.other_bytes, machine.pressure_percent) = (other_bytes, pressure_percent);
        });
        machine.schedule(seconds(5.0), |machine| {
            (machine.other_bytes, machine.pressure_percent) = (0, 0.0);
        });
        let mut manager = manager_of(machine, "none", frequent_sampling_settings());
        let (mut was_filled, mut was_held) = (false, false);
        run_manager_watching(&mut manager, seconds(8.0), |manager| {
            let held = reserve_of(manager).held;
            was_filled |= held == 128;
            if manager.memory().held.is_some() {
                was_held = true;
                assert_eq!(held, 0, "{:?}", manager.machine().now());
            }
        });
        assert!(was_filled && was_held);
    }
    let machine = machine_with_fill_cost(EXPENSIVE);
    let mut manager = manager_of(machine, "none", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(4.0));
    assert_eq!(reserve_of(&manager).held, 128);
    manager.pause();
    assert_eq!(reserve_of(&manager).held, 0);
}

#[test]
fn nothing_is_prefaulted_while_management_pauses() {
    let machine = machine_with_fill_cost(CHEAP);
    let mut manager = manager_of(machine, "none", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(4.0));
    let rooms = |manager: &ScriptedManager| {
        manager.machine().prefault_rooms.values().copied().collect::<Vec<_>>()
    };
    assert!(matches!(rooms(&manager)[..], [room] if room > 0), "{:?}", rooms(&manager));
    manager.pause();
    assert_eq!(rooms(&manager), [0]);
    manager.resume();
    run_manager_until(&mut manager, seconds(8.0));
    assert!(matches!(rooms(&manager)[..], [room] if room > 0), "{:?}", rooms(&manager));
}

#[test]
fn switched_off_it_is_never_filled() {
    let settings = Settings {
        reserve: ReserveLimit::from_bytes(0).expect("it is a valid limit"),
        ..frequent_sampling_settings()
    };
    let machine = machine_with_fill_cost(EXPENSIVE);
    let manager = run_manager_of(machine, "hawkeye-g", settings, seconds(30.0));
    assert_eq!(reserve_of(&manager), ReserveState::default());
}
