//! Which free block an allocation gets.

use super::{PhysicalMemory, State};
use crate::memory::{Content, HUGE_ORDER, MigrateType, ORDERS, PART_ORDERS};
use hawkeye_policy::PAGES_PER_REGION;

/// From this order on movable memory claims the pageblock it raids (`pageblock_order / 2`); the other
/// types always try.
const CLAIMING_ORDER: u8 = HUGE_ORDER / 2;

/// A free block that an allocation chose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick {
    pub(super) block: u32,
    pub(super) order: u8,
    pub(super) content: Content,
    /// Whether it was left with another type: the next allocation chooses anew.
    pub(super) foreign: bool,
}

impl PhysicalMemory {
    /// Chooses a free block: of its own type the smallest that is large enough, of others the
    /// largest.
    pub(super) fn pick(
        &mut self,
        order: u8,
        migrate: MigrateType,
        prefer: Content,
    ) -> Option<Pick> {
        if let Some(pick) = self.pick_own(order, migrate, prefer) {
            return Some(pick);
        }
        let (victim, pick) = self.pick_foreign(order, migrate, prefer)?;
        if pick.order >= HUGE_ORDER {
            self.remove_whole(pick.block);
            for block in pick.block..pick.block + (1 << (pick.order - HUGE_ORDER)) {
                self.blocks[block as usize].migrate = migrate;
            }
            self.add_whole(pick.block, pick.order);
            return Some(pick);
        }
        let tries = migrate != MigrateType::Movable || pick.order >= CLAIMING_ORDER;
        if tries && self.claim(pick.block, victim, migrate) {
            return self.pick_own(order, migrate, prefer);
        }
        Some(Pick {
            foreign: true,
            ..pick
        })
    }

    fn pick_own(&self, order: u8, migrate: MigrateType, prefer: Content) -> Option<Pick> {
        [prefer, prefer.other()].into_iter().find_map(|content| {
            let lists = self.lists[migrate.index()][content.index()].iter();
            let (larger, list) = lists
                .enumerate()
                .skip(order.into())
                .find(|(_, list)| list.count > 0)?;
            Some(Pick {
                block: list.blocks.first()?,
                order: larger as u8,
                content,
                foreign: false,
            })
        })
    }

    fn pick_foreign(
        &self,
        order: u8,
        migrate: MigrateType,
        prefer: Content,
    ) -> Option<(MigrateType, Pick)> {
        (order..ORDERS).rev().find_map(|order| {
            migrate.fallbacks().into_iter().find_map(|victim| {
                [prefer, prefer.other()].into_iter().find_map(|content| {
                    let list = &self.lists[victim.index()][content.index()][usize::from(order)];
                    let pick = Pick {
                        block: list.blocks.first()?,
                        order,
                        content,
                        foreign: false,
                    };
                    Some((victim, pick))
                })
            })
        })
    }

    /// Changes the type of a pageblock in parts if at least half of it is free.
    fn claim(&mut self, block: u32, from: MigrateType, to: MigrateType) -> bool {
        let State::Parts(parts) = &self.blocks[block as usize].state else {
            return false;
        };
        if parts.free().count() < PAGES_PER_REGION / 2 {
            return false;
        }
        for content in Content::BOTH {
            for order in 0..PART_ORDERS {
                let count = parts.count(order, content);
                if count > 0 {
                    let of = (content.index(), usize::from(order));
                    let old = &mut self.lists[from.index()][of.0][of.1];
                    old.count -= count;
                    old.blocks.remove(block);
                    let new = &mut self.lists[to.index()][of.0][of.1];
                    new.count += count;
                    new.blocks.insert(block);
                }
            }
        }
        self.blocks[block as usize].migrate = to;
        true
    }
}
