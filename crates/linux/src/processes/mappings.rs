//! Which parts of an address space may become huge.

use std::ops::Range;

use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, RegionAddr, RegionSample};
use thiserror::Error;

/// `VM_*` bits (include/linux/mm.h), the same on every kernel from 6.1 to 7.2.
pub(crate) mod vm {
    pub const WRITE: u64 = 0x2;
    pub const SHARED: u64 = 0x8;
    pub const GROWSDOWN: u64 = 0x100;
    pub const UFFD_MISSING: u64 = 0x200;
    pub const PFNMAP: u64 = 0x400;
    pub const UFFD_WP: u64 = 0x1000;
    pub const LOCKED: u64 = 0x2000;
    pub const IO: u64 = 0x4000;
    pub const HUGETLB: u64 = 0x0040_0000;
    pub const MIXEDMAP: u64 = 0x1000_0000;
    pub const HUGEPAGE: u64 = 0x2000_0000;
    pub const NOHUGEPAGE: u64 = 0x4000_0000;
    pub const MERGEABLE: u64 = 0x8000_0000;
}

/// One mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Addresses.
    pub range: Range<u64>,
    /// `VM_*` bits; `VM_MERGEABLE` only while KSM runs.
    pub flags: u64,
    /// Whether a file (shared memory included) is behind it.
    pub file_backed: bool,
}

/// What keeps a mapping from being managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Ineligible {
    /// A file, shared memory or a device.
    #[error("a file, shared memory or a device is mapped there")]
    NotAnonymous,
    /// Stacks grow and are small.
    #[error("it belongs to a stack")]
    Stack,
    /// Registered with userfaultfd: its monitor sees and answers each fault.
    #[error("userfaultfd watches it")]
    Userfaultfd,
    /// Its owner said no: `madvise(MADV_NOHUGEPAGE)`.
    #[error("its owner said MADV_NOHUGEPAGE")]
    NoHugePage,
    /// Its owner offered it for merging (`MADV_MERGEABLE`), and KSM runs: it would split what is promoted,
    /// and promotion would undo what it merges.
    #[error("KSM merges it: its owner said MADV_MERGEABLE")]
    Merging,
    /// Huge already, from the hugetlb pool.
    #[error("it is huge already, from the hugetlb pool")]
    HugeTlb,
    /// Never written: all of it is the zero page.
    #[error("its mapping can't be written to")]
    ReadOnly,
    /// No whole 2 MiB in it.
    #[error("no mapping covers all 2 MiB of it")]
    TooSmall,
    /// No mapping at all.
    #[error("nothing is mapped there")]
    Unmapped,
}

impl Mapping {
    /// The 2 MiB aligned part of it.
    pub fn regions(&self) -> Range<u64> {
        let start = self.range.start.next_multiple_of(HUGE_PAGE_BYTES);
        let end = self.range.end & !(HUGE_PAGE_BYTES - 1);
        start..end.max(start)
    }

    /// The part that may be managed, or why none of it may.
    pub fn eligible(&self) -> Result<Range<u64>, Ineligible> {
        if self.flags & vm::HUGETLB != 0 {
            return Err(Ineligible::HugeTlb);
        }
        if self.file_backed || self.flags & (vm::SHARED | vm::PFNMAP | vm::IO | vm::MIXEDMAP) != 0 {
            return Err(Ineligible::NotAnonymous);
        }
        if self.flags & vm::GROWSDOWN != 0 {
            return Err(Ineligible::Stack);
        }
        if self.flags & (vm::UFFD_MISSING | vm::UFFD_WP) != 0 {
            return Err(Ineligible::Userfaultfd);
        }
        if self.flags & vm::NOHUGEPAGE != 0 {
            return Err(Ineligible::NoHugePage);
        }
        if self.flags & vm::MERGEABLE != 0 {
            return Err(Ineligible::Merging);
        }
        if self.flags & vm::WRITE == 0 {
            return Err(Ineligible::ReadOnly);
        }
        let regions = self.regions();
        if regions.is_empty() {
            Err(Ineligible::TooSmall)
        } else {
            Ok(regions)
        }
    }
}

/// Eligible ranges of an address space, ascending, and how much its owner has excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eligible {
    /// 2 MiB aligned ranges.
    pub ranges: Vec<Range<u64>>,
    /// Those of them that are locked in memory, ascending.
    pub locked: Vec<Range<u64>>,
    /// Bytes that `MADV_NOHUGEPAGE` keeps out.
    pub refused_bytes: u64,
    /// What no whole region fits in.
    pub outside: Outside,
}

impl Eligible {
    /// Whether a region is locked in memory (`mlock`). `MADV_COLD` refuses such memory: its access bits are not cleared, and
    /// its huge pages are not split.
    pub fn is_locked(&self, region: RegionAddr) -> bool {
        let after = self
            .locked
            .partition_point(|range| range.start <= region.start());
        after
            .checked_sub(1)
            .is_some_and(|at| self.locked[at].contains(&region.start()))
    }

    /// Takes away what access bits say of locked memory: they are never cleared, and would make all of it look hot.
    pub fn forget_accesses_of_locked(&self, regions: &mut [RegionSample]) {
        if self.locked.is_empty() {
            return;
        }
        for sample in regions {
            if self.is_locked(sample.region) {
                (sample.accessed, sample.runs) = (0, 0);
            }
        }
    }
}

/// Memory that could be managed if it were larger: bytes mapped by the power of two of the largest page that fits there, up to
/// 1 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// All of it.
    pub mapped_bytes: [u64; 9],
    /// Of it, what huge pages were asked for.
    pub advised_bytes: [u64; 9],
}

impl Outside {
    /// Adds the largest naturally aligned blocks that a range is made of: a page is given where it fits as a whole.
    fn add(&mut self, mut range: Range<u64>, advised: bool) {
        while range.start < range.end {
            let aligned = (range.start / BASE_PAGE_BYTES).trailing_zeros();
            let fits = ((range.end - range.start) / BASE_PAGE_BYTES).max(1).ilog2();
            let order = aligned.min(fits).min(8);
            let bytes = BASE_PAGE_BYTES << order;
            self.mapped_bytes[order as usize] += bytes;
            if advised {
                self.advised_bytes[order as usize] += bytes;
            }
            range.start += bytes;
        }
    }
}

/// Sorts mappings into managed and not.
pub fn eligible(mappings: &[Mapping]) -> Eligible {
    let mut found = Eligible::default();
    for mapping in mappings {
        let advised = mapping.flags & vm::HUGEPAGE != 0;
        let all = &mapping.range;
        match mapping.eligible() {
            Ok(range) => {
                found.outside.add(all.start..range.start, advised);
                found.outside.add(range.end..all.end, advised);
                if mapping.flags & vm::LOCKED != 0 {
                    found.locked.push(range.clone());
                }
                found.ranges.push(range);
            }
            Err(Ineligible::TooSmall) => found.outside.add(all.clone(), advised),
            Err(Ineligible::NoHugePage) => {
                let regions = mapping.regions();
                found.refused_bytes += regions.end - regions.start;
            }
            Err(_) => {}
        }
    }
    found
}

/// Whether the region may be managed, by the mappings of its process.
pub fn region_eligible(mappings: &[Mapping], region: RegionAddr) -> Result<(), Ineligible> {
    let overlaps = |m: &&Mapping| m.range.start < region.end() && m.range.end > region.start();
    let mapping = mappings.iter().find(overlaps).ok_or(Ineligible::Unmapped)?;
    let eligible = mapping.eligible()?;
    if eligible.start <= region.start() && region.end() <= eligible.end {
        Ok(())
    } else {
        Err(Ineligible::TooSmall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: u64 = HUGE_PAGE_BYTES;

    fn heap(range: Range<u64>) -> Mapping {
        Mapping {
            range,
            flags: 0x73 | 0x0010_0000,
            file_backed: false,
        }
    }

    #[test]
    fn only_whole_regions_count() {
        assert_eq!(
            heap(HUGE + 4096..4 * HUGE - 4096).eligible(),
            Ok(2 * HUGE..3 * HUGE)
        );
        assert_eq!(
            heap(4096..2 * HUGE - 4096).eligible(),
            Err(Ineligible::TooSmall)
        );
        assert_eq!(heap(HUGE..2 * HUGE).eligible(), Ok(HUGE..2 * HUGE));
    }

    #[test]
    fn every_excluded_kind_has_its_reason() {
        let with = |flag| {
            Mapping {
                flags: 0x73 | flag,
                ..heap(0..4 * HUGE)
            }
            .eligible()
        };
        assert_eq!(with(vm::NOHUGEPAGE), Err(Ineligible::NoHugePage));
        assert_eq!(with(vm::UFFD_MISSING), Err(Ineligible::Userfaultfd));
        assert_eq!(
            with(vm::UFFD_WP | vm::NOHUGEPAGE),
            Err(Ineligible::Userfaultfd)
        );
        assert_eq!(with(vm::HUGETLB), Err(Ineligible::HugeTlb));
        assert_eq!(with(vm::MERGEABLE), Err(Ineligible::Merging));
        assert_eq!(with(vm::SHARED), Err(Ineligible::NotAnonymous));
        assert_eq!(with(vm::PFNMAP), Err(Ineligible::NotAnonymous));
        assert_eq!(with(vm::GROWSDOWN), Err(Ineligible::Stack));
        let file = Mapping {
            file_backed: true,
            ..heap(0..4 * HUGE)
        };
        assert_eq!(file.eligible(), Err(Ineligible::NotAnonymous));
        let constant = Mapping {
            flags: 0x71,
            ..heap(0..4 * HUGE)
        };
        assert_eq!(constant.eligible(), Err(Ineligible::ReadOnly));
    }

    #[test]
    fn a_region_is_judged_by_what_is_mapped_there() {
        let file = Mapping {
            file_backed: true,
            ..heap(8 * HUGE..9 * HUGE)
        };
        let mappings = [heap(HUGE..4 * HUGE - 4096), file];
        let judge = |index| region_eligible(&mappings, RegionAddr::containing(index * HUGE));
        assert_eq!(judge(1), Ok(()));
        assert_eq!(judge(3), Err(Ineligible::TooSmall));
        assert_eq!(judge(5), Err(Ineligible::Unmapped));
        assert_eq!(judge(8), Err(Ineligible::NotAnonymous));
    }

    #[test]
    fn what_no_region_fits_in_is_counted_by_what_does() {
        const K: u64 = 1 << 10;
        // 8 KiB up to a region, and 132 KiB after the last one; 132 KiB from an odd page on.
        let large = heap(HUGE - 8 * K..3 * HUGE + 132 * K);
        let small = Mapping {
            flags: 0x73 | vm::HUGEPAGE,
            ..heap(8 * HUGE + 4 * K..8 * HUGE + 136 * K)
        };
        let found = eligible(&[large, small]).outside;
        let kib = |bytes: [u64; 9]| bytes.map(|bytes| bytes / K);
        assert_eq!(kib(found.advised_bytes), [4, 16, 16, 32, 64, 0, 0, 0, 0]);
        assert_eq!(kib(found.mapped_bytes), [8, 24, 16, 32, 64, 128, 0, 0, 0]);
        let file = Mapping {
            file_backed: true,
            ..heap(4 * K..8 * K)
        };
        assert_eq!(eligible(&[file]).outside, Outside::default());
    }

    #[test]
    fn locked_memory_has_no_accesses_of_its_own() {
        let locked = |range| Mapping {
            flags: 0x73 | vm::LOCKED,
            ..heap(range)
        };
        let found = eligible(&[
            heap(HUGE..2 * HUGE),
            locked(2 * HUGE..4 * HUGE),
            heap(4 * HUGE..5 * HUGE),
            locked(8 * HUGE..9 * HUGE - 4096),
            locked(10 * HUGE..11 * HUGE),
        ]);
        assert_eq!(found.ranges.len(), 4);
        let mut regions: Vec<RegionSample> = (0..12)
            .map(|n| RegionSample {
                present: 512,
                accessed: 512,
                runs: 1,
                ..RegionSample::untouched(RegionAddr::containing(n * HUGE))
            })
            .collect();
        found.forget_accesses_of_locked(&mut regions);
        let cold = regions.iter().filter(|r| (r.accessed, r.runs) == (0, 0));
        let cold: Vec<u64> = cold.map(|r| r.region.start() / HUGE).collect();
        assert_eq!(cold, [2, 3, 10]);
        assert!(regions.iter().all(|r| r.present == 512));
    }

    #[test]
    fn what_the_owner_excluded_is_counted() {
        let refused = Mapping {
            flags: 0x73 | vm::NOHUGEPAGE,
            ..heap(HUGE..4 * HUGE)
        };
        let found = eligible(&[heap(8 * HUGE..9 * HUGE), refused]);
        assert_eq!(found.ranges, vec![8 * HUGE..9 * HUGE]);
        assert_eq!(found.refused_bytes, 3 * HUGE);
    }
}
