//! The crate `linux` inside the test process, with the costs of the test machine
//! ([`crate::test_machine`]).

use crate::test_machine::facts;
use crate::time_limits::{DEADLINE, until};
use hawkeye_linux::probe;
use hawkeye_linux::probe::userfaultfd_handle::UserfaultfdHandle;
use hawkeye_linux::processes::mappings;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::target_call::CallHelperPool;
use hawkeye_linux::sample::counters::EventCodeOverrides;
use hawkeye_linux::sample::page_table_reader::{PageTableReader, ProcessBpfLinks, WalkDetail};
use hawkeye_linux::sample::walk_costs;
use hawkeye_linux::stop_signals::StopSignals;
use hawkeye_linux::{ChosenKernelMethods, LinuxMachine, ManagedTarget};
use hawkeye_manager::machine::CallResult;
use hawkeye_manager::{Machine as _, MachineError, PromotionResult, Sampling as _};
use hawkeye_policy::{ProcessId, ProcessSample, Promotion, Reason, RegionAddr, RegionSample};
use hawkeye_test_support::test_skips::TestName;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// What a manager inside the test process uses.
///
/// # Panics
/// The machine can't be managed.
pub fn kernel_backend() -> ChosenKernelMethods {
    let facts = facts().expect("the machine can be probed");
    let decision = probe::decide_kernel_methods(facts).expect("the machine can be managed");
    let mut means =
        probe::set_up_chosen_methods(&decision, None).expect("the kernel interfaces can be set up");
    // The folder is not used, because the costs are given.
    let costs =
        walk_costs::load_or_measure_costs(Path::new("/nonexistent")).expect("costs are given");
    means.enable_overhead_estimate(costs.into(), EventCodeOverrides::default());
    means
}

/// The machine of a manager inside the test process, with one managed process.
///
/// # Panics
/// The process can't be managed.
pub fn machine_of(means: ChosenKernelMethods, pid: u32) -> (LinuxMachine, ProcessId) {
    let (machine, [process]) = machine_of_all(means, [pid]);
    (machine, process)
}

/// The same with several managed processes.
///
/// # Panics
/// A process can't be managed.
pub fn machine_of_all<const N: usize>(
    means: ChosenKernelMethods,
    pids: [u32; N],
) -> (LinuxMachine, [ProcessId; N]) {
    let handles = pids.map(|pid| ProcessHandle::open(pid).expect("the process can be opened"));
    let signals = StopSignals::take_over().expect("the signals can be blocked");
    let mut machine = LinuxMachine::new(means, ManagedTarget::Processes(handles.into()), signals);
    let joined = machine.admit_and_list_processes(Duration::from_secs(3600)).into_done();
    let joined = joined.and_then(|joined| joined.try_into().ok());
    (machine, joined.expect("the processes are managed"))
}

/// A sample of all regions of a process.
///
/// # Panics
/// It can't be sampled.
pub fn sampled(machine: &mut LinuxMachine, process: ProcessId) -> ProcessSample {
    let sampled =
        until_answered(machine, |it| it.sample(process, it.now() + Duration::from_secs(60)));
    let sampled = sampled.expect("the process can be sampled");
    sampled.into_done().expect("one call reads all of it")
}

/// Makes a call until the process answers. A manager waits 20 ms; a busy or emulated machine may
/// need longer. What a late call did is done: the next one may find nothing left to do. Gives up
/// after [`DEADLINE`].
///
/// # Errors
/// Those of the last call.
pub fn until_answered<T>(
    machine: &mut LinuxMachine,
    mut call: impl FnMut(&mut LinuxMachine) -> CallResult<T>,
) -> CallResult<T> {
    let mut answer = call(machine);
    until(DEADLINE, || {
        let answered = !matches!(answer, Err(MachineError::NotAnswering(_)));
        if !answered {
            // A process gets no other call until its late answer has been taken.
            machine.take_timed_out_call_results();
            answer = call(machine);
        }
        answered
    });
    answer
}

/// Calls into the test process itself. Must come before the test touches its memory: a helper is a
/// fork of this process, and the kernel neither ages nor splits pages that both map.
///
/// # Panics
/// No helper can be started.
pub fn calls_into_this_process() -> CallHelperPool {
    let mut calls = CallHelperPool::with_time_limit(DEADLINE);
    calls.start_idle_helper().expect("a helper can be started");
    calls
}

/// The result of a promotion of a region of private memory, however long it takes on a busy
/// machine. Gives up after [`DEADLINE`].
///
/// # Errors
/// Those of the promotion.
pub fn promotion_result(
    machine: &mut LinuxMachine,
    process: ProcessId,
    region: RegionAddr,
    expected_present: u16,
) -> CallResult<PromotionResult> {
    let reason = Reason::new("a test");
    let promotion = Promotion::to_huge_page(process, region, expected_present, None, reason);
    let mut result = until_answered(machine, |machine| machine.promote(&promotion));
    if result == Ok(PromotionResult::Pending) {
        until(DEADLINE, || {
            let ended = machine.take_timed_out_call_results().ended.pop();
            ended.map(|late| result = late.outcome).is_some()
        });
    }
    result
}

/// The ranges of a process that may have huge pages.
///
/// # Panics
/// The mappings can't be listed.
pub fn eligible(pid: u32, target: &ProcessBpfLinks) -> Vec<Range<u64>> {
    let process = ProcessHandle::open(pid).expect("the process can be opened");
    let mappings = CallHelperPool::with_time_limit(DEADLINE).list_mappings(process.id, target);
    mappings::collect_eligible_ranges(&mappings.expect("the mappings can be listed")).ranges
}

/// The same, and their regions, from its page tables.
///
/// # Panics
/// The page tables can't be walked.
pub fn read_regions(
    tables: &mut PageTableReader,
    pid: u32,
) -> (Vec<Range<u64>>, Vec<RegionSample>) {
    let target = tables.bind_to_process(pid).expect("the target can be bound");
    let ranges = eligible(pid, &target);
    let mut found = Vec::new();
    let walked = tables.walk_ranges(&target, &ranges, WalkDetail::Regions, &mut found, |_| {});
    walked.expect("the page tables can be walked");
    (ranges, found)
}

/// A monitor of page faults. Where it can't protect pages, the test counts as skipped.
pub fn userfaultfd(test: TestName, user_only: bool) -> Option<UserfaultfdHandle> {
    let opened = UserfaultfdHandle::open(user_only);
    if opened.is_err() {
        test.skip("this kernel's userfaultfd can't protect pages");
    }
    opened.ok()
}
