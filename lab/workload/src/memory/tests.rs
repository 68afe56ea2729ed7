//! Tests of mappings.

use super::*;

#[test]
fn contents_survive_moves_and_discarded_pages_are_zero() {
    let mut memory =
        WorkloadMemory::map_private_and_touch(2 * REGION, RequestedPageKind::Default, |_| ())
            .unwrap();
    assert_eq!(memory.start_address() % REGION as u64, 0);
    memory.write_word(PAGE, 11);
    memory.write_word(2 * REGION - 8, 22);
    memory.relocate(3 * PAGE).unwrap();
    assert_eq!(memory.start_address() % REGION as u64, 3 * PAGE as u64);
    memory.resize(4 * REGION).unwrap();
    assert_eq!((memory.read_word(PAGE), memory.read_word(2 * REGION - 8)), (11, 22));
    assert_eq!(memory.read_word(4 * REGION - 8), 0);
    memory.discard_range(PAGE, PAGE).unwrap();
    assert_eq!((memory.read_word(PAGE), memory.read_word(2 * REGION - 8)), (0, 22));
    let (head, tail) = memory.split_at(REGION);
    drop(head);
    assert_eq!(tail.unwrap().read_word(REGION - 8), 22);
}

#[test]
#[should_panic(expected = "outside")]
fn no_word_outside_can_be_read() {
    WorkloadMemory::map_private_and_touch(REGION, RequestedPageKind::Default, |_| ())
        .unwrap()
        .read_word(REGION);
}

#[test]
fn pages_touched_while_mapping_are_kept() {
    for pages in [RequestedPageKind::Base, RequestedPageKind::Default] {
        let memory = WorkloadMemory::map_private_and_touch(REGION, pages, |memory| {
            memory.write_word(PAGE, 5)
        })
        .unwrap();
        assert_eq!(memory.read_word(PAGE), 5);
    }
}
