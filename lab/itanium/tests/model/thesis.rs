//! Exact results of the thesis.

use hawkeye_itanium::address::BasePageSize;
use hawkeye_itanium::kernel::KernelSettings;
use hawkeye_itanium::mmu::{ItaniumCounters, WalkerMode};
use hawkeye_itanium::workloads::{
    LinearWorkload, SparseWorkload, ThesisWorkload, TlbContentionWorkload,
};
use hawkeye_itanium::{MachineSettings, simulate_workload};

fn counted(
    walker: WalkerMode,
    kernel: KernelSettings,
    workload: ThesisWorkload,
) -> ItaniumCounters {
    let setup = MachineSettings { walker, kernel, ..MachineSettings::default() };
    simulate_workload(&setup, &workload, 1).unwrap().counters
}

const PLAIN: KernelSettings = KernelSettings::with_base_pages_only(BasePageSize::Kib16);

/// Section 4.3.1.
#[test]
fn sparse_accesses_are_all_nested_with_the_short_format_and_found_again_with_the_long_one() {
    let sparse = ThesisWorkload::Sparse(SparseWorkload::THESIS);
    let short = counted(WalkerMode::ShortFormat, PLAIN, sparse);
    assert_eq!((short.walker, short.software), (0, 0));
    // Three passes, and once more after each of 512 page faults.
    assert_eq!((short.nested, short.page_faults), (2048, 512));
    let long = counted(WalkerMode::LONG, PLAIN, sparse);
    assert_eq!((long.walker, long.hash_collisions), (1024, 0));
}

/// Section 4.3.1: "the only caveat".
#[test]
fn areas_gib_apart_collide_in_the_hash_table_if_they_are_not_perturbed() {
    let sparse = SparseWorkload { perturbed: false, ..SparseWorkload::THESIS };
    let long = counted(WalkerMode::LONG, PLAIN, ThesisWorkload::Sparse(sparse));
    assert!(long.walker < 10 && long.hash_collisions > 1000, "{long:?}");
}

/// Section 4.3.2 and table 4.2.
#[test]
fn a_linear_walk_is_the_short_formats_best_case_and_the_long_formats_worst() {
    let linear = ThesisWorkload::Linear(LinearWorkload::THESIS);
    let short = counted(WalkerMode::ShortFormat, PLAIN, linear);
    assert_eq!((short.misses, short.walker, short.nested), (65_536, 65_504, 32));
    let long = counted(WalkerMode::LONG, PLAIN, linear);
    assert_eq!((long.misses, long.walker, long.software), (65_536, 0, 65_536));
    let none = counted(WalkerMode::None, PLAIN, linear);
    assert_eq!((none.misses, none.software), (65_536, 65_536));
    // One page of a GiB.
    let large = KernelSettings::with_all_page_sizes(BasePageSize::Kib16);
    assert_eq!(counted(WalkerMode::ShortFormat, large, linear).misses, 1);
}

/// Section 4.3.1: the range of one page of the linear table grows with the square of the page size.
#[test]
fn sparse_accesses_share_tables_on_pages_of_64_kib() {
    let plain = KernelSettings::with_base_pages_only(BasePageSize::Kib64);
    let short =
        counted(WalkerMode::ShortFormat, plain, ThesisWorkload::Sparse(SparseWorkload::THESIS));
    assert!(short.walker > short.nested, "{short:?}");
}

/// Section 4.3.3: the short format needs eleven entries for each process, the long one ten.
#[test]
fn contention_begins_earlier_with_the_short_format() {
    let misses = |walker, processes| {
        let workload = ThesisWorkload::Contention(TlbContentionWorkload::with_processes(processes));
        counted(walker, PLAIN, workload).misses
    };
    let long = WalkerMode::LONG;
    assert_eq!((misses(WalkerMode::ShortFormat, 11), misses(long, 11)), (0, 0));
    assert!(misses(WalkerMode::ShortFormat, 12) > 0);
    assert_eq!(misses(long, 12), 0);
    assert!(misses(long, 13) > 0);
}

/// 64 processes with the same layout: none takes another's entry.
#[test]
fn processes_do_not_collide_in_the_hash_table() {
    let workload = ThesisWorkload::Contention(TlbContentionWorkload::with_processes(64));
    let long = counted(WalkerMode::LONG, PLAIN, workload);
    assert_eq!((long.software, long.hash_collisions), (0, 0));
}
