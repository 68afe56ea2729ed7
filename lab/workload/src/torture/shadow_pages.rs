//! Expected contents of memory: a shadow of every page, independent of the memory.

use crate::prelude::*;

/// Expected contents of one page. No two generations of a page are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedPage {
    /// Nothing but zeros: never written, given back, or overwritten with zeros.
    Zero,
    /// Every word differs from zero and depends on the page, the generation and its place.
    Full(u32),
    /// Zeros except one byte: the number of the write, and the place of the byte in the page.
    Sparse(u32, u16),
}

/// Its page, its place there, and the expected and the actual value.
pub(super) type PageMismatch = [u64; 4];

/// The shadow of one mapping. Pages keep their identity when the mapping moves or is cut.
#[derive(Clone, Debug)]
pub(super) struct ShadowPages {
    /// Identity of the mapping that the pages were first part of, in all threads.
    tag: u64,
    first: u64,
    pages: Vec<ExpectedPage>,
}

impl ShadowPages {
    pub(super) fn new(tag: u64, pages: usize) -> Self {
        Self { tag, first: 0, pages: vec![ExpectedPage::Zero; pages] }
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn set_page(&mut self, page: usize, contents: ExpectedPage) {
        self.pages[page] = contents;
    }

    /// Records that the mapping is longer, with zero pages, or shorter.
    pub(super) fn resize(&mut self, pages: usize) {
        self.pages.resize(pages, ExpectedPage::Zero);
    }

    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let pages = self.pages.split_off(at);
        Self { tag: self.tag, first: self.first + at as u64, pages }
    }

    #[inline]
    pub(super) fn expected_words(&self, page: usize) -> ExpectedPageWords {
        let hash = |generation: u32| {
            let identity = self.tag.rotate_left(32) ^ (self.first + page as u64);
            mix_bits(mix_bits(identity) ^ u64::from(generation))
        };
        match self.pages[page] {
            ExpectedPage::Zero => ExpectedPageWords::Zero,
            ExpectedPage::Full(generation) => ExpectedPageWords::Full(hash(generation)),
            ExpectedPage::Sparse(generation, byte) => {
                let mut word = [0; 8];
                word[usize::from(byte) % 8] = hash(generation).to_ne_bytes()[0] | 1;
                ExpectedPageWords::Sparse {
                    word: usize::from(byte) / 8,
                    value: u64::from_ne_bytes(word),
                }
            }
        }
    }

    /// Compares a page with its expected contents; `read` returns the words of the page. It
    /// allocates nothing and takes no lock, so that a forked child can use it.
    #[inline]
    pub(super) fn check_page(
        &self,
        page: usize,
        read: impl Fn(usize) -> u64,
    ) -> WorkloadResult<(), PageMismatch> {
        let words = self.expected_words(page);
        for word in 0..PAGE_WORDS {
            let (expected, found) = (words.value_of_word(word), read(word));
            if found != expected {
                return Err([page as u64, word as u64, expected, found]);
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ExpectedPageWords {
    Zero,
    Full(u64),
    Sparse { word: usize, value: u64 },
}

impl ExpectedPageWords {
    pub(super) fn is_zero(self) -> bool {
        matches!(self, Self::Zero)
    }

    #[inline]
    pub(super) fn value_of_word(self, word: usize) -> u64 {
        match self {
            Self::Zero => 0,
            Self::Full(hash) => {
                // Odd, so never zero; different in every place.
                hash.wrapping_add((word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c16)) | 1
            }
            Self::Sparse { word: at, value } if at == word => value,
            Self::Sparse { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a plain vector that stands for memory.
    fn write(model: &ShadowPages) -> Vec<u64> {
        let page =
            |page| (0..PAGE_WORDS).map(move |word| model.expected_words(page).value_of_word(word));
        (0..model.len()).flat_map(page).collect()
    }

    fn check(model: &ShadowPages, memory: &[u64]) -> WorkloadResult<(), PageMismatch> {
        (0..model.len())
            .try_for_each(|page| model.check_page(page, |word| memory[page * PAGE_WORDS + word]))
    }

    fn model() -> ShadowPages {
        let mut model = ShadowPages::new(77, 6);
        model.set_page(1, ExpectedPage::Full(1));
        model.set_page(2, ExpectedPage::Full(2));
        model.set_page(3, ExpectedPage::Sparse(3, 0));
        model.set_page(4, ExpectedPage::Sparse(4, 4095));
        model
    }

    #[test]
    fn every_single_wrong_byte_is_found() {
        let model = model();
        let right = write(&model);
        assert_eq!(check(&model, &right), Ok(()));
        for at in 0..right.len() {
            let mut memory = right.clone();
            memory[at] ^= 0x40 << (8 * (at % 8));
            let mismatch = check(&model, &memory).unwrap_err();
            let [page, word] = [at / PAGE_WORDS, at % PAGE_WORDS].map(|number| number as u64);
            assert_eq!(mismatch, [page, word, right[at], memory[at]]);
        }
    }

    #[test]
    fn zeros_instead_of_data_are_found() {
        let model = model();
        let mut memory = write(&model);
        memory[4 * PAGE_WORDS + 511] = 0;
        assert_eq!(check(&model, &memory).unwrap_err()[0], 4);
        memory[PAGE_WORDS..2 * PAGE_WORDS].fill(0);
        assert_eq!(check(&model, &memory).unwrap_err()[0], 1);
    }

    #[test]
    fn an_older_generation_and_another_page_are_found() {
        let mut model = model();
        let memory = write(&model);
        model.set_page(1, ExpectedPage::Full(9));
        assert_eq!(check(&model, &memory).unwrap_err()[0], 1);
        model.set_page(1, ExpectedPage::Full(2)); // the same generation as page 2
        let mut memory = write(&model);
        assert_eq!(check(&model, &memory), Ok(()));
        memory.copy_within(2 * PAGE_WORDS..3 * PAGE_WORDS, PAGE_WORDS);
        assert_eq!(check(&model, &memory).unwrap_err()[0], 1);
    }

    #[test]
    fn pages_keep_their_contents_over_a_cut_and_a_resize() {
        let mut head = model();
        let memory = write(&head);
        let mut tail = head.split_off(2);
        assert_eq!(check(&head, &memory), Ok(()));
        assert_eq!(check(&tail, &memory[2 * PAGE_WORDS..]), Ok(()));
        tail.resize(6);
        assert!(matches!(tail.expected_words(5), ExpectedPageWords::Zero));
    }
}
