//! Fragmentation of free memory, with respect to huge pages.
//!
//! The figure is Gorman's *unusable free space index* for order 9, over all nodes and zones: the
//! share of free memory in blocks too small for a huge page. It is `unusable_free_index` in the
//! kernel's `mm/vmstat.c`, which reports it per zone and times 1000. Ingens and HawkEye call theirs
//! FMFI and say only that it goes from 0 (unfragmented) to 1.
//!
//! The kernel's other figure, `fragmentation_index`, says why an allocation failed. It is undefined
//! while an allocation would succeed, but a policy has to know before.

use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use std::{fs, io};

/// Order of a huge page: 9.
const HUGE_ORDER: usize = (HUGE_PAGE_BYTES / BASE_PAGE_BYTES).trailing_zeros() as usize;

/// Free memory of all nodes and zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeMemorySummary {
    /// All free memory, in bytes.
    pub bytes: u64,
    /// Free memory in blocks that hold a huge page, in bytes.
    pub huge_bytes: u64,
}

impl FreeMemorySummary {
    /// The state now, which only root may read.
    pub fn read() -> io::Result<Self> {
        let found = parse_buddyinfo(&fs::read_to_string("/proc/buddyinfo")?);
        found.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// The fragmentation index for huge pages (0 to 1); 1 if no memory is free.
    pub fn unusable_free_index(self) -> f64 {
        if self.bytes == 0 {
            1.0
        } else {
            (self.bytes - self.huge_bytes) as f64 / self.bytes as f64
        }
    }
}

/// The free memory fragmentation index for huge pages (0 to 1). `None` if `/proc/buddyinfo` cannot
/// be read: only its owner, root, may.
pub fn read_unusable_free_index() -> Option<f64> {
    FreeMemorySummary::read().ok().map(FreeMemorySummary::unusable_free_index)
}

/// Free huge pages that need no compaction; `None` if `/proc/buddyinfo` cannot be read.
pub fn count_free_huge_pages() -> Option<u64> {
    let free = FreeMemorySummary::read().ok()?;
    Some(free.huge_bytes / HUGE_PAGE_BYTES)
}

/// Parses the text of `/proc/buddyinfo`; `None` if its contents are unexpected.
fn parse_buddyinfo(buddyinfo: &str) -> Option<FreeMemorySummary> {
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
    Some(FreeMemorySummary {
        bytes: free.checked_mul(BASE_PAGE_BYTES)?,
        huge_bytes: usable.checked_mul(BASE_PAGE_BYTES)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Orders 0 to 10 as read on Linux 6.18. Blocks of order 9 and 10 hold
    /// (1 + 2 + 84) * 512 + (3 + 751 + 4788) * 1024 = 5,719,552 pages. The others hold 125,420,
    /// of 5,844,972 in all.
    const RUNNING: &str = "\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3
Node 0, zone    DMA32      1      1      4      2      5      4      3      3      4      2    751
Node 0, zone   Normal   1649   2126    833    869    800    334    141    173    205     84   4788
";

    /// Two nodes: one with (2 + 2 * 2) = 6 small pages, one with a block of 512: 6 of 518.
    const TWO_NODES: &str = "\
Node 0, zone   Normal  2  2  0  0  0  0  0  0  0  0  0
Node 1, zone  Movable  0  0  0  0  0  0  0  0  0  1  0
";

    #[test]
    fn fmfi_covers_all_zones_and_rejects_other_text() {
        let too_many = format!("Node 0, zone Normal{}", " 1".repeat(70));
        for (text, expected) in [
            (RUNNING, Some(125_420.0 / 5_844_972.0)),
            (TWO_NODES, Some(6.0 / 518.0)),
            ("Node 0, zone Normal 0 0 0 0 0 0 0 0 0 7 9", Some(0.0)),
            ("Node 0, zone Normal 9 9 9 9 9 9 9 9 9 0 0", Some(1.0)),
            ("Node 0, zone Normal 0 0 0 0 0 0 0 0 0 0 0", Some(1.0)),
            // A kernel with a smaller largest order has no huge pages to give.
            ("Node 0, zone Normal 5 5 5", Some(1.0)),
            ("", None),
            ("\n", None),
            ("Node 0", None),
            ("Node 0, zone Normal 1 2 x", None),
            ("Node 0, zone Normal -1", None),
            ("Node 0, zone Normal 18446744073709551615 18446744073709551615", None),
            (&too_many, None),
        ] {
            assert_eq!(
                parse_buddyinfo(text).map(FreeMemorySummary::unusable_free_index),
                expected,
                "{text:?}"
            );
        }
    }
}
