//! The simulated machine by itself.

use hawkeye_manager::{Machine, MachineError, Progress, Promoted, Sampling, Wake};
use hawkeye_policy::{
    CoverageSource, Errno, HUGE_PAGE_BYTES, Needs, PageOrder, ProcessId, RegionAddr,
};
use hawkeye_sim::{
    Backing, Change, Costs, End, Ended, Ends, MachineSpec, Part, ProcessSpec, SimError, SimMachine,
};
use std::time::Duration;

type Outcome = Result<(), SimError>;

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

fn region(index: u64) -> RegionAddr {
    RegionAddr::containing((index + 1) * HUGE_PAGE_BYTES)
}

fn regions(count: u32, used_pages: u16, backing: Backing) -> ProcessSpec {
    ProcessSpec {
        parts: vec![Part {
            regions: count,
            used_pages,
            backing,
            ..Part::default()
        }],
        ..ProcessSpec::default()
    }
}

fn machine(total_bytes: u64) -> Result<SimMachine, SimError> {
    SimMachine::new(MachineSpec {
        total_bytes,
        ..MachineSpec::default()
    })
}

fn with(spec: ProcessSpec) -> Result<(SimMachine, ProcessId), SimError> {
    let mut machine = machine(1024 * MIB)?;
    let process = machine.start(spec)?;
    Ok((machine, process))
}

#[test]
fn accesses_take_what_their_pages_cost() -> Outcome {
    for (backing, ns) in [(Backing::Base, 302.0), (Backing::Huge, 164.0)] {
        let (mut machine, process) = with(regions(4, 512, backing))?;
        assert_eq!(machine.wait_until(SECOND), Wake::Deadline);
        let done = machine.accesses_done(process) as f64;
        assert!((done * ns - 1e9).abs() < 2.0 * ns, "{done}");
    }
    Ok(())
}

#[test]
fn a_process_ends_with_its_last_access_and_the_machine_with_its_last_process() -> Outcome {
    let work = Ends {
        after_accesses: Some(1_000_000),
        at: None,
    };
    let (mut machine, process) = with(ProcessSpec {
        ends: work,
        ..regions(4, 512, Backing::Base)
    })?;
    assert_eq!(machine.wait_until(SECOND), Wake::Stop);
    assert_eq!(machine.now(), Duration::from_millis(302));
    assert_eq!(machine.accesses_done(process), 1_000_000);
    assert_eq!(
        machine.sample(process, Duration::MAX),
        Err(MachineError::Gone(process))
    );
    assert_eq!(machine.used_bytes(), 0);
    Ok(())
}

#[test]
fn coverage_follows_the_pattern() -> Outcome {
    let part = |first: u64, weight, used_pages| Part {
        start: region(first),
        regions: 16,
        weight,
        used_pages,
        backing: Backing::Base,
    };
    let parts = vec![part(100, 9.0, 512), part(0, 1.0, 512), part(50, 0.0, 100)];
    let (mut machine, process) = with(ProcessSpec {
        parts,
        ..ProcessSpec::default()
    })?;
    let population = machine.sample(process, Duration::MAX);
    assert!(
        population
            .is_ok_and(|read| read.done().map(|s| s.source) == Some(CoverageSource::Population))
    );
    assert_eq!(
        machine.start_window(process, Needs::COVERAGE, Duration::MAX),
        Ok(Progress::Done(()))
    );
    machine.wait_until(machine.now() + Duration::from_millis(5));
    let Ok(Progress::Done(sample)) = machine.sample(process, Duration::MAX) else {
        panic!("it is there");
    };
    assert_eq!(sample.source, CoverageSource::AccessBits);
    assert!(sample.regions.is_sorted_by_key(|r| r.region));
    let accessed = |first: u64| -> u32 {
        let part = sample
            .regions
            .iter()
            .filter(|r| (region(first)..region(first + 16)).contains(&r.region));
        part.map(|r| u32::from(r.accessed)).sum()
    };
    // Some 8 ms less first touches: most of the hot pages, a tenth as many accesses to the cold ones.
    let (cold, idle, hot) = (accessed(0), accessed(50), accessed(100));
    assert!(
        hot > 5 * cold && cold > 300 && idle == 0,
        "{cold} {idle} {hot}"
    );
    assert!(
        sample
            .regions
            .iter()
            .all(|r| r.runs <= r.accessed && r.accessed <= r.present)
    );
    Ok(())
}

#[test]
fn promotion_fills_a_region_and_recovery_gives_its_zero_pages_back() -> Outcome {
    let (mut machine, process) = with(regions(2, 100, Backing::Base))?;
    let rss = |machine: &SimMachine| machine.process(process).map_or(0, |p| p.rss_bytes());
    assert_eq!(rss(&machine), 200 * 4096);
    let took = Costs::default().collapse;
    assert_eq!(
        machine.promote(process, region(0), PageOrder::HUGE, 100),
        Ok(Promoted::Done(took))
    );
    assert_eq!(rss(&machine), 2 * MIB + 100 * 4096);
    assert_eq!(
        machine.promote(process, region(0), PageOrder::HUGE, 100),
        Ok(Promoted::NotCandidate)
    );
    assert_eq!(
        machine.promote(process, region(9), PageOrder::HUGE, 100),
        Ok(Promoted::NotCandidate)
    );
    assert_eq!(
        machine.promote(process, region(1), PageOrder::HUGE, 101),
        Ok(Promoted::Freed)
    );
    let zeros = |machine: &mut SimMachine, enough| {
        machine
            .scan_zeros(process, region(0), enough)
            .map(|scan| scan.zero_pages)
    };
    assert_eq!(zeros(&mut machine, 64), Ok(64));
    assert_eq!(zeros(&mut machine, 512), Ok(412));
    let recovered = machine.recover(process, region(0));
    assert_eq!(
        recovered.map(|r| (r.bytes, r.left_present)),
        Ok((412 * 4096, 100))
    );
    assert_eq!(zeros(&mut machine, 512), Ok(0));
    assert_eq!(machine.recover(process, region(0)).map(|r| r.bytes), Ok(0));
    assert_eq!(rss(&machine), 200 * 4096);
    let sampled = machine.process(process).map(|p| p.regions());
    let first = sampled.iter().flatten().next();
    assert!(first.is_some_and(|r| (r.present, r.zero_mapped, r.is_huge()) == (100, 412, false)));
    Ok(())
}

#[test]
fn there_is_no_huge_page_without_two_free_mebibytes() -> Outcome {
    let mut machine = machine(10 * MIB)?;
    machine.limit_group("/small", 4 * MIB)?;
    let grouped = machine.start(ProcessSpec {
        group: Some("/small".to_owned()),
        ..regions(2, 400, Backing::Base)
    })?;
    let process = machine.start(regions(2, 400, Backing::Base))?;
    let refused = |process, errno| {
        Err(MachineError::Refused {
            call: "collapse",
            process,
            errno,
        })
    };
    // 800 of 1024 pages are in use in the group; 1600 of 2560 on the machine.
    assert_eq!(
        machine.promote(grouped, region(0), PageOrder::HUGE, 400),
        refused(grouped, Errno::EBUSY)
    );
    assert!(matches!(
        machine.promote(process, region(0), PageOrder::HUGE, 400),
        Ok(Promoted::Done(_))
    ));
    assert_eq!(
        machine.schedule(machine.now(), Change::OtherMemory { bytes: 2 * MIB }),
        Ok(())
    );
    machine.wait_until(machine.now());
    assert_eq!(
        machine.promote(process, region(1), PageOrder::HUGE, 400),
        refused(process, Errno::ENOMEM)
    );
    Ok(())
}

#[test]
fn a_program_that_grows_beyond_memory_is_killed() -> Outcome {
    let mut machine = machine(10 * MIB)?;
    let process = machine.start(regions(6, 400, Backing::Base))?;
    let (part, pages) = (0, 500);
    machine.schedule(
        SECOND,
        Change::Use {
            process,
            part,
            pages,
        },
    )?;
    assert_eq!(machine.wait_until(SECOND * 2), Wake::Stop);
    let ended = machine.process(process).and_then(|p| p.ended());
    let end = End::OutOfMemory;
    assert_eq!(ended, Some(Ended { at: SECOND, end }));
    assert_eq!(machine.used_bytes(), 0);
    Ok(())
}

#[test]
fn freeing_part_of_a_huge_page_splits_it() -> Outcome {
    let (mut machine, process) = with(regions(1, 400, Backing::Huge))?;
    let (part, pages) = (0, 100);
    machine.schedule(
        SECOND,
        Change::Use {
            process,
            part,
            pages,
        },
    )?;
    machine.wait_until(SECOND);
    // 300 are freed; the 112 that were never used are still there.
    let footprint = machine.footprint(process, Duration::MAX);
    assert!(footprint.is_ok_and(|read| {
        read.done()
            .is_some_and(|f| f.huge_bytes == 0 && f.rss_bytes == 212 * 4096)
    }));
    Ok(())
}

fn listed(machine: &mut impl Machine) -> Vec<ProcessId> {
    let all = machine.processes(Duration::from_secs(3600));
    all.done().expect("all have joined")
}

#[test]
fn processes_come_in_order_of_arrival() -> Outcome {
    let mut machine = machine(1024 * MIB)?;
    let at = |arrives| ProcessSpec {
        arrives,
        ..regions(1, 1, Backing::Base)
    };
    let late = machine.start(at(SECOND * 2))?;
    let early = machine.start(at(SECOND))?;
    assert_eq!(listed(&mut machine), []);
    machine.wait_until(SECOND);
    assert_eq!(listed(&mut machine), [early]);
    machine.wait_until(SECOND * 3);
    assert_eq!(listed(&mut machine), [early, late]);
    Ok(())
}

#[test]
fn calls_take_time_in_which_programs_run() -> Outcome {
    let (mut machine, process) = with(regions(8, 512, Backing::Base))?;
    machine.slow_next_promotions(1, SECOND);
    assert!(
        machine
            .promote(process, region(0), PageOrder::HUGE, 512)
            .is_ok()
    );
    let collapse = Costs::default().collapse;
    assert_eq!(machine.now(), SECOND + collapse);
    // Waiting is no work.
    assert_eq!(machine.own_costs().cpu, collapse);
    assert_eq!(machine.own_costs().longest_call, SECOND + collapse);
    assert!(machine.accesses_done(process) > 3_000_000);
    Ok(())
}
