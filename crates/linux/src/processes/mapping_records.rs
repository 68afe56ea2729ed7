//! Records written by the BPF program that lists mappings: one for each mapping, in the order of
//! addresses.
//!
//! A BPF iterator bound to one thread never ends once its program writes something. After the last
//! mapping, each read begins again where the last but one read ended. The cause is
//! `task_vma_seq_get_next` (kernel/bpf/task_iter.c), which does not move on to a next thread then;
//! 5.12 to 6.18 at least. So a read without new records is the last.

use crate::memory::ksm::KsmState;
use crate::processes::mappings::{Mapping, SharedFile, vm};
use crate::ring_buffer::decode_u64s;
use hawkeye_policy::MAX_FILE_BYTES;

/// Bytes of a record: `struct mapping_record` of bpf/intf.h.
pub(crate) const RECORD_BYTES: usize = 64;

/// Index of the offset in the file.
const OFFSET_FIELD: usize = 6;
/// `FILE_TMPFS` of bpf/intf.h.
const FILE_TMPFS: u64 = 2;

/// The fields of `struct mapping_record`, in order.
fn decode_record_fields(record: &[u8]) -> [u64; 7] {
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
        let [start, its_end, .., offset] = decode_record_fields(record);
        if its_end > *end {
            // A mapping merged with its neighbour between two reads is listed only once.
            let rest = start.max(*end);
            *end = its_end;
            records.copy_within(at..at + RECORD_BYTES, kept);
            for (field, value) in [(0, rest), (OFFSET_FIELD, offset.saturating_add(rest - start))] {
                if let Some(bytes) = records.get_mut(kept + field * 8..kept + field * 8 + 8) {
                    bytes.copy_from_slice(&value.to_ne_bytes());
                }
            }
            kept += RECORD_BYTES;
        }
    }
    kept
}

/// The mappings that the records describe.
pub(crate) fn parse_mapping_records(records: &[u8]) -> Vec<Mapping> {
    let ksm = KsmState::default();
    let mapping = |record: &[u8]| mapping_of_fields(decode_record_fields(record), &ksm);
    records.chunks_exact(RECORD_BYTES).map(mapping).collect()
}

/// The mapping that the fields of a record describe.
pub(crate) fn mapping_of_fields(fields: [u64; 7], ksm: &KsmState) -> Mapping {
    let [start, end, flags, file, device, inode, offset] = fields;
    // What maps a part of a file that no file region covers is not managed.
    let last = offset.checked_add(end.saturating_sub(start));
    let covered = last.is_some_and(|last| last <= MAX_FILE_BYTES);
    let shared = file == FILE_TMPFS && flags & vm::MAYSHARE != 0 && covered;
    let device = u32::try_from(device).ok().filter(|_| shared);
    Mapping {
        range: start..end,
        flags: ksm.effective_vma_flags(flags),
        file_backed: file != 0,
        shared_file: device.map(|device| SharedFile { device, inode, offset }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(ranges: &[(u64, u64)]) -> Vec<u8> {
        let words = ranges.iter().flat_map(|(start, end)| {
            [*start, *end, vm::MAYSHARE, FILE_TMPFS, 3, 4, 100 + *start, 0]
        });
        words.flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn known_mappings_are_not_new() {
        let mut end = 0;
        let mut first = records(&[(1, 2), (2, 4), (6, 8)]);
        assert_eq!(keep_new_records(&mut first, &mut end), 3 * RECORD_BYTES);
        // One mapping that has grown meanwhile, and a new one.
        let mut second = records(&[(2, 4), (6, 9), (10, 11), (6, 9)]);
        let kept = keep_new_records(&mut second, &mut end);
        let found = parse_mapping_records(&second[..kept]);
        let offsets: Vec<_> = found.iter().map(|m| m.shared_file.map(|file| file.offset)).collect();
        assert_eq!(offsets, [Some(108), Some(110)]);
        let ranges: Vec<_> = found.into_iter().map(|m| m.range).collect();
        assert_eq!(ranges, [8..9, 10..11]);
        assert_eq!(keep_new_records(&mut records(&[(6, 9), (10, 11)]), &mut end), 0);
        assert_eq!(keep_new_records(&mut [], &mut end), 0);
    }

    #[test]
    fn a_record_describes_its_mapping() {
        let ksm = KsmState::default();
        let describe = |flags, file| mapping_of_fields([4096, 8192, flags, file, 3, 4, 512], &ksm);
        let expected =
            Mapping { range: 4096..8192, flags: 7, file_backed: true, shared_file: None };
        assert_eq!(describe(7, 1), expected);
        // Only tmpfs files that are mapped shared are shared memory.
        assert_eq!(describe(7, FILE_TMPFS), expected);
        assert!(!describe(7, 0).file_backed);
        let file = SharedFile { device: 3, inode: 4, offset: 512 };
        assert_eq!(describe(7 | vm::MAYSHARE, FILE_TMPFS).shared_file, Some(file));
        assert_eq!(describe(7 | vm::MAYSHARE, 1).shared_file, None);
        let with_offset = |offset| {
            let fields = [4096, 8192, vm::MAYSHARE, FILE_TMPFS, 3, 4, offset];
            mapping_of_fields(fields, &ksm).shared_file.is_some()
        };
        assert!(with_offset(MAX_FILE_BYTES - 4096));
        for offset in [MAX_FILE_BYTES - 4095, MAX_FILE_BYTES, 1 << 62, u64::MAX - 4095, u64::MAX] {
            assert!(!with_offset(offset), "{offset:#x}");
        }
    }
}
