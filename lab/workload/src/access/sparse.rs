//! Random reads in memory that is bloated where it is huge: of each region only some base pages
//! hold data. How many may differ between the hot and the cold part.

use super::ReadWorkloadArgs;
use super::access_patterns::{AccessPattern, HotColdLayout, MemoryPart};
use crate::patterned_memory::page_at_spread_rank;
use crate::prelude::*;
use crate::rng::scale_below;

#[derive(Clone, Debug, clap::Args)]
pub struct SparseArgs {
    #[command(flatten)]
    pub(super) access: ReadWorkloadArgs,
    /// Base pages of each region (1-512) that hold data.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub used: u16,
    /// The same in the hot part.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub hot_used: u16,
    /// Put the hot part at the lowest addresses instead of the highest.
    #[arg(long)]
    pub hot_first: bool,
    /// Compute each address from the word that was read last, as a pointer chase does.
    #[arg(long)]
    pub dependent: bool,
}

pub(super) struct SparseReads {
    layout: HotColdLayout,
    /// Used base pages of each region in the cold and in the hot part.
    used: [usize; 2],
    /// A draw of 32 bits below this goes to the hot part.
    threshold: u64,
    dependent: bool,
    rng: WorkloadRng,
}

impl SparseReads {
    pub(super) fn new(args: &SparseArgs) -> WorkloadResult<Self> {
        let access = &args.access;
        let (mib, hot_mib) = (access.mib, access.hot_mib.unwrap_or(0));
        let usage = |message: String| Err(WorkloadError::Usage(message));
        if mib % 2 != 0 || hot_mib % 2 != 0 {
            return usage("--mib and --hot-mib must be even: a region has 2 MiB".to_owned());
        }
        if access.file.is_some() {
            return usage("sparse reads private memory only, no --file".to_owned());
        }
        if hot_mib > mib {
            return usage(format!("the hot part ({hot_mib} MiB) is larger than --mib {mib}"));
        }
        let (all, hot_bytes) = ((mib << 20) as usize, (hot_mib << 20) as usize);
        let mut layout = HotColdLayout::new(all - hot_bytes, hot_bytes, access.hot_percent);
        if args.hot_first {
            (layout.hot.offset, layout.cold.offset) = (0, hot_bytes);
        }
        Ok(Self {
            layout,
            used: [args.used.into(), args.hot_used.into()],
            threshold: layout.hot_draw_limit(),
            dependent: args.dependent,
            rng: WorkloadRng::new(access.seed, 0),
        })
    }

    /// Maps the memory and writes to each base page that is to hold data.
    pub(super) fn map_and_fill(&self, pages: RequestedPageKind) -> WorkloadResult<WorkloadMemory> {
        let HotColdLayout { cold, hot, .. } = self.layout;
        let bytes = cold.bytes + hot.bytes;
        Ok(WorkloadMemory::map_private_and_touch(bytes, pages, |memory| {
            for (part, used) in [cold, hot].into_iter().zip(self.used) {
                for region in (part.offset..part.offset + part.bytes).step_by(REGION) {
                    for rank in 0..used {
                        let offset = region + page_at_spread_rank(rank) * PAGE;
                        memory.write_word(offset, mix_bits(offset as u64) | 1);
                    }
                }
            }
        })?)
    }

    /// The layout for the report of this workload. A hot part is reported only if it extends to the
    /// end.
    pub(super) fn layout_by_address(&self) -> HotColdLayout {
        let HotColdLayout { cold, hot, .. } = self.layout;
        match hot.offset >= cold.offset {
            true => self.layout,
            false => HotColdLayout::new(cold.bytes + hot.bytes, 0, 0),
        }
    }

    /// The offset of the next read. Dependent ones need `last`, the word that was read before, so
    /// the processor cannot start the next read while it waits for that.
    #[inline]
    fn next_offset<const DEPENDENT: bool>(&self, rng: &mut WorkloadRng, last: u64) -> usize {
        let [cold_used, hot_used] = self.used;
        let (part, used) = match rng.next_bits() >> 32 < self.threshold {
            true => (self.layout.hot, hot_used),
            false => (self.layout.cold, cold_used),
        };
        let draw = rng.next_bits();
        // The draw is uniform, so it stays uniform whatever the word is.
        draw_offset(part, used, if DEPENDENT { draw ^ last } else { draw })
    }

    /// The kind of reads is a constant, so that independent ones really do not wait.
    fn read_words<const DEPENDENT: bool>(&mut self, memory: &WorkloadMemory, count: usize) {
        let (mut rng, mut last) = (self.rng.clone(), 0);
        for _ in 0..count {
            last = memory.read_word(self.next_offset::<DEPENDENT>(&mut rng, last));
        }
        self.rng = rng;
    }
}

/// The offset of a random word of a part, in one of the base pages that hold data.
#[inline]
fn draw_offset(part: MemoryPart, used_pages: usize, draw: u64) -> usize {
    // The high bits select the region, the low ones the word in it.
    let region = scale_below(draw, part.bytes / REGION);
    let word = (((draw & 0xffff_ffff) * (used_pages * PAGE_WORDS) as u64) >> 32) as usize;
    let page = page_at_spread_rank(word / PAGE_WORDS);
    part.offset + region * REGION + page * PAGE + word % PAGE_WORDS * 8
}

impl AccessPattern for SparseReads {
    fn read_batch(&mut self, memory: &WorkloadMemory, count: usize) {
        match self.dependent {
            true => self.read_words::<true>(memory, count),
            false => self.read_words::<false>(memory, count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        sparse: SparseArgs,
    }

    fn reads(words: &str) -> WorkloadResult<SparseReads> {
        let words = std::iter::once("sparse").chain(words.split_whitespace());
        SparseReads::new(&Arguments::parse_from(words).sparse)
    }

    #[test]
    fn reads_go_to_pages_with_data_and_reach_all_of_them() {
        let part = MemoryPart { offset: REGION, bytes: 2 * REGION };
        let mut rng = WorkloadRng::new(1, 0);
        let mut read = [false; 2 * REGION_PAGES];
        for _ in 0..10_000 {
            let offset = draw_offset(part, 3, rng.next_bits());
            assert_eq!(offset % 8, 0);
            read[(offset - part.offset) / PAGE] = true;
        }
        let used = [0, 1, 2].map(page_at_spread_rank);
        for (page, read) in read.into_iter().enumerate() {
            assert_eq!(read, used.contains(&(page % REGION_PAGES)), "page {page}");
        }
    }

    #[test]
    fn only_dependent_reads_need_the_word_before() {
        let reads = reads("--mib 64 --used 512 --dependent").unwrap();
        assert!(reads.dependent);
        let after = |last: u64| {
            let mut rngs = [WorkloadRng::new(1, 0), WorkloadRng::new(1, 0)];
            let [first, second] = &mut rngs;
            [reads.next_offset::<true>(first, last), reads.next_offset::<false>(second, last)]
        };
        let ([dependent, independent], [other, same]) = (after(0), after(u64::MAX));
        assert_ne!(dependent, other);
        assert_eq!([independent, independent], [dependent, same]);
    }

    #[test]
    fn only_the_pages_that_are_asked_for_hold_data() {
        let reads = reads("--mib 4 --hot-mib 2 --hot-first --used 1 --hot-used 3").unwrap();
        let memory = reads.map_and_fill(RequestedPageKind::Base).unwrap();
        let holds_data = |page: &usize| memory.read_word(page * PAGE) != 0;
        let pages: Vec<_> = (0..2 * REGION_PAGES).filter(holds_data).collect();
        let [second, third] = [1, 2].map(page_at_spread_rank);
        assert_eq!(pages, [0, second, third, REGION_PAGES]);
    }

    #[test]
    fn half_a_region_is_refused() {
        for words in ["--mib 3", "--mib 4 --hot-mib 1", "--mib 2 --hot-mib 4"] {
            assert!(matches!(reads(words), Err(WorkloadError::Usage(_))), "{words}");
        }
    }
}
