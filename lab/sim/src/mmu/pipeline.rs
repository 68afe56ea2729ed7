//! A core that runs ahead of what it waits for: it computes when each access is done.
//!
//! Instructions enter in order, at most the core's width per cycle, and leave in order. The reorder
//! buffer limits how far they run ahead of the oldest one under way. An access starts when it
//! enters, or when the access that its address depends on has its data. It is translated first,
//! with a page walk if needed, and then loads its line.
//!
//! Walks and loads that don't depend on each other therefore overlap, up to the number of walkers
//! and fill buffers. These are granted in program order, but from when they are needed
//! (`resource_slots.rs`).

use super::access_generator::PatternAccess;
use super::core_counters::CoreCounters;
use super::data_cache_hierarchy::CACHE_LINE_BYTES;
use super::memory_model::MemoryModel;
use super::page_tables::PageTables;
use super::page_walkers::PageWalkers;
use super::processor_spec::ProcessorSpec;
use super::translation::{EntrySize, LeafSize};
use super::two_level_tlb::{TlbLookup, TwoLevelTlb};
use std::collections::VecDeque;
use std::time::Duration;

/// State of the core. All times are in cycles since the start.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    size: LeafSize,
    /// The entry that the guest's or native tables allow for a page: the page, or its group.
    own: EntrySize,
    /// Page size of the host; the largest if there is no host.
    host: EntrySize,
    ghz: f64,
    l2_tlb_hit_cycles: f64,
    tlb: TwoLevelTlb,
    tables: PageTables,
    walkers: PageWalkers,
    memory: MemoryModel,
    order: ReorderBuffer,
    /// When the last access had its data.
    last_ready: f64,
    counters: CoreCounters,
}

impl Pipeline {
    pub(crate) fn new(processor: &ProcessorSpec, bytes: u64, size: LeafSize) -> Self {
        Self {
            size,
            own: size.into(),
            host: EntrySize::Giant,
            ghz: processor.ghz,
            l2_tlb_hit_cycles: f64::from(processor.l2_tlb.hit_cycles),
            tlb: TwoLevelTlb::new(processor.l1_tlb, processor.l2_tlb, processor.groups),
            tables: PageTables::new(processor.walk_caches, bytes),
            walkers: PageWalkers::new(processor.walkers),
            memory: MemoryModel::new(&processor.memory, processor.ghz, size.bytes()),
            order: ReorderBuffer::new(processor.reorder_buffer, processor.width),
            last_ready: 0.0,
            counters: CoreCounters::default(),
        }
    }

    /// The same in a virtual machine; its host maps it by pages of this size.
    pub(crate) fn in_guest(mut self, processor: &ProcessorSpec, backed_by: LeafSize) -> Self {
        self.host = backed_by.into();
        self.tables = self.tables.in_guest(processor.nested, backed_by);
        self.memory.set_frame_bytes(self.tlb.entry_bytes(self.entry_size()));
        self
    }

    /// The same with pages in groups, if the processor supports any.
    pub(crate) fn in_largest_tlb_groups(mut self, processor: &ProcessorSpec) -> Self {
        let (size, group) = match self.size {
            LeafSize::Base => (EntrySize::BaseGroup, processor.groups.base),
            LeafSize::Huge => (EntrySize::HugeGroup, processor.groups.huge),
            LeafSize::Giant => (EntrySize::Giant, None),
        };
        if group.is_some() {
            self.own = size;
            self.memory.set_frame_bytes(self.tlb.entry_bytes(self.entry_size()));
        }
        self
    }

    /// What one TLB entry holds: the smaller of what its own tables and the host's allow.
    fn entry_size(&self) -> EntrySize {
        self.own.min(self.host)
    }

    /// Sets the instructions per cycle that enter undelayed, instead of the core's width.
    pub(crate) fn set_instruction_rate(&mut self, instructions_per_cycle: f64) {
        self.order.cycles_per_instruction = instructions_per_cycle.recip();
    }

    pub(crate) fn counters(&self) -> CoreCounters {
        let cycles = self.order.done;
        CoreCounters {
            walk_active_cycles: self.walkers.active_cycles(),
            walk_pending_cycles: self.walkers.pending_cycles,
            cycles,
            cpu_time: Duration::from_secs_f64(cycles / self.ghz / 1e9),
            ..self.counters
        }
    }

    #[inline]
    pub(crate) fn run_access(&mut self, access: PatternAccess) {
        self.counters.accesses += 1;
        self.counters.instructions += u64::from(access.instructions);
        let entered = self.order.enter_instructions(access.instructions);
        self.memory.set_core_entry_time(entered);
        let start = if access.after_previous { entered.max(self.last_ready) } else { entered };
        let start = self.translate(access.offset, entered, start);
        let ready = self.memory.load(access.offset / CACHE_LINE_BYTES, start);
        self.last_ready = ready;
        self.order.record_ready_time(ready);
    }

    /// When an access that entered at `entered` and starts at `start` has its translation.
    #[inline]
    fn translate(&mut self, offset: u64, entered: f64, start: f64) -> f64 {
        let size = self.entry_size();
        let entry = self.tlb.entry_id(offset, size);
        let start = match self.tlb.look_up(offset, size) {
            // The TLB contains a page as soon as its walk has begun.
            TlbLookup::L1 => return self.walkers.end_of_walk_for(entry, start),
            found => {
                let start = start + self.l2_tlb_hit_cycles;
                if found == TlbLookup::L2 {
                    self.counters.l2_tlb_hits += 1;
                    return self.walkers.end_of_walk_for(entry, start);
                }
                start
            }
        };
        self.counters.walks += 1;
        let (memory, walk_loads) = (&mut self.memory, &mut self.counters.walk_loads);
        let (tables, size) = (&mut self.tables, self.size);
        self.walkers.walk(entry, entered, start, |begin| {
            let mut at = begin;
            tables.walk(offset, size, &mut |line| {
                let (level, arrives) = memory.load_for_walk(line, at);
                walk_loads[level as usize] += 1;
                at = arrives;
            });
            at
        })
    }
}

/// Order and rate in which instructions enter and leave.
#[derive(Clone, Debug)]
struct ReorderBuffer {
    cycles_per_instruction: f64,
    reorder_buffer: u64,
    /// Accesses under way: instructions up to each, and when it can leave.
    under_way: VecDeque<(u64, f64)>,
    entered: u64,
    /// When the last of them left.
    front: f64,
    /// When everything that has entered is done.
    done: f64,
}

impl ReorderBuffer {
    fn new(reorder_buffer: u32, width: u32) -> Self {
        Self {
            cycles_per_instruction: 1.0 / f64::from(width),
            reorder_buffer: u64::from(reorder_buffer),
            under_way: VecDeque::new(),
            entered: 0,
            front: 0.0,
            done: 0.0,
        }
    }

    /// Lets instructions enter, the last of which is an access; returns when that one entered.
    #[inline]
    fn enter_instructions(&mut self, instructions: u32) -> f64 {
        self.entered += u64::from(instructions);
        self.front += f64::from(instructions) * self.cycles_per_instruction;
        while let Some((instruction, left)) = self.under_way.front().copied() {
            let beyond = self.entered - instruction;
            if beyond < self.reorder_buffer {
                break;
            }
            let behind = (beyond - self.reorder_buffer) as f64;
            let entered = left + behind * self.cycles_per_instruction;
            self.front = self.front.max(entered);
            self.under_way.pop_front();
        }
        self.done = self.done.max(self.front);
        self.front
    }

    /// The access that entered last has its data at `ready`.
    #[inline]
    fn record_ready_time(&mut self, ready: f64) {
        self.done = self.done.max(ready);
        self.under_way.push_back((self.entered, self.done));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_overlap_within_the_reorder_buffer() {
        // 20 instructions, two per cycle.
        let mut order = ReorderBuffer::new(20, 2);
        assert_eq!(order.enter_instructions(10), 5.0);
        order.record_ready_time(105.0);
        assert_eq!(order.enter_instructions(10), 10.0);
        order.record_ready_time(50.0);
        // The first one is 20 instructions away, so this one waits for it.
        assert_eq!(order.enter_instructions(10), 105.0);
        order.record_ready_time(110.0);
        // 40 away, of which the last 20 have to enter after the second has left with the first.
        assert_eq!(order.enter_instructions(30), 120.0);
        order.record_ready_time(121.0);
        assert_eq!(order.done, 121.0);
    }
}
