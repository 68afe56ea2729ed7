//! Compares the sampler's results with what the program did.

use hawkeye_bench::clear_refs;
use hawkeye_linux::arch;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::target_call::CallHelperPool;
use hawkeye_linux::sample::page_table_reader::{PageTableReader, WalkDetail};
use hawkeye_linux::sample::pagemap;
use hawkeye_live_test_support::manager_in_test::{calls_into_this_process, eligible, read_regions};
use hawkeye_live_test_support::mapped_regions::{MappedRegions, pages};
use hawkeye_live_test_support::or_skip;
use hawkeye_live_test_support::settings;
use hawkeye_live_test_support::test_machine::machine;
use hawkeye_live_test_support::time_limits::{DEADLINE, is_emulated, until};
use hawkeye_live_test_support::workloads::{started, workload};
use hawkeye_policy::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, RegionAddr, RegionSample,
};
use hawkeye_test_support::this_test;
use hawkeye_workload::rng::WorkloadRng;
use hawkeye_workload::{WorkloadReady, WorkloadRequest};
use procfs::process::Process;
use procfs::sys::kernel::Version;
use std::collections::HashSet;
use std::time::Duration;

/// Regions of 64 MiB.
const REGIONS: usize = ((64 << 20) / HUGE_PAGE_BYTES) as usize;

/// Regions of the workload's memory, without those of its heap.
fn of_memory(tables: &mut PageTableReader, ready: &WorkloadReady) -> Vec<RegionSample> {
    let memory = ready.start..ready.start + ready.bytes;
    let mut found = read_regions(tables, ready.pid).1;
    found.retain(|r| memory.contains(&r.region.start()));
    found
}

#[test]
fn population_is_counted_exactly() {
    let _machine = or_skip!(machine(this_test!()));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let (_program, ready) = started("bloat --mib 64 --used 100 --pages base");
    let found = of_memory(&mut tables, &ready);
    assert_eq!(found.len(), REGIONS);
    for r in &found {
        let seen = (r.present, r.written, r.is_huge(), r.swapped);
        assert_eq!(seen, (100, 100, false, 0), "{r:?}");
    }
    let eligible = ready.start..ready.start + ready.bytes;
    let by_pagemap =
        pagemap::read_population(ready.pid, &[eligible]).expect("the pagemap can be read");
    let by_pagemap: Vec<u16> = by_pagemap.iter().map(|r| r.present).collect();
    assert_eq!(by_pagemap, [100; REGIONS]);
}

#[test]
fn cleared_bits_stay_clear_until_memory_is_used() {
    let _machine = or_skip!(machine(this_test!()));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let (mut program, ready) = started("sequential --mib 64 --quiet --wait");
    clear_refs::clear_access_bits_of_process(ready.pid).expect("the access bits can be cleared");
    let idle = of_memory(&mut tables, &ready);
    assert_eq!(idle.iter().map(|r| u64::from(r.accessed)).sum::<u64>(), 0);
    assert_eq!(idle.len(), REGIONS);
    program.send_request(WorkloadRequest::Go).expect("the workload can be started");
    let mut busy = Vec::new();
    // In order, so in long runs; a few translations may have stayed in the TLB.
    let touched = until(DEADLINE, || {
        busy = of_memory(&mut tables, &ready);
        let nearly_all = PAGES_PER_REGION / 5 * 4;
        busy.len() == REGIONS && busy.iter().all(|r| r.accessed > nearly_all && r.runs < 60)
    });
    assert!(touched, "{busy:?}");
}

fn protect(region: RegionAddr, access: libc::c_int) {
    let bytes = (region.end() - region.start()) as usize;
    // SAFETY: a mapping of this test, to which it makes no access that is not allowed.
    let changed = unsafe { libc::mprotect(region.start() as *mut _, bytes, access) };
    assert_eq!(changed, 0);
}

/// Makes this process forget the translations of a region, as it does not within that region.
fn leave_tlb(region: RegionAddr) {
    for access in [libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE] {
        protect(region, access);
    }
}

/// The kernel's count of dirty private memory in this process's mapping at an address.
fn private_dirty_bytes(address: u64) -> u64 {
    let own = Process::myself().expect("this process can be opened");
    let mut maps = own.smaps().expect("the file can be read").into_iter();
    let map = maps.find(|map| (map.address.0..map.address.1).contains(&address));
    map.expect("the address is mapped").extension.map["Private_Dirty"]
}

/// The huge zero page is read-only too, but nothing was ever written to it.
#[test]
fn a_read_only_huge_page_is_not_taken_for_the_huge_zero_page() {
    let _machine = or_skip!(machine(this_test!()));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let switches = [(settings::file("enabled"), "madvise"), (settings::file("use_zero_page"), "1")];
    let _enabled = settings::Changed::to(switches).expect("root can change the settings");
    let own = ProcessHandle::open(std::process::id()).expect("this process can be opened");
    let mut calls = calls_into_this_process();
    let memory = MappedRegions::new(2);
    let [written, never_written] = [0, 1].map(|index| memory.region(index));
    memory.touch_as_base_pages(memory.range(0..1));
    assert!(until(DEADLINE, || calls.collapse(&own, written, || None).is_ok()));
    let zeros = written.start() + 400 * BASE_PAGE_BYTES..written.end();
    pages(zeros).for_each(|page| memory.write(page, 0));
    memory.advise(memory.range(1..2), libc::MADV_HUGEPAGE);
    let target = tables.bind_to_process(own.id.pid).expect("this process can be bound");
    let mut read_zeros = || {
        memory.advise(memory.range(1..2), libc::MADV_DONTNEED);
        memory.read(never_written.start());
        tables.read_region(&target, never_written).expect("the region can be read")
    };
    assert!(until(DEADLINE, || read_zeros().is_some_and(|r| r.is_huge())));
    for access in [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ] {
        [written, never_written].into_iter().for_each(|region| protect(region, access));
        // Some kernels forget at mprotect that a huge page was written.
        if private_dirty_bytes(written.start()) == 0 {
            continue;
        }
        let (ranges, mut found) = ([memory.range(0..2)], Vec::new());
        let walked = tables.walk_ranges(&target, &ranges, WalkDetail::HugeOnly, &mut found, |_| {});
        walked.expect("the page tables can be walked");
        let seen: Vec<_> =
            found.iter().map(|r| (r.region, r.present, r.written, r.zero_mapped)).collect();
        let all = PAGES_PER_REGION;
        assert_eq!(seen, [(written, all, all, 0), (never_written, 0, 0, all)], "{access}");
        let marks = tables.read_access_bits(&target, &[written, never_written]);
        let marks = marks.expect("the access bits can be read");
        let present: Vec<_> = marks.iter().map(|m| m.as_ref().map(|m| m.present)).collect();
        assert_eq!(present, [Some(all), Some(0)], "{access}");
        let zero_pages = [written, never_written].map(|region| {
            tables.count_zero_pages(&target, region, all).expect("the page can be searched")
        });
        assert_eq!(zero_pages, [Some(all - 400), None], "{access}");
    }
}

fn clear_access_bits(calls: &mut CallHelperPool, own: &ProcessHandle, region: RegionAddr) {
    let cleared = calls.clear_access_bits(own, &[region]).expect("this process answers");
    cleared.answer.expect("the bits can be cleared");
    leave_tlb(region);
}

/// Contiguous entries, which some kernels make where they give out pages of 64 KiB, have one mark
/// for sixteen pages. With base pages of 16 KiB they are 128, in 2 MiB.
#[test]
fn a_hundred_random_pages_are_found_after_a_clear() {
    let _machine = or_skip!(machine(this_test!()));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    find_a_hundred_random_pages(&mut tables);
    // Kernels before 6.8 have no such pages.
    let kib = PageOrder::CONTIGUOUS.bytes() >> 10;
    let large = (settings::file(&format!("hugepages-{kib}kB/enabled")), "always");
    if let Some(_large) = settings::Changed::to([large]) {
        let order = find_a_hundred_random_pages(&mut tables);
        let of_processor = arch::tlb_page_sizes_of_this_machine();
        let is_possible = of_processor.contains(PageOrder::CONTIGUOUS);
        // Linux sets them since 6.9, where it finds such a piece of memory. A real machine's free
        // memory may be fragmented, or its kernel built without them.
        let kernel = Version::current().expect("the kernel has a release");
        let is_certain = is_possible && is_emulated() && kernel >= Version::new(6, 9, 0);
        let is_contiguous = order == PageOrder::CONTIGUOUS;
        assert!(is_possible || !is_contiguous, "the processor has no contiguous entries");
        assert!(is_contiguous || !is_certain, "{order:?}");
    }
}

/// Returns the order of the pages that map the memory.
fn find_a_hundred_random_pages(tables: &mut PageTableReader) -> PageOrder {
    let own = ProcessHandle::open(std::process::id()).expect("this process can be opened");
    let mut calls = calls_into_this_process();
    let memory = MappedRegions::new(1);
    let region = memory.region(0);
    let mut pages: Vec<u64> = pages(memory.range(0..1)).collect();
    pages.iter().for_each(|page| memory.write(*page, 1));
    let target = tables.bind_to_process(own.id.pid).expect("this process can be bound");
    let mut read = || {
        let found = tables.read_region(&target, region).expect("the region can be read");
        found.expect("the region is mapped")
    };
    if read().is_huge() {
        calls.split_huge_page(&own, region, None).expect("the region can be split");
    }
    assert_eq!(read().present, PAGES_PER_REGION);

    WorkloadRng::new(7, 0).shuffle(&mut pages);
    pages.truncate(100);
    clear_access_bits(&mut calls, &own, region);
    for page in &pages {
        memory.read(*page);
    }
    let found = read();
    let group_pages = PageOrder::CONTIGUOUS.pages();
    let group_bytes = group_pages * BASE_PAGE_BYTES;
    let groups: HashSet<u64> = pages.iter().map(|page| page / group_bytes).collect();
    let accessed = usize::from(found.accessed);
    let (with, least) = match found.order {
        PageOrder::CONTIGUOUS => ("with", group_pages as usize * groups.len()),
        _ => ("without", pages.len()),
    };
    eprintln!(
        "{} pages in {} groups were read, {accessed} count as accessed {with} contiguous entries: {found:?}",
        pages.len(),
        groups.len()
    );
    // A processor may also mark pages that it accesses ahead, but an emulated one does not.
    let is_emulated = is_emulated();
    let most = if is_emulated {
        least
    } else {
        (least * 3 / 2).min(usize::from(PAGES_PER_REGION) - 1).max(least)
    };
    assert!((least..=most).contains(&accessed), "{least} to {most}: {found:?}");
    found.order
}

/// A kernel notes the access bit of a huge page in the entries that it leaves while it splits the
/// page (`SWP_MIG_YOUNG`, include/linux/swapops.h). Where these have no room for it, no base page
/// is marked afterwards. The page by which the split is requested loses its mark in any case.
#[test]
fn a_split_keeps_the_access_bit_for_all_pages_or_for_none() {
    let _machine = or_skip!(machine(this_test!()));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let own = ProcessHandle::open(std::process::id()).expect("this process can be opened");
    let mut calls = calls_into_this_process();
    let memory = MappedRegions::new(1);
    let region = memory.region(0);
    // Not zeros, so that the split frees none.
    let touch_all = || pages(memory.range(0..1)).for_each(|page| memory.write(page, 1));
    touch_all();
    assert!(until(DEADLINE, || calls.collapse(&own, region, || None).is_ok()));
    let target = tables.bind_to_process(own.id.pid).expect("this process can be bound");
    let mut read = || {
        let found = tables.read_region(&target, region).expect("the region can be read");
        found.expect("the region is mapped")
    };
    clear_access_bits(&mut calls, &own, region);
    touch_all();
    let huge = read();
    assert!(huge.is_huge() && huge.accessed == PAGES_PER_REGION, "{huge:?}");
    let mut split = huge;
    let is_split = until(DEADLINE, || {
        calls.split_huge_page(&own, region, None).expect("the region can be split");
        split = read();
        !split.is_huge()
    });
    assert!(is_split && split.present == PAGES_PER_REGION, "{split:?}");
    eprintln!("a huge page was accessed and split: {} base pages are marked", split.accessed);
    assert!(split.accessed == 0 || split.accessed >= PAGES_PER_REGION - 1, "{split:?}");
    // A window that begins after the split misses none.
    clear_access_bits(&mut calls, &own, region);
    touch_all();
    let touched = read();
    assert!(!touched.is_huge() && touched.accessed == PAGES_PER_REGION, "{touched:?}");
}

#[test]
fn hot_regions_have_higher_coverage() {
    let _machine = or_skip!(machine(this_test!()));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let (_program, ready) = started("hot-spot --mib 512 --hot-mib 64 --quiet --seconds 600");
    let mut means = Vec::new();
    // The exposure after which hot memory is touched and cold memory is not yet depends on the
    // machine.
    for exposed_ms in [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] {
        clear_refs::clear_access_bits_of_process(ready.pid)
            .expect("the access bits can be cleared");
        std::thread::sleep(Duration::from_millis(exposed_ms));
        let found = of_memory(&mut tables, &ready);
        let mean = |hot: bool| {
            let side = found.iter().filter(|r| (r.region.start() >= ready.hot_start) == hot);
            let side: Vec<u64> = side.map(|r| u64::from(r.accessed)).collect();
            side.iter().sum::<u64>() / side.len() as u64
        };
        means.push((exposed_ms, mean(true), mean(false)));
    }
    let stands_out = |(_, hot, cold): &(u64, u64, u64)| *hot > 16 && *hot > 2 * cold;
    assert!(means.iter().any(stands_out), "{means:?}");
}

#[test]
fn huge_split_and_unmapped_regions_are_sampled_correctly() {
    let _machine = or_skip!(machine(this_test!()));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let (mut program, ready) = started("burner --mib 64 --pages base");
    let process = ProcessHandle::open(ready.pid).expect("the process can be opened");
    let mut calls = CallHelperPool::with_time_limit(DEADLINE);
    let regions = of_memory(&mut tables, &ready);
    assert_eq!(regions.len(), 32);
    let are = |huge| move |r: &RegionSample| r.is_huge() == huge && r.present == 512;
    assert!(regions.iter().all(are(false)), "{regions:?}");
    for r in &regions {
        let collapsed = || calls.collapse(&process, r.region, || None).is_ok();
        assert!(until(DEADLINE, collapsed), "{r:?}");
    }
    let huge = of_memory(&mut tables, &ready);
    assert_eq!(huge.len(), 32);
    assert!(huge.iter().all(are(true)), "{huge:?}");
    calls.split_huge_page(&process, regions[3].region, None).expect("the region can be split");
    program
        .request_and_wait(WorkloadRequest::Unmap(4), Duration::from_secs(10))
        .expect("the workload unmaps memory");
    let found = of_memory(&mut tables, &ready);
    assert_eq!(found.len(), 28);
    assert_eq!(found.iter().filter(|r| !r.is_huge()).count(), 1);
    assert!(are(false)(&found[3]), "the split region keeps all pages: {:?}", found[3]);
}

#[test]
fn sampling_stays_correct_while_regions_change() {
    let _machine = or_skip!(machine(this_test!()));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let (_program, pid) = workload("torture --mib 256 --threads 2 --seconds 600");
    let mut regions = 0;
    for _ in 0..50 {
        let _ = clear_refs::clear_access_bits_of_process(pid);
        for r in read_regions(&mut tables, pid).1 {
            regions += 1;
            assert!(r.accessed <= 512 && r.runs <= 256, "{r:?}");
            assert!(r.present + r.zero_mapped + r.swapped <= 512, "{r:?}");
        }
        // The program changes something between two walks.
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(regions > 50, "{regions} regions were seen");
}

#[test]
fn a_walk_of_an_ended_process_returns_an_error() {
    let _machine = or_skip!(machine(this_test!()));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let (program, pid) = workload("burner --mib 4");
    let target = tables.bind_to_process(pid).expect("the target can be bound");
    let ranges = eligible(pid, &target);
    drop(program);
    let mut found = Vec::new();
    let gone = tables.walk_ranges(&target, &ranges, WalkDetail::Regions, &mut found, |_| {});
    assert!(gone.is_err() && found.is_empty(), "{gone:?} {found:?}");
}
