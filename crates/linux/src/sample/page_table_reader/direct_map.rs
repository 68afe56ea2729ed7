//! What the search for the kernel's direct map needs: a page to find in it, and its size.

use crate::anonymous_mapping::AnonymousMapping;
use crate::error::{LinuxError, Result};
use hawkeye_policy::BASE_PAGE_BYTES;
use hawkeye_policy::saturating_cast::usize_from_u64;
use nix::sys::mman::{MmapAdvise, ProtFlags, mprotect};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Two pages of our own. The first has a unique value at its start; access to the second is
/// forbidden. They are not part of a huge page, as the heap may be under THP `always`: the walk
/// that searches for them ends at a table of base pages.
pub(super) fn map_unique_and_inaccessible_page() -> Result<(AnonymousMapping, u64)> {
    // Hash maps have random keys, so this is a random number.
    let value = RandomState::new().build_hasher().finish();
    let failed = LinuxError::wrap_errno("mapping a page with a known value");
    let page_bytes = usize_from_u64(BASE_PAGE_BYTES);
    let pages = AnonymousMapping::map(2 * page_bytes).map_err(failed)?;
    // Kernels without huge pages refuse the advice, and do not need it.
    let _ = pages.advise(MmapAdvise::MADV_NOHUGEPAGE);
    // SAFETY: the mapping is two pages long, aligned and writable. Nothing refers to the second.
    unsafe {
        let second = pages.start().byte_add(page_bytes);
        pages.start().cast::<u64>().write_volatile(value);
        second.cast::<u64>().write_volatile(value);
        mprotect(second, page_bytes, ProtFlags::PROT_NONE).map_err(failed)?;
    }
    Ok((pages, value))
}

/// Frames up to the end of the last zone; `None` if `/proc/zoneinfo` cannot be read.
pub(super) fn read_end_frame() -> Option<u64> {
    parse_end_frame(&std::fs::read_to_string("/proc/zoneinfo").ok()?)
}

/// Parses the text of `/proc/zoneinfo`; `None` if its contents are unexpected.
fn parse_end_frame(zoneinfo: &str) -> Option<u64> {
    let mut spanned = 0;
    let mut end = None;
    for line in zoneinfo.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next().and_then(|n| n.parse().ok())) {
            (Some("spanned"), Some(frames)) => spanned = frames,
            (Some("start_pfn:"), Some(start)) if spanned > 0 => {
                end = end.max(Some(start + spanned));
            }
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_ends_with_its_last_zone() {
        let text = "Node 0, zone      DMA\n  pages free     2816\n        spanned  4095\n  start_pfn:           1\n\
                    Node 0, zone   Normal\n        spanned  100\n  start_pfn:           1048576\n\
                    Node 0, zone    DMA32\n        spanned  7\n  start_pfn:           4096\n\
                    Node 1, zone  Movable\n        spanned  0\n  start_pfn:           0\n";
        assert_eq!(parse_end_frame(text), Some(1_048_676));
        assert_eq!(parse_end_frame("Node 0"), None);
    }
}
