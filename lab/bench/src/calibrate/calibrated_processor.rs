//! Turns measured figures into a simulated processor.

use super::CostRecorder;
use crate::machine_costs::core_measurements::{CoreMeasurements, ReadNsAtSize};
use crate::machine_costs::data_cache_levels::DataCacheLevel;
use crate::machine_costs::shared_cache_retention::SharedCacheRetention;
use crate::statistics::{MedianAndRange, quantile_of_sorted};
use hawkeye_linux::name_value_lines::find_value_by_name;
use hawkeye_policy::walk_rate::WalkCosts;
use hawkeye_sim::machine_file::FROM_FILE;
use hawkeye_sim::mmu::translation::LeafSize;
use hawkeye_sim::mmu::{
    AccessPattern, CacheLevelSpec, CacheReplacement, HugePageGain, L2TlbSpec, MemorySpec, MmuError,
    PatternRun, ProcessorSpec, ReadLatencyShape, SetShape, presets,
};

const MOST_BUFFERS: f64 = 64.0;
/// Upper bound on the instructions that a core runs ahead.
const MOST_AHEAD: f64 = 2048.0;
/// Ways of a shared cache; the part of them that this machine may use can't be seen.
const SHARED_WAYS: u32 = 16;
/// Ways of a shared cache with a size of three times a power of two.
const SHARED_WAYS_OF_THREE: u32 = 12;
/// How often others must fill a last level until lines that were used twice make room
/// (`mmu/rrip_sets.rs` of the simulator).
const FILLS: f64 = 3.0;

/// Least share of the lines missing in a last level that it takes when they are read, in per cent.
/// Smaller shares can't be distinguished from none.
const LEAST_TAKEN_PERCENT: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub struct CalibratedProcessor {
    pub processor: ProcessorSpec,
    /// The preset that supplies everything that can't be measured.
    pub like: &'static str,
    /// Most instructions under way, including those that write no register; taken from the preset.
    pub reorder_buffer: u32,
    /// The pages by which a hypervisor maps this machine's memory, where that is visible from
    /// inside. Base pages, if the TLB holds no more than 4 KiB of a huge page. A host with huge
    /// pages can't be distinguished from no host.
    pub hosted_by: Option<LeafSize>,
}

impl CalibratedProcessor {
    /// A program on such a processor under base pages and under huge pages, in a virtual machine if
    /// this machine is one. At most `pace` of its instructions are done in a cycle.
    pub fn simulate_program(
        &self,
        processor: &ProcessorSpec,
        pattern: AccessPattern,
        bytes: u64,
        pace: f64,
        accesses: u64,
    ) -> Result<HugePageGain, MmuError> {
        let pace = pace.min(processor.width.into());
        let run = |pages| {
            let run = PatternRun::new(processor, pattern, bytes, pages, 1)?;
            let run = run.with_instruction_rate(pace);
            Ok(match self.hosted_by {
                Some(pages) => run.in_guest(processor, pages),
                None => run,
            })
        };
        HugePageGain::measure_runs(run, accesses)
    }

    /// The same processor while others use its last-level cache as another measurement found.
    #[must_use]
    pub fn with_shared_cache_retention(mut self, sharing: &SharedCacheRetention) -> Self {
        apply_shared_cache_retention(&mut self.processor.memory, sharing);
        self
    }
}

pub(super) fn processor_from_measurements(
    core: &CoreMeasurements,
    walks: &WalkCosts,
    notes: &mut CostRecorder,
) -> CalibratedProcessor {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let like = nearest_preset(&cpuinfo, &core.caches);
    let mut made = ProcessorSpec { name: FROM_FILE, source: "hawkeye-lab calibrate", ..like };
    made.ghz = notes.add_measured_cost("clock", "GHz", core.ghz);
    for ReadNsAtSize { bytes, ns } in &core.latencies {
        notes.add_cost_in_ns(format_read_cost_label("dependent read", *bytes), *ns);
    }
    for ReadNsAtSize { bytes, ns } in &core.independent {
        notes.add_cost_in_ns(format_read_cost_label("independent read", *bytes), *ns);
    }
    let sharing = &core.sharing;
    notes.add_cost_in_ns("read of a line that was not read before", sharing.gone);
    notes.add_cost_in_ns("read of a line that was read once", sharing.once);
    notes.add_cost_in_ns("read of a line that was read many times", sharing.kept);
    for (ms, ns) in &sharing.later {
        notes.add_cost_in_ns(format!("the same, last read {ms} ms ago"), *ns);
    }
    let what = "read of one line per 4 KiB, 8,192 lines in huge pages";
    notes.add_cost_in_ns(what, core.scattered);
    notes.add_cost_in_ns("read of 8,192 adjacent lines", core.together);
    let second_tlb_ns = f64::from(like.l2_tlb.hit_cycles) / made.ghz;
    let in_pieces = core.scattered.low - core.together.low > 2.0 * second_tlb_ns;
    let hosted_by = in_pieces.then_some(LeafSize::Base);
    // In that case the larger latencies include a hit in the second-level TLB: their blocks have
    // more pages than the first level has entries.
    set_caches_and_memory(&mut made, core, if in_pieces { second_tlb_ns } else { 0.0 });
    let singles = &core.overlap.singles;
    let part = |per_mille| quantile_of_sorted(singles, per_mille);
    if let (Some(low), Some(median), Some(high)) = (part(100), part(500), part(900)) {
        let spread = MedianAndRange { median, low, high, turns: singles.len() };
        let what = "single reads of memory, middle 80 %";
        notes.add_cost_in_ns(what, spread);
    }
    let what = "overlapping chains of reads, of 32";
    notes.add_measured_cost(what, "", core.overlap.at_once);
    let what = "instructions executed ahead of a read";
    let reach = notes.add_measured_cost(what, "", core.overlap.reach);
    made.reorder_buffer = reach.round().clamp(1.0, MOST_AHEAD) as u32;
    let stream = notes.add_measured_cost("memory read in order", "GB/s", core.stream_gb_per_s);
    made.memory.bandwidth_gb_per_s = stream;
    set_second_level_tlb(&mut made, walks);
    CalibratedProcessor {
        processor: made,
        like: like.name,
        reorder_buffer: like.reorder_buffer,
        hosted_by,
    }
}

/// Of the presets of this processor's maker, the one with the most similar private caches.
fn nearest_preset(cpuinfo: &str, caches: &[DataCacheLevel]) -> ProcessorSpec {
    let maker = find_value_by_name(cpuinfo, "vendor_id").unwrap_or("");
    let bytes = |level: u32| {
        let found = caches.iter().find(|cache| cache.level == level);
        found.map(|cache| cache.bytes as f64)
    };
    let distance = |processor: &ProcessorSpec| {
        let levels = processor.memory.caches.iter().zip(1u32..).take(2);
        let apart = levels.map(|(cache, level)| {
            let here = bytes(level).unwrap_or(cache.bytes as f64);
            (cache.bytes as f64 / here).ln().abs()
        });
        apart.sum::<f64>()
    };
    let nearest =
        presets::presets_of_vendor(maker).iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    nearest.copied().unwrap_or(hawkeye_sim::mmu::SKYLAKE)
}

fn format_read_cost_label(kind: &str, bytes: usize) -> String {
    match bytes >> 20 {
        0 => format!("{kind}, over {} KiB", bytes >> 10),
        mib => format!("{kind}, over {mib} MiB"),
    }
}

/// Sets caches and memory; reads of shared levels take `translated_ns` more. The minimum of several
/// turns counts, because others on the machine only add to it.
fn set_caches_and_memory(made: &mut ProcessorSpec, core: &CoreMeasurements, translated_ns: f64) {
    let ghz = made.ghz;
    let cycles = |ns: f64| (ns * ghz).round().max(1.0) as u32;
    let memory = &mut made.memory;
    let own = |preset: CacheLevelSpec, level: u32| {
        let size = core.caches.iter().find(|cache| cache.level == level);
        let half = size.map(|size| size.bytes as usize / 2);
        let latency = core.latencies.iter().find(|l| Some(l.bytes) == half);
        let (Some(size), Some(latency)) = (size, latency) else {
            return preset;
        };
        CacheLevelSpec {
            bytes: size.bytes,
            ways: size.ways,
            latency_cycles: cycles(latency.ns.low),
        }
    };
    let [l1, l2, l3] = memory.caches;
    let [.., near, far] = &core.latencies[..] else {
        return;
    };
    let (near_ns, far_ns) = (near.ns.low - translated_ns, far.ns.low - translated_ns);
    memory.latency_ns = far_ns.max(near_ns);
    let bytes = estimate_usable_shared_cache(&core.independent).unwrap_or(l3.bytes);
    let l3 = CacheLevelSpec {
        bytes,
        ways: if bytes.is_power_of_two() { SHARED_WAYS } else { SHARED_WAYS_OF_THREE },
        latency_cycles: cycles(near_ns),
    };
    memory.caches = [own(l1, 1), own(l2, 2), l3];
    memory.latency_shape = ReadLatencyShape::from_latencies(core.overlap.singles.clone());
    let buffers = core.overlap.at_once.median.round();
    memory.fill_buffers = buffers.clamp(1.0, MOST_BUFFERS) as u32;
    apply_shared_cache_retention(memory, &core.sharing);
}

fn apply_shared_cache_retention(memory: &mut MemorySpec, sharing: &SharedCacheRetention) {
    // Our own lines are read again and again, and took their part of it.
    let others = memory.caches[2].bytes.saturating_sub(sharing.bytes as u64) as f64;
    memory.neighbours_gb_per_s =
        sharing.line_half_life_ms().map_or(0.0, |ms| FILLS * others / (ms * 1e6));
    if let Some(taken) = sharing.inserted_share_of_misses() {
        memory.last_level = CacheReplacement::ReReference {
            taken_percent: ((taken * 100.0).round() as u32).max(LEAST_TAKEN_PERCENT),
        };
    }
}

/// What one core can fill of a shared cache when it reads fast; others use that cache as well, or a
/// hypervisor divides it. Read speed falls with the footprint. The result is the last footprint
/// with a speed nearer to the first footprint's than to the last one's.
fn estimate_usable_shared_cache(independent: &[ReadNsAtSize]) -> Option<u64> {
    let (near, far) = (independent.first()?, independent.last()?);
    let middle = (near.ns.low + far.ns.low) / 2.0;
    let held = independent.iter().take_while(|l| l.ns.low <= middle);
    held.last().map(|latency| latency.bytes as u64)
}

fn set_second_level_tlb(made: &mut ProcessorSpec, walks: &WalkCosts) {
    let preset = made.l2_tlb;
    let shape = SetShape::new(walks.tlb_pages, preset.shape.ways);
    if shape.sets().is_some() {
        made.l2_tlb = L2TlbSpec { shape, ..preset };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_costs::MedianAndRange;

    fn reads(of: &[(usize, f64)]) -> Vec<ReadNsAtSize> {
        let latency = |(mib, ns): &(usize, f64)| ReadNsAtSize {
            bytes: mib << 20,
            ns: MedianAndRange::from_figures(vec![*ns]),
        };
        of.iter().map(latency).collect()
    }

    #[test]
    fn a_processor_is_like_one_of_its_makers() {
        // Zen 5's caches; by these alone it would be taken for an Ice Lake.
        let cache = |level, kib: u64, ways| DataCacheLevel { level, bytes: kib << 10, ways };
        let caches = [cache(1, 48, 12), cache(2, 1024, 16)];
        let like = |cpuinfo| nearest_preset(cpuinfo, &caches).name;
        assert_eq!(like("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 2\n"), "zen-5");
        assert_eq!(like("vendor_id\t: GenuineIntel\n"), "ice-lake");
    }

    #[test]
    fn a_shared_cache_is_as_large_as_what_is_read_fast() {
        let seen = reads(&[(8, 3.0), (16, 3.5), (24, 5.0), (32, 12.0), (1024, 13.0)]);
        assert_eq!(estimate_usable_shared_cache(&seen), Some(24 << 20));
        assert_eq!(estimate_usable_shared_cache(&[]), None);
    }
}
