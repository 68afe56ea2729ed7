//! How fast address translation is simulated, on one core of this machine:
//! `cargo run --release -p hawkeye-sim --example translation_speed [CASE|PROCESSOR ...]`.
//!
//! Cases are `random-16`, `random-1024` (GiB), each also with `-base`, `-huge`, and then `-native` or `-nested`
//! behind it, and `sequential`; a case is run if its name begins with one of those given. Without any, all
//! are. Random: loads of a random word each, addresses drawn as they are needed. Sequential: all memory from
//! its begin to its end, one load of each line of 64 bytes; by access, and by sweeps of 1 MiB.

use hawkeye_policy::RegionAddr;
use hawkeye_sim::mmu::translation::{
    Access, LeafSize, MappingError, Mappings, SpaceId, Sweep, Translator, TranslatorSpec, Work,
};
use hawkeye_sim::mmu::{MmuError, PROCESSORS, SKYLAKE};
use std::time::Instant;

const BEGIN: u64 = 0x7000_0000_0000;
const BATCH: usize = 4096;
const LINE: u64 = 64;
/// What warms up the caches of the case, and what is timed.
const WARM: usize = 20_000_000;
const TIMED: usize = 60_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (processors, cases): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|name| PROCESSORS.iter().any(|p| p.name == *name));
    let chosen = |case: &str| cases.is_empty() || cases.iter().any(|name| case.starts_with(name));
    let processor = PROCESSORS
        .iter()
        .find(|p| processors.first().is_some_and(|name| *name == p.name))
        .unwrap_or(&SKYLAKE);
    let tables = [
        ("native", TranslatorSpec::native(processor)),
        ("nested", TranslatorSpec::nested(processor, LeafSize::Huge)),
    ];
    println!(
        "{}: million accesses/s, and what was simulated",
        processor.name
    );
    for (gib, goal) in [(16u64, 50), (1024, 20)] {
        for (size, pages) in [(LeafSize::Base, "base"), (LeafSize::Huge, "huge")] {
            let named = tables.map(|(how, spec)| (format!("random-{gib}-{pages}-{how}"), spec));
            if !named.iter().any(|(case, _)| chosen(case)) {
                continue;
            }
            let (mut mappings, space) = mapped(gib, size)?;
            for (case, spec) in named.iter().filter(|(case, _)| chosen(case)) {
                random(case, spec, &mut mappings, space, gib, goal)?;
            }
        }
    }
    if chosen("sequential") {
        sequential(&tables[0].1)?;
    }
    Ok(())
}

/// One address space, with so much memory mapped by pages of one size, at the host by the largest.
fn mapped(gib: u64, size: LeafSize) -> Result<(Mappings, SpaceId), MappingError> {
    let mut mappings = Mappings::new();
    let space = mappings.add_space()?;
    for region in 0..gib * 512 {
        let region = RegionAddr::containing(BEGIN + (region << 21));
        match size {
            LeafSize::Base => mappings.map_pages(space, region, [u64::MAX; 8])?,
            _ => mappings.map_huge(space, region)?,
        }
        mappings.clear_accessed(space, region);
    }
    Ok((mappings, space))
}

fn random(
    case: &str,
    spec: &TranslatorSpec,
    mappings: &mut Mappings,
    space: SpaceId,
    gib: u64,
    goal: u32,
) -> Result<(), MmuError> {
    let mut core = Translator::new(spec)?;
    let mut draw = Draw(1);
    draw.load(&mut core, mappings, space, gib, WARM);
    let before = core.counters(space);
    let clock = Instant::now();
    draw.load(&mut core, mappings, space, gib, TIMED);
    let seconds = clock.elapsed().as_secs_f64();
    let counted = core.counters(space).since(&before);
    println!(
        "{case}: {:.1} (goal for native {goal}); {:.3} walks/access, {:.2} cycles/walk, {} MiB held",
        counted.accesses as f64 / seconds / 1e6,
        counted.walks() as f64 / counted.accesses as f64,
        counted.walk_cycles() as f64 / counted.walks().max(1) as f64,
        mappings.held_bytes() >> 20,
    );
    Ok(())
}

/// xorshift*: Vigna, "An experimental exploration of Marsaglia's xorshift generators".
struct Draw(u64);

impl Draw {
    /// Loads of random words.
    fn load(
        &mut self,
        core: &mut Translator,
        mappings: &mut Mappings,
        space: SpaceId,
        gib: u64,
        count: usize,
    ) {
        let mut batch = Vec::with_capacity(BATCH);
        for _ in 0..count / BATCH {
            batch.clear();
            batch.extend((0..BATCH).map(|_| {
                let state = &mut self.0;
                *state ^= *state >> 12;
                *state ^= *state << 25;
                *state ^= *state >> 27;
                let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
                let byte = (u128::from(random) * u128::from(gib << 30)) >> 64;
                Access::load(BEGIN + byte as u64)
            }));
            core.translate(mappings, space, &batch, Work::default());
        }
    }
}

fn sequential(spec: &TranslatorSpec) -> Result<(), Box<dyn std::error::Error>> {
    let gib = 16u64;
    for (size, pages) in [(LeafSize::Base, "base"), (LeafSize::Huge, "huge")] {
        let (mut mappings, space) = mapped(gib, size)?;
        let lines = (gib << 30) / LINE;
        let mut core = Translator::new(spec)?;
        let mut batch = Vec::with_capacity(BATCH);
        let clock = Instant::now();
        for first in (0..lines).step_by(BATCH) {
            batch.clear();
            let batched = first..first + BATCH as u64;
            batch.extend(batched.map(|line| Access::load(BEGIN + line * LINE)));
            core.translate(&mut mappings, space, &batch, Work::default());
        }
        let by_access = lines as f64 / clock.elapsed().as_secs_f64() / 1e6;
        let clock = Instant::now();
        for mib in 0..gib << 10 {
            let sweep = Sweep {
                address: BEGIN + (mib << 20),
                stride: LINE,
                count: (1 << 20) / LINE,
                store: false,
            };
            core.sweep(&mut mappings, space, &[sweep], 0, Work::default());
        }
        let by_sweep = lines as f64 / clock.elapsed().as_secs_f64() / 1e6;
        println!(
            "sequential, {gib} GiB, {pages} pages: {by_access:.0} by access, {by_sweep:.0} by sweeps (goal 200)"
        );
    }
    Ok(())
}
