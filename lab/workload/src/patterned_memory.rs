//! Memory in which some pages hold a verifiable pattern and the others only zeros.

use crate::prelude::*;
use std::ops::Range;

/// Distance of consecutively used pages in a region; odd, so that all pages are reached.
const SPREAD: usize = 5;
/// With tail bytes, one in `TAIL_EVERY` used pages has only its last byte set.
const TAIL_EVERY: usize = 4;

#[derive(Debug, Default)]
pub(super) struct PatternCheckResult {
    pub checked_bytes: u64,
    pub bad_bytes: u64,
    /// The first word with a wrong byte.
    pub first: Option<WrongWord>,
}

/// Whole regions, with a record of their written pages.
pub(super) struct PatternedMemory {
    memory: WorkloadMemory,
    pattern: PagePattern,
}

impl PatternedMemory {
    /// Maps the regions and writes to the first `used` pages (in spread order) of each. With 0,
    /// each region gets its pages at its first write.
    pub(super) fn new(
        regions: usize,
        used: usize,
        tail_bytes: bool,
        pages: RequestedPageKind,
    ) -> WorkloadResult<Self> {
        let memory = WorkloadMemory::map_private(regions * REGION, pages)?;
        let (start, written) = (memory.start_address(), vec![false; regions * REGION_PAGES]);
        let mut this = Self { memory, pattern: PagePattern { start, written, tail_bytes } };
        if used > 0 {
            this.write_pages_per_region(used)?;
        }
        Ok(this)
    }

    pub(super) fn start_address(&self) -> u64 {
        self.memory.start_address()
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    pub(super) fn count_regions(&self) -> usize {
        self.bytes() / REGION
    }

    /// Writes the pattern to the first `count` pages, in spread order, of every region.
    pub(super) fn write_pages_per_region(&mut self, count: usize) -> WorkloadResult<()> {
        self.pattern.write(&mut self.memory, count);
        Ok(self.memory.allow_promotion()?)
    }

    pub(super) fn write_region_pages(&mut self, region: usize, count: usize) -> WorkloadResult<()> {
        self.pattern.write_region(&mut self.memory, region, count);
        Ok(self.memory.allow_promotion_of_range(region * REGION, REGION)?)
    }

    /// Gives back the last `percent` of the pages, in spread order, of every region. Returns the
    /// number of bytes given back.
    pub(super) fn discard_percent_per_region(&mut self, percent: u8) -> WorkloadResult<u64> {
        let kept = REGION_PAGES * usize::from(100 - percent.min(100)) / 100;
        let mut given_back = [false; REGION_PAGES];
        for rank in kept..REGION_PAGES {
            given_back[page_at_spread_rank(rank)] = true;
        }
        let mut freed = 0;
        for region in 0..self.count_regions() {
            for run in runs_of_true(&given_back) {
                let first = region * REGION_PAGES;
                freed += self.discard_pages(first + run.start..first + run.end)?;
            }
        }
        Ok(freed)
    }

    /// Gives back the last `count` regions, all of them if there are fewer, but keeps them mapped.
    pub(super) fn discard_last_regions(&mut self, count: usize) -> WorkloadResult<u64> {
        let kept = self.count_regions().saturating_sub(count);
        let freed = self.discard_pages(kept * REGION_PAGES..self.pattern.written.len())?;
        self.memory.expect_first_touch_of_range(kept * REGION, freed as usize)?;
        Ok(freed)
    }

    /// Unmaps the last `count` regions; at least one must be left.
    pub(super) fn unmap_last_regions(&mut self, count: usize) -> WorkloadResult<u64> {
        let kept = self.count_regions().saturating_sub(count);
        if kept == 0 {
            let message = format!("cannot unmap {count} of {} regions", self.count_regions());
            return Err(WorkloadError::Usage(message));
        }
        let before = self.bytes();
        self.memory.resize(kept * REGION)?;
        self.pattern.written.truncate(kept * REGION_PAGES);
        Ok((before - self.bytes()) as u64)
    }

    fn discard_pages(&mut self, pages: Range<usize>) -> WorkloadResult<u64> {
        let bytes = pages.len() * PAGE;
        if bytes > 0 {
            self.memory.discard_range(pages.start * PAGE, bytes)?;
            self.pattern.written[pages].fill(false);
        }
        Ok(bytes as u64)
    }

    /// Reading an absent page makes the kernel map a zero page, or a huge page where enabled.
    pub(super) fn verify_pattern(&self) -> PatternCheckResult {
        let mut verdict = PatternCheckResult {
            checked_bytes: self.bytes() as u64,
            ..PatternCheckResult::default()
        };
        for page in 0..self.pattern.written.len() {
            let contents = self.pattern.nonzero_words(page);
            for word in 0..PAGE_WORDS {
                let found = self.memory.read_word(page * PAGE + word * 8);
                let expected = expected_word(&contents, word);
                if found != expected {
                    self.count_wrong_word(&mut verdict, page * PAGE + word * 8, expected, found);
                }
            }
        }
        verdict
    }

    #[cold]
    fn count_wrong_word(
        &self,
        verdict: &mut PatternCheckResult,
        offset: usize,
        expected: u64,
        found: u64,
    ) {
        let wrong = (expected ^ found).to_ne_bytes();
        verdict.bad_bytes += wrong.iter().filter(|byte| **byte != 0).count() as u64;
        let wrong = || self.memory.wrong_word_report(offset, expected, found, "verify");
        verdict.first.get_or_insert_with(wrong);
    }

    #[cfg(test)]
    fn corrupt(&mut self, offset: usize, value: u64) {
        self.memory.write_word(offset, value);
    }
}

struct PagePattern {
    start: u64,
    written: Vec<bool>,
    tail_bytes: bool,
}

impl PagePattern {
    /// Writes the first `count` pages, in spread order, of every region.
    fn write(&mut self, memory: &mut WorkloadMemory, count: usize) {
        for region in 0..self.written.len() / REGION_PAGES {
            self.write_region(memory, region, count);
        }
    }

    fn write_region(&mut self, memory: &mut WorkloadMemory, region: usize, count: usize) {
        for page in (0..count).map(|rank| region * REGION_PAGES + page_at_spread_rank(rank)) {
            self.written[page] = true;
            let contents = self.nonzero_words(page);
            for (word, value) in contents.into_iter().filter(|(_, value)| *value != 0) {
                memory.write_word(page * PAGE + word * 8, value);
            }
        }
    }

    fn nonzero_words(&self, page: usize) -> PatternWords {
        if !self.written[page] {
            return [(0, 0); 3];
        }
        let hash = mix_bits(self.start + (page * PAGE) as u64);
        if self.tail_bytes && (page % REGION_PAGES) % TAIL_EVERY == 0 {
            let last_byte = hash.to_ne_bytes()[0] | 1;
            let mut word = [0; 8];
            word[7] = last_byte;
            return [(PAGE_WORDS - 1, u64::from_ne_bytes(word)), (0, 0), (0, 0)];
        }
        let middle = 1 + (hash >> 32) as usize % (PAGE_WORDS - 2);
        let value = |word: usize| mix_bits(hash ^ word as u64) | 0x0101_0101_0101_0101;
        [0, middle, PAGE_WORDS - 1].map(|word| (word, value(word)))
    }
}

/// The words of a page that are not zero. A value of zero is an unused entry.
type PatternWords = [(usize, u64); 3];

#[inline]
fn expected_word(contents: &PatternWords, word: usize) -> u64 {
    let mut found = contents.iter().filter(|(_, value)| *value != 0);
    found.find(|(at, _)| *at == word).map_or(0, |(_, value)| *value)
}

/// The page of a region that is used as number `rank`.
pub(super) fn page_at_spread_rank(rank: usize) -> usize {
    rank * SPREAD % REGION_PAGES
}

fn runs_of_true(set: &[bool]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in (0..set.len()).filter(|at| set[*at]) {
        match runs.last_mut() {
            Some(run) if run.end == at => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
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
        let words: Vec<u64> =
            (0..PAGE_WORDS).map(|word| memory.memory.read_word(word * 8)).collect();
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
        memory.write_pages_per_region(200).unwrap();
        assert_eq!(memory.discard_last_regions(1).unwrap(), REGION as u64);
        assert_eq!(memory.verify_pattern().bad_bytes, 0);
        assert_eq!(memory.unmap_last_regions(1).unwrap(), REGION as u64);
        assert_eq!(memory.verify_pattern().checked_bytes, REGION as u64);
        assert!(memory.unmap_last_regions(1).is_err());
    }
}
