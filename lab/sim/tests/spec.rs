//! Machines, processes and changes that can't be simulated.

use hawkeye_sim::{Change, Costs, MachineSpec, Part, ProcessSpec, SimError, SimMachine};
use std::time::Duration;

#[test]
fn what_makes_no_sense_is_refused() -> Result<(), SimError> {
    let mut machine = SimMachine::new(MachineSpec {
        total_bytes: 10 << 20,
        ..MachineSpec::default()
    })?;
    let mut parts = |parts: Vec<Part>| {
        let spec = ProcessSpec {
            parts,
            ..ProcessSpec::default()
        };
        machine.start(spec).err()
    };
    let part = Part::default();
    let (start, regions) = (part.start, 0);
    assert_eq!(
        parts(vec![Part { regions, ..part }]),
        Some(SimError::Size { start, regions })
    );
    let used_pages = 513;
    assert_eq!(
        parts(vec![Part { used_pages, ..part }]),
        Some(SimError::Pages(513))
    );
    let weight = -1.0;
    assert_eq!(
        parts(vec![Part { weight, ..part }]),
        Some(SimError::Weight(-1.0))
    );
    assert_eq!(parts(vec![part, part]), Some(SimError::Overlap(start)));
    let regions = 6;
    assert!(matches!(
        parts(vec![Part { regions, ..part }]),
        Some(SimError::Memory { .. })
    ));
    let process = machine.start(ProcessSpec {
        parts: vec![part],
        arrives: Duration::from_secs(1),
        ..ProcessSpec::default()
    })?;
    let at = Duration::ZERO;
    let early = machine.schedule(at, Change::Exit { process });
    assert_eq!(early, Err(SimError::Time { at }));
    let (part, pages) = (1, 1);
    let missing = machine.schedule(
        Duration::from_secs(1),
        Change::Use {
            process,
            part,
            pages,
        },
    );
    assert_eq!(missing, Err(SimError::Part { process, part }));
    let costs = Costs {
        huge_access_ns: 0.0,
        ..Costs::default()
    };
    let free = SimMachine::new(MachineSpec {
        costs,
        ..MachineSpec::default()
    });
    assert!(matches!(free, Err(SimError::Cost { .. })));
    Ok(())
}

#[test]
fn a_share_of_walks_is_a_share() -> Result<(), SimError> {
    let mut machine = SimMachine::new(MachineSpec::default())?;
    for walk_share in [-0.1, 1.1] {
        let spec = ProcessSpec {
            walk_share,
            ..ProcessSpec::default()
        };
        assert_eq!(machine.start(spec), Err(SimError::WalkShare(walk_share)));
    }
    Ok(())
}
