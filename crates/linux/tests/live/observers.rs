//! What other tools observe in a process stays intact: userfaultfd and `mlock`.
//!
//! The process is the test itself.

use hawkeye_linux::probe::userfaultfd_handle::WatchMode;
use hawkeye_linux::processes::mappings::{self, ManagedMemory};
use hawkeye_linux::sample::page_table_reader::PageTableReader;
use hawkeye_linux::sample::pagemap;
use hawkeye_live_test_support::manager_in_test::{calls_into_this_process, userfaultfd};
use hawkeye_live_test_support::mapped_regions::{
    MappedRegions, assert_all_reported, own, pages, register, written_under_protection,
};
use hawkeye_live_test_support::or_skip;
use hawkeye_live_test_support::test_machine::{machine, machine_with};
use hawkeye_live_test_support::time_limits::until;
use hawkeye_policy::BASE_PAGE_BYTES;
use hawkeye_test_support::this_test;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The manager checks before it acts. A registration between check and action does no harm: the
/// kernel ensures that.
#[test]
fn the_kernel_reports_every_write_to_a_protected_page_through_promotions_and_splits() {
    let test = this_test!();
    let _machine = or_skip!(machine_with(test, "write protection"));
    let watcher = or_skip!(userfaultfd(test, false));
    let mut calls = calls_into_this_process();
    let memory = MappedRegions::new(16);
    let all = memory.range(0..16);
    let process = own();
    let (promoted, split) = (AtomicU64::new(0), AtomicU64::new(0));
    for value in 2..8 {
        memory.advise(all.clone(), libc::MADV_DONTNEED);
        memory.advise(all.clone(), libc::MADV_NOHUGEPAGE);
        // Mostly zeros, so that a split remaps these pages.
        for index in 0..memory.regions {
            let start = memory.region(index).start();
            pages(start..start + 10 * BASE_PAGE_BYTES).for_each(|page| memory.write(page, 1));
        }
        memory.advise(all.clone(), libc::MADV_HUGEPAGE);
        for index in 0..memory.regions {
            let made = calls.collapse(&process, memory.region(index), || None);
            promoted.fetch_add(u64::from(made.is_ok()), Ordering::Relaxed);
        }
        register(&watcher, all.clone(), WatchMode::WriteProtect);
        let over = AtomicBool::new(false);
        let heard = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for index in (0..memory.regions).rev() {
                        let region = memory.region(index);
                        let done = calls.split_huge_page(&process, region, None);
                        split.fetch_add(u64::from(done.is_ok()), Ordering::Relaxed);
                        let _ = calls.collapse(&process, region, || None);
                    }
                }
            });
            let heard = written_under_protection(&memory, &watcher, all.clone(), value);
            over.store(true, Ordering::Relaxed);
            heard
        });
        assert_all_reported(&heard, all.clone());
        watcher.unregister(all.clone()).expect("the range can be unregistered");
    }
    let done = (promoted.into_inner(), split.into_inner());
    assert!(done.0 > 0 && done.1 > 0, "{done:?}");
}

#[test]
fn locked_memory_stays_locked_when_it_is_promoted() {
    let _machine = or_skip!(machine(this_test!()));
    const KPF_UNEVICTABLE: u64 = 1 << 18;
    let mut calls = calls_into_this_process();
    let memory = MappedRegions::new(4);
    let all = memory.range(0..4);
    memory.touch_as_base_pages(all.clone());
    let bytes = (all.end - all.start) as usize;
    // SAFETY: locks this test's own mapping.
    let locked = unsafe { libc::mlock(all.start as *const _, bytes) };
    assert_eq!(locked, 0, "locks");
    let flags = File::open("/proc/kpageflags").expect("the file can be opened");
    let unevictable = || {
        let is_kept = |page: &u64| {
            let entry =
                pagemap::read_entry(std::process::id(), *page).expect("the pagemap can be read");
            assert_ne!(entry.frame_or_zero(), 0, "it is in memory");
            let mut bytes = [0; 8];
            let read = flags.read_exact_at(&mut bytes, entry.frame_or_zero() * 8);
            read.expect("the page flags can be read");
            u64::from_ne_bytes(bytes) & KPF_UNEVICTABLE != 0
        };
        // Only the first page of a block has the flag.
        pages(all.clone()).step_by(512).filter(is_kept).count()
    };
    // The kernel takes them off the lists of evictable pages in batches.
    assert!(until(Duration::from_secs(10), || unevictable() == 4));
    let process = own();
    for index in 0..4 {
        calls
            .collapse(&process, memory.region(index), || None)
            .expect("the region can be collapsed");
        let refused = calls.split_huge_page(&process, memory.region(index), None);
        assert!(refused.is_err(), "locked memory is not split");
    }
    assert_eq!(memory.huge_regions(all.clone()), 4);
    assert!(until(Duration::from_secs(10), || unevictable() == 4));
    assert!(pages(all.clone()).all(|page| memory.read(page) == 1));
}

#[test]
fn memory_registered_with_userfaultfd_is_not_eligible() {
    let test = this_test!();
    let _machine = or_skip!(machine(test));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let target = tables.bind_to_process(std::process::id()).expect("the target can be bound");
    let mut calls = calls_into_this_process();
    let memory = MappedRegions::new(8);
    let mut eligible = |index: u64| {
        let region = memory.region(index);
        let found = tables.vma_at_address(&target, own().id, region.start(), &mut calls);
        let found = found.expect("the mapping can be looked up");
        let listed = calls.list_mappings(own().id, &target).expect("the mappings can be listed");
        let here: Vec<_> = found.into_iter().collect();
        let now = mappings::check_region_eligible(&here, region, ManagedMemory::Private);
        assert_eq!(now, mappings::check_region_eligible(&listed, region, ManagedMemory::Private));
        now
    };
    assert_eq!(eligible(3), Ok(()));
    for mode in [WatchMode::WriteProtect, WatchMode::Missing] {
        let watcher = or_skip!(userfaultfd(test, true));
        register(&watcher, memory.range(2..4), mode);
        assert_eq!(eligible(3), Err(mappings::IneligibleReason::Userfaultfd));
        assert_eq!(eligible(5), Ok(()));
        drop(watcher);
        assert_eq!(eligible(3), Ok(()));
    }
    // Nothing is mapped at the start.
    let found = tables.vma_at_address(&target, own().id, 4096, &mut calls);
    assert_eq!(found.expect("the mapping can be looked up"), None);
}
