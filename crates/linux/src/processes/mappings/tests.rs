use super::*;

const HUGE: u64 = HUGE_PAGE_BYTES;

fn heap(range: Range<u64>) -> Mapping {
    with(0x0010_0000, range)
}

fn with(flags: u64, range: Range<u64>) -> Mapping {
    Mapping { range, flags: 0x73 | flags, file_backed: false, shared_file: None }
}

fn file(range: Range<u64>) -> Mapping {
    Mapping { file_backed: true, ..heap(range) }
}

#[test]
fn only_whole_regions_of_the_right_kind_count() {
    let constant = Mapping { flags: 0x71, ..heap(0..4 * HUGE) };
    let all = 0..4 * HUGE;
    for (mapping, expected) in [
        (heap(HUGE + 4096..4 * HUGE - 4096), Ok(2 * HUGE..3 * HUGE)),
        (heap(4096..2 * HUGE - 4096), Err(IneligibleReason::TooSmall)),
        (heap(HUGE..2 * HUGE), Ok(HUGE..2 * HUGE)),
        (with(vm::NOHUGEPAGE, all.clone()), Err(IneligibleReason::NoHugePage)),
        (with(vm::UFFD_MISSING, all.clone()), Err(IneligibleReason::Userfaultfd)),
        (with(vm::UFFD_WP | vm::NOHUGEPAGE, all.clone()), Err(IneligibleReason::Userfaultfd)),
        (with(vm::HUGETLB, all.clone()), Err(IneligibleReason::HugeTlb)),
        (with(vm::MERGEABLE, all.clone()), Err(IneligibleReason::Merging)),
        (with(vm::SHARED, all.clone()), Err(IneligibleReason::NotAnonymous)),
        (with(vm::PFNMAP, all.clone()), Err(IneligibleReason::NotAnonymous)),
        (with(vm::GROWSDOWN, all.clone()), Err(IneligibleReason::Stack)),
        (file(all), Err(IneligibleReason::NotAnonymous)),
        (constant, Err(IneligibleReason::ReadOnly)),
    ] {
        assert_eq!(mapping.eligible_range(), expected, "{mapping:?}");
    }
}

#[test]
fn a_region_is_judged_by_what_is_mapped_there() {
    let mappings = [heap(HUGE..4 * HUGE - 4096), file(8 * HUGE..9 * HUGE)];
    let judge = |index| {
        check_region_eligible(
            &mappings,
            RegionAddr::containing(index * HUGE),
            ManagedMemory::Private,
        )
    };
    assert_eq!(judge(1), Ok(()));
    assert_eq!(judge(3), Err(IneligibleReason::TooSmall));
    assert_eq!(judge(5), Err(IneligibleReason::Unmapped));
    assert_eq!(judge(8), Err(IneligibleReason::NotAnonymous));
}

#[test]
fn memory_outside_regions_is_counted_by_largest_fitting_size() {
    const K: u64 = 1 << 10;
    // A heap with 8 KiB before its first region and 132 KiB after its last one. Then 132 KiB
    // that begin at an odd page.
    let large = heap(HUGE - 8 * K..3 * HUGE + 132 * K);
    let small = with(vm::HUGEPAGE, 8 * HUGE + 4 * K..8 * HUGE + 136 * K);
    let found = collect_eligible_ranges(&[large, small]).outside;
    let kib = |bytes: [u64; 9]| bytes.map(|bytes| bytes / K);
    assert_eq!(kib(found.advised_bytes), [4, 16, 16, 32, 64, 0, 0, 0, 0]);
    assert_eq!(kib(found.mapped_bytes), [8, 24, 16, 32, 64, 128, 0, 0, 0]);
    let file = file(4 * K..8 * K);
    assert_eq!(collect_eligible_ranges(&[file]).outside, BlockBytesOutsideRegions::default());
}

#[test]
fn locked_memory_has_no_accesses_of_its_own() {
    let locked = |range| with(vm::LOCKED, range);
    let found = collect_eligible_ranges(&[
        heap(HUGE..2 * HUGE),
        locked(2 * HUGE..4 * HUGE),
        heap(4 * HUGE..5 * HUGE),
        locked(8 * HUGE..9 * HUGE - 4096),
        locked(10 * HUGE..11 * HUGE),
    ]);
    assert_eq!(found.ranges.len(), 4);
    let mut regions: Vec<RegionSample> = (0..12)
        .map(|n| RegionSample {
            present: 512,
            accessed: 512,
            runs: 1,
            ..RegionSample::new_full_and_untouched(RegionAddr::containing(n * HUGE))
        })
        .collect();
    found.clear_accesses_of_locked_regions(&mut regions);
    let cold = regions.iter().filter(|r| (r.accessed, r.runs) == (0, 0));
    let cold: Vec<u64> = cold.map(|r| r.region.start() / HUGE).collect();
    assert_eq!(cold, [2, 3, 10]);
    assert!(regions.iter().all(|r| r.present == 512));
}

#[test]
fn memory_excluded_by_the_owner_is_counted() {
    let refused = with(vm::NOHUGEPAGE, HUGE..4 * HUGE);
    let found = collect_eligible_ranges(&[heap(8 * HUGE..9 * HUGE), refused]);
    assert_eq!(found.ranges, vec![8 * HUGE..9 * HUGE]);
    assert_eq!(found.refused_bytes, 3 * HUGE);
}

fn shared(range: Range<u64>, offset: u64, flags: u64) -> Mapping {
    let flags = vm::SHARED | vm::MAYSHARE | flags;
    let shared_file = Some(SharedFile { device: 1, inode: 7, offset });
    Mapping { range, flags, file_backed: true, shared_file }
}

#[test]
fn shared_memory_is_managed_only_where_wanted_and_possible() {
    let all = HUGE..4 * HUGE;
    for (mapping, expected) in [
        (shared(all.clone(), 0, 0), Ok(all.clone())),
        (shared(HUGE + 0x3000..4 * HUGE, 0x3000, 0), Ok(2 * HUGE..4 * HUGE)),
        (shared(all.clone(), 8 * HUGE, vm::LOCKED), Err(IneligibleReason::LockedShared)),
        (shared(all.clone(), 0x1000, 0), Err(IneligibleReason::Misaligned)),
        (shared(all.clone(), 0, vm::UFFD_MISSING), Err(IneligibleReason::Userfaultfd)),
        (shared(all.clone(), 0, vm::UFFD_WP), Err(IneligibleReason::Userfaultfd)),
        (shared(all.clone(), 0, vm::HUGETLB), Err(IneligibleReason::HugeTlb)),
        (shared(all.clone(), 0, vm::NOHUGEPAGE), Err(IneligibleReason::NoHugePage)),
        (shared(all.clone(), 0, vm::PFNMAP), Err(IneligibleReason::NotAnonymous)),
        (shared(HUGE..2 * HUGE - 4096, 0, 0), Err(IneligibleReason::TooSmall)),
    ] {
        let found = mapping.eligible_range_of(ManagedMemory::PrivateAndShared);
        assert_eq!(found, expected, "{mapping:?}");
        let private = mapping.eligible_range_of(ManagedMemory::Private);
        assert!(private.is_err(), "{mapping:?}");
    }
    // Private memory is judged as before.
    let heap = heap(all.clone());
    assert_eq!(heap.eligible_range_of(ManagedMemory::PrivateAndShared), Ok(all));
}

#[test]
fn locked_watched_and_excluded_shared_memory_is_protected_in_all_processes() {
    let at = |index| FileRegion { device: 1, inode: 7, index };
    for managed in [ManagedMemory::Private, ManagedMemory::PrivateAndShared] {
        for flags in [vm::LOCKED, vm::UFFD_MISSING, vm::UFFD_WP, vm::NOHUGEPAGE] {
            // Half a region of the file, at no address that could become huge.
            let mapping = shared(5 * HUGE + 0x3000..6 * HUGE, 9 * HUGE + HUGE / 2, flags);
            let found = collect_eligible_ranges_of(&[mapping], managed);
            let protects = [8, 9, 10, 11].map(|index| found.protects_file_region(at(index)));
            assert_eq!(protects, [false, true, true, false]);
            assert!(!found.protects_file_region(FileRegion { inode: 8, ..at(9) }));
        }
        let usual = collect_eligible_ranges_of(&[shared(HUGE..4 * HUGE, 0, 0)], managed);
        assert!(!usual.protects_file_region(at(0)));
    }
}

#[test]
fn regions_of_shared_memory_have_their_part_of_the_file() {
    let mappings = [
        heap(HUGE..2 * HUGE),
        shared(4 * HUGE - 0x1000..6 * HUGE, 9 * HUGE - 0x1000, 0),
        heap(8 * HUGE..9 * HUGE),
    ];
    let found = collect_eligible_ranges_of(&mappings, ManagedMemory::PrivateAndShared);
    assert_eq!(found.ranges, [HUGE..2 * HUGE, 4 * HUGE..6 * HUGE, 8 * HUGE..9 * HUGE]);
    assert_eq!(found.private_ranges(), [HUGE..2 * HUGE, 8 * HUGE..9 * HUGE]);
    assert_eq!(found.outside, BlockBytesOutsideRegions::default());
    let index = |n: u64| {
        let file = found.file_region(RegionAddr::containing(n * HUGE));
        file.map(|file| (file.device, file.inode, file.index))
    };
    let expected = [None, None, Some((1, 7, 9)), Some((1, 7, 10)), None, None];
    assert_eq!([1, 3, 4, 5, 6, 8].map(index), expected);
    for n in [4, 5] {
        let region = RegionAddr::containing(n * HUGE);
        let file = found.file_region(region).expect("it is shared memory");
        assert_eq!(found.region_of_file(file), Some(region));
    }
    for (inode, index) in [(7, 8), (7, 11), (8, 9)] {
        let other = FileRegion { device: 1, inode, index };
        assert_eq!(found.region_of_file(other), None);
    }
    // Read-only pages of a file are neither copied by a promotion nor zero pages.
    let region = |n: u64| RegionAddr::containing(n * HUGE);
    let base =
        RegionSample { maybe_shared: 512, ..RegionSample::new_full_and_untouched(region(4)) };
    let huge = RegionSample {
        present: 0,
        zero_mapped: 512,
        order: hawkeye_policy::PageOrder::HUGE,
        ..RegionSample::new_full_and_untouched(region(5))
    };
    let zero_page = RegionSample { region: region(8), ..huge };
    let mut regions = [base, huge, zero_page];
    found.name_file_regions(&mut regions);
    let seen = regions.map(|r| (r.present, r.maybe_shared, r.zero_mapped, r.file.is_some()));
    assert_eq!(seen, [(512, 0, 0, true), (512, 0, 0, true), (0, 0, 512, false)]);
}
