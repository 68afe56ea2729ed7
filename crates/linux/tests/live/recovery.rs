//! Recovery of bloat, and that freed memory stays free.

use hawkeye_bench::live::manage_processes_until;
use hawkeye_linux::LinuxMachine;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::target_call::CallHelperPool;
use hawkeye_live_test_support::manager_in_test::{
    kernel_backend, machine_of, promotion_result, sampled, until_answered,
};
use hawkeye_live_test_support::or_skip;
use hawkeye_live_test_support::test_machine::{machine, machine_with_remap};
use hawkeye_live_test_support::time_limits::{DEADLINE, time_limit_factor, until};
use hawkeye_live_test_support::workloads::{
    assert_unharmed, children, huge_bytes, memory, workload,
};
use hawkeye_manager::{
    Event, Journal, Machine as _, MachineError, PromotionResult, Sampling as _, Settings,
};
use hawkeye_policy::{
    BASE_PAGE_BYTES, BloatKind, CpuBudget, Errno, HUGE_PAGE_BYTES, PAGES_PER_REGION, ProcessId,
    RegionAddr,
};
use hawkeye_test_support::this_test;
use hawkeye_workload::{WorkloadEvent, WorkloadRequest};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a split gives back of a huge page of which 100 base pages are used.
const GIVEN_BYTES: u64 = (PAGES_PER_REGION - 100) as u64 * BASE_PAGE_BYTES;

/// Reads a program's memory repeatedly, which holds a reference to each page for a moment.
fn read_all_the_time(pid: u32, regions: &[RegionAddr], until: &AtomicBool) {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("the file can be opened");
    let mut page = [0; 4096];
    while !until.load(Ordering::Relaxed) {
        for region in regions {
            let _ = memory.read_at(&mut page, region.start());
        }
    }
}

fn huge_regions(machine: &mut LinuxMachine, process: ProcessId) -> Vec<RegionAddr> {
    let sampled = sampled(machine, process).regions.into_iter();
    sampled.filter(|r| r.is_huge()).map(|r| r.region).collect()
}

#[test]
fn referenced_pages_are_recovered_or_reported_as_refused() {
    let why = "this kernel pages zero pages out: what is read meanwhile comes back";
    let _machine = or_skip!(machine_with_remap(this_test!(), why));
    let (mut program, pid) = workload("bloat --mib 256 --used 100 --pages huge");
    let (mut machine, process) = machine_of(kernel_backend(), pid);
    let regions = huge_regions(&mut machine, process);
    assert_eq!(regions.len() as u64, (256 << 20) / HUGE_PAGE_BYTES);
    let mut recover = |regions: &[RegionAddr]| {
        let mut recovered = Vec::new();
        for region in regions {
            let outcome = until_answered(&mut machine, |it| {
                it.recover_bloat(process, &[*region], BloatKind::ZeroPages).remove(0)
            });
            recovered.push((*region, outcome));
        }
        recovered
    };
    let stop = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        scope.spawn(|| read_all_the_time(pid, &regions, &stop));
        let outcomes = recover(&regions);
        stop.store(true, Ordering::Relaxed);
        outcomes
    });
    let mut refused = Vec::new();
    for (region, outcome) in outcomes {
        match outcome {
            Ok(recovered) => assert_eq!(recovered.bytes, GIVEN_BYTES, "{region}"),
            Err(MachineError::Refused { errno: Errno::EBUSY, .. }) => refused.push(region),
            // A call that was answered late split it.
            Err(MachineError::Refused { errno: Errno::EAGAIN, .. }) => {}
            Err(error) => panic!("{region}: {error}"),
        }
    }
    // Nothing holds references to the pages any more.
    for (region, outcome) in recover(&refused) {
        let bytes = outcome.expect("the region can be recovered").bytes;
        assert_eq!(bytes, GIVEN_BYTES, "{region}");
    }
    assert_eq!(memory(&mut program).1, 0);
    assert_unharmed(&mut program);
}

#[test]
fn huge_pages_of_one_mapping_are_split_in_one_call() {
    let why = "this kernel splits them one by one";
    let _machine = or_skip!(machine_with_remap(this_test!(), why));
    let words = format!("bloat --mib {} --used 100 --pages huge", (16 * HUGE_PAGE_BYTES) >> 20);
    let (mut program, pid) = workload(&words);
    let (mut machine, process) = machine_of(kernel_backend(), pid);
    let regions = huge_regions(&mut machine, process);
    assert_eq!(regions.len(), 16);
    let (first, others) = regions.split_first().expect("there are huge pages");
    let mut split_first = || {
        until_answered(&mut machine, |it| {
            it.recover_bloat(process, &[*first], BloatKind::ZeroPages).remove(0)
        })
    };
    let alone = split_first().expect("it is split");
    assert_eq!(alone.bytes, GIVEN_BYTES);
    // On a busy machine the answer may come late.
    let is_late = |it: &_| matches!(it, Err(MachineError::NotAnswering(_)));
    let is_gone = |it: &_| matches!(it, Err(MachineError::Refused { errno: Errno::EAGAIN, .. }));
    let (mut in_one_call, mut groups, mut slow_or_late) = (0, 0, 0);
    let mut is_slow = alone.longest_call > Duration::from_millis(2);
    for group in others.chunks(3) {
        let together: Vec<RegionAddr> = std::iter::once(*first).chain(group.to_vec()).collect();
        let mut results = machine.recover_bloat(process, &together, BloatKind::ZeroPages);
        let again = results.remove(0);
        assert!(is_gone(&again) || is_late(&again), "{again:?}");
        let split: Vec<_> = results.iter().flatten().collect();
        assert!(split.iter().all(|it| it.bytes == GIVEN_BYTES), "{split:?}");
        let shares_call = |at: usize| split[at].longest_call == split[at - 1].longest_call;
        in_one_call += (1..split.len()).filter(|at| shares_call(*at)).count();
        // The next group is made by what this one took.
        groups += 1;
        slow_or_late += usize::from(is_slow || split.len() < group.len());
        is_slow = split.iter().any(|it| it.longest_call > Duration::from_millis(2));
    }
    // On a slow or busy machine, splits are made one by one.
    assert!(in_one_call > 0 || slow_or_late == groups, "{slow_or_late} of {groups}");
    for region in others {
        let outcome = until_answered(&mut machine, |it| {
            it.recover_bloat(process, &[*region], BloatKind::ZeroPages).remove(0)
        });
        assert!(outcome.is_ok() || is_gone(&outcome), "{region}: {outcome:?}");
    }
    let left = sampled(&mut machine, process).regions;
    assert!(left.iter().all(|r| r.present == 100), "{left:?}");
    assert_unharmed(&mut program);
}

/// The rest of each huge page stays allocated until it is split, which needs no swap. Meanwhile the
/// kernel may split some itself, and khugepaged may make some whole again.
#[test]
fn what_a_process_gave_back_of_huge_pages_is_freed() {
    let _machine = or_skip!(machine(this_test!()));
    let (mut program, pid) = workload("bloat --mib 64 --used 512 --pages huge");
    let (mut machine, process) = machine_of(kernel_backend(), pid);
    let huge = huge_regions(&mut machine, process);
    assert_eq!(huge.len(), 32);
    let freed_bytes = match program.request_and_wait(WorkloadRequest::DontNeed(75), DEADLINE) {
        Ok(WorkloadEvent::Freed { freed_bytes }) => freed_bytes,
        other => panic!("the workload gives memory back: {other:?}"),
    };
    assert_eq!(freed_bytes, 48 << 20);
    let list = |machine: &mut LinuxMachine| {
        let listed = until_answered(machine, |it| it.list_huge_pages(process, it.now() + DEADLINE));
        let listed = listed.expect("the pages can be listed");
        listed.into_done().expect("one call lists all of them")
    };
    let mut found = list(&mut machine);
    // One listing searches for 4 ms, which is too short for all regions of a slow host.
    assert!(until(DEADLINE, || {
        let size = until_answered(&mut machine, |it| it.footprint(process, it.now() + DEADLINE));
        let size = size.expect("sizes can be read").into_done().expect("one call reads them");
        if size.has_lost_huge_pages {
            found = list(&mut machine);
        }
        !size.has_lost_huge_pages
    }));
    let now = sampled(&mut machine, process).regions;
    for region in huge {
        match found.iter().find(|r| r.region == region) {
            Some(r) => assert!(r.is_huge() || (r.present, r.freed) == (128, 384), "{r:?}"),
            None => {
                let taken = now.iter().find(|r| r.region == region);
                let is_taken = taken.is_some_and(|r| r.is_huge() || r.present + r.swapped == 128);
                assert!(is_taken, "{region}: {taken:?}");
            }
        }
    }
    let mut split = 0;
    for region in found.iter().filter(|r| r.freed > 0).map(|r| r.region) {
        let counted = until_answered(&mut machine, |it| {
            it.count_zero_pages_in_huge_page(process, region, 512)
        });
        let zero_pages = counted.expect("the page can be searched").zero_pages;
        let mut recover = || {
            until_answered(&mut machine, |it| {
                it.recover_bloat(process, &[region], BloatKind::FreedPart).remove(0)
            })
        };
        let mut outcome = recover();
        // Others may hold a reference to a page for a moment.
        until(DEADLINE, || {
            let is_busy = matches!(outcome, Err(MachineError::Refused { errno: Errno::EBUSY, .. }));
            if is_busy {
                outcome = recover();
            }
            !is_busy
        });
        match outcome {
            Ok(freed) => {
                let freed = (zero_pages, freed.bytes, freed.left_present);
                assert_eq!(freed, (384, 384 * 4096, 128), "{region}");
                split += 1;
            }
            // It was split, or made whole, before this call.
            Err(MachineError::Refused { errno: Errno::EAGAIN, .. }) => {}
            Err(error) => panic!("{region}: {error}"),
        }
    }
    // What others do takes far longer than this test.
    assert!(split >= 16, "{split}");
    let left = list(&mut machine);
    assert!(left.iter().all(|r| r.is_huge() && r.freed == 0), "{left:?}");
    assert_unharmed(&mut program);
}

/// After a fork all huge pages are write-protected, also when the child has ended.
#[test]
fn huge_pages_that_a_child_shares_are_split_after_its_end() {
    let why = "this kernel pages zero pages out: what is read meanwhile comes back";
    let _machine = or_skip!(machine_with_remap(this_test!(), why));
    let (mut program, pid) = workload("bloat --mib 32 --used 100 --pages huge");
    let (mut machine, process) = machine_of(kernel_backend(), pid);
    let listed = |machine: &mut LinuxMachine| {
        let until = machine.now() + DEADLINE;
        let listed = machine.list_huge_pages(process, until).expect("the pages can be listed");
        listed.into_done().expect("one call lists all of them")
    };
    let find = |machine: &mut LinuxMachine, at: &str| {
        let sampled = sampled(machine, process);
        let huge: Vec<_> = sampled.regions.into_iter().filter(|r| r.is_huge()).collect();
        assert_eq!(huge.len(), 16, "{at}");
        for (found, by) in [(&huge, "sampled"), (&listed(machine), "listed")] {
            let counted = found.iter().filter(|r| (r.present, r.written) == (512, 512)).count();
            assert_eq!(counted, 16, "{by} {at}: {:?}", found.first());
        }
        for r in &huge {
            let found = machine.count_zero_pages_in_huge_page(process, r.region, 512);
            assert_eq!(found.expect("the page can be searched").zero_pages, 412, "{at}: {r:?}");
        }
        huge
    };
    find(&mut machine, "before the fork");
    program.send_request(WorkloadRequest::Go).expect("the workload can fork");
    assert!(until(DEADLINE, || children(pid).len() == 1));
    let child = children(pid)[0];
    for r in find(&mut machine, "while the child has them") {
        let outcome = until_answered(&mut machine, |it| {
            it.recover_bloat(process, &[r.region], BloatKind::ZeroPages).remove(0)
        });
        let refused = matches!(outcome, Err(MachineError::Refused { errno: Errno::EBUSY, .. }));
        assert!(refused, "{r:?}: {outcome:?}");
    }
    assert_eq!([pid, child].map(huge_bytes), [32 << 20; 2]);
    program.send_request(WorkloadRequest::Stop).expect("the child can be ended");
    assert!(until(DEADLINE, || children(pid).is_empty()));
    for r in find(&mut machine, "after the child's end") {
        let outcome = until_answered(&mut machine, |it| {
            it.recover_bloat(process, &[r.region], BloatKind::ZeroPages).remove(0)
        });
        assert_eq!(outcome.expect("the region can be recovered").bytes, GIVEN_BYTES, "{r:?}");
    }
    assert_eq!(memory(&mut program).1, 0);
    assert_unharmed(&mut program);
}

#[test]
fn memory_that_its_owner_has_just_freed_is_not_refilled() {
    let _machine = or_skip!(machine(this_test!()));
    let (mut program, pid) = workload("burner --mib 64 --pages base");
    let (mut machine, process) = machine_of(kernel_backend(), pid);
    let sampled = sampled(&mut machine, process);
    program
        .request_and_wait(WorkloadRequest::DontNeed(90), Duration::from_secs(10))
        .expect("the workload frees memory");
    let (before, _) = memory(&mut program);
    for r in sampled.regions.iter().filter(|r| r.present == 512) {
        let outcome = promotion_result(&mut machine, process, r.region, r.present);
        assert_eq!(outcome, Ok(PromotionResult::Freed), "{r:?}");
    }
    let (after, huge) = memory(&mut program);
    assert_eq!(huge, 0);
    // Pages of the program's own code may become resident meanwhile.
    assert!(after < before + HUGE_PAGE_BYTES, "{before} {after}");
}

#[test]
fn regions_that_were_split_are_promoted_again() {
    let _machine = or_skip!(machine(this_test!()));
    let (_program, pid) = workload(&format!(
        "random --mib 32 --pages base --quiet --seconds {}",
        600 * time_limit_factor()
    ));
    let settings = Settings {
        period: Duration::from_secs(1),
        window: Duration::from_millis(100),
        cpu: CpuBudget::new(100.0).expect("in range"),
        ..Settings::default()
    };
    let promote = |at_least: u64| {
        let (time, policy) = (DEADLINE * time_limit_factor(), "hawkeye-g");
        let enough = |journal: &Journal| journal.totals().promoted >= at_least;
        let promoted =
            manage_processes_until(kernel_backend(), &[pid], policy, settings, time, enough);
        promoted.expect("the process can be managed").journal
    };
    let first = promote(16);
    assert!(first.totals().promoted >= 16);
    let process = ProcessHandle::open(pid).expect("the process can be opened");
    let mut calls = CallHelperPool::with_time_limit(DEADLINE);
    let mut split = 0;
    for entry in first.entries() {
        if let Event::Promoted { region, .. } = &entry.event {
            split += u64::from(calls.split_huge_page(&process, *region, None).is_ok());
        }
    }
    assert!(split >= 16);
    assert_eq!(huge_bytes(pid), 0);
    let again = promote(split).totals().clone();
    assert!(again.promoted >= split, "{split} were split: {again:?}");
}
