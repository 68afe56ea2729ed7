//! What address translation costs on this machine, measured at the first start after a boot. It
//! takes some seconds.
//!
//! Page tables of gigabytes are read without the gigabytes: the same 64 MiB of memory are mapped
//! repeatedly. The extra time of an access over the same memory under huge pages is its page walk.

use crate::anonymous_mapping::AnonymousMapping;
use crate::error::{LinuxError, Result};
use crate::machine_lease::own_files::{self, UnusableFileReason};
use crate::memory::cgroup_limits::CgroupLimits;
use crate::processes::process::{calling_thread_cpu_time, own_huge_bytes};
use crate::sample::random::{dependent_arithmetic_step, map_random_below, next_random};
use crate::test_costs;
use hawkeye_policy::saturating_cast::{i64_from_u64, usize_from_u64};
use hawkeye_policy::statistics::{median, median_standard_error};
use hawkeye_policy::walk_rate::{WalkCostAtInterval, WalkCosts, WalkCostsAtFootprint};
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, mmap};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::ftruncate;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The file of costs, in the directory of state.
const FILE: &str = "walk-costs.json";
/// Upper limit for a file of costs, in bytes.
const LONGEST_FILE: u64 = 64 << 10;
const FOOTPRINTS_BYTES: [u64; 3] = [64 << 20, 512 << 20, 4 << 30];
/// Memory that is read, much more than caches hold; less where less is available.
const DATA_BYTES: u64 = 512 << 20;
/// The least of it that shows anything.
const LEAST_DATA_BYTES: u64 = 64 << 20;
/// Divisor of available memory.
const DATA_SHARE: u64 = 8;
const CACHE_LINE_BYTES: u64 = 64;
/// No walk is free.
const LEAST_NS: f64 = 0.1;
const READS: u64 = 100_000;
/// Reads in one measurement where each read comes with work.
const READS_WORKING: u64 = 100_000;
/// Pages in one measurement of pages in order.
const ORDERED_PAGES: u64 = 50_000;
/// Loops over pages in order: they read a word of each page, several, one of each cache line, and
/// all of them.
const STREAMS: [OrderedPageLoop; 4] = [
    OrderedPageLoop::new(1, 1, 0),
    OrderedPageLoop::new(1, 8, 0),
    OrderedPageLoop::new(1, 64, 0),
    OrderedPageLoop::new(1, 512, 0),
];
/// Loops over every sixteenth page (64 KiB): none of its page-table entries shares a cache line
/// with another. With more and more work between the reads.
const STRIDES: [OrderedPageLoop; 3] = [
    OrderedPageLoop::new(16, 1, 0),
    OrderedPageLoop::new(16, 1, 16),
    OrderedPageLoop::new(16, 1, 64),
];
/// Steps of work between reads. A step is two instructions in four cycles, about the half
/// instruction per cycle of programs that miss TLBs and caches.
const WORK_STEPS: [u32; 6] = [0, 8, 16, 32, 64, 128];
/// Measurements, of which the fastest counts.
const TURNS: u64 = 9;
/// Numbers of pages among which the TLB's reach is searched.
const REACHES: [u64; 9] = [256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192];

/// Costs of page walks in use: typical ones until this machine's are known.
pub struct CurrentWalkCosts {
    costs: WalkCosts,
    measurement: Option<WalkCostMeasuringProcess>,
}

/// A process that measures and writes the file. It has memory of its own: this process forks
/// helpers, which would keep what is mapped here.
struct WalkCostMeasuringProcess {
    command: Command,
    running: Option<Child>,
    file: PathBuf,
}

impl CurrentWalkCosts {
    /// The costs that were measured since the machine started. If there are none, `measurer` is
    /// started when costs are first used, and typical ones are used until it ends, so that programs
    /// start at once. It has to call [`measure_at_lowest_priority`].
    pub fn load_or_measure_meanwhile(state_dir: &Path, measurer: Command) -> Result<Self> {
        let file = state_dir.join(FILE);
        if let Some(known) = load_known_costs(&file)? {
            return Ok(known.into());
        }
        tracing::info!("page walks will be measured; until then their typical costs are used");
        let measurement = WalkCostMeasuringProcess { command: measurer, running: None, file };
        Ok(Self { costs: WalkCosts::typical(), measurement: Some(measurement) })
    }

    /// The costs to use now.
    pub fn measured_or_typical(&mut self) -> &WalkCosts {
        if let Some(measurement) = &mut self.measurement {
            if measurement.start_or_has_ended() {
                let file = &measurement.file;
                if let Ok(Some(costs)) =
                    own_files::read_trusted_file(file, LONGEST_FILE, parse_costs)
                {
                    self.costs = costs;
                }
                self.measurement = None;
            }
        }
        &self.costs
    }
}

impl From<WalkCosts> for CurrentWalkCosts {
    fn from(costs: WalkCosts) -> Self {
        Self { costs, measurement: None }
    }
}

impl WalkCostMeasuringProcess {
    /// Starts it at the first call; returns whether it has ended, or cannot start.
    fn start_or_has_ended(&mut self) -> bool {
        let under_way = match &mut self.running {
            Some(child) => child.try_wait().map(|status| status.is_none()),
            None => self.command.spawn().map(|child| {
                self.running = Some(child);
                true
            }),
        };
        !under_way.unwrap_or_else(|error| {
            tracing::warn!("page walks cannot be measured: {error}; typical costs are used");
            false
        })
    }
}

impl Drop for WalkCostMeasuringProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            // This fails only if it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Measures the costs and keeps them for this manager and the next, in a process of its own. It
/// ends with its parent, it is the first to end where memory is short, and programs have most of a
/// CPU that they need.
pub fn measure_at_lowest_priority(state_dir: &Path) -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).map_err(LinuxError::wrap_errno("following the parent's end"))?;
    let score = Path::new("/proc/self/oom_score_adj");
    std::fs::write(score, "1000").map_err(LinuxError::wrap_io_error("writing", score))?;
    // SAFETY: the call changes the scheduling of this thread alone. At idle priority it might never
    // end.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    measure_and_save_costs(&state_dir.join(FILE)).map(drop)
}

/// Costs that were measured since the machine started. If there are none, measures them, which
/// takes some seconds, and keeps them for the next manager.
pub fn load_or_measure_costs(state_dir: &Path) -> Result<WalkCosts> {
    let file = state_dir.join(FILE);
    if let Some(costs) = load_known_costs(&file)? {
        return Ok(costs);
    }
    tracing::warn!(
        "measuring the cost of page walks: this takes some seconds, once after each start of the machine"
    );
    measure_and_save_costs(&file)
}

/// The costs that a test gives, or those in the file. Processors do not change, and a restart of
/// the machine deletes the file.
fn load_known_costs(file: &Path) -> Result<Option<WalkCosts>> {
    if let Some(costs) = test_costs::configured_test_costs()?.and_then(|costs| costs.walks.clone())
    {
        return Ok(Some(costs));
    }
    let what = "the record of page-walk costs is";
    Ok(own_files::read_or_set_aside(what, file, LONGEST_FILE, parse_costs))
}

/// Where the costs cannot be measured now, typical costs are used, and the next manager measures.
fn measure_and_save_costs(file: &Path) -> Result<WalkCosts> {
    let costs = match measure_walk_costs() {
        Err(error @ LinuxError::NotMeasured(_)) => {
            tracing::warn!("{error}; typical costs are used until a manager starts again");
            return Ok(WalkCosts::typical());
        }
        measured => measured?,
    };
    // Costs that cannot be kept are measured again. A manager that waits has them; one that reads
    // the file goes on with typical ones.
    let kept = serde_json::to_vec(&costs).map_err(std::io::Error::other);
    if let Err(error) = kept.and_then(|text| own_files::replace_file_atomically(file, &text)) {
        tracing::debug!("{} cannot be written: {error}", file.display());
    }
    Ok(costs)
}

fn parse_costs(text: &[u8]) -> Result<WalkCosts, UnusableFileReason> {
    let costs: WalkCosts = serde_json::from_slice(text)?;
    let why = "a cost is not over 0, or the footprints are not in ascending order";
    if costs.is_sound() { Ok(costs) } else { Err(UnusableFileReason::Impossible(why.into())) }
}

/// Measures the costs. Fails with [`LinuxError::NotMeasured`] if there are no huge pages to compare
/// with.
pub fn measure_walk_costs() -> Result<WalkCosts> {
    let largest = FOOTPRINTS_BYTES[FOOTPRINTS_BYTES.len() - 1];
    let memory = crate::memory::system_memory::machine_memory_use()?;
    let available = memory.total_bytes.saturating_sub(memory.used_bytes);
    let in_group = CgroupLimits::of_this_machine().own_remaining_memory_bytes();
    let available = available.min(in_group.unwrap_or(u64::MAX));
    if available < DATA_SHARE * LEAST_DATA_BYTES {
        return Err(LinuxError::NotMeasured(
            "the cost of page walks cannot be measured: too little memory is free",
        ));
    }
    // A power of two divides the footprints.
    let data_bytes = 1 << (available / DATA_SHARE).ilog2();
    let data_bytes = data_bytes.clamp(LEAST_DATA_BYTES, DATA_BYTES);
    let data = MeasuredMemory::map_huge_pages(data_bytes)?;
    let data_pages = data_bytes / BASE_PAGE_BYTES;
    let in_order = |loops: &[OrderedPageLoop], base_pages: &MeasuredMemory| {
        measure_costs_by_interval(loops, |order| {
            measure_extra_cost_of_walks(
                |n| base_pages.ns_per_ordered_page(order, n),
                |n| data.ns_per_ordered_page(order, n),
            )
        })
    };
    // Streams come from memory that is not mapped repeatedly: prefetchers follow its addresses. It
    // is freed before the other memory is mapped.
    let small = MeasuredMemory::map_and_write(data_bytes, MmapAdvise::MADV_NOHUGEPAGE)?;
    let streamed = in_order(&STREAMS, &small);
    drop(small);
    let repeated =
        MeasuredMemory::map_repeated_base_pages(largest, data_bytes, CacheLinesRead::All)?;
    let strided = in_order(&STRIDES, &repeated);
    let by_footprint = FOOTPRINTS_BYTES.map(|bytes| {
        let cost = |read: fn(&MeasuredMemory, u64, u64) -> f64| {
            walk_cost_in_repeated_mapping(&repeated, &data, bytes, read)
        };
        let costs = [
            cost(MeasuredMemory::ns_per_independent_read),
            cost(MeasuredMemory::ns_per_dependent_read),
        ];
        let [independent_ns, dependent_ns] = costs.map(|cost| cost.walk_ns);
        WalkCostsAtFootprint { footprint_bytes: bytes, independent_ns, dependent_ns }
    });
    let by_distance = measure_costs_by_interval(&WORK_STEPS, |steps| {
        walk_cost_in_repeated_mapping(&repeated, &data, largest, |memory, pages, n| {
            memory.ns_per_read_with_work(pages, steps, n)
        })
    });
    let cached = MeasuredMemory::map_repeated_base_pages(
        FOOTPRINTS_BYTES[1],
        HUGE_PAGE_BYTES,
        CacheLinesRead::OneOfEachPage,
    )?;
    let reach = measure_tlb_reach_pages(&cached);
    Ok(WalkCosts {
        by_footprint: by_footprint.into(),
        streamed,
        strided,
        by_distance,
        data_independent_ns: least_ns_of_turns(|n| data.ns_per_independent_read(data_pages, n)),
        data_dependent_ns: least_ns_of_turns(|n| data.ns_per_dependent_read(data_pages, n)),
        tlb_pages: reach,
        // Base and huge pages share the second level, since Haswell and Zen.
        tlb_huge_pages: reach,
    })
}

/// The costs of similar loops, by the time from one page to the next.
fn measure_costs_by_interval<L: Copy>(
    loops: &[L],
    cost: impl Fn(L) -> WalkCostAtInterval,
) -> Vec<WalkCostAtInterval> {
    let mut costs: Vec<WalkCostAtInterval> = loops.iter().map(|one| cost(*one)).collect();
    costs.sort_by(|a, b| a.apart_ns.total_cmp(&b.apart_ns));
    costs.dedup_by(|a, b| a.apart_ns <= b.apart_ns);
    costs
}

/// The cost of page walks in a footprint of `mirrors`. The same data is read once without page
/// walks and once with them, so that the caches hold the same. The amount of memory does not depend
/// on how much of its mirrors is read.
fn walk_cost_in_repeated_mapping(
    mirrors: &MeasuredMemory,
    data: &MeasuredMemory,
    footprint_bytes: u64,
    read: impl Fn(&MeasuredMemory, u64, u64) -> f64,
) -> WalkCostAtInterval {
    let few = mirrors.distinct_bytes.min(footprint_bytes) / BASE_PAGE_BYTES;
    let all = footprint_bytes / BASE_PAGE_BYTES;
    measure_extra_cost_of_walks(|n| read(mirrors, all, n), |n| read(data, few, n))
}

/// Distance of reads with page walks, and how much greater it is than without them. Both are
/// medians of pairs, since other load makes the machine faster and slower. Of two turns only the
/// second counts: the first finds the caches as the other loop left them.
fn measure_extra_cost_of_walks(
    with: impl Fn(u64) -> f64,
    without: impl Fn(u64) -> f64,
) -> WalkCostAtInterval {
    let second_turn = |read: &dyn Fn(u64) -> f64, n: u64| {
        read(2 * n);
        read(2 * n + 1)
    };
    let pairs = (0..TURNS).map(|n| (second_turn(&with, n), second_turn(&without, n)));
    let (apart, walks): (Vec<f64>, Vec<f64>) =
        pairs.map(|(with, without)| (with, with - without)).unzip();
    WalkCostAtInterval {
        apart_ns: median(&apart),
        walk_ns: median(&walks).max(LEAST_NS),
        error_ns: median_standard_error(&walks),
    }
}

/// CPU time of this thread per step of some work of `steps` steps, in nanoseconds. Time in which
/// other programs have the processor does not count. `work` returns what it computed.
fn cpu_ns_per_step<T>(steps: u64, work: impl FnOnce() -> T) -> f64 {
    let before = calling_thread_cpu_time();
    std::hint::black_box(work());
    calling_thread_cpu_time().saturating_sub(before).as_secs_f64() * 1e9 / steps as f64
}

/// A loop over pages in ascending order, again and again.
#[derive(Clone, Copy)]
struct OrderedPageLoop {
    /// From one page to the next, in pages.
    step: u64,
    /// Cache lines read of each page, at equal distances.
    lines: u64,
    /// Steps of work after each page.
    work: u32,
}

impl OrderedPageLoop {
    const fn new(step: u64, lines: u64, work: u32) -> Self {
        Self { step, lines, work }
    }
}

struct MeasuredMemory {
    memory: AnonymousMapping,
    /// Memory behind the mapping, which may be mapped repeatedly.
    distinct_bytes: u64,
    lines: CacheLinesRead,
}

#[derive(Clone, Copy)]
enum CacheLinesRead {
    /// Few enough lines to stay in the first-level cache.
    OneOfEachPage,
    All,
}

impl MeasuredMemory {
    /// Written memory, at least nearly all of it under huge pages. Under base pages its reads would
    /// walk page tables as well, and walks would seem to cost nothing.
    fn map_huge_pages(bytes: u64) -> Result<Self> {
        let before = own_huge_bytes()?;
        let area = Self::map_and_write(bytes, MmapAdvise::MADV_HUGEPAGE)?;
        let enough = |huge: u64| huge.saturating_sub(before) >= bytes / 8 * 7;
        if !enough(own_huge_bytes()?) {
            let (start, bytes) = (usize_from_u64(area.memory.address()), area.memory.byte_len());
            let first = start.next_multiple_of(usize_from_u64(HUGE_PAGE_BYTES)) - start;
            let regions = (first..bytes).step_by(usize_from_u64(HUGE_PAGE_BYTES));
            for offset in regions.filter(|at| at + usize_from_u64(HUGE_PAGE_BYTES) <= bytes) {
                // SAFETY: the region lies within the mapping, and a collapse changes no contents.
                unsafe {
                    let region = area.memory.start().as_ptr().byte_add(offset);
                    libc::madvise(region, usize_from_u64(HUGE_PAGE_BYTES), libc::MADV_COLLAPSE);
                }
            }
        }
        if enough(own_huge_bytes()?) {
            return Ok(area);
        }
        Err(LinuxError::NotMeasured(
            "the cost of page walks cannot be measured: no huge pages are available to compare with",
        ))
    }

    /// Written memory, under huge pages or base pages as advised.
    fn map_and_write(bytes: u64, advice: MmapAdvise) -> Result<Self> {
        let memory = AnonymousMapping::map(usize_from_u64(bytes)).map_err(mapping_error)?;
        let _ = memory.advise(advice);
        for offset in (0..memory.byte_len()).step_by(usize_from_u64(BASE_PAGE_BYTES)) {
            // SAFETY: `offset` lies within the mapping.
            unsafe { memory.start().cast::<u8>().add(offset).write_volatile(0) };
        }
        Ok(Self { memory, distinct_bytes: bytes, lines: CacheLinesRead::All })
    }

    /// Base pages that map the same `file_bytes` of memory side by side until `bytes` are full.
    fn map_repeated_base_pages(bytes: u64, file_bytes: u64, lines: CacheLinesRead) -> Result<Self> {
        let file = memfd_create(c"hawkeye", MFdFlags::MFD_CLOEXEC).map_err(mapping_error)?;
        ftruncate(&file, i64_from_u64(file_bytes)).map_err(mapping_error)?;
        let memory =
            AnonymousMapping::map_with_protection(usize_from_u64(bytes), ProtFlags::PROT_NONE);
        let memory = memory.map_err(mapping_error)?;
        for offset in (0..memory.byte_len()).step_by(usize_from_u64(file_bytes)) {
            let at = NonZeroUsize::new(usize_from_u64(memory.address()) + offset);
            let length = usize_from_u64(file_bytes).min(memory.byte_len() - offset);
            let length = NonZeroUsize::new(length).unwrap_or(NonZeroUsize::MIN);
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED | MapFlags::MAP_POPULATE;
            // SAFETY: `at` lies within our reservation, a part of which the new mapping replaces.
            unsafe { mmap(at, length, ProtFlags::PROT_READ, flags, file.as_fd(), 0) }
                .map_err(mapping_error)?;
        }
        // A hypervisor that shadows our page tables must notice each page now, and not in the
        // measurement.
        for offset in (0..memory.byte_len()).step_by(usize_from_u64(BASE_PAGE_BYTES)) {
            // SAFETY: `offset` lies within the mapping.
            unsafe { memory.start().cast::<u8>().add(offset).read_volatile() };
        }
        Ok(Self { memory, distinct_bytes: file_bytes, lines })
    }

    /// Nanoseconds per independent random read with `steps` steps of work between reads.
    fn ns_per_read_with_work(&self, pages: u64, steps: u32, seed: u64) -> f64 {
        cpu_ns_per_step(READS_WORKING, || {
            let (mut x, mut work) = (seed, seed);
            for _ in 0..READS_WORKING {
                x = self.read_random_word(x, pages, self.lines).0;
                for _ in 0..steps {
                    work = dependent_arithmetic_step(work);
                }
            }
            (x, work)
        })
    }

    /// Nanoseconds per page of a loop over all pages. Each turn starts where the last one ended, at
    /// page tables that were not read for longest. Each pass over the memory behind the mapping
    /// reads other cache lines, so that repeated mappings do not find their data in the caches.
    fn ns_per_ordered_page(&self, order: OrderedPageLoop, turn: u64) -> f64 {
        let OrderedPageLoop { step, lines, work } = order;
        let apart = BASE_PAGE_BYTES / lines;
        let pages = self.memory.byte_len() as u64 / BASE_PAGE_BYTES;
        let distinct = self.distinct_bytes / BASE_PAGE_BYTES;
        let start = turn * ORDERED_PAGES * step;
        let (mut page, mut behind, mut pass) = (start % pages, start % distinct, start / distinct);
        cpu_ns_per_step(ORDERED_PAGES, || {
            let mut x = turn;
            for _ in 0..ORDERED_PAGES {
                for line in 0..lines {
                    let offset = (pass * CACHE_LINE_BYTES + line * apart) % BASE_PAGE_BYTES;
                    self.read_word(page * BASE_PAGE_BYTES + offset);
                }
                for _ in 0..work {
                    x = dependent_arithmetic_step(x);
                }
                page += step;
                if page >= pages {
                    page -= pages;
                }
                behind += step;
                if behind >= distinct {
                    behind -= distinct;
                    pass += 1;
                }
            }
            x
        })
    }

    /// Reads a word of a random page, on a line chosen by the page or by a random number; returns
    /// the generator's next state and the word.
    #[inline(always)]
    fn read_random_word(&self, x: u64, pages: u64, lines: CacheLinesRead) -> (u64, u64) {
        let x = next_random(x);
        let page = map_random_below(x, pages);
        let line = match lines {
            CacheLinesRead::OneOfEachPage => page & 63,
            CacheLinesRead::All => x >> 20 & 63,
        };
        (x, self.read_word(page * BASE_PAGE_BYTES + line * 64))
    }

    #[inline(always)]
    fn read_word(&self, offset: u64) -> u64 {
        debug_assert!(offset + 8 <= self.memory.byte_len() as u64);
        let word = self.memory.start().cast::<u64>();
        // SAFETY: callers stay within the mapping, on multiples of 8.
        unsafe { word.byte_add(usize_from_u64(offset)).read_volatile() }
    }

    /// Nanoseconds per read of a word on one of `pages` pages, at random. The address is known
    /// before the last read returns.
    fn ns_per_independent_read(&self, pages: u64, seed: u64) -> f64 {
        debug_assert!(pages * BASE_PAGE_BYTES <= self.memory.byte_len() as u64);
        cpu_ns_per_step(READS, || {
            let mut x = seed;
            for _ in 0..READS {
                x = self.read_random_word(x, pages, self.lines).0;
            }
            x
        })
    }

    /// The same, but the address depends on the last read.
    fn ns_per_dependent_read(&self, pages: u64, seed: u64) -> f64 {
        debug_assert!(pages * BASE_PAGE_BYTES <= self.memory.byte_len() as u64);
        cpu_ns_per_step(READS, || {
            let mut x = seed;
            for _ in 0..READS {
                let (next, word) = self.read_random_word(x, pages, self.lines);
                // The word is 0, which the processor cannot know.
                x = next.wrapping_add(word);
            }
            x
        })
    }
}

/// The least time of several turns: other load on the machine can only add to it.
fn least_ns_of_turns(measure: impl Fn(u64) -> f64) -> f64 {
    (0..TURNS).map(measure).fold(f64::INFINITY, f64::min)
}

/// The largest number of base pages that are read at random hardly slower than a few: all their
/// translations are in the TLB.
fn measure_tlb_reach_pages(mirrors: &MeasuredMemory) -> u32 {
    let most = REACHES[REACHES.len() - 1];
    let ns = |pages| least_ns_of_turns(|n| mirrors.ns_per_dependent_read(pages, n));
    let (few, many) = (ns(REACHES[0]), ns(most));
    let limit = few + (many - few) / 3.0;
    let within = REACHES.iter().take_while(|pages| ns(**pages) <= limit);
    let reach = within.last().copied().unwrap_or(REACHES[0]);
    u32::try_from(reach).unwrap_or(u32::MAX)
}

fn mapping_error(errno: nix::errno::Errno) -> LinuxError {
    LinuxError::wrap_errno("mapping memory to measure page walks")(errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_repeated_mapping_ends_where_its_reservation_ends() {
        const PAGES: u64 = 5;
        let lines = CacheLinesRead::All;
        let repeated = MeasuredMemory::map_repeated_base_pages(
            PAGES * BASE_PAGE_BYTES,
            2 * BASE_PAGE_BYTES,
            lines,
        );
        let repeated = repeated.expect("the memory can be mapped");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("it can be read");
        let start = repeated.memory.address();
        let address = |text: &str| u64::from_str_radix(text, 16).expect("an address");
        let ends = maps.lines().filter_map(|line| line.split_once(' ')?.0.split_once('-'));
        let ours = ends.filter(|(from, _)| {
            (start..start + (PAGES + 1) * BASE_PAGE_BYTES).contains(&address(from))
        });
        let memfd: Vec<u64> = ours.map(|(_, end)| address(end)).collect();
        assert_eq!(memfd.get(2), Some(&(start + PAGES * BASE_PAGE_BYTES)), "{maps}");
    }

    #[test]
    fn costs_are_in_the_order_of_their_distances() {
        let cost = |apart_ns| WalkCostAtInterval { apart_ns, walk_ns: 1.0, error_ns: 0.0 };
        let found = measure_costs_by_interval(&[9.0, 3.0, 9.0, 4.0], cost);
        let apart: Vec<f64> = found.iter().map(|cost| cost.apart_ns).collect();
        assert_eq!(apart, [3.0, 4.0, 9.0]);
    }

    #[test]
    fn impossible_costs_are_refused() {
        let costs = serde_json::to_value(WalkCosts::typical()).expect("costs serialize");
        assert!(parse_costs(costs.to_string().as_bytes()).is_ok());
        for (place, value) in [
            ("/by_footprint/1/footprint_bytes", 1.into()),
            ("/by_distance/0/walk_ns", 1e300.into()),
            ("/streamed", Value::Null),
        ] {
            let mut costs = costs.clone();
            *costs.pointer_mut(place).expect("the JSON has this field") = value;
            assert!(parse_costs(costs.to_string().as_bytes()).is_err(), "{place}");
        }
        assert!(parse_costs(b"{").is_err());
        assert!(parse_costs("[".repeat(60_000).as_bytes()).is_err());
    }
}
