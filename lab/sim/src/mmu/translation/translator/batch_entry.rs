//! Turns accesses into pages to look up.

use super::Translator;
use crate::mmu::translation::access::Access;
use crate::mmu::translation::batch_result::{AccessFault, check_page_access};
use crate::mmu::translation::mappings::{Mappings, PageGroupState};
use crate::mmu::translation::missed_pages::{LastEntryWindow, MissedPage, WalkCause};
use crate::mmu::translation::sizes::EntrySize;

impl Translator {
    /// Makes the accesses that the window holds, and collects the pages of the others for the first
    /// level. Ends at a full batch or at a fault.
    pub(super) fn collect_batch(
        &mut self,
        mappings: &Mappings,
        accesses: &[Access],
        window: &mut LastEntryWindow,
    ) -> CollectedBatch {
        let (blocks, entries) = (&mappings.numbers[..], mappings.l1_entries);
        let mut collected = CollectedBatch::default();
        loop {
            collect_faultless(
                mappings,
                blocks,
                &entries,
                accesses,
                (&mut self.misses, window),
                &mut collected,
            );
            let (Some(access), Some(miss)) =
                (accesses.get(collected.accesses), self.misses.get_mut(collected.pages))
            else {
                return collected;
            };
            match resolve_access(mappings, blocks, *access) {
                // Its entry is known only when all pages before it are settled.
                Ok(found) if found.incomplete_group && collected.pages > 0 => return collected,
                Ok(found) => {
                    (*miss, *window) = (found.miss, found.window);
                    collected.incomplete_group = found.incomplete_group;
                }
                Err(fault) => {
                    collected.fault = Some(fault);
                    return collected;
                }
            }
            collected.accesses += 1;
            collected.pages += 1;
            if collected.incomplete_group {
                return collected;
            }
        }
    }
}

#[derive(Default)]
pub(super) struct CollectedBatch {
    pub(super) accesses: usize,
    pub(super) pages: usize,
    pub(super) fault: Option<AccessFault>,
    /// Whether its only page is in a group that the processor does not see as one yet.
    pub(super) incomplete_group: bool,
}

/// Enters accesses up to the first in a region that can fault, or until the batch is full. A
/// function of its own, because calls in a loop take its registers.
#[inline(never)]
fn collect_faultless(
    mappings: &Mappings,
    blocks: &[u16],
    entries: &[u64; 5],
    accesses: &[Access],
    (misses, window): (&mut [MissedPage], &mut LastEntryWindow),
    collected: &mut CollectedBatch,
) {
    let (mut now, mut pages) = (*window, collected.pages);
    let mut block = mappings.address_block(blocks, 0);
    let mut last = None;
    let mut entry = 0;
    let mut ahead = accesses.get(collected.accesses..).unwrap_or_default().iter();
    while let Some(access) = ahead.as_slice().first() {
        if !now.holds(*access) {
            // Most accesses are in the block of the one before.
            if !block.has_address(access.address()) {
                block = mappings.address_block(blocks, access.address());
            }
            let page = block.page(access.address());
            let state = mappings.region_state(page);
            let (true, Some(miss)) = (state.is_whole(), misses.get_mut(pages)) else {
                break;
            };
            *miss = MissedPage::new(page, state, walk_cause(*access));
            if last != Some(state) {
                (last, entry) = (Some(state), entries[state.entry_size() as usize]);
            }
            now = LastEntryWindow::new(*access, entry, true);
            pages += 1;
        }
        ahead.next();
    }
    *window = now;
    collected.accesses = accesses.len() - ahead.as_slice().len();
    collected.pages = pages;
}

pub(super) struct CollectedPage {
    pub(super) miss: MissedPage,
    pub(super) window: LastEntryWindow,
    /// Whether it is in a group that the processor does not see as one yet.
    pub(super) incomplete_group: bool,
}

#[inline]
pub(super) fn resolve_access(
    mappings: &Mappings,
    blocks: &[u16],
    access: Access,
) -> Result<CollectedPage, AccessFault> {
    let page = mappings.page_of_address(blocks, access.address());
    let mut state = mappings.region_state(page);
    let writable = state.is_whole() || check_page_access(mappings, page, state, access)?;
    let mut incomplete_group = false;
    if state.has_some_groups() {
        match mappings.page_group_state(page) {
            PageGroupState::None => {}
            PageGroupState::Member => state = state.as_group_member(),
            PageGroupState::Incomplete => incomplete_group = state.host() > EntrySize::Base,
        }
    }
    let entry = mappings.l1_entries[state.entry_size() as usize];
    Ok(CollectedPage {
        miss: MissedPage::new(page, state, walk_cause(access)),
        window: LastEntryWindow::new(access, entry, writable),
        incomplete_group,
    })
}

#[inline(always)]
fn walk_cause(access: Access) -> WalkCause {
    if access.is_store() { WalkCause::Store } else { WalkCause::Load }
}
