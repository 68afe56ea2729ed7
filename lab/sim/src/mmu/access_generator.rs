//! Generator of a pattern's accesses.

use super::access_pattern::AccessPattern;
use super::data_cache_hierarchy::CACHE_LINE_BYTES;
use super::permutation::Permutation;
use crate::rng::SimulationRng;
use hawkeye_policy::BASE_PAGE_BYTES;
use rand_distr::Distribution;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PatternAccess {
    /// Offset in bytes from the start of the memory.
    pub(crate) offset: u64,
    /// Whether its address depends on the data of the access before it.
    pub(crate) after_previous: bool,
    /// Instructions since the access before it, this one included.
    pub(crate) instructions: u32,
}

/// Bytes of a random read.
const WORD_BYTES: u64 = 8;
/// Bytes of an entry in a table of blocks: address and length.
const HANDLE_BYTES: u64 = 16;

#[derive(Clone, Debug)]
pub(crate) struct AccessGenerator {
    pattern: AccessPattern,
    bytes: u64,
    rng: SimulationRng,
    /// Popularity of pages by rank, for [`AccessPattern::Zipf`].
    ranks: Option<rand_distr::Zipf<f64>>,
    /// Order of pages by rank, or of lines in a chase.
    order: Option<Permutation>,
    done: u32,
    /// Position of the next read, or of the one before it: an offset, or a line or block.
    at: u64,
}

impl AccessGenerator {
    /// Accesses to `bytes` of memory, at least one region. The pattern was checked before.
    pub(crate) fn new(pattern: AccessPattern, bytes: u64, seed: u64) -> Self {
        let mut rng = SimulationRng::new(seed, 0);
        let (mut ranks, mut ordered) = (None, 0);
        match pattern {
            AccessPattern::Zipf { theta, .. } => {
                ordered = bytes / BASE_PAGE_BYTES;
                // Fails only for no pages, or for a theta that was rejected before.
                ranks = rand_distr::Zipf::new(ordered as f64, theta).ok();
            }
            AccessPattern::Chase { .. } => ordered = bytes / CACHE_LINE_BYTES,
            _ => {}
        }
        Self {
            pattern,
            bytes,
            ranks,
            order: (ordered > 0).then(|| Permutation::new(ordered, &mut rng)),
            rng,
            done: 0,
            at: 0,
        }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> PatternAccess {
        let (bytes, rng, at) = (self.bytes, &mut self.rng, &mut self.at);
        let order = self.order.as_ref();
        match self.pattern {
            AccessPattern::Random { instructions } => {
                independent_access(draw_item_offset(rng, 0, bytes, WORD_BYTES), instructions)
            }
            AccessPattern::Zipf { instructions, .. } => {
                let rank = self.ranks.map_or(0, |ranks| ranks.sample(rng) as u64 - 1);
                let page = order.map_or(rank, |pages| pages.permuted(rank)) * BASE_PAGE_BYTES;
                independent_access(
                    draw_item_offset(rng, page, BASE_PAGE_BYTES, WORD_BYTES),
                    instructions,
                )
            }
            AccessPattern::Stride { bytes: distance, instructions } => {
                let offset = *at;
                *at = offset.saturating_add(distance);
                if *at >= bytes {
                    *at = 0;
                }
                independent_access(offset, instructions)
            }
            AccessPattern::Chase { instructions } => {
                let line = order.map_or(*at, |lines| lines.permuted(*at));
                *at = (*at + 1) % (bytes / CACHE_LINE_BYTES);
                dependent_access(line * CACHE_LINE_BYTES, instructions)
            }
            AccessPattern::Blocks { block_bytes, used_bytes, instructions } => {
                let blocks = (bytes / (block_bytes + HANDLE_BYTES)).max(1);
                let most = bytes - HANDLE_BYTES;
                match next_request_step(&mut self.done, 2) {
                    0 => {
                        *at = rng.draw_below(blocks);
                        independent_access(*at * HANDLE_BYTES, instructions - instructions / 4)
                    }
                    _ => {
                        let begin = blocks * HANDLE_BYTES + *at * block_bytes.min(most);
                        let word = draw_item_offset(rng, begin, used_bytes.min(most), WORD_BYTES);
                        dependent_access(word, instructions / 4)
                    }
                }
            }
        }
    }
}

#[inline]
fn next_request_step(done: &mut u32, reads: u32) -> u32 {
    let step = *done;
    *done = (step + 1) % reads;
    step
}

fn independent_access(offset: u64, instructions: u32) -> PatternAccess {
    PatternAccess { offset, after_previous: false, instructions }
}

fn dependent_access(offset: u64, instructions: u32) -> PatternAccess {
    PatternAccess { offset, after_previous: true, instructions }
}

/// A random item of `item_bytes` (at most `bytes`) in `bytes` from `begin` on, all equally likely.
#[inline]
fn draw_item_offset(rng: &mut SimulationRng, begin: u64, bytes: u64, item_bytes: u64) -> u64 {
    begin + rng.draw_below(bytes / item_bytes) * item_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 64 << 20;

    fn take(pattern: AccessPattern, seed: u64, count: usize) -> Vec<PatternAccess> {
        let mut accesses = AccessGenerator::new(pattern, BYTES, seed);
        (0..count).map(|_| accesses.next()).collect()
    }

    #[test]
    fn all_stay_in_memory_and_repeat_with_their_seed() {
        for (name, pattern) in AccessPattern::ALL {
            let accesses = take(pattern, 1, 20_000);
            let possible = |a: &PatternAccess| a.instructions > 0 && a.offset < BYTES;
            assert!(accesses.iter().all(possible), "{name}");
            assert_eq!(accesses, take(pattern, 1, 20_000), "{name}");
            let regular = matches!(pattern, AccessPattern::Stride { .. });
            assert_eq!(accesses == take(pattern, 2, 20_000), regular, "{name}");
        }
    }

    #[test]
    fn a_stride_starts_again_where_memory_ends() {
        let laps = take(AccessPattern::STRIDE_64K, 1, 2049);
        assert_eq!(laps[1].offset, 64 << 10);
        assert_eq!(laps[1023].offset, BYTES - (64 << 10));
        assert_eq!((laps[1024].offset, laps[2048].offset), (0, 0));
    }

    #[test]
    fn a_chase_reads_every_line_once_a_lap() {
        let lines = (BYTES / CACHE_LINE_BYTES) as usize;
        let accesses = take(AccessPattern::CHASE, 3, 2 * lines);
        assert!(accesses.iter().all(|access| access.after_previous));
        let (first, second) = accesses.split_at(lines);
        assert_eq!(first, second);
        let mut offsets: Vec<u64> = first.iter().map(|access| access.offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        assert_eq!(offsets.len(), lines);
    }

    #[test]
    fn popular_pages_get_their_share() {
        let mut counts = std::collections::HashMap::new();
        for access in take(AccessPattern::ZIPF, 1, 100_000) {
            *counts.entry(access.offset / BASE_PAGE_BYTES).or_insert(0u32) += 1;
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The sum of 1 / r^0.99 over 16,384 pages is 10.8.
        assert!((8_800..9_700).contains(&counts[0]), "{}", counts[0]);
        let second = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((1.8..2.2).contains(&second), "{second}");
    }

    #[test]
    fn of_each_block_the_used_part_is_read() {
        let pattern =
            AccessPattern::Blocks { block_bytes: 132 << 10, used_bytes: 40 << 10, instructions: 9 };
        let block = 132 << 10;
        let blocks = BYTES / (block + 16);
        let accesses = take(pattern, 1, 50_000);
        let mut seen = std::collections::HashSet::new();
        for pair in accesses.chunks_exact(2) {
            let (entry, word) = (pair[0], pair[1]);
            assert!(!entry.after_previous && word.after_previous);
            let index = entry.offset / 16;
            let begin = blocks * 16 + index * block;
            assert!((begin..begin + (40 << 10)).contains(&word.offset));
            seen.insert(index);
        }
        assert_eq!(seen.len() as u64, blocks);
    }
}
