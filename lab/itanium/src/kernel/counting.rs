//! Counts for policies: misses that a larger page would have prevented, and pages that were
//! referred to.

use super::{Kernel, Purge};
use crate::ItaniumError;
use crate::mmu::Counters;
use std::collections::{BTreeMap, BTreeSet};

/// Misses by process, order and first page of the page that would have prevented them.
pub(super) type MissCounts = BTreeMap<(u32, u8, u64), u64>;

/// References since the policy last decided which pages are large.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    references: u64,
    /// Pages that were referred to.
    pages: BTreeSet<(u32, u64)>,
}

impl Kernel {
    /// Whether misses are counted.
    #[inline]
    pub fn counts_misses(&self) -> bool {
        self.settings.policy.rules().misses_before(1).is_some()
    }

    /// Counts a TLB miss that the kernel's handler fills. Pages of `around` and more base pages, as
    /// an order, would have been in the TLB because of their other parts. Returns the translations
    /// to purge if this call makes such a page.
    ///
    /// # Errors
    /// No such process.
    pub fn missed(
        &mut self,
        process: u32,
        address: u64,
        around: u8,
        work: &mut Counters,
    ) -> Result<Option<Purge>, ItaniumError> {
        let page = self.settings.base.page_of(address);
        let entry = self.space(process)?.table.get(page);
        let Some(entry) = entry.filter(|entry| entry.present) else {
            return Ok(None);
        };
        let rules = self.settings.policy;
        let mut reached = None;
        for order in around.max(entry.order + 1)..u32::BITS as u8 {
            let first = page & !((1 << order) - 1);
            let Some(enough) = rules.rules().misses_before(order) else {
                break;
            };
            if !self.settings.orders.contains(order) {
                continue;
            }
            if !self.is_in_one_mapping(process, first, order) {
                break;
            }
            let count = self.misses.entry((process, order, first)).or_default();
            *count += 1;
            work.counted_misses += 1;
            if *count >= enough {
                *count = 0;
                reached = Some((first, order));
            }
        }
        match reached {
            Some((first, order)) => self.promote(process, first, order, false, work),
            None => Ok(None),
        }
    }

    /// Whether the policy uses references.
    #[inline]
    pub fn looks_at_references(&self) -> bool {
        self.settings.policy.rules().window().is_some()
    }

    /// Counts references to an address. Returns the translations to purge where page sizes change
    /// because of them.
    ///
    /// # Errors
    /// No such process.
    pub fn referred(
        &mut self,
        process: u32,
        address: u64,
        references: u32,
        work: &mut Counters,
    ) -> Result<Vec<Purge>, ItaniumError> {
        let Some((length, order)) = self.settings.policy.rules().window() else {
            return Ok(Vec::new());
        };
        let page = self.settings.base.page_of(address);
        self.window.pages.insert((process, page));
        self.window.references += u64::from(references);
        if self.window.references < length {
            return Ok(Vec::new());
        }
        let seen = std::mem::take(&mut self.window).pages;
        let mut referred: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for (process, page) in seen {
            *referred.entry((process, page >> order)).or_default() += 1;
        }
        let mut purges = Vec::new();
        for (process, chunk) in self.large_chunks(order) {
            let count = referred.get(&(process, chunk)).copied().unwrap_or(0);
            if !self.should_be_large(count, order) {
                let first = chunk << order;
                purges.push(self.purge(process, first, 1, false)?);
                self.split_to_base(process, first, order)?;
            }
        }
        for ((process, chunk), count) in referred {
            let first = chunk << order;
            if self.should_be_large(count, order) && self.is_in_one_mapping(process, first, order) {
                // A former large page still lies in memory as it did.
                let purge = match self.join(process, first, order, work)? {
                    None => self.promote(process, first, order, true, work)?,
                    joined => joined,
                };
                purges.extend(purge);
            }
        }
        self.note_use();
        Ok(purges)
    }

    fn should_be_large(&self, referred: u64, order: u8) -> bool {
        let rules = self.settings.policy.rules();
        rules.is_large(referred, 1 << order)
    }

    /// Large pages of an order: process, and number in pages of this order.
    fn large_chunks(&self, order: u8) -> Vec<(u32, u64)> {
        let spaces = self.spaces.iter().zip(0..);
        let spaces = spaces.filter_map(|(space, process)| Some((space.as_ref()?, process)));
        let of = |(space, process): (&super::Space, u32)| {
            let large = space.table.entries().filter(move |(page, entry)| {
                entry.order == order && entry.present && page % (1 << order) == 0
            });
            let chunks = large.map(move |(page, _)| (process, page >> order));
            chunks.collect::<Vec<_>>()
        };
        spaces.flat_map(of).collect()
    }
}
