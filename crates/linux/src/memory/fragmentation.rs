//! How fragmented free memory is, seen from a huge page.
//!
//! The figure is Gorman's *unusable free space index* for order 9, over all nodes and zones: the share
//! of free memory that is in blocks too small for a huge page (as `unusable_free_index` in the
//! kernel's `mm/vmstat.c`, there per zone and times 1000). Ingens and HawkEye call theirs FMFI and say
//! only that it goes from 0 (unfragmented) to 1. The kernel's other figure, `fragmentation_index`,
//! tells why an allocation failed and is undefined while one would succeed; a policy has to know
//! before.

use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use std::{fs, io};

/// A huge page is so many times doubled a base page (9).
const HUGE_ORDER: usize = (HUGE_PAGE_BYTES / BASE_PAGE_BYTES).trailing_zeros() as usize;

/// Free memory of all nodes and zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeMemory {
    /// All of it, in bytes.
    pub bytes: u64,
    /// Of it, in blocks that hold a huge page, in bytes.
    pub huge_bytes: u64,
}

impl FreeMemory {
    /// As it is now.
    ///
    /// # Errors
    /// `/proc/buddyinfo` can't be read (only root may), or is not what it should be.
    pub fn read() -> io::Result<Self> {
        let found = parsed(&fs::read_to_string("/proc/buddyinfo")?);
        found.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// The fragmentation index for huge pages (0-1); 1 where nothing is free.
    pub fn fmfi(self) -> f64 {
        if self.bytes == 0 {
            1.0
        } else {
            (self.bytes - self.huge_bytes) as f64 / self.bytes as f64
        }
    }
}

/// The free memory fragmentation index for huge pages (0-1); `None` where `/proc/buddyinfo` can't be
/// read: only its owner, root, may.
pub fn fmfi() -> Option<f64> {
    FreeMemory::read().ok().map(FreeMemory::fmfi)
}

/// Huge pages that are free and need no compaction; `None` where `/proc/buddyinfo` can't be read.
pub fn free_huge_pages() -> Option<u64> {
    let free = FreeMemory::read().ok()?;
    Some(free.huge_bytes / HUGE_PAGE_BYTES)
}

/// From the text of `/proc/buddyinfo`; `None` when that is not what it should be.
fn parsed(buddyinfo: &str) -> Option<FreeMemory> {
    let (mut free, mut usable) = (0u64, 0u64);
    for line in buddyinfo.lines() {
        // "Node 0, zone   Normal   1649   2126 ...": free blocks of 1, 2, 4 ... base pages.
        let (_, zone) = line.split_once("zone")?;
        for (order, blocks) in zone.split_whitespace().skip(1).enumerate() {
            let pages_per_block = 1u64.checked_shl(u32::try_from(order).ok()?)?;
            let pages = blocks.parse::<u64>().ok()?.checked_mul(pages_per_block)?;
            free = free.checked_add(pages)?;
            if order >= HUGE_ORDER {
                usable += pages;
            }
        }
    }
    if buddyinfo.trim().is_empty() {
        return None;
    }
    Some(FreeMemory {
        bytes: free.checked_mul(BASE_PAGE_BYTES)?,
        huge_bytes: usable.checked_mul(BASE_PAGE_BYTES)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unusable_free_index(buddyinfo: &str) -> Option<f64> {
        parsed(buddyinfo).map(FreeMemory::fmfi)
    }

    /// Linux 6.18, x86, orders 0 to 10, as it was read. Blocks of order 9 and 10 hold
    /// (1 + 2 + 84) * 512 + (3 + 751 + 4788) * 1024 = 5,719,552 pages, the others 125,420:
    /// 125,420 of 5,844,972.
    const RUNNING: &str = "\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3
Node 0, zone    DMA32      1      1      4      2      5      4      3      3      4      2    751
Node 0, zone   Normal   1649   2126    833    869    800    334    141    173    205     84   4788
";

    #[test]
    fn of_a_running_machine() {
        let expected = 125_420.0 / 5_844_972.0;
        assert_eq!(unusable_free_index(RUNNING), Some(expected));
    }

    /// Two nodes: (2 + 2 * 2) = 6 small pages in one, one block of 512 in the other: 6 of 518.
    #[test]
    fn all_nodes_count_as_one() {
        let text = "\
Node 0, zone   Normal  2  2  0  0  0  0  0  0  0  0  0
Node 1, zone  Movable  0  0  0  0  0  0  0  0  0  1  0
";
        assert_eq!(unusable_free_index(text), Some(6.0 / 518.0));
    }

    #[test]
    fn the_ends_of_the_scale() {
        let cases = [
            ("Node 0, zone Normal 0 0 0 0 0 0 0 0 0 7 9", Some(0.0)),
            ("Node 0, zone Normal 9 9 9 9 9 9 9 9 9 0 0", Some(1.0)),
            ("Node 0, zone Normal 0 0 0 0 0 0 0 0 0 0 0", Some(1.0)),
            // A kernel built with a smaller largest order has no huge pages to give.
            ("Node 0, zone Normal 5 5 5", Some(1.0)),
        ];
        for (text, expected) in cases {
            assert_eq!(unusable_free_index(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_buddyinfo_is_no_figure() {
        for text in [
            "",
            "\n",
            "Node 0",
            "Node 0, zone Normal 1 2 x",
            "Node 0, zone Normal -1",
            "Node 0, zone Normal 18446744073709551615 18446744073709551615",
        ] {
            assert_eq!(unusable_free_index(text), None, "{text:?}");
        }
        let too_many = format!("Node 0, zone Normal{}", " 1".repeat(70));
        assert_eq!(unusable_free_index(&too_many), None);
    }
}
