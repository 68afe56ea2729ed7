//! Results of promotion by utilisation.

use hawkeye_policy::RegionAddr;
use hawkeye_test_support::builders::*;
use hawkeye_test_support::scripted_machine::{ProgramPart, ScriptedChange};

fn sparse(first: u32, regions: u32) -> ProgramPart {
    ProgramPart { used_pages: 100, ..base_page_part(first, regions, 1.0) }
}

/// 100 of 512 pages are used: promoted whenever memory is unfragmented, and never while it is
/// fragmented or that is unknown.
#[test]
fn fragmentation_decides_what_is_promoted() {
    for fragmented in [Some(0.5), Some(0.9), None] {
        let (mut machine, process) = machine_with_program(
            16 * GIB,
            program_of_parts(&[sparse(0, 8), base_page_part(20, 8, 1.0)]),
        );
        machine.schedule_change(seconds(0.0), ScriptedChange::Fragmentation(fragmented));
        machine.schedule_change(seconds(40.0), ScriptedChange::Fragmentation(Some(0.49)));
        let mut manager = manager_of(machine, "ingens", frequent_sampling_settings());
        run_manager_until(&mut manager, seconds(40.0));
        let full: Vec<RegionAddr> = (20..28).map(region_at_index).collect();
        assert_eq!(promoted_regions(&manager), full, "{fragmented:?}");
        run_manager_until(&mut manager, seconds(60.0));
        let sparse = promoted_regions(&manager).split_off(8);
        assert_eq!(sparse, (0..8).map(region_at_index).collect::<Vec<_>>());
        assert_eq!(huge_bytes_of(&manager, process), 32 * MIB);
    }
}

/// Of 30 promotions a program of 60 regions gets 20, one of 30 gets 10, however hot it is.
#[test]
fn huge_pages_go_by_memory_held() {
    let (mut machine, large) =
        machine_with_program(16 * GIB, program_of_parts(&[base_page_part(0, 60, 0.0)]));
    let small = machine.add_program(program_of_parts(&[base_page_part(0, 30, 1.0)]));
    let manager =
        run_manager_of(machine, "ingens", settings_with_max_promotions(30), seconds(60.0));
    let of = |process| huge_bytes_of(&manager, process) / (2 * MIB);
    assert_eq!((of(large), of(small)), (20, 10));
}

/// Equal memory, 20 huge pages each; those of the first program are never accessed. An idle one
/// weighs as much as four in use. So the second gets all that 20 * 4 allow before the first gets
/// any.
#[test]
fn a_program_that_leaves_its_huge_pages_idle_waits() {
    let mut machine = machine_with_bytes(16 * GIB);
    let mut start = |weight| {
        let mut held = bloated_part(0, 20, weight);
        held.used_pages = 512;
        machine.add_program(program_of_parts(&[held, base_page_part(20, 100, 1.0)]))
    };
    let (idle, busy) = (start(0.0), start(1.0));
    let manager =
        run_manager_of(machine, "ingens", settings_with_max_promotions(50), seconds(60.0));
    let of = |process| huge_bytes_of(&manager, process) / (2 * MIB);
    assert_eq!((of(idle), of(busy)), (20, 70));
}

/// In fragmented memory, where 461 pages of a region must be present.
#[test]
fn what_was_filled_first_comes_first() {
    let mut machine = machine_with_bytes(16 * GIB);
    machine.schedule_change(seconds(0.0), ScriptedChange::Fragmentation(Some(0.9)));
    let process =
        machine.add_program(program_of_parts(&[sparse(0, 8), base_page_part(100, 100, 1.0)]));
    machine.schedule_change(seconds(22.0), ScriptedChange::Use(process, 0, 500));
    let manager =
        run_manager_of(machine, "ingens", settings_with_promotion_rate(4.0), seconds(90.0));
    let order: Vec<RegionAddr> = (100..200).chain(0..8).map(region_at_index).collect();
    assert_eq!(promoted_regions(&manager), order);
}

/// The manager's limits hold here too, so the machine never runs out of memory.
#[test]
fn promotion_at_the_first_chance_stops_at_the_watermark() {
    let machine = machine_running_parts(256 * MIB, &[sparse(0, 200)]);
    let manager = run_manager_of(machine, "ingens", frequent_sampling_settings(), seconds(60.0));
    assert!(!promotions(&manager).is_empty());
    let memory = manager.machine();
    assert!(memory.used_bytes() < 224 * MIB, "{}", memory.used_bytes());
}
