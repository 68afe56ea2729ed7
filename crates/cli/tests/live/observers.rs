//! What other tools observe in a process stays intact: userfaultfd, `mlock`, real-time threads.
//!
//! The managed process is the test itself.

use crate::common::{machine, machine_with, or_skip, until, userfaultfd};
use crate::daemon::{CONFIG, RunningDaemon};
use crate::settings;
use hawkeye_linux::anonymous_mapping::AnonymousMapping;
use hawkeye_linux::probe::userfaultfd_handle::{UserfaultfdHandle, WatchMode};
use hawkeye_linux::processes::mappings;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::process_madvise;
use hawkeye_linux::sample::page_table_reader::PageTableReader;
use hawkeye_linux::sample::pagemap;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, RegionAddr};
use hawkeye_test_support::this_test;
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

struct MappedRegions {
    _mapped: AnonymousMapping,
    start: u64,
    regions: u64,
}

// SAFETY: a mapping that only this test uses; all threads access it by volatile reads and writes of
// single bytes.
unsafe impl Sync for MappedRegions {}

impl MappedRegions {
    fn new(regions: u64) -> Self {
        let bytes = ((regions + 1) * HUGE_PAGE_BYTES) as usize;
        let mapped = AnonymousMapping::map(bytes).expect("memory can be mapped");
        Self { start: mapped.address().next_multiple_of(HUGE_PAGE_BYTES), _mapped: mapped, regions }
    }

    fn region(&self, index: u64) -> RegionAddr {
        RegionAddr::containing(self.start + index * HUGE_PAGE_BYTES)
    }

    fn range(&self, regions: Range<u64>) -> Range<u64> {
        let at = |index: u64| self.start + index * HUGE_PAGE_BYTES;
        at(regions.start)..at(regions.end)
    }

    fn write(&self, address: u64, value: u8) {
        assert!(self.range(0..self.regions).contains(&address));
        // SAFETY: the address is within the mapping, by the check above.
        unsafe { (address as *mut u8).write_volatile(value) };
    }

    fn read(&self, address: u64) -> u8 {
        assert!(self.range(0..self.regions).contains(&address));
        // SAFETY: as above.
        unsafe { (address as *const u8).read_volatile() }
    }

    fn advise(&self, range: Range<u64>, advice: libc::c_int) {
        let bytes = (range.end - range.start) as usize;
        // SAFETY: advice on this test's own mapping.
        let done = unsafe { libc::madvise(range.start as *mut _, bytes, advice) };
        assert_eq!(done, 0, "madvise {advice}");
    }

    /// Maps base pages in a range and writes to each; huge pages are allowed afterwards.
    fn touch_as_base_pages(&self, range: Range<u64>) {
        self.advise(range.clone(), libc::MADV_NOHUGEPAGE);
        pages(range.clone()).for_each(|page| self.write(page, 1));
        self.advise(range, libc::MADV_HUGEPAGE);
    }

    fn huge_regions(&self, range: Range<u64>) -> usize {
        let found = pagemap::read_population(std::process::id(), &[range])
            .expect("the pagemap can be read");
        found.iter().filter(|r| r.is_huge()).count()
    }
}

fn pages(range: Range<u64>) -> impl Iterator<Item = u64> {
    range.step_by(BASE_PAGE_BYTES as usize)
}

fn register(watcher: &UserfaultfdHandle, range: Range<u64>, mode: WatchMode) {
    watcher.register(range, mode).expect("the range can be registered");
}

fn own() -> ProcessHandle {
    ProcessHandle::open(std::process::id()).expect("the process can be opened")
}

/// Protects a range, writes `value` to each of its pages, and returns the pages that the monitor
/// reported.
fn written_under_protection(
    memory: &MappedRegions,
    watcher: &UserfaultfdHandle,
    range: Range<u64>,
    value: u8,
) -> BTreeSet<u64> {
    watcher.write_protect(range.clone(), true).expect("the range can be protected");
    let written = AtomicBool::new(false);
    let mut heard = BTreeSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pages(range.clone()).for_each(|page| memory.write(page, value));
            written.store(true, Ordering::Release);
        });
        while !written.load(Ordering::Acquire) {
            match watcher.next_fault_address().expect("the monitor can be read") {
                Some(address) => {
                    let page = address & !(BASE_PAGE_BYTES - 1);
                    heard.insert(page);
                    let whole = page..page + BASE_PAGE_BYTES;
                    watcher.write_protect(whole, false).expect("the page can be unprotected");
                }
                None => std::thread::yield_now(),
            }
        }
    });
    heard
}

fn assert_all_reported(heard: &BTreeSet<u64>, range: Range<u64>) {
    let missed: Vec<u64> = pages(range).filter(|page| !heard.contains(page)).collect();
    let count = missed.len();
    assert_eq!(count, 0, "writes were missed: {missed:x?}");
}

#[test]
fn every_write_to_a_protected_page_is_reported_under_the_manager() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    let watcher = or_skip!(userfaultfd(test, false));
    let memory = MappedRegions::new(32);
    let (free, watched) = (memory.range(0..16), memory.range(16..32));
    memory.touch_as_base_pages(free.clone());
    let options = "--policy linux --rate 100000 --period 0.2 --window 0.05 --cpu 100";
    let attached = machine.attach(options, std::process::id());
    let all_huge = || memory.huge_regions(free.clone()) == 16;
    let promotes = until(Duration::from_secs(30), all_huge);
    for value in 2..12 {
        // The manager acts both while the range is registered and while it is not.
        memory.advise(watched.clone(), libc::MADV_DONTNEED);
        memory.touch_as_base_pages(watched.clone());
        std::thread::sleep(Duration::from_millis(20 * value));
        register(&watcher, watched.clone(), WatchMode::WriteProtect);
        let heard = written_under_protection(&memory, &watcher, watched.clone(), value as u8);
        assert_all_reported(&heard, watched.clone());
        let right = pages(watched.clone()).all(|page| memory.read(page) == value as u8);
        assert!(right, "round {value}");
        watcher.unregister(watched.clone()).expect("the range can be unregistered");
    }
    // Registered for longer than a period: the range stays as it is.
    memory.advise(watched.clone(), libc::MADV_DONTNEED);
    register(&watcher, watched.clone(), WatchMode::WriteProtect);
    memory.touch_as_base_pages(watched.clone());
    std::thread::sleep(Duration::from_secs(2));
    let huge = memory.huge_regions(watched);
    let summary = attached.interrupt();
    assert!(promotes, "{summary}");
    assert_eq!(huge, 0, "{summary}");
}

/// The manager checks before it acts. A registration between check and action does no harm: the
/// kernel ensures that.
#[test]
fn the_kernel_reports_every_write_to_a_protected_page_through_promotions_and_splits() {
    let test = this_test!();
    let _machine = or_skip!(machine_with(test, "write protection"));
    let watcher = or_skip!(userfaultfd(test, false));
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
            let made = process_madvise::collapse(&process, memory.region(index));
            promoted.fetch_add(u64::from(made.is_ok()), Ordering::Relaxed);
        }
        register(&watcher, all.clone(), WatchMode::WriteProtect);
        let over = AtomicBool::new(false);
        let heard = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for index in (0..memory.regions).rev() {
                        let region = memory.region(index);
                        let done = process_madvise::split_huge_page(&process, region);
                        split.fetch_add(u64::from(done.is_ok()), Ordering::Relaxed);
                        let _ = process_madvise::collapse(&process, region);
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
fn why_names_userfaultfd_and_real_time_threads() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    let memory = MappedRegions::new(32);
    memory.touch_as_base_pages(memory.range(0..32));
    let watcher = or_skip!(userfaultfd(test, false));
    let watched = memory.range(8..16);
    register(&watcher, watched.clone(), WatchMode::WriteProtect);
    let own = std::process::id();
    let comm = std::fs::read_to_string("/proc/self/comm").expect("the file can be read");
    let by_rule = CONFIG.replace("hawkeye-minded", comm.trim());
    // The policy `none` changes no process, although this configuration includes others.
    let all = CONFIG.replace("unmatched = \"exclude\"", "unmatched = \"include\"");
    let address = format!("{:#x}", watched.start);
    let said = |config: &str, words: &str, wanted: &str| {
        let daemon = RunningDaemon::start_by(&machine, &format!("policy = \"none\"\n{config}"));
        let mut last = String::new();
        let found = until(Duration::from_secs(20), || {
            let why = machine.output(&format!("why {own} {words}"));
            last = why.out + &why.err;
            last.contains(wanted)
        });
        assert!(found, "{wanted:?} is not in {last}");
        daemon.end();
    };
    said(&by_rule, &address, "userfaultfd watches it");

    let lowest = libc::sched_param { sched_priority: 1 };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let real_time = scope.spawn(|| {
            // SAFETY: a plain system call on this thread, which only reads `lowest`.
            let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest) };
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
            set
        });
        said(&all, "", "has real-time threads");
        said(&by_rule, &address, "userfaultfd watches it");
        over.store(true, Ordering::Relaxed);
        assert_eq!(real_time.join().expect("the thread ends"), 0, "it was real-time");
    });
}

#[test]
fn locked_memory_stays_locked_when_it_is_promoted() {
    let _machine = or_skip!(machine(this_test!()));
    const KPF_UNEVICTABLE: u64 = 1 << 18;
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
        process_madvise::collapse(&process, memory.region(index))
            .expect("the region can be collapsed");
        let refused = process_madvise::split_huge_page(&process, memory.region(index));
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
    let memory = MappedRegions::new(8);
    let mut eligible = |index: u64| {
        let region = memory.region(index);
        let found =
            tables.vma_at_address(&target, region.start()).expect("the mapping can be looked up");
        let listed = tables.list_mappings(&target).expect("the mappings can be listed");
        let here: Vec<_> = found.into_iter().collect();
        let now = mappings::check_region_eligible(&here, region);
        assert_eq!(now, mappings::check_region_eligible(&listed, region));
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
    assert_eq!(tables.vma_at_address(&target, 4096).expect("the mapping can be looked up"), None);
}

#[test]
fn a_prefault_blocked_by_userfaultfd_does_not_block_others() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    let watcher = or_skip!(userfaultfd(test, false));
    if settings::read("enabled") == "always" {
        return test.skip("faults bring huge pages here, filled or not");
    }
    let first = MappedRegions::new(512);
    let options = "--fault-ahead on --policy none --cpu 50";
    let attached = machine.attach(options, std::process::id());
    std::thread::sleep(Duration::from_secs(2));
    let stream = |memory: &MappedRegions, regions: Range<u64>| {
        for index in regions {
            let start = memory.region(index).start();
            pages(start..start + HUGE_PAGE_BYTES).for_each(|page| memory.write(page, 3));
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    stream(&first, 0..4);
    register(&watcher, first.range(21..512), WatchMode::Missing);
    // The monitor never answers for the next region.
    stream(&first, 4..21);
    // The filler leaves a core that other programs need, so a region may be filled only after some
    // streams.
    let filled = until(Duration::from_secs(60), || {
        let second = MappedRegions::new(256);
        // Without the filler these touches bring no huge page.
        stream(&second, 0..256);
        second.huge_regions(second.range(0..256)) > 0
    });
    let summary = attached.interrupt();
    assert!(filled, "{summary}");
    let asked = watcher.next_fault_address().expect("the monitor can be read");
    assert_eq!(asked, None, "no fill waits for the monitor");
}
