//! A window on this process itself. Needs root.

use super::*;
use crate::anonymous_mapping::AnonymousMapping;
use crate::promote::target_call::CallHelperPool;
use crate::sample::page_table_reader::PageTableReader;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use hawkeye_test_support::this_test;
use nix::sys::mman::{MmapAdvise, mlock};
use std::ops::Range;

const REGIONS: u64 = 8;

/// A sampler by access bits, bound to this process.
fn sampler_of_this_process() -> (Box<dyn Sampler>, SampledProcess) {
    let tables = PageTableReader::load_bpf_programs().expect("the BPF programs load");
    let mut sampler = SamplerBackend::AccessBits(Box::new(AccessBitBackend {
        tables,
        walk_costs: None,
        counters: None,
        first_touch_cost: Duration::ZERO,
        shared_memory: false,
    }))
    .into_sampler();
    let (own, rules) = (std::process::id(), ProcessSettings::default());
    let member = SampledProcess::open(own, ProcessAttributes::default(), rules);
    let member = member.expect("this process can be managed");
    let bound = sampler.bind(member.handle.id);
    bound.expect("the programs bind to the process");
    (sampler, member)
}

#[test]
fn locked_memory_is_not_taken_for_hot() {
    if !nix::unistd::geteuid().is_root() {
        return this_test!().skip("it needs root");
    }
    let mut calls = CallHelperPool::default();
    calls.start_idle_helper().expect("a helper starts");
    let memory = AnonymousMapping::map(((REGIONS + 1) * HUGE_PAGE_BYTES) as usize);
    let memory = memory.expect("memory can be mapped");
    let skipped = (memory.start().as_ptr()).align_offset(HUGE_PAGE_BYTES as usize);
    let at = |index: u64, page_bytes: u64| {
        let offset = skipped + (index * page_bytes) as usize;
        // SAFETY: within the mapping, which is one region longer than what is used.
        unsafe { memory.start().byte_add(offset) }
    };
    let region = |index| at(index, HUGE_PAGE_BYTES);
    let write = |regions: Range<u64>| {
        for page in (regions.start * 512)..(regions.end * 512) {
            // SAFETY: within the mapping, as above.
            unsafe { at(page, BASE_PAGE_BYTES).cast::<u8>().write_volatile(1) };
        }
    };
    let advise = |advice| memory.advise(advice).expect("the advice is accepted");
    // Other tests fork meanwhile, and the access bits of pages that a fork shares are not cleared.
    advise(MmapAdvise::MADV_DONTFORK);
    advise(MmapAdvise::MADV_NOHUGEPAGE);
    write(0..REGIONS);
    advise(MmapAdvise::MADV_HUGEPAGE);
    // SAFETY: the middle of the mapping made above.
    unsafe { mlock(region(2), 4 * HUGE_PAGE_BYTES as usize) }.expect("memory can be locked");

    let (mut sampler, mut member) = sampler_of_this_process();
    let mut slice = ProcessWorkSlice {
        member: &mut member,
        calls: &mut calls,
        deadline: Instant::now() + Duration::from_secs(60),
    };
    let started = sampler.start_window(&mut slice, SampleKinds::COVERAGE);
    assert!(matches!(started, Ok(SliceProgress::Done(()))));
    write(0..1);
    let Ok(SliceProgress::Done(sample)) = sampler.read_sample(&mut slice) else {
        panic!("the window must end with a sample");
    };
    let found = |index: u64| {
        let address = region(index).as_ptr() as u64;
        let mut found = sample.regions.iter();
        let found = found.find(|r| r.region.start() == address);
        found.expect("the region is in the sample")
    };
    let touched = |index| found(index).accessed;
    let locked = [2, 3, 4, 5].map(touched);
    assert_eq!(locked, [0; 4], "locked memory has no accesses");
    // khugepaged may have made a region huge, which maps it as accessed.
    let cleared = [1, 6, 7].map(found).into_iter().filter(|r| !r.is_huge());
    let cleared: Vec<u16> = cleared.map(|r| r.accessed).collect();
    // It makes at most one region huge in this time; the others have not been used since.
    assert!(!cleared.is_empty());
    assert!(cleared.iter().all(|n| *n == 0), "{cleared:?}");
    // A few translations may have stayed in the TLB.
    let most = PAGES_PER_REGION / 2;
    assert!(touched(0) > most, "memory in use has accesses");
}

#[test]
fn a_process_without_huge_pages_that_can_get_none_is_rarely_looked_at() {
    let own = std::process::id();
    let opened =
        SampledProcess::open(own, ProcessAttributes::default(), ProcessSettings::default());
    let mut member = opened.expect("this process can be managed");
    member.thp_disabled = true;
    let region = RegionAddr::containing(HUGE_PAGE_BYTES);
    let range = region.start()..region.end();
    let flags = crate::processes::mappings::vm::WRITE;
    let mapping = Mapping { range, flags, file_backed: false, shared_file: None };
    let is_left_out_after = |member: &mut SampledProcess, found: &[RegionSample]| {
        member.record_huge_pages(found);
        member.update_seen_free_of_huge_pages();
        member.set_mappings(std::slice::from_ref(&mapping), ManagedMemory::Private);
        member.eligible.ranges.is_empty()
    };
    let full = RegionSample::new_full_and_untouched(region);
    let huge = RegionSample { order: hawkeye_policy::PageOrder::HUGE, ..full };
    assert!(!is_left_out_after(&mut member, &[huge]), "it has a huge page");
    assert!(!is_left_out_after(&mut member, &[]), "a part of that may be left");
    member.lost_huge_pages.clear_suspicion(region);
    assert!(is_left_out_after(&mut member, &[]));
    member.seen_free_of_huge_pages = Instant::now().checked_sub(FREE_OF_HUGE_PAGES_AGE);
    assert!(member.seen_free_of_huge_pages.is_some(), "the machine has run for longer");
    member.set_mappings(std::slice::from_ref(&mapping), ManagedMemory::Private);
    assert!(!member.eligible.ranges.is_empty(), "it is looked at again");
}

/// A busy machine gives a helper no core in time, and a process with many mappings takes long.
#[test]
fn a_process_whose_mappings_are_always_listed_late_is_sampled() {
    if !nix::unistd::geteuid().is_root() {
        return this_test!().skip("it needs root");
    }
    let mut calls = CallHelperPool::with_time_limit(Duration::ZERO);
    calls.start_idle_helper().expect("a helper starts");
    let memory = AnonymousMapping::map(2 * HUGE_PAGE_BYTES as usize).expect("memory can be mapped");
    let skipped = memory.start().as_ptr().align_offset(HUGE_PAGE_BYTES as usize);
    // SAFETY: within the mapping, which is one region longer than what is used.
    let used = unsafe { memory.start().byte_add(skipped).cast::<u8>() };
    // SAFETY: the same.
    unsafe { used.write_volatile(1) };

    let (mut sampler, mut member) = sampler_of_this_process();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut slice = ProcessWorkSlice { member: &mut member, calls: &mut calls, deadline };

    // Where a helper gets no core for long, another turn is needed. Each has a call of its own.
    let mut until_done = |slice: &mut ProcessWorkSlice, work: &mut Work<'_>| {
        for _ in 0..10 {
            if work(&mut *sampler, slice) {
                return true;
            }
            while slice.calls.has_unanswered_call(slice.member.handle.id) {
                std::thread::sleep(Duration::from_millis(1));
                slice.calls.take_late_calls();
            }
        }
        false
    };
    // Clearing is another call that is answered late.
    assert!(until_done(&mut slice, &mut |sampler, slice| {
        let _ = sampler.start_window(slice, SampleKinds::COVERAGE);
        slice.member.is_listed
    }));
    let region = RegionAddr::containing(used.as_ptr() as u64);
    assert!(until_done(&mut slice, &mut |sampler, slice| match sampler.read_sample(slice) {
        Ok(SliceProgress::Done(sample)) => sample.regions.iter().any(|r| r.region == region),
        _ => false,
    }));
}

/// Work of a sampler in a slice; returns whether it is done.
type Work<'a> = dyn FnMut(&mut dyn Sampler, &mut ProcessWorkSlice) -> bool + 'a;
