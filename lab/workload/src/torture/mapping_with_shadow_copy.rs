//! One mapping of a torture thread, together with its shadow.

use super::shadow_pages::{ExpectedPage, PageMismatch, ShadowPages};
use crate::prelude::*;
use std::ops::Range;

/// A mapping and its expected contents. Both always change together.
pub(super) struct MappingWithShadowCopy {
    memory: WorkloadMemory,
    model: ShadowPages,
}

impl MappingWithShadowCopy {
    pub(super) fn new(memory: WorkloadMemory, tag: u64) -> Self {
        let model = ShadowPages::new(tag, memory.count_pages());
        Self { memory, model }
    }

    pub(super) fn pages(&self) -> usize {
        self.model.len()
    }

    pub(super) fn wrong_word_of_mismatch(&self, mismatch: PageMismatch, during: &str) -> WrongWord {
        let [page, word, expected, found] = mismatch;
        let offset = page as usize * PAGE + word as usize * 8;
        self.memory.wrong_word_report(offset, expected, found, during)
    }

    /// Pages before the first one that starts a 2 MiB region.
    pub(super) fn pages_before_first_region(&self) -> usize {
        let start = self.memory.start_address();
        (start.next_multiple_of(REGION as u64) - start) as usize / PAGE
    }

    pub(super) fn write_page(&mut self, page: usize, contents: ExpectedPage) {
        let before = self.model.expected_words(page);
        self.model.set_page(page, contents);
        let words = self.model.expected_words(page);
        if matches!(contents, ExpectedPage::Sparse(..)) && before.is_zero() {
            // Only the one byte: the rest of a zero page stays zero.
            for word in (0..PAGE_WORDS).filter(|word| words.value_of_word(*word) != 0) {
                self.memory.write_word(page * PAGE + word * 8, words.value_of_word(word));
            }
        } else {
            for word in 0..PAGE_WORDS {
                self.memory.write_word(page * PAGE + word * 8, words.value_of_word(word));
            }
        }
    }

    /// Compares pages with their shadow. Allocates nothing, takes no lock.
    pub(super) fn check_pages(&self, mut pages: Range<usize>) -> WorkloadResult<(), PageMismatch> {
        pages.try_for_each(|page| {
            self.model.check_page(page, |word| self.memory.read_word(page * PAGE + word * 8))
        })
    }

    pub(super) fn discard(&mut self, pages: Range<usize>) -> WorkloadResult<(), MemoryCallError> {
        self.memory.discard_range(pages.start * PAGE, pages.len() * PAGE)?;
        pages.for_each(|page| self.model.set_page(page, ExpectedPage::Zero));
        Ok(())
    }

    pub(super) fn protect(
        &mut self,
        pages: Range<usize>,
        protection: MemoryProtection,
    ) -> WorkloadResult<(), MemoryCallError> {
        self.memory.protect_range(pages.start * PAGE, pages.len() * PAGE, protection)
    }

    pub(super) fn resize(&mut self, pages: usize) -> WorkloadResult<(), MemoryCallError> {
        self.memory.resize(pages * PAGE)?;
        self.model.resize(pages);
        Ok(())
    }

    /// Moves the mapping to `shift` pages after the beginning of a region.
    pub(super) fn relocate(&mut self, shift: usize) -> WorkloadResult<(), MemoryCallError> {
        self.memory.relocate(shift * PAGE)
    }

    pub(super) fn unmap_and_split(self, pages: Range<usize>) -> impl Iterator<Item = Self> {
        let Self { memory, model: mut head } = self;
        let tail = head.split_off(pages.end);
        head.resize(pages.start);
        let (rest, after) = memory.split_at(pages.end * PAGE);
        let before = rest.and_then(|rest| rest.split_at(pages.start * PAGE).0);
        let whole = |(memory, model)| Some(Self { memory: memory?, model });
        [(before, head), (after, tail)].into_iter().filter_map(whole)
    }

    /// Changes one bit without a change of the shadow.
    pub(super) fn flip_bit_of_word(&mut self, page: usize, word: usize) {
        let offset = page * PAGE + word * 8;
        self.memory.write_word(offset, self.memory.read_word(offset) ^ 0x10);
    }
}
