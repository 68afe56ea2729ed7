//! One mapping of a torture thread, together with its shadow.

use super::shadow_pages::{ExpectedPage, PageMismatch, ShadowPages};
use crate::prelude::*;
use std::ops::Range;

/// A mapping and its expected contents. Both always change together.
pub(super) struct ShadowedMapping {
    memory: WorkloadMemory,
    model: ShadowPages,
}

impl ShadowedMapping {
    pub(super) fn new(memory: WorkloadMemory, tag: u64) -> Self {
        let model = ShadowPages::new(tag, memory.pages());
        Self { memory, model }
    }

    pub(super) fn pages(&self) -> usize {
        self.model.len()
    }

    pub(super) fn wrong_word(&self, mismatch: PageMismatch, during: &str) -> WrongWord {
        let [page, word, expected, found] = mismatch;
        let offset = page as usize * PAGE + word as usize * 8;
        self.memory
            .wrong_word_report(offset, expected, found, during)
    }

    /// Pages before the first one that starts a 2 MiB region.
    pub(super) fn pages_to_region(&self) -> usize {
        let start = self.memory.start_address();
        (start.next_multiple_of(REGION as u64) - start) as usize / PAGE
    }

    pub(super) fn write_page(&mut self, page: usize, contents: ExpectedPage) {
        let before = self.model.expected(page);
        self.model.set(page, contents);
        let words = self.model.expected(page);
        if matches!(contents, ExpectedPage::Sparse(..)) && before.is_zero() {
            // Only the one byte: the rest of a zero page stays zero.
            for word in (0..PAGE_WORDS).filter(|word| words.word(*word) != 0) {
                self.memory.write(page * PAGE + word * 8, words.word(word));
            }
        } else {
            for word in 0..PAGE_WORDS {
                self.memory.write(page * PAGE + word * 8, words.word(word));
            }
        }
    }

    /// Compares pages with their shadow. Allocates nothing, takes no lock.
    pub(super) fn check(&self, mut pages: Range<usize>) -> WorkloadResult<(), PageMismatch> {
        pages.try_for_each(|page| {
            self.model
                .check(page, |word| self.memory.read(page * PAGE + word * 8))
        })
    }

    pub(super) fn discard(&mut self, pages: Range<usize>) -> WorkloadResult<(), MemoryError> {
        self.memory
            .discard(pages.start * PAGE, pages.len() * PAGE)?;
        pages.for_each(|page| self.model.set(page, ExpectedPage::Zero));
        Ok(())
    }

    pub(super) fn protect(
        &mut self,
        pages: Range<usize>,
        protection: Protection,
    ) -> WorkloadResult<(), MemoryError> {
        self.memory
            .protect(pages.start * PAGE, pages.len() * PAGE, protection)
    }

    pub(super) fn resize(&mut self, pages: usize) -> WorkloadResult<(), MemoryError> {
        self.memory.resize(pages * PAGE)?;
        self.model.resize(pages);
        Ok(())
    }

    /// Moves the mapping to `shift` pages after the beginning of a region.
    pub(super) fn relocate(&mut self, shift: usize) -> WorkloadResult<(), MemoryError> {
        self.memory.relocate(shift * PAGE)
    }

    pub(super) fn unmap(self, pages: Range<usize>) -> impl Iterator<Item = Self> {
        let Self {
            memory,
            model: mut head,
        } = self;
        let tail = head.split_off(pages.end);
        head.resize(pages.start);
        let (rest, after) = memory.split(pages.end * PAGE);
        let before = rest.and_then(|rest| rest.split(pages.start * PAGE).0);
        let whole = |(memory, model)| {
            Some(Self {
                memory: memory?,
                model,
            })
        };
        [(before, head), (after, tail)]
            .into_iter()
            .filter_map(whole)
    }

    /// Changes one bit without a change of the shadow.
    pub(super) fn corrupt(&mut self, page: usize, word: usize) {
        let offset = page * PAGE + word * 8;
        self.memory.write(offset, self.memory.read(offset) ^ 0x10);
    }
}
