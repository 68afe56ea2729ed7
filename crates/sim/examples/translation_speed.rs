//! How fast address translation is simulated, on one core of this machine:
//! `cargo run --release -p hawkeye-sim --example translation_speed [PROCESSOR]`.
//!
//! Random: loads of a random word each, addresses drawn as they are needed. Sequential: all memory from its
//! begin to its end, one load of each line of 64 bytes; by access, and by sweeps of 1 MiB.

use hawkeye_policy::RegionAddr;
use hawkeye_sim::mmu::translation::{
    Access, LeafSize, MappingError, Mappings, SpaceId, Sweep, Translator, TranslatorSpec, Work,
};
use hawkeye_sim::mmu::{PROCESSORS, Processor};
use std::time::Instant;

const BEGIN: u64 = 0x7000_0000_0000;
const BATCH: usize = 4096;
const LINE: u64 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or("skylake".to_owned());
    let Some(processor) = PROCESSORS.iter().find(|p| p.name == name) else {
        let names = PROCESSORS.map(|p| p.name).join(", ");
        eprintln!("there is no processor {name}; there are: {names}");
        return Ok(());
    };
    println!("{name}: million accesses/s of simulated time, and what was simulated");
    for (gib, goal) in [(16u64, 50), (1024, 20)] {
        for size in [LeafSize::Base, LeafSize::Huge] {
            let (mut mappings, space) = mapped(gib, size)?;
            let held_mib = mappings.held_bytes() >> 20;
            for (how, spec, goal) in ways(processor, goal) {
                let mut core = Translator::new(&spec)?;
                random(&mut core, &mut mappings, space, gib, 20_000_000);
                let before = core.counters(space);
                let clock = Instant::now();
                let accesses = 100_000_000;
                random(&mut core, &mut mappings, space, gib, accesses);
                let seconds = clock.elapsed().as_secs_f64();
                let counted = core.counters(space).since(&before);
                println!(
                    "random, {gib:4} GiB, {size:?} pages, {how}: {:6.1} (goal {goal}); {:.2} walks/access, \
                     {:.0} cycles/walk, {held_mib} MiB held",
                    accesses as f64 / seconds / 1e6,
                    counted.walks() as f64 / counted.accesses as f64,
                    counted.walk_cycles() as f64 / counted.walks().max(1) as f64,
                );
            }
        }
    }
    let (mut mappings, space) = mapped(16, LeafSize::Base)?;
    let lines = (16u64 << 30) / LINE;
    let mut core = Translator::new(&TranslatorSpec::native(processor))?;
    let mut batch = Vec::with_capacity(BATCH);
    let clock = Instant::now();
    for first in (0..lines).step_by(BATCH) {
        batch.clear();
        batch.extend((first..first + BATCH as u64).map(|line| Access::load(BEGIN + line * LINE)));
        core.translate(&mut mappings, space, &batch, Work::default());
    }
    let by_access = lines as f64 / clock.elapsed().as_secs_f64() / 1e6;
    let clock = Instant::now();
    for mib in 0..16u64 << 10 {
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
        "sequential, each line, 16 GiB: {by_access:.0} by access, {by_sweep:.0} by sweeps (goal 200)"
    );
    Ok(())
}

/// Cores to time, with what they are to reach.
fn ways(processor: &Processor, goal: u32) -> [(&'static str, TranslatorSpec, String); 2] {
    let nested = TranslatorSpec::nested(processor, LeafSize::Huge);
    [
        (
            "native",
            TranslatorSpec::native(processor),
            goal.to_string(),
        ),
        ("nested", nested, "none".to_owned()),
    ]
}

/// One address space, with so much memory mapped by pages of one size, at the host by base pages.
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

/// Loads of random words.
fn random(core: &mut Translator, mappings: &mut Mappings, space: SpaceId, gib: u64, count: usize) {
    let mut state = 1u64;
    let mut batch = Vec::with_capacity(BATCH);
    for _ in 0..count / BATCH {
        batch.clear();
        batch.extend((0..BATCH).map(|_| {
            // xorshift*: Vigna, "An experimental exploration of Marsaglia's xorshift generators".
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
            let byte = (u128::from(random) * u128::from(gib << 30)) >> 64;
            Access::load(BEGIN + byte as u64)
        }));
        core.translate(mappings, space, &batch, Work::default());
    }
}
