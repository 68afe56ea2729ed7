//! From what was measured to a simulated processor.

use super::Notes;
use hawkeye_linux::machine_costs::caches::{CoreCosts, Latency};
use hawkeye_policy::run_rate::WalkCosts;
use hawkeye_sim::machine_file::FROM_FILE;
use hawkeye_sim::mmu::{CacheLevel, L2Tlb, PROCESSORS, Processor, Shape};

/// Fill buffers of a core at the most.
const MOST_BUFFERS: f64 = 64.0;

/// The processor, and the preset that all of it is from that can't be measured.
pub(super) fn of(
    core: &CoreCosts,
    walks: &WalkCosts,
    notes: &mut Notes,
) -> (Processor, &'static str) {
    let like = nearest(core);
    let mut made = Processor {
        name: FROM_FILE,
        source: "hawkeye sim calibrate",
        ..like
    };
    made.ghz = notes.note("clock", "GHz", core.ghz).median;
    for Latency { bytes, ns } in &core.latencies {
        notes.note(name_of(*bytes), "ns", *ns);
    }
    set_caches(&mut made, core);
    let independent = notes.note(
        "read of memory, independent of others",
        "ns",
        core.independent,
    );
    let stream = notes.note("memory read in order", "GB/s", core.stream_gb_per_s);
    made.memory.bandwidth_gb_per_s = stream.median;
    // As many lines are under way as are waited for at once.
    let largest = core
        .latencies
        .last()
        .map_or(made.memory.latency_ns, |l| l.ns.median);
    let buffers = (largest / independent.median.max(0.1)).round();
    made.memory.fill_buffers = buffers.clamp(1.0, MOST_BUFFERS) as u32;
    set_tlb(&mut made, walks);
    (made, like.name)
}

/// The preset whose own caches are most like those here.
fn nearest(core: &CoreCosts) -> Processor {
    let bytes = |level: u32| {
        let found = core.caches.iter().find(|cache| cache.level == level);
        found.map(|cache| cache.bytes as f64)
    };
    let distance = |processor: &Processor| {
        let levels = processor.memory.caches.iter().zip(1u32..).take(2);
        let apart = levels.map(|(cache, level)| {
            let here = bytes(level).unwrap_or(cache.bytes as f64);
            (cache.bytes as f64 / here).ln().abs()
        });
        apart.sum::<f64>()
    };
    let nearest = PROCESSORS
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)));
    nearest.copied().unwrap_or(hawkeye_sim::mmu::SKYLAKE)
}

/// What a latency over so much memory is called.
fn name_of(bytes: usize) -> String {
    let bytes = bytes as u64;
    let size = if bytes >= 1 << 20 {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    };
    format!("read that waits for the one before, over {size}")
}

fn set_caches(made: &mut Processor, core: &CoreCosts) {
    let cycles = |ns: f64| (ns * made.ghz).round().max(1.0) as u32;
    let ghz = made.ghz;
    let levels = made.memory.caches;
    let [l1, l2, l3] = levels;
    let own = |preset: CacheLevel, level: u32| {
        let size = core.caches.iter().find(|cache| cache.level == level);
        let half = size.map(|size| size.bytes as usize / 2);
        let latency = core.latencies.iter().find(|l| Some(l.bytes) == half);
        let (Some(size), Some(latency)) = (size, latency) else {
            return preset;
        };
        CacheLevel {
            bytes: size.bytes,
            ways: size.ways,
            latency_cycles: cycles(latency.ns.median),
        }
    };
    let (l1, l2) = (own(l1, 1), own(l2, 2));
    // Shared caches: of one that others use as well, or a hypervisor divides, what it seems to be from here.
    let shared: Vec<&Latency> = core
        .latencies
        .iter()
        .filter(|l| l.bytes as u64 > 4 * l2.bytes)
        .collect();
    let (Some(near), Some(far)) = (shared.first(), shared.last()) else {
        made.memory.caches = [l1, l2, l3];
        return;
    };
    let middle = (near.ns.median + far.ns.median) / 2.0;
    let held = shared.iter().take_while(|l| l.ns.median <= middle);
    let bytes = held.last().map_or(near.bytes, |latency| latency.bytes) as u64;
    let l3 = CacheLevel {
        bytes,
        ways: 16,
        latency_cycles: cycles(near.ns.median),
    };
    // The share of reads that the cache still has over the largest memory is no read of memory.
    let hits = bytes as f64 / far.bytes as f64;
    let second_tlb_ns = f64::from(made.l2_tlb.hit_cycles) / ghz;
    let latency = (far.ns.median - hits * near.ns.median) / (1.0 - hits).max(0.1) - second_tlb_ns;
    made.memory.latency_ns = latency.max(near.ns.median);
    made.memory.caches = [l1, l2, l3];
}

/// The TLB's reach, where it is the size of one.
fn set_tlb(made: &mut Processor, walks: &WalkCosts) {
    let preset = made.l2_tlb;
    let shape = Shape::new(walks.tlb_pages, preset.shape.ways);
    if shape.sets().is_some() {
        made.l2_tlb = L2Tlb { shape, ..preset };
    }
}
