//! Tests of patterned memory.

use super::*;

fn memory(used: usize, tail_bytes: bool) -> PatternedMemory {
    PatternedMemory::new(2, used, tail_bytes, RequestedPageKind::Default).unwrap()
}

#[test]
fn untouched_and_written_memory_is_right() {
    for tail_bytes in [false, true] {
        let verdict = memory(100, tail_bytes).verify_pattern();
        assert_eq!((verdict.checked_bytes, verdict.bad_bytes), (2 * REGION as u64, 0));
    }
}

#[test]
fn one_wrong_byte_is_found_in_used_and_in_zero_pages() {
    for page in [page_at_spread_rank(3), page_at_spread_rank(400)] {
        let mut memory = memory(100, false);
        let offset = page * PAGE + 80;
        let right = expected_word(&memory.pattern.nonzero_words(page), 10);
        memory.corrupt(offset, right ^ 0xff00);
        let verdict = memory.verify_pattern();
        assert_eq!(verdict.bad_bytes, 1);
        let first = verdict.first.unwrap();
        assert_eq!(first.address, memory.start_address() + offset as u64);
        assert_eq!((first.expected, first.found), (right, right ^ 0xff00));
    }
}

#[test]
fn a_tail_byte_is_the_only_one_in_its_page() {
    let memory = memory(512, true);
    let words: Vec<u64> = (0..PAGE_WORDS).map(|word| memory.memory.read_word(word * 8)).collect();
    assert!(words[..PAGE_WORDS - 1].iter().all(|word| *word == 0));
    assert_eq!(words[PAGE_WORDS - 1].to_ne_bytes()[..7], [0; 7]);
    assert_ne!(words[PAGE_WORDS - 1].to_ne_bytes()[7], 0);
}

#[test]
fn memory_stays_right_while_it_is_freed_and_refilled() {
    let mut memory = memory(512, false);
    assert_eq!(memory.discard_percent_per_region(80).unwrap(), 2 * 410 * PAGE as u64);
    let written = memory.pattern.written.iter().filter(|written| **written);
    assert_eq!(written.count(), 2 * 102);
    assert_eq!(memory.verify_pattern().bad_bytes, 0);
    memory.write_pages_per_region(200);
    assert_eq!(memory.discard_last_regions(1).unwrap(), REGION as u64);
    assert_eq!(memory.verify_pattern().bad_bytes, 0);
    assert_eq!(memory.unmap_last_regions(1).unwrap(), REGION as u64);
    assert_eq!(memory.verify_pattern().checked_bytes, REGION as u64);
    assert!(memory.unmap_last_regions(1).is_err());
}
