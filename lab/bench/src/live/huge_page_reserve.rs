//! Promotions with and without a page of the reserve of huge pages, while free memory is backed,
//! long free, and fragmented.
//!
//! Nothing is simulated. Whether the host takes free memory back shows in what filling a page of
//! the reserve costs: that is the first touch of 2 MiB.

use super::fragmented_memory::fragment_free_memory;
use super::free_memory::FreeMemory;
use super::prelude::*;
use super::proc_files::read_vmstat_counter;
use super::programs::poll_for_answer;
use crate::statistics::{quantile_of_sorted, sorted};
use hawkeye_linux::memory::fragmentation::count_free_huge_pages;
use hawkeye_linux::stop_signals::StopSignals;
use hawkeye_linux::{LinuxMachine, ManagedTarget};
use hawkeye_manager::{HugePageReserveControl as _, Machine as _, MachineError, PromotionResult};
use hawkeye_policy::{ProcessId, Promotion, Reason, ReserveTarget};
use std::iter::StepBy;
use std::ops::Range;

/// Shares of free memory that are in blocks smaller than a huge page; the quick form has the first.
const FMFI: [f64; 2] = [0.9, 1.0];
/// Promotions of each kind in fragmented memory.
const IN_FRAGMENTED_MEMORY: u32 = 256;
/// Longest time to admit a process, to fill or empty the reserve, or for one promotion.
const AT_MOST: Duration = Duration::from_secs(60);
/// The host takes free memory back if the first touch of long-free memory costs at least this many
/// times that of backed memory.
const TAKEN_BACK_FROM: f64 = 2.0;
/// Tasks that waited for compaction, on the whole machine.
const COMPACTION_STALLS: &str = "compact_stall";

/// A program, and the manager's machine, which promotes its regions one by one.
struct PromotedProgram {
    machine: LinuxMachine,
    process: ProcessId,
    /// Starts of the regions that are left.
    regions: StepBy<Range<u64>>,
    _workload: WorkloadProcess,
}

/// What some promotions cost.
#[derive(Clone, Debug, Default)]
struct PromotionFigures {
    /// Durations of those that made a region huge, in microseconds.
    done_us: Vec<f64>,
    from_reserve: usize,
    /// Those during which a task of the machine waited for compaction.
    compacted: usize,
    refused: usize,
    first_refusal: Option<String>,
}

/// Promotions in one state of free memory.
#[derive(Clone, Debug, Default)]
struct ReserveComparison {
    with: PromotionFigures,
    without: PromotionFigures,
    /// Mean CPU time of filling a page of the reserve, in microseconds.
    fill_us: f64,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let (pages, turns) = scale.short_or_long((32, 2), (64, 4));
    let fragmented = &FMFI[..scale.short_or_long(1, FMFI.len())];
    // The program, its huge pages and the reserve, in the largest of the states.
    let program_bytes = u64::from(2 * IN_FRAGMENTED_MEMORY) * HUGE_PAGE_BYTES;
    require_available_memory(3 * program_bytes)?;
    let mut fill_us = Vec::new();
    for memory in FreeMemory::ALL {
        memory.prepare(host, 3 * program_bytes)?;
        let mut program = PromotedProgram::start(host, 2 * pages * turns)?;
        let measured = program.measure_in_turn(pages, turns)?;
        fill_us.push(measured.fill_us);
        let times = measured.fill_us / fill_us[0];
        let beside = format!("of CPU time; {times:.1} times that of backed memory");
        let what = format!("{}: first touch of 2 MiB", memory.name());
        report.add_row(what, measured.fill_us, "us", beside);
        let goal = match memory {
            FreeMemory::Backed => "",
            FreeMemory::LongFree => long_free_goal(times),
        };
        add_rows_to_report(memory.name(), goal, &measured, report);
    }
    for fmfi in fragmented {
        FreeMemory::Backed.prepare(host, 3 * program_bytes)?;
        let (reached, free_huge_pages, measured) = measure_fragmented(host, *fmfi)?;
        let state = format!("FMFI {reached:.2}");
        add_rows_to_report(&state, "", &measured, report);
        report.add_row(
            format!("{state}: promotions with the reserve that waited for compaction"),
            measured.with.compacted as f64,
            "",
            format!(
                "goal 0 of {IN_FRAGMENTED_MEMORY}; without: {}; {free_huge_pages} huge pages were free",
                measured.without.compacted
            ),
        );
    }
    report.add_note(format!(
        "Promotions of base pages in use, one by one, by the call that the manager makes. The time is all that the manager waits, with the reserve's answer. Backed and long-free memory: {pages} pages are filled, {pages} promotions have them, and {pages} have none, {turns} times in turn. Fragmented memory: the pages are filled first, and kept pages that cannot be moved fragment the rest. The first {IN_FRAGMENTED_MEMORY} promotions have the reserve, and then it is empty for as many. A manager holds at most 256 MiB and 1 % of memory by default."
    ));
    report.add_note("A promotion waited for compaction if /proc/vmstat counted a stall of any task of the machine meanwhile (compact_stall).");
    for memory in FreeMemory::ALL {
        report.add_note(format!("With {}: {}", memory.name(), memory.describe()));
    }
    Ok(())
}

/// The goal of the ratio in long-free memory, if a first touch takes this many times as long there
/// as in backed memory.
fn long_free_goal(times: f64) -> &'static str {
    if times >= TAKEN_BACK_FROM {
        "goal at most 0.125"
    } else {
        "this host does not take memory back: ratio not decided"
    }
}

/// Returns the fragmentation that was reached (0-1), and the number of free huge pages, too.
fn measure_fragmented(
    host: &mut BenchHost,
    fmfi: f64,
) -> BenchResult<(f64, u64, ReserveComparison)> {
    let mut program = PromotedProgram::start(host, 2 * IN_FRAGMENTED_MEMORY)?;
    program.fill_reserve(IN_FRAGMENTED_MEMORY)?;
    let (_fragmenter, reached) = fragment_free_memory(host, &format!("--fmfi {fmfi} --unmovable"))?;
    let free_huge_pages = count_free_huge_pages()
        .ok_or_else(|| impossible!("the kernel does not show free blocks (/proc/buddyinfo)"))?;
    let with = program.promote_next(IN_FRAGMENTED_MEMORY)?;
    program.empty_reserve(IN_FRAGMENTED_MEMORY)?;
    let without = program.promote_next(IN_FRAGMENTED_MEMORY)?;
    let fill_us = program.mean_fill_us();
    Ok((reached, free_huge_pages, ReserveComparison { with, without, fill_us }))
}

impl PromotedProgram {
    /// Starts a program with this many regions of base pages in use.
    fn start(host: &BenchHost, regions: u32) -> BenchResult<Self> {
        let words = format!("burner --mib {} --pages base", regions * 2);
        let mut workload = host.start_workload(&words)?;
        let ready = workload.wait_ready()?;
        let target = ManagedTarget::Processes(vec![ProcessHandle::open(ready.pid)?]);
        let backend = host.new_kernel_backend()?;
        let mut machine = LinuxMachine::new(backend, target, StopSignals::disabled());
        let admitted = machine.admit_and_list_processes(AT_MOST).into_done().unwrap_or_default();
        let [process] = admitted[..] else {
            bail!("the program to promote, process {}, was not admitted", ready.pid);
        };
        let regions = (ready.start..ready.start + ready.bytes).step_by(HUGE_PAGE_BYTES as usize);
        Ok(Self { machine, process, regions, _workload: workload })
    }

    fn measure_in_turn(&mut self, pages: u32, turns: u32) -> BenchResult<ReserveComparison> {
        let mut measured = ReserveComparison::default();
        for _ in 0..turns {
            self.fill_reserve(pages)?;
            measured.with.append(self.promote_next(pages)?);
            self.empty_reserve(pages)?;
            measured.without.append(self.promote_next(pages)?);
        }
        Ok(ReserveComparison { fill_us: self.mean_fill_us(), ..measured })
    }

    /// Fills the reserve with this many pages. It does not fill itself again as they are used.
    fn fill_reserve(&mut self, pages: u32) -> BenchResult<()> {
        self.set_reserve_target(ReserveTarget { pages, fill: true }, pages)?;
        let filled = self.wait_until_reserve_holds(pages)?;
        self.set_reserve_target(ReserveTarget { pages, fill: false }, pages)?;
        if !filled {
            let state = self.machine.reserve_state();
            bail!(
                "the reserve held {} of {pages} huge pages after {} s, and the kernel had none {} times",
                state.held,
                AT_MOST.as_secs(),
                state.failed
            );
        }
        Ok(())
    }

    /// Takes back what promotions have left of `pages` pages.
    fn empty_reserve(&mut self, pages: u32) -> BenchResult<()> {
        self.set_reserve_target(ReserveTarget::default(), pages)?;
        if !self.wait_until_reserve_holds(0)? {
            bail!("the reserve was not empty after {} s", AT_MOST.as_secs());
        }
        Ok(())
    }

    fn set_reserve_target(&mut self, target: ReserveTarget, most: u32) -> BenchResult<()> {
        let set = self.machine.set_reserve_target(target, most);
        set.map_err(|error| impossible!("setting the size of the reserve: {error}"))
    }

    fn wait_until_reserve_holds(&self, pages: u32) -> BenchResult<bool> {
        let holds = || Ok((self.machine.reserve_state().held == pages).then_some(()));
        Ok(poll_for_answer(AT_MOST, holds)?.is_some())
    }

    fn mean_fill_us(&self) -> f64 {
        let state = self.machine.reserve_state();
        state.fill_cpu.as_secs_f64() * 1e6 / state.filled.max(1) as f64
    }

    /// Promotes the next `count` regions.
    fn promote_next(&mut self, count: u32) -> BenchResult<PromotionFigures> {
        let mut figures = PromotionFigures::default();
        for _ in 0..count {
            let Some(start) = self.regions.next() else {
                bail!("the program to promote has too few regions");
            };
            let (process, region) = (self.process, RegionAddr::containing(start));
            let reason = Reason::new("an experiment");
            let promotion =
                Promotion::to_huge_page(process, region, PAGES_PER_REGION, None, reason);
            let stalls_before = read_compaction_stalls()?;
            let begun = Instant::now();
            let result = self.promote_and_wait(&promotion);
            let took = begun.elapsed();
            let compacted = read_compaction_stalls()? > stalls_before;
            figures.record(result, took, compacted);
        }
        Ok(figures)
    }

    /// A manager does not wait for a slow call, and takes its result later.
    fn promote_and_wait(&mut self, promotion: &Promotion) -> Result<PromotionResult, MachineError> {
        let begun = Instant::now();
        let mut result = self.machine.promote(promotion);
        while result == Ok(PromotionResult::Pending) && begun.elapsed() < AT_MOST {
            std::thread::sleep(Duration::from_micros(200));
            let ended = self.machine.take_timed_out_call_results().ended.pop();
            if let Some(late) = ended {
                result = late.outcome;
            }
        }
        result
    }
}

fn read_compaction_stalls() -> BenchResult<u64> {
    let stalls = read_vmstat_counter(COMPACTION_STALLS)?;
    stalls.ok_or_else(|| impossible!("this kernel does not count {COMPACTION_STALLS}"))
}

impl PromotionFigures {
    fn record(
        &mut self,
        result: Result<PromotionResult, MachineError>,
        took: Duration,
        compacted: bool,
    ) {
        self.compacted += usize::from(compacted);
        let refusal = match result {
            Ok(PromotionResult::Done { from_reserve, .. }) => {
                self.from_reserve += usize::from(from_reserve);
                self.done_us.push(took.as_secs_f64() * 1e6);
                return;
            }
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        };
        self.refused += 1;
        self.first_refusal.get_or_insert(refusal);
    }

    fn append(&mut self, mut other: Self) {
        self.done_us.append(&mut other.done_us);
        self.from_reserve += other.from_reserve;
        self.compacted += other.compacted;
        self.refused += other.refused;
        self.first_refusal = self.first_refusal.take().or(other.first_refusal);
    }

    /// Infinite without promotions.
    fn median_us(&self) -> f64 {
        if self.done_us.is_empty() { f64::INFINITY } else { median(&self.done_us) }
    }

    fn describe(&self) -> String {
        let p90 = quantile_of_sorted(&sorted(self.done_us.clone()), 900);
        let mut text = format!(
            "p90 {:.0}; {} done, {} with a page of the reserve, {} waited for compaction",
            p90.unwrap_or(f64::INFINITY),
            self.done_us.len(),
            self.from_reserve,
            self.compacted,
        );
        if let Some(refusal) = &self.first_refusal {
            text += &format!(", {} refused, the first as: {refusal}", self.refused);
        }
        text
    }
}

fn add_rows_to_report(
    state: &str,
    goal: &str,
    measured: &ReserveComparison,
    report: &mut LiveReport,
) {
    let ReserveComparison { with, without, .. } = measured;
    let mut rows = report.prefixed_row_writer(state);
    rows.add_row("promotion with the reserve", with.median_us(), "us", with.describe());
    rows.add_row("promotion without", without.median_us(), "us", without.describe());
    if !with.done_us.is_empty() && !without.done_us.is_empty() {
        let ratio = with.median_us() / without.median_us();
        rows.add_row("with the reserve, over without", ratio, "", goal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(took_us: &[u64], from_reserve: bool) -> PromotionFigures {
        let mut figures = PromotionFigures::default();
        for us in took_us {
            let (took, cpu) = (Duration::from_micros(*us), Duration::ZERO);
            let done = PromotionResult::Done { took, cpu, from_reserve };
            figures.record(Ok(done), took, false);
        }
        figures
    }

    #[test]
    fn promotions_with_and_without_the_reserve_are_compared_by_their_medians() {
        let mut with = figures(&[400, 500], true);
        with.append(figures(&[600], false));
        let measured =
            ReserveComparison { with, without: figures(&[5000, 4000, 6000], false), fill_us: 0.0 };
        let mut report = LiveReport::new("reserve");
        add_rows_to_report("memory long free", long_free_goal(50.0), &measured, &mut report);
        let row = report.row("memory long free: promotion with the reserve");
        assert_eq!(row.value, 500.0);
        assert!(row.beside.contains("3 done, 2 with a page of the reserve"), "{}", row.beside);
        let ratio = report.row("memory long free: with the reserve, over without");
        assert_eq!((ratio.value, ratio.beside.as_str()), (0.1, "goal at most 0.125"));
    }

    #[test]
    fn a_host_that_leaves_memory_backed_decides_nothing() {
        assert!(long_free_goal(1.9).contains("not decided"));
        assert!(long_free_goal(2.0).starts_with("goal"));
    }

    #[test]
    fn what_was_refused_has_no_duration_and_gives_no_ratio() {
        let mut without = PromotionFigures::default();
        without.record(Ok(PromotionResult::Freed), Duration::from_secs(1), true);
        without.record(Ok(PromotionResult::NotCandidate), Duration::from_secs(1), false);
        assert_eq!((without.compacted, without.refused), (1, 2));
        let measured = ReserveComparison { with: figures(&[400], true), without, fill_us: 0.0 };
        let mut report = LiveReport::new("reserve");
        add_rows_to_report("FMFI 0.90", "", &measured, &mut report);
        let row = report.row("FMFI 0.90: promotion without");
        assert!(row.value.is_infinite());
        assert!(row.beside.ends_with("2 refused, the first as: Freed"), "{}", row.beside);
        assert_eq!(report.rows.len(), 2);
    }
}
