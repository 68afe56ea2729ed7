//! Exact results of the thesis.

use hawkeye_itanium::address::BasePage;
use hawkeye_itanium::kernel::KernelSettings;
use hawkeye_itanium::mmu::{Counters, Walker};
use hawkeye_itanium::workloads::{Contention, Linear, Sparse, Workload};
use hawkeye_itanium::{Setup, simulate};

fn counted(walker: Walker, kernel: KernelSettings, workload: Workload) -> Counters {
    let setup = Setup {
        walker,
        kernel,
        ..Setup::default()
    };
    simulate(&setup, &workload, 1).unwrap().counters
}

const PLAIN: KernelSettings = KernelSettings::plain(BasePage::Kib16);

/// Section 4.3.1.
#[test]
fn sparse_accesses_are_all_nested_with_the_short_format_and_found_again_with_the_long_one() {
    let sparse = Workload::Sparse(Sparse::THESIS);
    let short = counted(Walker::ShortFormat, PLAIN, sparse);
    assert_eq!((short.walker, short.software), (0, 0));
    // Three passes, and once more after each of 512 page faults.
    assert_eq!((short.nested, short.page_faults), (2048, 512));
    let long = counted(Walker::LONG, PLAIN, sparse);
    assert_eq!((long.walker, long.hash_collisions), (1024, 0));
}

/// Section 4.3.1: "the only caveat".
#[test]
fn areas_gib_apart_collide_in_the_hash_table_if_they_are_not_perturbed() {
    let sparse = Sparse {
        perturbed: false,
        ..Sparse::THESIS
    };
    let long = counted(Walker::LONG, PLAIN, Workload::Sparse(sparse));
    assert!(long.walker < 10 && long.hash_collisions > 1000, "{long:?}");
}

/// Section 4.3.2 and table 4.2.
#[test]
fn a_linear_walk_is_the_short_formats_best_case_and_the_long_formats_worst() {
    let linear = Workload::Linear(Linear::THESIS);
    let short = counted(Walker::ShortFormat, PLAIN, linear);
    assert_eq!(
        (short.misses, short.walker, short.nested),
        (65_536, 65_504, 32)
    );
    let long = counted(Walker::LONG, PLAIN, linear);
    assert_eq!(
        (long.misses, long.walker, long.software),
        (65_536, 0, 65_536)
    );
    let none = counted(Walker::None, PLAIN, linear);
    assert_eq!((none.misses, none.software), (65_536, 65_536));
    // One page of a GiB.
    let large = KernelSettings::large(BasePage::Kib16);
    assert_eq!(counted(Walker::ShortFormat, large, linear).misses, 1);
}

/// Section 4.3.1: the range of one page of the linear table grows with the square of the page size.
#[test]
fn sparse_accesses_share_tables_on_pages_of_64_kib() {
    let plain = KernelSettings::plain(BasePage::Kib64);
    let short = counted(Walker::ShortFormat, plain, Workload::Sparse(Sparse::THESIS));
    assert!(short.walker > short.nested, "{short:?}");
}

/// Section 4.3.3: the short format needs eleven entries for each process, the long one ten.
#[test]
fn contention_begins_earlier_with_the_short_format() {
    let misses = |walker, processes| {
        let workload = Workload::Contention(Contention::of(processes));
        counted(walker, PLAIN, workload).misses
    };
    let long = Walker::LONG;
    assert_eq!((misses(Walker::ShortFormat, 11), misses(long, 11)), (0, 0));
    assert!(misses(Walker::ShortFormat, 12) > 0);
    assert_eq!(misses(long, 12), 0);
    assert!(misses(long, 13) > 0);
}

/// 64 processes with the same layout: none takes another's entry.
#[test]
fn processes_do_not_collide_in_the_hash_table() {
    let workload = Workload::Contention(Contention::of(64));
    let long = counted(Walker::LONG, PLAIN, workload);
    assert_eq!((long.software, long.hash_collisions), (0, 0));
}
