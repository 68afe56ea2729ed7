//! Groups of pages and pages of 1 GiB, worked out by hand.

use super::{BEGIN, FULL, Machine, TestResult, region};
use hawkeye_sim::mmu::translation::{EntrySize, LeafSize, Mappings, Translator, TranslatorSpec};
use hawkeye_sim::mmu::{
    CoalescedPageGroup, CoalescedPageGroups, NEOVERSE_V2, ProcessorSpec, SKYLAKE,
    TlbGroupCondition, XIANGSHAN, ZEN_4,
};

fn native(processor: &ProcessorSpec) -> TranslatorSpec {
    TranslatorSpec::native(processor)
}

#[test]
fn marked_neighbours_are_one_entry_and_have_one_access_bit() -> TestResult {
    let mut arm = Machine::grouped(&native(&NEOVERSE_V2))?;
    let counted = arm.load(&[3, 15, 0, 16]);
    assert_eq!(counted.walks_of_size(EntrySize::BaseGroup), 2);
    assert_eq!((counted.l1_misses, counted.first_touches), (2, 2));
    assert_eq!(arm.accessed(), 0xffff_ffff);
    // In the TLB, without setting bits, until a member is invalidated.
    arm.clear();
    assert_eq!(arm.load(&[7]).l1_misses, 0);
    arm.invalidate(2);
    let counted = arm.load(&[7, 20]);
    assert_eq!((counted.walks(), counted.first_touches), (1, 1));
    assert_eq!(arm.accessed(), 0xffff);
    Ok(())
}

#[test]
fn a_walk_reads_the_entry_of_the_page_that_was_missed() -> TestResult {
    let mut arm = Machine::grouped(&native(&NEOVERSE_V2))?;
    arm.load(&[0]);
    // The table's lines hold eight entries: page 12 is in another line.
    arm.invalidate(0);
    let other_line = arm.load(&[12]);
    arm.invalidate(0);
    let same_line = arm.load(&[15]);
    assert_eq!((other_line.walks(), same_line.walks()), (1, 1));
    assert_eq!(other_line.walk_loads[2], 1);
    assert_eq!(same_line.walk_loads[2], 0);
    Ok(())
}

#[test]
fn contiguous_neighbours_are_one_entry_once_all_were_accessed() -> TestResult {
    let mut amd = Machine::grouped(&native(&ZEN_4))?;
    let counted = amd.load(&[4, 5, 6]);
    assert_eq!(counted.walks_of_size(EntrySize::Base), 3);
    assert_eq!((counted.first_touches, amd.accessed()), (3, 0b0111_0000));
    let counted = amd.load(&[4, 7, 4, 5, 6, 7]);
    assert_eq!(counted.walks_of_size(EntrySize::BaseGroup), 1);
    assert_eq!(counted.l1_misses, 1);
    // Bits are cleared without a flush, so the TLB still has the group; what has to be walked for
    // is single pages again.
    amd.clear();
    assert_eq!(amd.load(&[5]).l1_misses, 0);
    amd.invalidate(4);
    // Page 5 is in the TLB from before they became one entry.
    assert_eq!(amd.load(&[5, 4]).walks_of_size(EntrySize::Base), 1);
    amd.core.invalidate_all();
    assert_eq!(amd.load(&[5, 4]).walks_of_size(EntrySize::Base), 2);
    Ok(())
}

#[test]
fn pages_that_a_fault_maps_are_seen_as_one_at_once() -> TestResult {
    let mut amd = Machine::new(&native(&ZEN_4))?;
    amd.map([0xff, 0, 0, 0, 0, 0, 0, 0])?;
    // The second of these groups has pages that are not present.
    amd.group(0b101);
    assert_eq!(amd.mappings.bit_per_base_page_group(region(0)), 0b1);
    let counted = amd.load(&[0, 3, 4, 5]);
    assert_eq!(counted.walks_by_size, [2, 1, 0, 0, 0]);
    Ok(())
}

#[test]
fn what_changes_a_page_ends_its_group() -> TestResult {
    let mut arm = Machine::grouped(&native(&NEOVERSE_V2))?;
    arm.load(&[0]);
    let only = |page: u32| [1u64 << page, 0, 0, 0, 0, 0, 0, 0];
    arm.mappings.unmap_pages(region(0), only(1))?;
    assert_eq!(arm.accessed(), 0xfffd, "each has the bit that all had");
    arm.mappings.map_pages_read_only(region(0), only(20))?;
    assert_eq!(arm.mappings.bit_per_base_page_group(region(0)), u128::from(u32::MAX - 3));
    arm.invalidate(0);
    assert_eq!(arm.load(&[0, 2, 16]).walks_of_size(EntrySize::Base), 3);
    // A group with all pages protected stays a group (`contpte_wrprotect_ptes`).
    let third = [0xffff << 32, 0, 0, 0, 0, 0, 0, 0];
    arm.mappings.map_pages_read_only(region(0), third)?;
    assert_eq!(arm.load(&[33]).walks_of_size(EntrySize::BaseGroup), 1);
    // A huge page has no groups, nor have its pages after a split.
    arm.mappings.map_huge(region(0))?;
    arm.mappings.split_huge_page(region(0));
    assert_eq!(arm.mappings.bit_per_base_page_group(region(0)), 0);
    Ok(())
}

#[test]
fn huge_pages_are_groups_too() -> TestResult {
    let mut arm = Machine::new(&native(&NEOVERSE_V2))?;
    arm.mappings.map_huge_group(region(5))?;
    for number in 0..16 {
        assert!(arm.mappings.is_in_huge_group(region(number)));
        arm.mappings.clear_accessed(region(number));
    }
    assert_eq!(arm.mappings.page_size(region(16)), None);
    // The second level has 32 MiB in one entry; the first has single huge pages.
    let pages: Vec<u64> = (0..16).map(|number| number * 512).collect();
    let counted = arm.load(&pages);
    assert_eq!(counted.walks_by_size, [0, 0, 0, 1, 0]);
    assert_eq!((counted.l1_misses, counted.first_touches), (16, 1));
    assert_eq!(arm.mappings.accessed(region(9)), FULL);
    arm.mappings.split_huge_page(region(3));
    arm.invalidate(3 * 512);
    let counted = arm.load(&pages);
    assert_eq!(counted.walks_by_size, [1, 0, 15, 0, 0]);
    assert_eq!(counted.first_touches, 0, "each has the bit that all had");
    Ok(())
}

#[test]
fn host_limits_the_size_of_tlb_entries() -> TestResult {
    let spec = TranslatorSpec::nested(&NEOVERSE_V2, LeafSize::Base);
    for host in EntrySize::ALL {
        let mut guest = Machine::grouped(&spec)?;
        guest.mappings.set_host_page_size(region(0), host)?;
        let counted = guest.load(&[1, 2]);
        let entry = host.min(EntrySize::BaseGroup);
        let walks = if entry == EntrySize::Base { 2 } else { 1 };
        assert_eq!(counted.walks_of_size(entry), walks, "{host:?}");
        // The guest has one access bit in any case.
        assert_eq!((counted.first_touches, guest.accessed()), (1, 0xffff));
        // The guest maps a page of 1 GiB over it.
        guest.mappings.unmap_pages(region(0), FULL)?;
        guest.mappings.map_giant(BEGIN)?;
        guest.core.invalidate_all();
        assert_eq!(guest.load(&[1]).walks_of_size(host), 1);
    }
    Ok(())
}

#[test]
fn where_a_processor_knows_none_there_are_none() -> TestResult {
    let mut intel = Machine::grouped(&native(&SKYLAKE))?;
    assert_eq!(intel.mappings.bit_per_base_page_group(region(0)), 0);
    assert_eq!(intel.load(&[0, 1]).walks_of_size(EntrySize::Base), 2);
    intel.mappings.map_huge_group(region(0))?;
    assert!(!intel.mappings.is_in_huge_group(region(0)));
    assert_eq!(intel.mappings.page_size(region(1)), None);
    Ok(())
}

#[test]
fn larger_pages_may_have_few_entries_of_their_own() -> TestResult {
    let mut riscv = Machine::grouped(&native(&XIANGSHAN))?;
    let groups = |count: u64| (0..count).map(|number| number * 16).collect::<Vec<u64>>();
    // 48 entries in the first level, 16 in the second: of 32 pages used twice all hit; of 64 none
    // does.
    riscv.load(&groups(32));
    riscv.mappings.map_pages(region(1), FULL)?;
    riscv.mappings.map_pages(region(2), FULL)?;
    riscv.mappings.set_groups(region(1), u128::MAX);
    riscv.mappings.set_groups(region(2), u128::MAX);
    assert_eq!(riscv.load(&groups(32)).l1_misses, 0);
    riscv.load(&groups(96));
    assert_eq!(riscv.load(&groups(96)).walks(), 96);
    // 96 base pages are too few to matter.
    riscv.group(0);
    riscv.load(&(0..96).collect::<Vec<u64>>());
    let counted = riscv.load(&(0..96).collect::<Vec<u64>>());
    assert_eq!((counted.l1_misses, counted.walks()), (96, 0));
    Ok(())
}

#[test]
fn pages_of_a_gibibyte_are_reached_all_the_way() -> TestResult {
    for processor in hawkeye_sim::mmu::PROCESSORS {
        let mut machine = Machine::new(&native(&processor))?;
        machine.mappings.map_giant(BEGIN)?;
        machine.mappings.clear_accessed(region(7));
        let counted = machine.load(&[0, 511 * 512, 5, 100_000]);
        let what = processor.name;
        assert_eq!(counted.walks_of_size(LeafSize::Giant), 1, "{what}");
        assert_eq!((counted.walks(), counted.first_touches), (1, 1), "{what}");
        assert_eq!(counted.walk_loads.iter().sum::<u64>(), 2, "{what}");
        assert_eq!(machine.mappings.accessed(region(9)), FULL);
        machine.mappings.unmap_whole_gib(BEGIN)?;
        assert_eq!(machine.mappings.page_size(region(9)), None);
    }
    Ok(())
}

#[test]
fn groups_that_cant_be_are_refused() {
    let refused = |order, condition, huge: bool| {
        let group = Some(CoalescedPageGroup { order, condition, in_l1: true });
        let groups =
            CoalescedPageGroups { base: group.filter(|_| !huge), huge: group.filter(|_| huge) };
        let processor = ProcessorSpec { groups, ..SKYLAKE };
        let core = Translator::new(&native(&processor)).is_err();
        assert_eq!(core, Mappings::with_groups(groups).is_err());
        core
    };
    let (seen, marked) = (TlbGroupCondition::Contiguous, TlbGroupCondition::Marked);
    assert!(refused(1, marked, false) && refused(7, marked, false));
    assert!(refused(0, marked, true) && refused(7, marked, true));
    assert!(refused(2, seen, true), "no page table shows that");
    assert!(!refused(2, seen, false) && !refused(6, marked, false));
    assert!(!refused(1, marked, true) && !refused(6, marked, true));
}
