//! Covers a process that is too large for one session, page by page.

use hawkeye_policy::RegionAddr;

/// Start of the next session. It is an address and not an index, so that regions may come and go.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionPager {
    next: u64,
}

impl RegionPager {
    /// The next regions, at most `limit`, of `regions` (ascending). Continues from the end of the
    /// last page to the last region, then starts again at the first.
    pub fn next_page<'a>(&mut self, regions: &'a [RegionAddr], limit: usize) -> &'a [RegionAddr] {
        let first = regions.partition_point(|region| region.start() < self.next);
        let first = if first == regions.len() { 0 } else { first };
        let page = &regions[first..regions.len().min(first + limit)];
        self.next = page.last().map_or(0, |region| region.end());
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::HUGE_PAGE_BYTES;

    fn regions(indices: &[u64]) -> Vec<RegionAddr> {
        let region = |index: &u64| RegionAddr::containing(index * HUGE_PAGE_BYTES);
        indices.iter().map(region).collect()
    }

    #[test]
    fn pages_cover_everything_in_turn() {
        let all = regions(&[0, 1, 2, 10, 11, 20]);
        let mut pager = RegionPager::default();
        assert_eq!(pager.next_page(&all, 4), regions(&[0, 1, 2, 10]));
        assert_eq!(pager.next_page(&all, 4), regions(&[11, 20]));
        assert_eq!(pager.next_page(&all, 4), regions(&[0, 1, 2, 10]));
        let fewer = regions(&[0]);
        assert_eq!(pager.next_page(&fewer, 4), fewer, "the rest is gone");
        assert_eq!(pager.next_page(&[], 4), []);
        assert_eq!(RegionPager::default().next_page(&all, 100), all);
    }
}
