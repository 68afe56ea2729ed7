//! Page walks: which lines of which tables they read, and how long that takes.

use super::lists::PlainLru;
use super::{PlainLine, PlainTranslator};
use hawkeye_sim::mmu::translation::{LeafSize, PageTableSetup, TranslationCounters as Counters};

impl PlainTranslator {
    pub(super) fn walk(&mut self, address: u64, leaf: LeafSize, counters: &mut Counters) -> u64 {
        let host = self.regions[&(address >> 21)].host.leaf();
        let entries = self.entries(address);
        let (levels, nested) = match self.spec.tables {
            PageTableSetup::Native(levels) => (levels as usize, None),
            PageTableSetup::Nested { guest, host, tables_backed_by } => {
                (guest as usize, Some((host as usize, tables_backed_by)))
            }
        };
        let mut known = levels;
        let upper = entries.iter().enumerate().take(levels.min(4));
        for (level, entry) in upper.skip(leaf as usize + 1) {
            let cache = &mut self.upper[level - 1];
            if cache.most > 0 && cache.access(*entry) {
                known = level;
                break;
            }
        }
        let mut lines: Vec<PlainLine> = Vec::new();
        for level in (leaf as usize..known).rev() {
            if let Some((levels, size)) = nested {
                self.host_of_table(level, entries[level] >> 9, size, levels, &mut lines);
            }
            lines.push((level as u32, entries[level] / 8));
        }
        if let Some((levels, _)) = nested {
            self.host_walk(5, entries, host as usize, levels, &mut lines);
        }
        lines.into_iter().map(|line| self.load(line, counters)).sum()
    }

    fn host_of_table(
        &mut self,
        level: usize,
        number: u32,
        size: LeafSize,
        levels: usize,
        lines: &mut Vec<PlainLine>,
    ) {
        let begin = if level == 0 { 0 } else { 512 * 8192 + (level as u32 - 1) * 8192 };
        let table = begin + number;
        let leaf = size.min(LeafSize::Huge) as usize;
        let page = if leaf == 0 { table } else { table / 512 };
        if self.nested_tlb.most > 0 && self.nested_tlb.access(page) {
            return;
        }
        let entries = [table, table / 512, table / 512 / 512, 0, 0];
        self.host_walk(10, entries, leaf, levels, lines);
    }

    fn host_walk(
        &mut self,
        kind: u32,
        entries: [u32; 5],
        leaf: usize,
        levels: usize,
        lines: &mut Vec<PlainLine>,
    ) {
        let mut known = levels;
        let upper = entries.iter().enumerate().take(levels.min(4));
        for (level, entry) in upper.skip(leaf + 1) {
            let cache = &mut self.host_upper[level - 1];
            if cache.most > 0 && cache.access((kind == 10, *entry)) {
                known = level;
                break;
            }
        }
        let loaded = (leaf..known).rev();
        lines.extend(loaded.map(|level| (kind + level as u32, entries[level] / 8)));
    }

    fn load(&mut self, line: PlainLine, counters: &mut Counters) -> u64 {
        let memory = &self.spec.processor.memory;
        let name = line.0 << 28 | line.1;
        let hash = u64::from(name.wrapping_mul(0x9e37_79b1));
        for level in 0..2 {
            let bytes = memory.caches[level + 1].bytes;
            let lines = bytes / 64 * u64::from(self.spec.page_table_share_percent) / 100;
            let set = (hash * (lines / 4).max(1)) >> 32;
            let set = self.caches[level].entry(set).or_insert_with(|| PlainLru::new(4));
            if set.access(line) {
                counters.walk_loads[level] += 1;
                return u64::from(memory.caches[level + 1].latency_cycles);
            }
        }
        counters.walk_loads[2] += 1;
        (memory.latency_ns * self.spec.processor.ghz).round() as u64
    }
}
