//! Programs in a virtual machine, by what guest and host map their memory with: their accesses through the model of nested
//! translation, with all memory mapped alike and neither kernel at work.

use crate::workload::Rng;
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use hawkeye_sim::mmu::HASWELL;
use hawkeye_sim::mmu::translation::{
    Access, LeafSize, Mappings, SpaceId, Translator, TranslatorSpec, Work,
};
use hawkeye_sim::workloads::{Pattern, Phase, Process, Stream, Workload};
use std::collections::BTreeMap;

/// Accesses that fill TLBs and caches, and as many that are counted.
const ACCESSES: usize = 1_000_000;
/// Accesses in a turn.
const BATCH: usize = 4096;
const WORDS: usize = (HUGE_PAGE_BYTES / 8) as usize;
const FIRST_ADDRESS: u64 = 1 << 40;

/// What a program's memory is mapped with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// By the guest.
    pub guest: LeafSize,
    /// By the host.
    pub host: LeafSize,
}

/// How much faster a workload's first program accesses its memory than with base pages in guest and host.
///
/// # Errors
/// A workload without random accesses, or a machine that can't be built, as a sentence.
pub(super) fn speed_up(workload: &Workload, sizes: Sizes) -> Result<f64, String> {
    let base = Sizes {
        guest: LeafSize::Base,
        host: LeafSize::Base,
    };
    Ok(cycles(workload, base)? / cycles(workload, sizes)?)
}

/// Cycles of an access, on average.
fn cycles(workload: &Workload, sizes: Sizes) -> Result<f64, String> {
    let unfit = || format!("{} has no random accesses", workload.name);
    let process = workload.processes.first().ok_or_else(unfit)?;
    let streams = process.phases.iter().find_map(|phase| match phase {
        Phase::Access { streams, .. } => Some(streams),
        _ => None,
    });
    let streams = streams.ok_or_else(unfit)?;
    if streams.iter().any(|s| s.pattern != Pattern::Random) {
        return Err(unfit());
    }
    let mut mappings = Mappings::new();
    let space = mappings.add_space().map_err(|e| e.to_string())?;
    let areas = map(process, sizes, &mut mappings, space)?;
    let spec = TranslatorSpec::nested(&HASWELL, sizes.host);
    let mut core = Translator::new(&spec).map_err(|e| e.to_string())?;
    let mut rng = Rng::new(1, 0);
    let total: f64 = streams.iter().map(|stream| stream.weight).sum();
    let mut sum = 0.0;
    for _warm_up_then_count in 0..2 {
        sum = 0.0;
        let mut left = ACCESSES;
        while left > 0 {
            let turn = left.min(BATCH);
            for stream in streams {
                let share = stream.weight / total;
                let made = (turn as f64 * share).ceil() as usize;
                let batch = draw(stream, &areas, made, &mut rng);
                let before = core.counters(space);
                core.translate(&mut mappings, space, &batch, work(stream));
                let done = core.counters(space).since(&before);
                sum += done.millicycles as f64 / 1000.0 * share / made as f64 * turn as f64;
            }
            left -= turn;
        }
    }
    Ok(sum / ACCESSES as f64)
}

/// Maps a process's areas; where each begins, and how many regions it has.
fn map<'a>(
    process: &'a Process,
    sizes: Sizes,
    mappings: &mut Mappings,
    space: SpaceId,
) -> Result<BTreeMap<&'a str, (u64, usize)>, String> {
    let mut areas = BTreeMap::new();
    let mut at = FIRST_ADDRESS;
    for area in &process.areas {
        areas.insert(area.name.as_str(), (at, area.regions() as usize));
        for _ in 0..area.regions() {
            let region = RegionAddr::containing(at);
            let mapped = match sizes.guest {
                LeafSize::Base => mappings.map_pages(space, region, [u64::MAX; 8]),
                LeafSize::Huge | LeafSize::Giant => mappings.map_huge(space, region),
            };
            mapped
                .and_then(|()| mappings.set_host(space, region, sizes.host))
                .map_err(|e| e.to_string())?;
            at += HUGE_PAGE_BYTES;
        }
    }
    Ok(areas)
}

fn draw(
    stream: &Stream,
    areas: &BTreeMap<&str, (u64, usize)>,
    count: usize,
    rng: &mut Rng,
) -> Vec<Access> {
    let Some((start, regions)) = areas.get(stream.area.as_str()) else {
        return Vec::new();
    };
    let words = (0..count).map(|_| rng.below(regions * WORDS) as u64);
    words.map(|word| Access::load(start + word * 8)).collect()
}

fn work(stream: &Stream) -> Work {
    Work {
        millicycles_per_access: (stream.cycles * 1000.0) as u32,
        waited_permille: (stream.waited_percent * 10.0) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_sim::workloads;

    fn gain(name: &str, guest: LeafSize, host: LeafSize) -> f64 {
        let workload = workloads::by_name(name).unwrap_or_else(|error| panic!("{error}"));
        speed_up(&workload, Sizes { guest, host }).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn huge_pages_of_either_help_and_both_help_most() {
        let guest = gain("canneal-vm", LeafSize::Huge, LeafSize::Base);
        let host = gain("canneal-vm", LeafSize::Base, LeafSize::Huge);
        let both = gain("canneal-vm", LeafSize::Huge, LeafSize::Huge);
        assert!(guest > 1.02 && host > 1.02, "{guest}, {host}");
        assert!(both > guest && both > host, "{both}");
        assert_eq!(gain("canneal-vm", LeafSize::Base, LeafSize::Base), 1.0);
    }

    #[test]
    fn other_accesses_are_refused() {
        let workload = workloads::by_name("sequential").unwrap_or_else(|error| panic!("{error}"));
        let sizes = Sizes {
            guest: LeafSize::Base,
            host: LeafSize::Base,
        };
        assert!(speed_up(&workload, sizes).is_err());
    }
}
