//! A program on a core: its time, its counters and the access bits of its pages.

use super::access_bits::AccessBits;
use super::access_generator::AccessGenerator;
use super::access_pattern::AccessPattern;
use super::core_counters::CoreCounters;
use super::error::MmuError;
use super::pipeline::Pipeline;
use super::processor_spec::ProcessorSpec;
use super::translation::LeafSize;
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use std::time::Duration;

/// Start of the program's memory: a multiple of what one entry of the topmost table maps.
const START: u64 = 0x7f00_0000_0000;
const MAX_BYTES: u64 = 1 << 40;

/// One thread that accesses memory by a pattern, and does nothing else, on its own core.
///
/// All pages are present and marked as accessed at the start; TLBs and caches are empty.
#[derive(Clone, Debug)]
pub struct PatternRun {
    regions: usize,
    accesses: AccessGenerator,
    bits: AccessBits,
    pipeline: Pipeline,
    /// End of the run that was requested, in cycles since the start.
    until: f64,
    ghz: f64,
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
        let regions = (bytes / HUGE_PAGE_BYTES) as usize;
        Ok(Self {
            regions,
            accesses: AccessGenerator::new(pattern, bytes, seed),
            bits: AccessBits::new(regions, size),
            pipeline: Pipeline::new(processor, bytes, size),
            until: 0.0,
            ghz: processor.ghz,
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
        let mark;
        (self.pipeline, mark) = self.pipeline.in_largest_tlb_groups(processor);
        self.bits.set_group_mask(mark);
        self
    }

    /// Limits the program to `instructions_per_cycle` (over 0, at most the core's width) where
    /// memory doesn't delay it: dependences between instructions, mispredicted branches.
    pub fn with_instruction_rate(mut self, instructions_per_cycle: f64) -> Self {
        self.pipeline.set_instruction_rate(instructions_per_cycle);
        self
    }

    /// Runs for `time`, up to the end of the access then under way. The next call is shorter by
    /// what this one ran too long.
    pub fn run_for_duration(&mut self, time: Duration) {
        self.until += time.as_secs_f64() * 1e9 * self.ghz;
        while self.pipeline.cycles() < self.until {
            self.pipeline.run_access(self.accesses.next(), &mut self.bits);
        }
    }

    /// Runs for `count` accesses.
    pub fn run_accesses(&mut self, count: u64) {
        for _ in 0..count {
            self.pipeline.run_access(self.accesses.next(), &mut self.bits);
        }
        self.until = self.until.max(self.pipeline.cycles());
    }

    /// Runs for `count` accesses, and returns their counts.
    pub fn run_and_count_accesses(&mut self, count: u64) -> CoreCounters {
        let before = self.counters();
        self.run_accesses(count);
        self.counters().since(&before)
    }

    /// The regions of its memory, in order of their addresses.
    pub fn region_addresses(&self) -> impl ExactSizeIterator<Item = RegionAddr> + use<> {
        let regions = 0..self.regions as u32;
        regions.map(|index| RegionAddr::containing(START + u64::from(index) * HUGE_PAGE_BYTES))
    }

    /// Clears the access bits of these regions. With `flush`, the TLBs drop their pages, as with
    /// `MADV_COLD`. Without it, a page in a TLB is not marked until its entry is evicted, as with
    /// `clear_refs`. Foreign regions are ignored.
    pub fn clear_access_bits(&mut self, regions: &[RegionAddr], flush: bool) {
        let mut cleared = vec![false; self.regions];
        for region in regions {
            if let Some(index) = self.region_index(*region) {
                self.bits.clear_region(index);
                cleared[index] = true;
            }
        }
        if flush {
            self.pipeline.flush(|begin, end| {
                let regions = begin / HUGE_PAGE_BYTES..end.div_ceil(HUGE_PAGE_BYTES);
                let of = |region: u64| cleared.get(region as usize).copied().unwrap_or(false);
                !regions.into_iter().any(of)
            });
        }
    }

    /// Access bits of a region's 512 base pages, the first page lowest; of a huge page, all or
    /// none. None for a foreign region.
    pub fn access_bits(&self, region: RegionAddr) -> [u64; 8] {
        let bits = self.region_index(region).map(|index| self.bits.region_bits(index));
        bits.unwrap_or_default()
    }

    /// Counts so far.
    pub fn counters(&self) -> CoreCounters {
        self.pipeline.counters()
    }

    fn region_index(&self, region: RegionAddr) -> Option<usize> {
        let offset = region.start().checked_sub(START)?;
        let index = (offset / HUGE_PAGE_BYTES) as usize;
        (index < self.regions).then_some(index)
    }
}
