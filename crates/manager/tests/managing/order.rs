//! Which regions each policy promotes first.

use hawkeye_manager::{Event, Machine, Settings};
use hawkeye_policy::RegionAddr;
use hawkeye_test_support::managing::*;
use std::time::Duration;

#[test]
fn hawkeye_g_promotes_the_hot_regions_first() -> Outcome {
    let mut machine = machine(16 * GIB);
    let process = machine.start(program(&[base(0, 56, 10.0), base(56, 8, 90.0)]));
    let slow = machine
        .process(process)
        .map(|p| p.access_rate(machine.costs()));
    let settings = Settings {
        max_promotions: Some(8),
        ..often()
    };
    let mut manager = manage(machine, "hawkeye-g", settings)?;
    run(&mut manager, s(40.0));
    let hot: Vec<RegionAddr> = (56..64).map(region).collect();
    assert_eq!(promoted_regions(&manager), hot);
    let machine = manager.machine();
    let fast = machine
        .process(process)
        .map(|p| p.access_rate(machine.costs()));
    // 0.9 * 164 + 0.1 * 302 ns instead of 302.
    assert!(
        fast.zip(slow)
            .is_some_and(|(fast, slow)| fast / slow > 1.69)
    );
    Ok(())
}

#[test]
fn processes_with_equally_hot_regions_take_turns() -> Outcome {
    let mut machine = machine(16 * GIB);
    let first = machine.start(program(&[base(0, 8, 1.0)]));
    let second = machine.start(program(&[base(0, 8, 1.0)]));
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(40.0));
    let turns: Vec<_> = promoted(&manager).iter().map(|(_, p, _)| *p).collect();
    assert_eq!(turns, [first, second].repeat(8));
    Ok(())
}

/// Who is cleared first is exposed longest: nobody always is.
#[test]
fn windows_begin_with_everybody_in_turn() -> Outcome {
    let mut machine = machine(16 * GIB);
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(machine.start(program(&[base(0, 8, 1.0)])));
    }
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(40.0));
    let entries = manager.journal().entries();
    let sampled = entries.filter_map(|entry| match entry.event {
        Event::Sampled { process, .. } => Some(process),
        _ => None,
    });
    let sampled: Vec<_> = sampled.collect();
    assert!(sampled.len() >= 18, "{sampled:?}");
    for (window, order) in sampled.chunks_exact(3).enumerate() {
        let mut expected = processes.clone();
        expected.rotate_left(window % 3);
        assert_eq!(order, expected, "window {window}");
    }
    Ok(())
}

#[test]
fn linux_goes_in_address_order_eight_every_ten_seconds() -> Outcome {
    let mut machine = machine(16 * GIB);
    let first = machine.start(program(&[base(0, 20, 1.0), base(20, 12, 90.0)]));
    let second = machine.start(program(&[base(0, 8, 99.0)]));
    let mut manager = manage(machine, "linux", often())?;
    run(&mut manager, s(60.0));
    let promoted = promoted(&manager);
    let expected = (0..32).map(|i| (first, region(i)));
    let expected: Vec<_> = expected
        .chain((0..8).map(|i| (second, region(i))))
        .collect();
    let order: Vec<_> = promoted.iter().map(|(_, p, r)| (*p, *r)).collect();
    assert_eq!(order, expected);
    let start = promoted.first().map_or(Duration::ZERO, |(at, ..)| *at);
    for (n, (at, ..)) in promoted.iter().enumerate() {
        let batch = Duration::from_secs(10) * (n as u32 / 8);
        assert!(
            *at >= start + batch && *at < start + batch + s(1.5),
            "{n}: {at:?}"
        );
    }
    Ok(())
}

#[test]
fn none_does_nothing() -> Outcome {
    let mut machine = machine(16 * GIB);
    let process = machine.start(program(&[base(0, 64, 1.0)]));
    let mut manager = manage(machine, "none", often())?;
    run(&mut manager, s(60.0));
    assert_eq!(promoted(&manager), []);
    assert_eq!(manager.machine().own_costs().cpu, Duration::ZERO);
    assert_eq!(
        (rss(&manager, process), huge(&manager, process)),
        (128 * MIB, 0)
    );
    Ok(())
}

#[test]
fn what_is_never_accessed_is_left_alone_by_hawkeye_g() -> Outcome {
    let mut machine = machine(16 * GIB);
    machine.start(program(&[base(0, 32, 0.0), base(40, 4, 1.0)]));
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(60.0));
    let hot: Vec<RegionAddr> = (40..44).map(region).collect();
    assert_eq!(promoted_regions(&manager), hot);
    Ok(())
}
