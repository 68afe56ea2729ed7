//! How far the TLBs of each processor reach by the size of what its page tables map:
//! `cargo run --release -p hawkeye-sim --example page_sizes [GIB] [PROCESSOR ...]`.
//!
//! Random loads, one of 8 bytes each, over so much memory (1 GiB if nothing is said), all of it accessed before: as many
//! to warm up as are counted. Natively, and in a virtual machine whose host has base pages or huge pages; the guest's
//! page tables then lie in pages of the host's size. Cycles are those in walks, added up.

use hawkeye_policy::RegionAddr;
use hawkeye_sim::mmu::translation::{
    Access, EntrySize, LeafSize, Mappings, TranslationCounters, Translator, TranslatorSpec, Work,
};
use hawkeye_sim::mmu::{PROCESSORS, Processor};

type Failed = Box<dyn std::error::Error>;

const BEGIN: u64 = 0x7000_0000_0000;
const ACCESSES: u64 = 4_000_000;
const BATCH: u64 = 4096;

fn main() -> Result<(), Failed> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let gib: Option<u64> = names.first().and_then(|name| name.parse().ok());
    if gib.is_some() {
        names.remove(0);
    }
    let gib = gib.unwrap_or(1);
    println!("random loads over {gib} GiB: first-level misses, walks and walk cycles per access");
    for processor in &PROCESSORS {
        if !names.is_empty() && !names.iter().any(|name| name == processor.name) {
            continue;
        }
        println!("{}", processor.name);
        for size in EntrySize::ALL {
            let Some(kib) = kib(processor, size) else {
                continue;
            };
            print!("{kib:>9} KiB");
            for host in [None, Some(LeafSize::Base), Some(LeafSize::Huge)] {
                let counted = count(processor, size, host, gib)?;
                let per_access = |count: u64| count as f64 / counted.accesses as f64;
                print!(
                    " | {}{:.3} {:.3} {:>6.1}",
                    match host {
                        None => "native ",
                        Some(LeafSize::Base) => "over 4 KiB ",
                        Some(_) => "over 2 MiB ",
                    },
                    per_access(counted.l1_misses),
                    per_access(counted.walks()),
                    per_access(counted.walk_cycles()),
                );
            }
            println!();
        }
    }
    Ok(())
}

/// Size of what one entry holds; `None` if the processor has no such groups.
fn kib(processor: &Processor, size: EntrySize) -> Option<u64> {
    let pages = match size {
        EntrySize::BaseGroup => 1 << processor.groups.base?.order,
        EntrySize::HugeGroup => 1 << processor.groups.huge?.order,
        _ => 1,
    };
    Some((size.leaf().bytes() * pages) >> 10)
}

fn count(
    processor: &Processor,
    size: EntrySize,
    host: Option<LeafSize>,
    gib: u64,
) -> Result<TranslationCounters, Failed> {
    let mut mappings = Mappings::with_groups(processor.groups)?;
    let space = mappings.add_space()?;
    for number in 0..gib * 512 {
        let address = BEGIN + (number << 21);
        let region = RegionAddr::containing(address);
        match size {
            EntrySize::Base | EntrySize::BaseGroup => {
                mappings.map_pages(space, region, [u64::MAX; 8])?;
            }
            EntrySize::Huge => mappings.map_huge(space, region)?,
            EntrySize::HugeGroup if number % 16 == 0 => mappings.map_huge_group(space, region)?,
            EntrySize::Giant if number % 512 == 0 => mappings.map_giant(space, address)?,
            EntrySize::HugeGroup | EntrySize::Giant => {}
        }
        if size == EntrySize::BaseGroup {
            mappings.set_groups(space, region, u128::MAX)?;
        }
        if let Some(pages) = host {
            mappings.set_host(space, region, pages)?;
        }
    }
    let spec = match host {
        None => TranslatorSpec::native(processor),
        Some(pages) => TranslatorSpec::nested(processor, pages),
    };
    let mut core = Translator::new(&spec)?;
    // The numbers of D. E. Knuth's MMIX, their high bits.
    let mut random = 1u64;
    let mut warm = TranslationCounters::default();
    for batch in 0..2 * ACCESSES / BATCH {
        if batch == ACCESSES / BATCH {
            warm = core.counters(space);
        }
        let accesses: Vec<Access> = (0..BATCH)
            .map(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let byte = (u128::from(random) * u128::from(gib << 30)) >> 64;
                Access::load(BEGIN + (byte as u64 & !7))
            })
            .collect();
        core.translate(&mut mappings, space, &accesses, Work::default());
    }
    Ok(core.counters(space).since(&warm))
}
