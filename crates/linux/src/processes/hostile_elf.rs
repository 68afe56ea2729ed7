//! ELF files for tests, with tables that no linker writes.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

/// A file of 64 bits with one segment and one section for each range of it. It ends with its
/// tables: what the ranges name comes after that.
pub(crate) fn elf_with_ranges(segment: u32, section: u32, ranges: &[Range<u64>]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let count = u16::try_from(ranges.len()).expect("a table of few entries");
    let sections_at = 64 + 56 * u64::from(count);
    // Type, machine (any), version; entry, segments, sections; flags.
    file.extend([3u16, 62, 1, 0].iter().flat_map(|it| it.to_le_bytes()));
    file.extend([0u64, 64, sections_at].iter().flat_map(|it| it.to_le_bytes()));
    file.extend(0u32.to_le_bytes());
    // Sizes and numbers of entries. Section 0 is empty, and section 1 is that of names, too.
    let sizes = [64u16, 56, count, 64, count + 1, 1];
    file.extend(sizes.iter().flat_map(|it| it.to_le_bytes()));
    for Range { start, end } in ranges {
        let bytes = end - start;
        file.extend([segment, 4].iter().flat_map(|it| it.to_le_bytes()));
        file.extend([*start, 0, 0, bytes, bytes, 4].iter().flat_map(|it| it.to_le_bytes()));
    }
    file.extend([0; 64]);
    for Range { start, end } in ranges {
        file.extend([0, section].iter().flat_map(|it| it.to_le_bytes()));
        file.extend([0, 0, *start, end - start, 0, 4, 0].iter().flat_map(|it| it.to_le_bytes()));
    }
    file
}

/// Counts the bytes that are read from it.
pub(crate) struct CountingReader<R> {
    pub(crate) inner: R,
    pub(crate) bytes: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl<R: Seek> Seek for CountingReader<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
