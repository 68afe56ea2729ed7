//! Records written by the BPF program that lists mappings: one for each mapping, in the order of
//! addresses.
//!
//! A BPF iterator bound to one thread never ends once its program writes something. After the last
//! mapping, each read begins again where the last but one read ended. The cause is
//! `task_vma_seq_get_next` (kernel/bpf/task_iter.c), which does not move on to a next thread then;
//! 5.12 to 6.18 at least. So a read without new records is the last.

use crate::memory::ksm::KsmState;
use crate::processes::mappings::Mapping;
use crate::ring_buffer::decode_u64s;

/// Bytes of a record: `struct mapping_record` of bpf/intf.h.
const RECORD_BYTES: usize = 32;

/// Start, end, flags, and whether the mapping has a file.
fn decode_record_fields(record: &[u8]) -> [u64; 4] {
    let mut words = decode_u64s(record);
    std::array::from_fn(|_| words.next().unwrap_or(0))
}

/// Moves the new records of a read to the front, and cuts from each what was listed before. Returns
/// the number of their bytes. `end` is the end of the last mapping so far, 0 before the first.
///
/// A helper calls this, so it neither allocates nor locks.
pub(crate) fn keep_new_records(records: &mut [u8], end: &mut u64) -> usize {
    let mut kept = 0;
    for at in (0..records.len()).step_by(RECORD_BYTES) {
        let Some(record) = records.get(at..at + RECORD_BYTES) else {
            break;
        };
        let [start, its_end, _, _] = decode_record_fields(record);
        if its_end > *end {
            // A mapping merged with its neighbour between two reads is listed only once.
            let start = start.max(*end);
            *end = its_end;
            records.copy_within(at..at + RECORD_BYTES, kept);
            if let Some(first) = records.get_mut(kept..kept + 8) {
                first.copy_from_slice(&start.to_ne_bytes());
            }
            kept += RECORD_BYTES;
        }
    }
    kept
}

/// The mappings that the records describe.
pub(crate) fn parse_mapping_records(records: &[u8]) -> Vec<Mapping> {
    let ksm = KsmState::default();
    let mapping = |record: &[u8]| {
        let [start, end, flags, has_file] = decode_record_fields(record);
        let flags = ksm.effective_vma_flags(flags);
        Mapping { range: start..end, flags, file_backed: has_file != 0 }
    };
    records.chunks_exact(RECORD_BYTES).map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(ranges: &[(u64, u64)]) -> Vec<u8> {
        let words = ranges.iter().flat_map(|(start, end)| [*start, *end, 7, 1]);
        words.flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn known_mappings_are_not_new() {
        let mut end = 0;
        let mut first = records(&[(1, 2), (2, 4), (6, 8)]);
        assert_eq!(keep_new_records(&mut first, &mut end), 96);
        // One mapping that has grown meanwhile, and a new one.
        let mut second = records(&[(2, 4), (6, 9), (10, 11), (6, 9)]);
        let kept = keep_new_records(&mut second, &mut end);
        let found = parse_mapping_records(&second[..kept]);
        let ranges: Vec<_> = found.into_iter().map(|m| m.range).collect();
        assert_eq!(ranges, [8..9, 10..11]);
        assert_eq!(keep_new_records(&mut records(&[(6, 9), (10, 11)]), &mut end), 0);
        assert_eq!(keep_new_records(&mut [], &mut end), 0);
    }

    #[test]
    fn a_record_describes_its_mapping() {
        let found = parse_mapping_records(&records(&[(4096, 8192)]));
        let expected = Mapping { range: 4096..8192, flags: 7, file_backed: true };
        assert_eq!(found, [expected]);
    }
}
