//! Which regions each policy promotes first.

use hawkeye_manager::{Event, Machine};
use hawkeye_policy::RegionAddr;
use hawkeye_test_support::builders::*;
use std::time::Duration;

#[test]
fn hawkeye_g_promotes_the_hot_regions_first() {
    let (machine, process) = machine_with_program(
        16 * GIB,
        program_of_parts(&[base_page_part(0, 56, 10.0), base_page_part(56, 8, 90.0)]),
    );
    let slow = accesses_per_s_of(&machine, process);
    let manager =
        run_manager_of(machine, "hawkeye-g", settings_with_max_promotions(8), seconds(40.0));
    let hot: Vec<RegionAddr> = (56..64).map(region_at_index).collect();
    assert_eq!(promoted_regions(&manager), hot);
    let fast = accesses_per_s_of(manager.machine(), process);
    // 0.9 * 164 + 0.1 * 302 ns instead of 302.
    assert!(fast / slow > 1.69, "{fast} {slow}");
}

#[test]
fn processes_with_equally_hot_regions_take_turns() {
    let (mut machine, first) =
        machine_with_program(16 * GIB, program_of_parts(&[base_page_part(0, 8, 1.0)]));
    let second = machine.add_program(program_of_parts(&[base_page_part(0, 8, 1.0)]));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(40.0));
    let turns: Vec<_> = promotions(&manager).iter().map(|(_, p, _)| *p).collect();
    assert_eq!(turns, [first, second].repeat(8));
}

/// The process cleared first is exposed longest, so no process may always be first.
#[test]
fn windows_begin_with_everybody_in_turn() {
    let mut machine = machine_with_bytes(16 * GIB);
    let processes =
        [(); 3].map(|()| machine.add_program(program_of_parts(&[base_page_part(0, 8, 1.0)])));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(40.0));
    let entries = manager.journal().entries();
    let sampled = entries.filter_map(|entry| match entry.event {
        Event::Sampled { process, .. } => Some(process),
        _ => None,
    });
    let sampled: Vec<_> = sampled.collect();
    assert!(sampled.len() >= 18, "{sampled:?}");
    for (window, order) in sampled.chunks_exact(3).enumerate() {
        let mut expected = processes;
        expected.rotate_left(window % 3);
        assert_eq!(order, expected, "window {window}");
    }
}

#[test]
fn linux_goes_in_address_order_eight_every_ten_seconds() {
    let (mut machine, first) = machine_with_program(
        16 * GIB,
        program_of_parts(&[base_page_part(0, 20, 1.0), base_page_part(20, 12, 90.0)]),
    );
    let second = machine.add_program(program_of_parts(&[base_page_part(0, 8, 99.0)]));
    let manager = run_manager_of(machine, "linux", frequent_sampling_settings(), seconds(60.0));
    let promoted = promotions(&manager);
    let of = |process, count| (0..count).map(move |index| (process, region_at_index(index)));
    let order = promoted.iter().map(|(_, p, r)| (*p, *r));
    assert!(order.eq(of(first, 32).chain(of(second, 8))), "{promoted:?}");
    let start = first_promotion_time(&manager);
    for (n, (at, ..)) in promoted.iter().enumerate() {
        let batch = Duration::from_secs(10) * (n as u32 / 8);
        let soon = start + batch..start + batch + seconds(1.5);
        assert!(soon.contains(at), "{n}: {at:?}");
    }
}

#[test]
fn none_does_nothing() {
    let (machine, process) =
        machine_with_program(16 * GIB, program_of_parts(&[base_page_part(0, 64, 1.0)]));
    let manager = run_manager_of(machine, "none", frequent_sampling_settings(), seconds(60.0));
    assert_eq!(promotions(&manager), []);
    assert_eq!(manager.machine().management_costs().cpu, Duration::ZERO);
    assert_eq!(rss_bytes_of(&manager, process), 128 * MIB);
    assert_eq!(huge_bytes_of(&manager, process), 0);
}

#[test]
fn what_is_never_accessed_is_left_alone_by_hawkeye_g() {
    let machine =
        machine_running_parts(16 * GIB, &[base_page_part(0, 32, 0.0), base_page_part(40, 4, 1.0)]);
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(60.0));
    let hot: Vec<RegionAddr> = (40..44).map(region_at_index).collect();
    assert_eq!(promoted_regions(&manager), hot);
}
