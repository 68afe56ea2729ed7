//! Speed of simulated address translation, on one core of this machine:
//! `cargo run --release -p hawkeye-sim --example translation_speed [CASE|PROCESSOR ...]`.
//!
//! Cases are `random-16` and `random-1024` (GiB), and `sequential`. A random case can be followed
//! by `-base`, `-groups` (of base pages, if the processor has any) or `-huge`, and then `-native`
//! or `-nested`. A case is run if its name begins with one of those given; without any, all run.
//!
//! Random: loads of random words, with addresses drawn as needed. The policy part is included:
//! every 30 s of the simulated program's time, the access bits of all regions are read and cleared,
//! and HawkEye's access map takes them in. The example times such samples, and adds the share that
//! belongs to the simulated time.
//!
//! Sequential: all memory from start to end, one load of each line of 64 bytes.
//!
//! Each figure is the median of several turns. Stages of the translation are separate functions, so
//! that a profiler can separate them: `perf record -e cpu-clock`.

use hawkeye_policy::statistics::median;
use hawkeye_policy::{AccessMap, CoverageAveraging, PageOrder, RegionAddr, RegionSample};
use hawkeye_sim::mmu::translation::{
    Access, EntrySize, LeafSize, Mappings, ProgramWork, Translator, TranslatorSpec,
};
use hawkeye_sim::mmu::{CoalescedPageGroups, MmuError, PROCESSORS, SKYLAKE};
use hawkeye_sim::rng::SimulationRng;
use std::time::Instant;

const BEGIN: u64 = 0x7000_0000_0000;
const BATCH: usize = 4096;
const LINE: u64 = 64;
/// Accesses that warm up the caches of a case, and accesses per timed turn.
const WARM: usize = 20_000_000;
const TURN: usize = 8_000_000;
/// Number of turns, of which the median is reported: odd.
const TURNS: usize = 9;
/// Period of samples of access bits (HawkEye, 3.3).
const SAMPLED_EVERY_S: f64 = 30.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (processors, cases): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|name| PROCESSORS.iter().any(|p| p.name == *name));
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
        "{}: million accesses/s, median of {TURNS} turns, and what was simulated",
        processor.name
    );
    for gib in [16u64, 1024] {
        for (size, pages) in
            [(EntrySize::Base, "base"), (EntrySize::BaseGroup, "groups"), (EntrySize::Huge, "huge")]
        {
            if size == EntrySize::BaseGroup && processor.groups.base.is_none() {
                continue;
            }
            let named = tables.map(|(how, spec)| (format!("random-{gib}-{pages}-{how}"), spec));
            if !named.iter().any(|(case, _)| chosen(case)) {
                continue;
            }
            let mut mappings = mapped(gib, size, processor.groups)?;
            for (case, spec) in named.iter().filter(|(case, _)| chosen(case)) {
                random(case, spec, &mut mappings, gib)?;
            }
        }
    }
    if chosen("sequential") {
        sequential(&tables[0].1)?;
    }
    Ok(())
}

/// One address space of `gib` GiB, mapped by pages of one size; the host maps it by the largest.
fn mapped(
    gib: u64,
    size: EntrySize,
    groups: CoalescedPageGroups,
) -> Result<Mappings, Box<dyn std::error::Error>> {
    let mut mappings = Mappings::with_groups(groups)?;
    for region in 0..gib * 512 {
        let region = RegionAddr::containing(BEGIN + (region << 21));
        match size {
            EntrySize::Huge => mappings.map_huge(region)?,
            _ => mappings.map_pages(region, [u64::MAX; 8])?,
        }
        if size == EntrySize::BaseGroup {
            mappings.set_groups(region, u128::MAX);
        }
        mappings.clear_accessed(region);
    }
    Ok(mappings)
}

fn random(
    case: &str,
    spec: &TranslatorSpec,
    mappings: &mut Mappings,
    gib: u64,
) -> Result<(), MmuError> {
    let mut core = Translator::new(spec)?;
    let mut rng = SimulationRng::new(1, 0);
    load(&mut rng, &mut core, mappings, gib, WARM);
    let mut map = AccessMap::new(CoverageAveraging::default());
    sample(mappings, gib, &mut map);

    let before = core.counters();
    let translating = median_turn_s(|| load(&mut rng, &mut core, mappings, gib, TURN));
    let counted = core.counters().since(&before);

    let sampling = median_turn_s(|| sample(mappings, gib, &mut map));
    let simulated_s = counted.unhalted_cycles() as f64 / spec.processor.ghz / 1e9 / TURNS as f64;
    let with_policy = translating + sampling * simulated_s / SAMPLED_EVERY_S;

    let all = counted.accesses as f64;
    let of_turn = all / TURNS as f64;
    println!(
        "{case}: {:.1}, {:.1} without samples of {:.0} ms; {:.3} walks/access, {:.2} cycles/walk",
        of_turn / with_policy / 1e6,
        of_turn / translating / 1e6,
        sampling * 1e3,
        counted.walks() as f64 / all,
        counted.walk_cycles() as f64 / counted.walks().max(1) as f64,
    );
    Ok(())
}

/// Seconds of the median turn.
fn median_turn_s(mut turn: impl FnMut()) -> f64 {
    let mut seconds = [0.0; TURNS];
    for seconds in &mut seconds {
        let clock = Instant::now();
        turn();
        *seconds = clock.elapsed().as_secs_f64();
    }
    median(&seconds)
}

/// Reads and clears all access bits, and passes them to the policy.
fn sample(mappings: &mut Mappings, gib: u64, map: &mut AccessMap) {
    let regions = (0..gib * 512).map(|number| RegionAddr::containing(BEGIN + (number << 21)));
    let samples: Vec<_> = regions
        .map(|region| {
            let bits = mappings.accessed(region);
            mappings.clear_accessed(region);
            let (mut accessed, mut runs, mut before) = (0, 0, 0);
            for word in bits {
                accessed += word.count_ones() as u16;
                runs += (word & !(word << 1 | before)).count_ones() as u16;
                before = word >> 63;
            }
            RegionSample {
                accessed,
                runs,
                order: PageOrder::base_or_huge(mappings.page_size(region) != Some(LeafSize::Base)),
                ..RegionSample::new_full_and_untouched(region)
            }
        })
        .collect();
    map.observe(&samples);
}

/// Makes loads of random words.
fn load(
    rng: &mut SimulationRng,
    core: &mut Translator,
    mappings: &mut Mappings,
    gib: u64,
    count: usize,
) {
    let mut batch = Vec::with_capacity(BATCH);
    for _ in 0..count / BATCH {
        batch.clear();
        batch.extend((0..BATCH).map(|_| Access::load(BEGIN + rng.draw_below(gib << 30))));
        core.translate(mappings, &batch, ProgramWork::default());
    }
}

fn sequential(spec: &TranslatorSpec) -> Result<(), Box<dyn std::error::Error>> {
    let gib = 16u64;
    for (size, pages) in [(EntrySize::Base, "base"), (EntrySize::Huge, "huge")] {
        let mut mappings = mapped(gib, size, spec.processor.groups)?;
        let lines = (gib << 30) / LINE;
        let mut core = Translator::new(spec)?;
        let mut batch = Vec::with_capacity(BATCH);
        let by_access = median_turn_s(|| {
            for first in (0..lines).step_by(BATCH) {
                batch.clear();
                let batched = first..first + BATCH as u64;
                batch.extend(batched.map(|line| Access::load(BEGIN + line * LINE)));
                core.translate(&mut mappings, &batch, ProgramWork::default());
            }
        });
        let rate = |seconds: f64| lines as f64 / seconds / 1e6;
        println!("sequential, {gib} GiB, {pages} pages: {:.0}", rate(by_access),);
    }
    Ok(())
}
