//! By what the host maps the memory behind a guest's pages.

use super::guest::{Guest, region_of_block};
use crate::engine::EngineError;
use crate::kernel::{Kernel, SpaceId};
use crate::memory::FrameRun;
use crate::mmu::translation::{LeafSize, Tables, Translator, TranslatorSpec};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use std::time::Duration;

/// Changes are made known to cores so often at the most: as often as accesses are measured.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Guests of up to this many frames (512 MiB) are checked frame by frame.
#[cfg(debug_assertions)]
const SMALL: u64 = 1 << 17;

/// A piece of a guest's region in one pageblock of its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// First page in the region.
    pub(super) page: u16,
    pub(super) block: u32,
    /// First page in the pageblock.
    pub(super) first: u16,
    pub(super) count: u16,
}

/// Where the pages of a guest's region are in its memory.
pub(super) fn pieces(inside: &Kernel, space: SpaceId, region: RegionAddr) -> Vec<Piece> {
    let found = inside.space(space).ok();
    let found = found.and_then(|s| s.table.get(region.start() / HUGE_PAGE_BYTES));
    let Some(found) = found else {
        return Vec::new();
    };
    if let Some(block) = found.huge {
        return vec![Piece {
            page: 0,
            block,
            first: 0,
            count: PAGES_PER_REGION,
        }];
    }
    let runs = found.frames.iter().flat_map(|run| {
        let frames = FrameRun {
            first: run.value as u32,
            count: run.count.into(),
        };
        let mut page = run.first;
        frames.by_block().map(move |(block, first, count)| {
            let piece = Piece {
                page,
                block,
                first,
                count,
            };
            page += count;
            piece
        })
    });
    runs.collect()
}

/// Whether the host has mapped a pageblock of a guest's memory by a huge page.
fn is_huge(host: &Kernel, space: SpaceId, block: u32) -> bool {
    let found = host.space(space).ok();
    let region = region_of_block(block).start() / HUGE_PAGE_BYTES;
    let found = found.and_then(|s| s.table.get(region));
    found.is_some_and(|found| found.huge.is_some())
}

impl Guest {
    /// Tells the cores of all programs by what the host maps their memory, where that has changed. Of a region that is
    /// spread over several pageblocks, by what it maps most of it.
    pub(super) fn look_behind(&mut self, host: &Kernel, now: Duration) -> Result<(), EngineError> {
        let Some(space) = self.space else {
            return Ok(());
        };
        self.note(host, space);
        if !self.stale || now < self.looked + LOOK_EVERY {
            return Ok(());
        }
        (self.stale, self.looked) = (false, now);
        let of = |huge| if huge { LeafSize::Huge } else { LeafSize::Base };
        let mostly = of(2 * self.last.huge_bytes > self.last.rss_bytes);
        let inside = &self.machine.kernel;
        for program in self.machine.programs.iter_mut().filter(|p| p.is_alive()) {
            let mut changed = false;
            for lot in &program.lots {
                for number in lot.part([0.0, 1.0]) {
                    let region = lot.region(number);
                    if program.seen.size(program.seen_space, region).is_none() {
                        continue;
                    }
                    let pieces = pieces(inside, program.space, region);
                    let count = |piece: &&Piece| i32::from(piece.count);
                    let all: i32 = pieces.iter().map(|piece| count(&piece)).sum();
                    let huge = pieces.iter().filter(|p| is_huge(host, space, p.block));
                    let behind = of(2 * huge.map(|piece| count(&piece)).sum::<i32>() > all);
                    if program.seen.host(program.seen_space, region) != behind {
                        program.seen.set_host(program.seen_space, region, behind)?;
                        changed = true;
                    }
                }
            }
            if mostly != self.mostly {
                program.core_spec = backed_by(program.core_spec, mostly);
                program.core = Translator::new(&program.core_spec)?;
                program.cold = true;
                changed = true;
            }
            if changed {
                program.core.invalidate_host();
                program.changed = true;
            }
        }
        self.mostly = mostly;
        Ok(())
    }

    /// In debug builds: what the guest uses is backed by memory of its process at the host, once, or in its swap; what the
    /// guest's kernel takes for swapped is.
    #[cfg(debug_assertions)]
    pub(in crate::engine) fn debug_check(&self, host: &Kernel) {
        let Some(space) = self.space else {
            return;
        };
        let inside = &self.machine.kernel;
        self.machine.debug_check();
        if inside.memory.frames() > SMALL {
            return;
        }
        let blocks = (inside.memory.frames() / u64::from(PAGES_PER_REGION)) as u32;
        for block in 0..blocks {
            let region = region_of_block(block);
            let away = host.away(space, region);
            assert_eq!(away, inside.known_away(block), "{region} of {}", self.id);
            let backed = host.present(space, region).or(away);
            let first = FrameRun::of_block(block).first;
            for page in 0..PAGES_PER_REGION {
                let frame = first + u32::from(page);
                let used = inside.memory.owner(frame).is_some();
                assert!(
                    !used || backed.contains(page),
                    "frame {frame} of {}",
                    self.id
                );
            }
        }
    }
}

fn backed_by(spec: TranslatorSpec, leaf: LeafSize) -> TranslatorSpec {
    match spec.tables {
        Tables::Native(_) => spec,
        Tables::Nested { guest, host, .. } => TranslatorSpec {
            tables: Tables::Nested {
                guest,
                host,
                tables_backed_by: leaf,
            },
            ..spec
        },
    }
}
