//! The choice of a free block for an allocation.

use super::PhysicalMemory;
use crate::memory::Content;

/// A free block that an allocation chose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick {
    pub(super) block: u32,
    pub(super) order: u8,
    pub(super) content: Content,
}

impl PhysicalMemory {
    /// Chooses the smallest free block that is large enough.
    pub(super) fn pick(&self, order: u8, prefer: Content) -> Option<Pick> {
        [prefer, prefer.other()].into_iter().find_map(|content| {
            let lists = self.lists[content.index()].iter().zip(0..);
            let mut larger = lists.skip(order.into());
            let (list, order) = larger.find(|(list, _)| list.count > 0)?;
            Some(Pick {
                block: *list.blocks.first()?,
                order,
                content,
            })
        })
    }
}
