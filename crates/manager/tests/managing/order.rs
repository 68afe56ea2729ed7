//! Which regions each policy promotes first.

use hawkeye_manager::{Event, Machine};
use hawkeye_test_support::builders::*;
use std::time::Duration;

#[test]
fn hawkeye_g_promotes_the_hot_regions_first() {
    let machine = machine_running_parts(
        16 * GIB,
        &[base_page_part(0, 56, 10.0), base_page_part(56, 8, 90.0)],
    );
    let manager =
        run_manager_of(machine, "hawkeye-g", settings_with_max_promotions(8), seconds(40.0));
    assert_eq!(promoted_regions(&manager), regions_at(56..64));
}

/// The process cleared first is exposed longest, so no process may always be first.
#[test]
fn windows_begin_with_everybody_in_turn() {
    let mut machine = ScriptedMachine::new(16 * GIB);
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
    let mut machine = machine_running_parts(
        16 * GIB,
        &[base_page_part(0, 20, 1.0), base_page_part(20, 12, 90.0)],
    );
    let second = machine.add_program(program_of_parts(&[base_page_part(0, 8, 99.0)]));
    let manager = run_manager_of(machine, "linux", frequent_sampling_settings(), seconds(60.0));
    let promoted = promotions(&manager);
    let of = |process, count| (0..count).map(move |index| (process, region_at_index(index)));
    let order = promoted.iter().map(|(_, p, r)| (*p, *r));
    assert!(order.eq(of(FIRST_PROCESS, 32).chain(of(second, 8))), "{promoted:?}");
    let start = first_promotion_time(&manager);
    for (n, (at, ..)) in promoted.iter().enumerate() {
        let batch = Duration::from_secs(10) * (n as u32 / 8);
        let soon = start + batch..start + batch + seconds(1.5);
        assert!(soon.contains(at), "{n}: {at:?}");
    }
}

#[test]
fn none_does_nothing() {
    let machine = machine_running_parts(16 * GIB, &[base_page_part(0, 64, 1.0)]);
    let manager = run_manager_of(machine, "none", frequent_sampling_settings(), seconds(60.0));
    assert_eq!(promotions(&manager), []);
    assert_eq!(manager.machine().management_costs().cpu, Duration::ZERO);
    assert_eq!(rss_bytes_of(&manager, FIRST_PROCESS), 128 * MIB);
    assert_eq!(huge_bytes_of(&manager, FIRST_PROCESS), 0);
}

/// 100 of 512 pages are used: promoted whenever memory is unfragmented, and never while it is
/// fragmented or that is unknown.
#[test]
fn fragmentation_decides_what_ingens_promotes() {
    for fragmented in [Some(0.5), Some(0.9), None] {
        let parts = [base_page_part(0, 8, 1.0).using(100), base_page_part(20, 8, 1.0)];
        let mut machine = machine_running_parts(16 * GIB, &parts);
        machine.fmfi = fragmented;
        machine.schedule(seconds(40.0), |machine| machine.fmfi = Some(0.49));
        let mut manager = manager_of(machine, "ingens", frequent_sampling_settings());
        run_manager_until(&mut manager, seconds(40.0));
        assert_eq!(promoted_regions(&manager), regions_at(20..28), "{fragmented:?}");
        run_manager_until(&mut manager, seconds(60.0));
        assert_eq!(promoted_regions(&manager), regions_at((20..28).chain(0..8)));
        assert_eq!(huge_bytes_of(&manager, FIRST_PROCESS), 32 * MIB);
    }
}
