//! Things that go wrong.

use hawkeye_manager::{Event, Machine, Settings, Wake};
use hawkeye_policy::{Errno, Hold};
use hawkeye_test_support::machine::{Change, Ends, ProgramSpec};
use hawkeye_test_support::managing::*;
use std::time::Duration;

#[test]
fn refused_candidates_come_back_after_a_cool_down() -> Outcome {
    let mut machine = machine(16 * GIB);
    machine.start(program(&[base(0, 8, 1.0)]));
    machine.fail_next_promotions(3, Errno::EAGAIN);
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(120.0));
    let refused = refused(&manager);
    let expected: Vec<_> = (0..3).map(region).collect();
    assert_eq!(
        refused.iter().map(|(_, r)| *r).collect::<Vec<_>>(),
        expected
    );
    let promoted = promoted(&manager);
    assert_eq!(promoted.len(), 8);
    for (at, region) in refused {
        let again = promoted
            .iter()
            .find(|(.., r)| *r == region)
            .map(|(at, ..)| *at);
        assert!(
            again.is_some_and(|again| again >= at + s(30.0)),
            "{at:?} {again:?}"
        );
    }
    Ok(())
}

#[test]
fn the_best_region_waits_for_memory_and_is_not_left_alone() -> Outcome {
    for (shortages, paused) in [(1, 0.1), (7, 0.7), (8, 0.9)] {
        let mut machine = machine(16 * GIB);
        machine.start(program(&[base(0, 8, 1.0)]));
        machine.fail_next_promotions(shortages, Errno::ENOMEM);
        let mut manager = manage(machine, "hawkeye-g", often())?;
        run(&mut manager, s(120.0));
        let refused = refused(&manager);
        let promoted = promoted(&manager);
        assert_eq!(promoted.len(), 8);
        let (first, best) = refused[0];
        assert_eq!(refused.len(), shortages as usize);
        assert!(refused.iter().all(|(_, region)| *region == best));
        let (at, _, region) = promoted[0];
        // Pauses of 0.1 s, the last of which is twice that.
        assert!(at >= first + s(paused), "{at:?} {first:?}");
        assert!(at < first + s(paused + 0.01), "{at:?} {first:?}");
        // After the eighth time others have their turn.
        assert_eq!(region == best, shortages < 8);
    }
    Ok(())
}

#[test]
fn programs_are_sampled_and_end_while_memory_is_short() -> Outcome {
    let mut machine = machine(16 * GIB);
    let short = machine.start(ProgramSpec {
        ends: Ends {
            at: Some(s(31.0)),
            ..Ends::default()
        },
        ..program(&[base(0, 16, 1.0)])
    });
    let long = machine.start(program(&[base(0, 8, 1.0)]));
    // Seven pauses of 0.1 s, then twice as long each: this takes until after the first has ended.
    machine.fail_next_promotions(15, Errno::ENOMEM);
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(300.0));
    let promoted = promoted(&manager);
    assert!(
        promoted.iter().all(|(at, ..)| *at > s(31.0)),
        "{promoted:?}"
    );
    assert!(promoted.iter().all(|(_, process, _)| *process != short));
    let of_long = promoted.iter().filter(|(_, process, _)| *process == long);
    assert_eq!(of_long.count(), 8);
    Ok(())
}

#[test]
fn a_slow_call_stops_the_batch_and_pauses() -> Outcome {
    let mut machine = machine(16 * GIB);
    machine.start(program(&[base(0, 16, 1.0)]));
    machine.slow_next_promotions(2, s(0.05));
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(60.0));
    assert!(manager.machine().own_costs().longest_call > s(0.05));
    let times: Vec<Duration> = promoted(&manager).iter().map(|(at, ..)| *at).collect();
    let [first, second, third, fourth, ..] = times[..] else {
        panic!("{times:?}");
    };
    // A pause of 0.1 s, then twice that; a batch of short calls follows.
    assert!(second >= first + s(0.05 + 0.1), "{times:?}");
    assert!(third >= second + s(0.05 + 0.2), "{times:?}");
    assert!(fourth < third + s(0.01), "{times:?}");
    assert_eq!(times.len(), 16);
    Ok(())
}

#[test]
fn a_slow_refusal_counts_as_a_slow_call() -> Outcome {
    let mut machine = machine(16 * GIB);
    machine.start(program(&[base(0, 16, 1.0)]));
    machine.slow_next_promotions(1, s(0.05));
    machine.fail_next_promotions(1, Errno::EAGAIN);
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(30.0));
    let refused = refused(&manager).first().map(|(at, _)| *at);
    let next = promoted(&manager).first().map(|(at, ..)| *at);
    assert!(
        refused
            .zip(next)
            .is_some_and(|(refused, next)| next >= refused + s(0.15))
    );
    Ok(())
}

#[test]
fn a_process_may_end_at_any_time() -> Outcome {
    for tenth in 0..120u32 {
        let at = Duration::from_millis(100) * tenth;
        let mut machine = machine(16 * GIB);
        let short = machine.start(ProgramSpec {
            ends: Ends {
                at: Some(at),
                ..Ends::default()
            },
            ..program(&[base(0, 16, 1.0)])
        });
        let long = machine.start(program(&[base(0, 8, 1.0)]));
        machine.schedule(s(20.0), Change::Exit { process: long });
        let mut manager = manage(machine, "hawkeye-g", often())?;
        assert_eq!(run(&mut manager, s(100.0)), Wake::Stop);
        assert_eq!(manager.machine().now(), s(20.0));
        let promoted = promoted(&manager);
        assert!(
            promoted
                .iter()
                .all(|(when, p, _)| *p != short || *when < at)
        );
        assert_eq!(promoted.iter().filter(|(_, p, _)| *p == long).count(), 8);
    }
    Ok(())
}

#[test]
fn processes_that_arrive_later_are_managed_too() -> Outcome {
    let mut machine = machine(16 * GIB);
    machine.start(program(&[base(0, 8, 1.0)]));
    let late = machine.start(ProgramSpec {
        arrives: s(31.7),
        ..program(&[base(0, 8, 1.0)])
    });
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(80.0));
    let first = promoted(&manager)
        .iter()
        .find(|(_, p, _)| *p == late)
        .map(|(at, ..)| *at);
    assert!(first.is_some_and(|at| at > s(31.7)));
    assert_eq!(huge(&manager, late), 16 * MIB);
    Ok(())
}

#[test]
fn without_sight_of_memory_nothing_is_promoted() -> Outcome {
    let mut machine = machine(16 * GIB);
    machine.start(program(&[base(0, 8, 1.0)]));
    machine.schedule(s(0.0), Change::FailMemory { count: u32::MAX });
    machine.schedule(s(30.0), Change::FailMemory { count: 0 });
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(30.0));
    assert_eq!(promoted(&manager), []);
    let troubles = manager.journal().entries();
    assert!(
        troubles
            .filter(|e| matches!(e.event, Event::Trouble { .. }))
            .count()
            > 0
    );
    run(&mut manager, s(60.0));
    assert_eq!(promoted(&manager).len(), 8);
    Ok(())
}

#[test]
fn a_process_that_cannot_be_sampled_for_a_while_is_promoted_later() -> Outcome {
    let mut machine = machine(16 * GIB);
    machine.start(program(&[base(0, 8, 1.0)]));
    machine.schedule(s(0.0), Change::FailSamples { count: 3 });
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(60.0));
    assert_eq!(promoted(&manager).len(), 8);
    Ok(())
}

#[test]
fn memory_freed_since_the_window_is_not_refilled() -> Outcome {
    let mut machine = machine(16 * GIB);
    let process = machine.start(program(&[base(0, 64, 1.0)]));
    // Freed a moment after the first promotion, while most of the batch is still to come.
    machine.slow_next_promotions(1, s(0.05));
    let settings = Settings {
        max_promotions: Some(64),
        ..often()
    };
    let mut dry = manage(machine.clone(), "hawkeye-g", settings)?;
    run(&mut dry, s(20.0));
    let first = promoted(&dry)
        .first()
        .map_or(Duration::ZERO, |(at, ..)| *at);
    let change = Change::Use {
        process,
        part: 0,
        pages: 10,
    };
    machine.schedule(first + s(0.04), change);
    let mut manager = manage(machine, "hawkeye-g", settings)?;
    run(&mut manager, first + s(2.0));
    assert!(
        manager.journal().totals().freed > 50,
        "{:?}",
        manager.journal().totals()
    );
    assert!(rss(&manager, process) < 4 * MIB);
    Ok(())
}

#[test]
fn where_no_huge_frame_is_free_promotion_is_refused_and_nothing_breaks() -> Outcome {
    // 161 MiB of 192: 84 %, just under the watermark; huge frames only until memory is full.
    let mut machine = machine(192 * MIB);
    machine.start(program(&[base(0, 80, 1.0)]));
    machine.schedule(s(0.0), Change::OtherMemory { bytes: MIB });
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(60.0));
    assert!(manager.machine().used_bytes() <= 192 * MIB);
    assert_eq!(promoted(&manager).len(), 80);
    Ok(())
}

#[test]
fn above_the_watermark_the_manager_says_why_it_holds() -> Outcome {
    let mut machine = machine(100 * MIB);
    machine.start(program(&[base(0, 45, 1.0)]));
    let mut manager = manage(machine, "hawkeye-g", often())?;
    run(&mut manager, s(30.0));
    assert!(
        matches!(manager.held(), Some(Hold::AboveHigh { .. })),
        "{:?}",
        manager.held()
    );
    assert_eq!(promoted(&manager), []);
    Ok(())
}
