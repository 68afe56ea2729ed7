//! Tests of the decisions in the module above.

use super::*;
use crate::observation::{GroupMemory, MemoryUse};
use crate::testing::process;
use proptest::prelude::*;

fn usage(percent: u64) -> MemoryUse {
    MemoryUse {
        used_bytes: percent * 10,
        total_bytes: 1000,
    }
}

fn machine(percent: u64) -> MemoryState {
    MemoryState {
        machine: usage(percent),
        groups: Vec::new(),
        pressure_percent: None,
        fmfi: None,
    }
}

fn group(name: &str, percent: u64, members: &[u32]) -> GroupMemory {
    GroupMemory {
        name: name.to_owned(),
        usage: usage(percent),
        pressure_percent: None,
        members: members.iter().copied().map(process).collect(),
    }
}

fn guard() -> Result<MemoryGuard, SettingError> {
    let limit = MemoryGuard::DEFAULT_PRESSURE_LIMIT_PERCENT;
    MemoryGuard::new(Watermarks::default(), limit)
}

#[test]
fn watermarks_are_in_order() {
    for (high, low) in [
        (70.0, 85.0),
        (85.0, 85.0),
        (101.0, 70.0),
        (85.0, 0.0),
        (f64::NAN, 1.0),
    ] {
        assert!(Watermarks::new(high, low).is_err(), "{high}, {low}");
    }
    assert!(Watermarks::new(85.0, f64::NAN).is_err());
    assert_eq!(Watermarks::new(85.0, 70.0), Ok(Watermarks::default()));
}

#[test]
fn nothing_is_promoted_before_memory_was_looked_at() -> Result<(), SettingError> {
    let mut guard = guard()?;
    assert_eq!(guard.may_promote(process(1)), Err(Hold::Unknown));
    assert_eq!(guard.assess(&machine(50)).promotion, Ok(()));
    assert_eq!(guard.may_promote(process(1)), Ok(()));
    guard.lose_sight();
    assert_eq!(guard.may_promote(process(1)), Err(Hold::Unknown));
    Ok(())
}

#[test]
fn the_machine_recovers_from_high_to_low() -> Result<(), SettingError> {
    let mut guard = guard()?;
    let course = [
        (85, false),
        (86, true),
        (85, true),
        (70, true),
        (69, false),
        (85, false),
    ];
    for (percent, recovering) in course {
        let assessment = guard.assess(&machine(percent));
        assert_eq!(guard.recovering().is_some(), recovering, "{percent} %");
        assert_eq!(assessment.promotion.is_err(), recovering, "{percent} %");
        assert_eq!(guard.may_promote(process(1)), assessment.promotion);
    }
    Ok(())
}

#[test]
fn a_group_holds_and_gives_back_only_its_own() -> Result<(), SettingError> {
    let mut guard = guard()?;
    let mut state = machine(50);
    state.groups = vec![group("/db", 90, &[1, 2]), group("/web", 80, &[3])];
    let assessment = guard.assess(&state);
    assert_eq!(assessment.promotion, Ok(()));
    let scope = Scope::Group("/db".to_owned());
    assert_eq!(
        assessment.recover,
        [RecoverFrom {
            scope,
            used_percent: 90.0
        }]
    );
    assert_eq!(
        guard.may_promote(process(2)).map_err(|h| h.to_string()),
        Err("cgroup /db uses 90.0 % of its memory, over the high watermark of 85 %".to_owned())
    );
    assert_eq!(guard.may_promote(process(3)), Ok(()));
    let percent = |guard: &MemoryGuard, p| guard.recovering()?.used_percent(process(p));
    assert_eq!(percent(&guard, 1), Some(90.0));
    assert_eq!(percent(&guard, 3), None);

    state.groups = vec![group("/db", 75, &[1, 2]), group("/web", 80, &[3])];
    assert_eq!(guard.assess(&state).promotion, Ok(()));
    assert!(matches!(
        guard.may_promote(process(1)),
        Err(Hold::Recovering { .. })
    ));

    // Gone and back, it starts anew.
    state.groups.remove(0);
    assert_eq!(guard.assess(&state).recover, []);
    state.groups = vec![group("/db", 75, &[1, 2])];
    assert_eq!(guard.assess(&state).recover, []);
    assert_eq!(guard.may_promote(process(1)), Ok(()));
    Ok(())
}

#[test]
fn a_full_machine_concerns_everyone() -> Result<(), SettingError> {
    let mut guard = guard()?;
    let mut state = machine(95);
    state.groups = vec![group("/", 96, &[1]), group("/db", 99, &[1])];
    assert_eq!(guard.assess(&state).recover.len(), 3);
    let recovering = guard.recovering().cloned().unwrap_or_default();
    assert_eq!(recovering.used_percent(process(1)), Some(99.0));
    assert_eq!(recovering.used_percent(process(7)), Some(95.0));
    assert!(recovering.covers(process(7)));
    Ok(())
}

#[test]
fn pressure_holds_promotion_but_recovers_nothing() -> Result<(), SettingError> {
    let mut guard = guard()?;
    let pressed = |percent| MemoryState {
        pressure_percent: percent,
        ..machine(50)
    };
    assert_eq!(guard.assess(&pressed(Some(10.0))).promotion, Ok(()));
    let assessment = guard.assess(&pressed(Some(12.34)));
    assert_eq!(
        assessment.promotion.map_err(|h| h.to_string()),
        Err("tasks waited for memory 12.3 % of the last 10 s, more than 10 %".to_owned())
    );
    assert_eq!(guard.recovering(), None);
    assert_eq!(guard.assess(&pressed(None)).promotion, Ok(()));
    Ok(())
}

proptest! {
    /// Recovering is what the last crossing of a mark says, for the machine and each group.
    #[test]
    fn hysteresis(
        percents in prop::collection::vec((0u64..=110, 0u64..=110), 1..100),
        high in 2u64..=100,
        low_share in 1u64..100,
    ) {
        let low = (high * low_share / 100).max(1).min(high - 1);
        let mut guard = MemoryGuard::new(Watermarks::new(high as f64, low as f64)?, 100.0)?;
        let expected = |course: &[u64]| {
            course.iter().rev().find(|p| **p > high || **p < low).is_some_and(|p| *p > high)
        };
        let (mut on_machine, mut in_group) = (Vec::new(), Vec::new());
        for (m, g) in percents {
            on_machine.push(m);
            in_group.push(g);
            let mut state = machine(m);
            state.groups = vec![group("/g", g, &[1])];
            let (machine, group) = (expected(&on_machine), expected(&in_group));
            prop_assert_eq!(guard.assess(&state).promotion.is_err(), machine);
            prop_assert_eq!(guard.may_promote(process(1)).is_err(), machine || group);
            prop_assert_eq!(guard.may_promote(process(2)).is_err(), machine);
            let covers = |p| guard.recovering().is_some_and(|r| r.covers(process(p)));
            prop_assert_eq!(covers(1), machine || group);
            prop_assert_eq!(covers(2), machine);
        }
    }
}
