//! Any calls in any order leave the machine consistent (it checks itself after each), and memory use
//! equal to a naive count.

use hawkeye_manager::{Machine, Progress, Sampling};
use hawkeye_policy::{HUGE_PAGE_BYTES, Needs, PageOrder, RegionAddr};
use hawkeye_sim::{Backing, Change, Ends, MachineSpec, Part, ProcessSpec, SimMachine};
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Call {
    Wait(u64),
    Clear(usize),
    Sample(usize),
    Promote(usize, u64, u16),
    Scan(usize, u64, u16),
    Recover(usize, u64),
    Use(usize, usize, u16),
    Weigh(usize, usize, f64),
    Other(u64),
    Exit(usize),
}

fn call() -> impl Strategy<Value = Call> {
    let process = 0usize..3;
    let region = 0u64..12;
    let pages = 0u16..=512;
    prop_oneof![
        4 => (0u64..3_000_000).prop_map(Call::Wait),
        2 => process.clone().prop_map(Call::Clear),
        2 => process.clone().prop_map(Call::Sample),
        6 => (process.clone(), region.clone(), pages.clone())
            .prop_map(|(p, r, n)| Call::Promote(p, r, n)),
        1 => (process.clone(), region.clone(), pages.clone())
            .prop_map(|(p, r, n)| Call::Scan(p, r, n)),
        4 => (process.clone(), region).prop_map(|(p, r)| Call::Recover(p, r)),
        3 => (process.clone(), 0usize..2, pages).prop_map(|(p, i, n)| Call::Use(p, i, n)),
        1 => (process.clone(), 0usize..2, 0.0..5.0).prop_map(|(p, i, w)| Call::Weigh(p, i, w)),
        1 => (0u64..20).prop_map(|mib| Call::Other(mib << 20)),
        1 => process.prop_map(Call::Exit),
    ]
}

fn machine() -> Result<SimMachine, TestCaseError> {
    let fail = |error: hawkeye_sim::SimError| TestCaseError::fail(error.to_string());
    let mut machine = SimMachine::new(MachineSpec {
        total_bytes: 48 << 20,
        ..MachineSpec::default()
    })
    .map_err(fail)?;
    machine.limit_group("/group", 14 << 20).map_err(fail)?;
    let part = |first: u64, backing| Part {
        start: address(first),
        regions: 3,
        used_pages: 200,
        backing,
        ..Part::default()
    };
    for (group, arrives) in [(None, 0), (Some("/group"), 0), (None, 1_000_000)] {
        let spec = ProcessSpec {
            // The higher part first: order of specification is not that of addresses.
            parts: vec![part(6, Backing::Base), part(1, Backing::Huge)],
            arrives: Duration::from_nanos(arrives),
            ends: Ends {
                after_accesses: Some(50_000),
                at: None,
            },
            group: group.map(str::to_owned),
            ..ProcessSpec::default()
        };
        machine.start(spec).map_err(fail)?;
    }
    Ok(machine)
}

fn address(index: u64) -> RegionAddr {
    RegionAddr::containing((1 << 30) + index * HUGE_PAGE_BYTES)
}

proptest! {
    #[test]
    fn no_calls_break_the_machine(calls in prop::collection::vec(call(), 0..60)) {
        let mut machine = machine()?;
        let ids = [1000, 1001, 1002];
        let ids = ids.map(|pid| hawkeye_policy::ProcessId { pid, start_ticks: 0 });
        let mut before = Duration::ZERO;
        for call in calls {
            let later = |part: Change, machine: &mut SimMachine| {
                // Refused before the process arrives; nothing happens then.
                let _ = machine.schedule(machine.now(), part);
                machine.wait_until(machine.now());
            };
            match call {
                Call::Wait(ns) => {
                    machine.wait_until(machine.now() + Duration::from_nanos(ns));
                }
                Call::Clear(p) => drop(machine.start_window(ids[p], Needs::COVERAGE, Duration::MAX)),
                Call::Sample(p) => {
                    let sampled = machine.sample(ids[p], Duration::MAX);
                    let regions = match &sampled {
                        Ok(Progress::Done(sample)) => sample.regions.as_slice(),
                        Ok(Progress::Unfinished { .. }) | Err(_) => &[],
                    };
                    for sample in regions {
                        prop_assert!(sample.accessed <= sample.present);
                        prop_assert!(sample.present + sample.zero_mapped <= 512);
                        prop_assert!(sample.runs <= sample.accessed);
                    }
                }
                Call::Promote(p, r, n) => drop(machine.promote(ids[p], address(r), PageOrder::HUGE, n)),
                Call::Scan(p, r, n) => {
                    let scan = machine.scan_zeros(ids[p], address(r), n);
                    prop_assert!(scan.is_err() || scan.is_ok_and(|s| s.zero_pages <= n));
                }
                Call::Recover(p, r) => {
                    let memory = |machine: &SimMachine| {
                        machine.process(ids[p]).map_or((0, 0), |p| (p.used_bytes(), p.rss_bytes()))
                    };
                    let (used, rss) = memory(&machine);
                    if let Ok(done) = machine.recover(ids[p], address(r)) {
                        prop_assert_eq!(memory(&machine), (used, rss - done.bytes));
                    }
                }
                Call::Use(p, part, pages) => {
                    later(Change::Use { process: ids[p], part, pages }, &mut machine);
                }
                Call::Weigh(p, part, weight) => {
                    later(Change::Weigh { process: ids[p], part, weight }, &mut machine);
                }
                Call::Other(bytes) => later(Change::OtherMemory { bytes }, &mut machine),
                Call::Exit(p) => later(Change::Exit { process: ids[p] }, &mut machine),
            }
            prop_assert_eq!(machine.check(), Ok(()));
            prop_assert!(machine.now() >= before);
            before = machine.now();
            for id in ids {
                let Some(process) = machine.process(id) else { continue };
                prop_assert!(process.used_bytes() <= process.rss_bytes());
                prop_assert!(process.huge_bytes() <= process.rss_bytes());
                let regions = process.regions();
                let pages: u64 = regions.iter().map(|r| u64::from(r.present)).sum();
                prop_assert_eq!(process.rss_bytes(), pages * 4096);
            }
        }
    }
}
