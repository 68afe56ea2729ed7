//! A program on a core: its time and its counters.

use super::access_generator::AccessGenerator;
use super::access_pattern::AccessPattern;
use super::core_counters::CoreCounters;
use super::error::MmuError;
use super::pipeline::Pipeline;
use super::processor_spec::ProcessorSpec;
use super::translation::LeafSize;
use hawkeye_policy::HUGE_PAGE_BYTES;

const MAX_BYTES: u64 = 1 << 40;

/// One thread that accesses memory by a pattern, and does nothing else, on its own core.
///
/// All pages are present at the start; TLBs and caches are empty.
#[derive(Clone, Debug)]
pub struct PatternRun {
    accesses: AccessGenerator,
    pipeline: Pipeline,
}

impl PatternRun {
    /// A run over `bytes` of memory (whole regions, at most 1 TiB) under pages of one size.
    pub fn new(
        processor: &ProcessorSpec,
        pattern: AccessPattern,
        bytes: u64,
        size: LeafSize,
        seed: u64,
    ) -> Result<Self, MmuError> {
        processor.check()?;
        pattern.check()?;
        if bytes == 0 || bytes > MAX_BYTES || bytes % HUGE_PAGE_BYTES != 0 {
            return Err(MmuError::Footprint { bytes });
        }
        Ok(Self {
            accesses: AccessGenerator::new(pattern, bytes, seed),
            pipeline: Pipeline::new(processor, bytes, size),
        })
    }

    /// Moves the run into a virtual machine; its host maps all of the guest's memory by pages of
    /// size `backed_by`. Walks go through the host's tables too. A TLB entry holds the smaller of
    /// the guest's and the host's page.
    pub fn in_guest(mut self, processor: &ProcessorSpec, backed_by: LeafSize) -> Self {
        self.pipeline = self.pipeline.in_guest(processor, backed_by);
        self
    }

    /// Puts its memory into groups of pages, as large as one TLB entry of this processor can hold:
    /// base pages from folios of 64 KiB, for instance. Nothing changes if the processor supports
    /// none of such pages. A remainder at the end of the memory counts as a whole group. In a
    /// virtual machine a TLB holds a group as one entry if the host's pages are at least as large.
    pub fn in_largest_tlb_groups(mut self, processor: &ProcessorSpec) -> Self {
        self.pipeline = self.pipeline.in_largest_tlb_groups(processor);
        self
    }

    /// Limits the program to `instructions_per_cycle` (over 0, at most the core's width) where
    /// memory doesn't delay it: dependences between instructions, mispredicted branches.
    pub fn with_instruction_rate(mut self, instructions_per_cycle: f64) -> Self {
        self.pipeline.set_instruction_rate(instructions_per_cycle);
        self
    }

    /// Runs for `count` accesses.
    pub fn run_accesses(&mut self, count: u64) {
        for _ in 0..count {
            self.pipeline.run_access(self.accesses.next());
        }
    }

    /// Runs for `count` accesses, and returns their counts.
    pub fn run_and_count_accesses(&mut self, count: u64) -> CoreCounters {
        let before = self.counters();
        self.run_accesses(count);
        self.counters().since(&before)
    }

    /// Counts so far.
    pub fn counters(&self) -> CoreCounters {
        self.pipeline.counters()
    }
}
