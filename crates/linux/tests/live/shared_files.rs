//! Shared memory: it becomes huge for all processes that map it, and its contents never change.

use crate::torture::torture;
use hawkeye_linux::processes::mappings::ManagedMemory;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_live_test_support::manager_in_test::{
    kernel_backend, machine_of_all, sampled, until_answered,
};
use hawkeye_live_test_support::or_skip;
use hawkeye_live_test_support::test_machine::machine_with;
use hawkeye_live_test_support::time_limits::{DEADLINE, from_environment, until};
use hawkeye_live_test_support::workloads::{children, rollup_kib, workload};
use hawkeye_manager::{Machine as _, PromotionResult};
use hawkeye_policy::{Promotion, Reason};
use hawkeye_test_support::this_test;

/// Eight processes change one file in every way. For each, one thread promotes all that is not huge
/// and another tries to split all that is.
#[test]
fn no_byte_of_shared_memory_changes_while_it_is_promoted_and_split() {
    let _machine = or_skip!(machine_with(this_test!(), "shared memory"));
    // The test may be made longer.
    let seconds = from_environment("HAWKEYE_TORTURE_S", 30);
    let words = format!("shared-file-torture --mib 64 --processes 8 --seconds {seconds}");
    let (mut program, pid) = workload(&words);
    let processes: Vec<ProcessHandle> = children(pid)
        .into_iter()
        .map(|pid| ProcessHandle::open(pid).expect("the process can be opened"))
        .collect();
    assert_eq!(processes.len(), 8);
    let memory = ManagedMemory::PrivateAndShared;
    let (promoted, _, forks) = torture(&mut program, &processes, memory, seconds);
    assert!(promoted > 0 && forks > 0, "{promoted} promoted, {forks} forks");
}

/// One process is sampled and promoted. Another one maps the same file, and was sampled or not.
#[test]
fn what_one_process_has_locked_is_promoted_in_no_other() {
    const MIB: u64 = 8;
    let _machine = or_skip!(machine_with(this_test!(), "shared memory"));
    for (options, is_sampled, is_protected) in [
        ("", false, false),
        ("--lock", false, true),
        ("--lock", true, true),
        ("--lock --without-thp", false, true),
        ("--lock --without-thp", true, true),
    ] {
        let (_program, pid) = workload(&format!("shared-file --mib {MIB} --workers 1 {options}"));
        let other = children(pid)[0];
        let line = if is_protected { "Locked" } else { "Rss" };
        assert!(until(DEADLINE, || rollup_kib(other, line) > 0), "{options}");
        let (mut machine, [first, second]) = machine_of_all(kernel_backend(), [pid, other]);
        machine.promote_shared_memory();
        if is_sampled {
            sampled(&mut machine, second);
        }
        let mut regions = sampled(&mut machine, first).regions;
        regions.retain(|region| region.file.is_some());
        assert_eq!(regions.len() as u64, MIB / 2);
        for it in regions {
            let reason = Reason::new("a test");
            let promotion = Promotion::to_huge_page(first, it.region, it.present, it.file, reason);
            let mut promote =
                || until_answered(&mut machine, |machine| machine.promote(&promotion));
            if is_protected {
                let kept = promote();
                assert_eq!(kept, Ok(PromotionResult::NotCandidate), "{options} {is_sampled}");
            } else {
                // On a busy machine, the mappings of the other process may not be listed in time.
                let done = || {
                    matches!(promote(), Ok(PromotionResult::Done { .. } | PromotionResult::Pending))
                };
                assert!(until(DEADLINE, done), "memory that no process protects is promoted");
            }
        }
    }
}
