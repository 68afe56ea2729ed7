//! Remembers how much of a process is under huge pages.

/// Bytes under huge pages of a process as last counted. The count holds while resident memory stays
/// the same, because counting costs twenty times as much as reading that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HugeBytesCount {
    counted: Option<CountAtSize>,
    under_way: Option<CountUnderWay>,
}

#[derive(Clone, Copy, Debug)]
struct CountAtSize {
    rss_bytes: u64,
    huge_bytes: u64,
    looks_left: u8,
}

#[derive(Clone, Copy, Debug)]
struct CountUnderWay {
    /// Resident memory when it began.
    rss_bytes: u64,
    /// Whether nothing has changed what was counted since.
    holds: bool,
}

impl HugeBytesCount {
    /// Looks until pages are counted again in any case. The kernel, too, can split huge pages and
    /// make new ones, which need not change resident memory.
    const LOOKS: u8 = 15;

    /// The last count, if it still holds for a process with this much resident memory. Otherwise a
    /// count begins or goes on.
    pub(crate) fn at_size(&mut self, rss_bytes: u64) -> Option<u64> {
        let held = self.counted.take().filter(|it| it.rss_bytes == rss_bytes);
        let left = held.and_then(|it| Some((it, it.looks_left.checked_sub(1)?)));
        let Some((held, looks_left)) = left else {
            self.under_way.get_or_insert(CountUnderWay { rss_bytes, holds: true });
            return None;
        };
        self.counted = Some(CountAtSize { looks_left, ..held });
        Some(held.huge_bytes)
    }

    /// The count is done.
    pub(crate) fn record(&mut self, huge_bytes: u64) {
        let done = self.under_way.take().filter(|count| count.holds);
        self.counted = done.map(|CountUnderWay { rss_bytes, .. }| CountAtSize {
            rss_bytes,
            huge_bytes,
            looks_left: Self::LOOKS,
        });
    }

    /// Huge pages were made or split, or other mappings count.
    pub(crate) fn forget(&mut self) {
        self.counted = None;
        if let Some(count) = &mut self.under_way {
            count.holds = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(rss_bytes: u64, huge_bytes: u64) -> HugeBytesCount {
        let mut count = HugeBytesCount::default();
        assert_eq!(count.at_size(rss_bytes), None);
        count.record(huge_bytes);
        count
    }

    #[test]
    fn a_count_holds_for_some_looks_while_resident_memory_stays_the_same() {
        let mut count = counted(10, 4);
        for _ in 0..HugeBytesCount::LOOKS {
            assert_eq!(count.at_size(10), Some(4));
        }
        assert_eq!(count.at_size(10), None);
        let mut count = counted(10, 4);
        assert_eq!(count.at_size(11), None);
        assert_eq!(count.at_size(10), None, "it shrank again in between");
    }

    #[test]
    fn what_changes_while_it_is_counted_is_not_remembered() {
        let mut count = HugeBytesCount::default();
        assert_eq!(count.at_size(10), None);
        // The count takes several calls.
        assert_eq!(count.at_size(11), None);
        count.record(4);
        assert_eq!(count.at_size(11), None, "it began at another size");
        count.forget();
        assert_eq!(count.at_size(11), None);
        count.record(4);
        assert_eq!(count.at_size(11), None, "a huge page was split meanwhile");
        count.record(2);
        assert_eq!(count.at_size(11), Some(2));
    }
}
