//! However large or many the processes are, memory is read in time. The machine is scripted: its
//! time passes only through the work it is asked for.

use hawkeye_manager::{Machine, MachineError};
use hawkeye_test_support::builders::*;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const TOTAL_BYTES: u64 = 16 * GIB;
/// Little is free from the start: a program could fill it within a tenth of a second.
const FREE_BYTES: u64 = TOTAL_BYTES / 50;

const REGIONS: u32 = 1000;

fn managing(processes: u64, work: Duration) -> ScriptedManager {
    let mut machine = ScriptedMachine::new(TOTAL_BYTES);
    machine.call_duration = work;
    for _ in 0..processes {
        start(&mut machine, REGIONS / processes as u32);
    }
    machine.other_bytes = TOTAL_BYTES - FREE_BYTES - u64::from(REGIONS) * 2 * MIB;
    manager_of(machine, "hawkeye-g", frequent_sampling_settings())
}

fn start(machine: &mut ScriptedMachine, regions: u32) {
    machine.add_program(program_of_parts(&[base_page_part(0, regions, 0.0)]));
}

fn assert_reads_in_time(machine: &ScriptedMachine) {
    let reads: Vec<Duration> = machine.call_times("memory").collect();
    let longest = reads.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
    println!("longest gap {longest:?}");
    assert!(longest <= 50 * MS, "{longest:?}");
}

/// One process of 1 TiB: 524,288 regions, each read in 1 us and cleared in 15 us.
#[test]
fn memory_in_danger_is_seen_while_a_window_of_a_tebibyte_opens() {
    let mut manager = managing(1, Duration::from_micros(524_288 * 16));
    // Until the middle of the clear.
    while manager.machine().now() <= seconds(4.0) {
        manager.run_due_work_and_wait();
    }
    assert_eq!(manager.machine().call_times("clear").count(), 0, "the window is still opening");
    let from = manager.machine().now();
    for ms in 1..=FREE_BYTES / 1_000_000 {
        let (machine, at) = (manager.machine_mut(), from + Duration::from_millis(ms));
        machine.schedule(at, |machine| machine.other_bytes += 1_000_000);
    }
    while manager.machine().call_times("list").all(|at| at < from) {
        manager.run_due_work_and_wait();
        assert!(manager.machine().now() < from + seconds(2.0));
    }
    let machine = manager.machine();
    let listed = machine.call_times("list").find(|at| *at >= from);
    let reaction = listed.map_or(Duration::MAX, |at| at - from);
    assert!(machine.call_times("abandon").count() > 0, "the window is given up");
    // The time between two reads of memory, and a slice of 8 ms of other work.
    assert!(reaction <= 58 * MS, "{reaction:?}");
    assert_reads_in_time(machine);
}

#[test]
fn a_thousand_processes_hold_no_look_up() {
    let mut manager = managing(1000, 2 * MS);
    while manager.journal().totals().samples < 2000 {
        manager.run_due_work_and_wait();
        assert!(manager.machine().now() < seconds(240.0));
    }
    assert_reads_in_time(manager.machine());
}

#[test]
fn a_thousand_processes_that_join_at_once_hold_no_look_up() {
    let mut manager = managing(1, 2 * MS);
    while manager.machine().now() < seconds(2.0) {
        manager.run_due_work_and_wait();
    }
    // One second of work.
    let machine = manager.machine_mut();
    machine.admission_duration = MS;
    (1..1000).for_each(|_| start(machine, 0));
    let begun = machine.now();
    while manager.machine().admitted < 1000 {
        manager.run_due_work_and_wait();
        assert!(manager.machine().now() < begun + seconds(20.0));
    }
    assert_reads_in_time(manager.machine());
}

#[test]
fn a_window_in_which_nobody_answered_is_made_up_for() {
    let mut manager = managing(1, 2 * MS);
    manager.machine_mut().sample_errors = [MachineError::NotAnswering as fn(_) -> _].into();
    // Long before the period of 5 s is over.
    while manager.machine().now() < seconds(2.0) {
        manager.run_due_work_and_wait();
    }
    assert!(manager.journal().totals().samples > 0);
}

#[test]
fn looks_at_the_sizes_of_many_processes_take_a_bounded_share_of_a_core() {
    // Without a bound they would take a tenth of a core.
    const FOOTPRINT_CPU: Duration = Duration::from_micros(100);
    let mut manager = managing(1000, Duration::ZERO);
    manager.machine_mut().footprint_cpu = FOOTPRINT_CPU;
    run_manager_until(&mut manager, seconds(100.0));
    let looks = manager.machine().call_times("footprint").count();
    let cpu = FOOTPRINT_CPU * looks as u32;
    // 0.5 %, 50 ms at once, and a slice.
    assert!((400 * MS..=560 * MS).contains(&cpu), "{cpu:?}");

    // One that joins does not wait for all others, of which a round takes 20 s.
    let joined = manager.machine_mut().add_program(program_of_parts(&[base_page_part(0, 1, 0.0)]));
    run_manager_until(&mut manager, seconds(102.0));
    assert!(manager.last_samples().footprint(joined).is_some());
}
