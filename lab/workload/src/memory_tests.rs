//! Tests of mappings.

use super::*;

#[test]
fn contents_survive_moves_and_discarded_pages_are_zero() {
    let mut memory =
        WorkloadMemory::map_private(2 * REGION, RequestedPageKind::Default, |_| ()).unwrap();
    assert_eq!(memory.start_address() % REGION as u64, 0);
    memory.write(PAGE, 11);
    memory.write(2 * REGION - 8, 22);
    memory.relocate(3 * PAGE).unwrap();
    assert_eq!(memory.start_address() % REGION as u64, 3 * PAGE as u64);
    memory.resize(4 * REGION).unwrap();
    assert_eq!((memory.read(PAGE), memory.read(2 * REGION - 8)), (11, 22));
    assert_eq!(memory.read(4 * REGION - 8), 0);
    memory.discard(PAGE, PAGE).unwrap();
    assert_eq!((memory.read(PAGE), memory.read(2 * REGION - 8)), (0, 22));
    let (head, tail) = memory.split(REGION);
    drop(head);
    assert_eq!(tail.unwrap().read(REGION - 8), 22);
}

#[test]
#[should_panic(expected = "outside")]
fn no_word_outside_can_be_read() {
    WorkloadMemory::map_private(REGION, RequestedPageKind::Default, |_| ())
        .unwrap()
        .read(REGION);
}

#[test]
fn pages_touched_while_mapping_are_kept() {
    for pages in [RequestedPageKind::Base, RequestedPageKind::Default] {
        let memory =
            WorkloadMemory::map_private(REGION, pages, |memory| memory.write(PAGE, 5)).unwrap();
        assert_eq!(memory.read(PAGE), 5);
    }
}
