//! Promotions with and without a page of the reserve of huge pages, while free memory is backed,
//! long free, and fragmented.
//!
//! Nothing is simulated.

use super::fragmented_memory::fragment_free_memory;
use super::free_memory::{FreeMemory, FreeMemoryTouchTimes};
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
/// What is measured in less fragmented memory would not be that of the FMFI that was asked for.
const FMFI_TOLERANCE: f64 = 0.1;
/// Promotions of each kind in fragmented memory.
const IN_FRAGMENTED_MEMORY: u32 = 256;
/// Longest time to admit a process, to fill or empty the reserve, or for one promotion.
const AT_MOST: Duration = Duration::from_secs(60);
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
    /// Durations of those that made a region huge, in microseconds: all that the manager waits.
    done_us: Vec<f64>,
    /// Of the same promotions, durations of the call that collapses the region.
    call_us: Vec<f64>,
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

/// Promotions in fragmented memory.
struct FragmentedComparison {
    /// The fragmentation that was reached (0-1).
    fmfi: f64,
    /// Free huge pages before the promotions with the reserve, and before those without.
    free_huge_pages: [u64; 2],
    promotions: ReserveComparison,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let (pages, turns) = scale.short_or_long((32, 2), (64, 4));
    let fragmented = &FMFI[..scale.short_or_long(1, FMFI.len())];
    // The program, its huge pages and the reserve, in the largest of the states.
    let program_bytes = u64::from(2 * IN_FRAGMENTED_MEMORY) * HUGE_PAGE_BYTES;
    require_available_memory(3 * program_bytes)?;
    let touch_times = FreeMemoryTouchTimes::measure_and_report(host, report)?;
    for memory in FreeMemory::ALL {
        let (measured, goal) = match memory {
            FreeMemory::Backed => {
                memory.prepare(host, 3 * program_bytes)?;
                (measure_backed(host, pages, turns)?, String::new())
            }
            FreeMemory::LongFree => {
                let goal = touch_times.goal_or_not_decided(memory, "at most 0.125");
                measure_long_free(host, pages * turns, touch_times, goal)?
            }
        };
        let what = format!("{}: filling a page of the reserve", memory.name());
        report.add_row(what, measured.fill_us, "us", "of CPU time, mean");
        add_rows_to_report(memory.name(), &goal, &measured, report);
    }
    for fmfi in fragmented {
        FreeMemory::Backed.prepare(host, 3 * program_bytes)?;
        add_fragmented_rows_to_report(&measure_fragmented(host, *fmfi)?, report);
    }
    report.add_note(format!(
        "Promotions of base pages in use, one by one, by the call that the manager makes. The time of a promotion is all that the manager waits, with the reserve's answer. The time of the collapse call alone leaves out checks and the wait for a helper. Backed memory: {pages} pages are filled, {pages} promotions have them, and {pages} have none, {turns} times in turn. Long-free memory: one turn of {}. Fragmented memory: the pages are filled first, and kept pages that cannot be moved fragment the rest. The first {IN_FRAGMENTED_MEMORY} promotions have the reserve, and then it is empty for as many. A manager holds at most 256 MiB and 1 % of memory by default.",
        pages * turns
    ));
    report.add_note("Each promotion frees base pages, which are backed, and may join to a free huge page. Later promotions may get that.");
    report.add_note("A promotion waited for compaction if /proc/vmstat counted a stall of any task of the machine meanwhile (compact_stall).");
    for memory in FreeMemory::ALL {
        report.add_note(format!("With {}: {}", memory.name(), memory.describe()));
    }
    report.add_note("In long-free memory this wait is before the reserve is filled, and again before the promotions without it. It is repeated, up to four times, until first touches of some memory, which is then held, take twice as long as those of backed memory.");
    Ok(())
}

fn measure_backed(host: &BenchHost, pages: u32, turns: u32) -> BenchResult<ReserveComparison> {
    let mut program = PromotedProgram::start(host, 2 * pages * turns)?;
    let mut measured = ReserveComparison::default();
    for _ in 0..turns {
        program.fill_reserve(pages)?;
        measured.with.append(program.promote_next(pages)?);
        program.empty_reserve(pages)?;
        measured.without.append(program.promote_next(pages)?);
    }
    Ok(ReserveComparison { fill_us: program.mean_fill_us(), ..measured })
}

/// There is one turn, because the base pages that promotions free are backed, and the next turn
/// would get them. The goal is not decided where the host has not taken free memory back before the
/// promotions without the reserve.
fn measure_long_free(
    host: &mut BenchHost,
    pages: u32,
    touch_times: FreeMemoryTouchTimes,
    goal: String,
) -> BenchResult<(ReserveComparison, String)> {
    let mut program = PromotedProgram::start(host, 2 * pages)?;
    let touched = touch_times.wait_until_taken_back(host)?;
    program.fill_reserve(pages)?;
    let with = program.promote_next(pages)?;
    program.empty_reserve(pages)?;
    drop(touched);
    let touched = touch_times.wait_until_taken_back(host)?;
    let without = program.promote_next(pages)?;
    let goal = match touched {
        None if touch_times.host_takes_memory_back() => {
            "free memory was still backed before promotions without: not decided".to_owned()
        }
        _ => goal,
    };
    Ok((ReserveComparison { with, without, fill_us: program.mean_fill_us() }, goal))
}

fn measure_fragmented(host: &BenchHost, target_fmfi: f64) -> BenchResult<FragmentedComparison> {
    let mut program = PromotedProgram::start(host, 2 * IN_FRAGMENTED_MEMORY)?;
    program.fill_reserve(IN_FRAGMENTED_MEMORY)?;
    let options = format!("--fmfi {target_fmfi} --unmovable");
    let (_fragmenter, fmfi) = fragment_free_memory(host, &options)?;
    require_fragmentation(fmfi, target_fmfi)?;
    let free_before_with = read_free_huge_pages()?;
    let with = program.promote_next(IN_FRAGMENTED_MEMORY)?;
    program.empty_reserve(IN_FRAGMENTED_MEMORY)?;
    let free_before_without = read_free_huge_pages()?;
    let without = program.promote_next(IN_FRAGMENTED_MEMORY)?;
    let promotions = ReserveComparison { with, without, fill_us: program.mean_fill_us() };
    let free_huge_pages = [free_before_with, free_before_without];
    Ok(FragmentedComparison { fmfi, free_huge_pages, promotions })
}

fn require_fragmentation(fmfi: f64, target_fmfi: f64) -> BenchResult<()> {
    if fmfi < target_fmfi - FMFI_TOLERANCE {
        bail!(
            "free memory was to be fragmented to an FMFI of {target_fmfi:.2}, but reached {fmfi:.2}: free more memory first"
        );
    }
    Ok(())
}

fn read_free_huge_pages() -> BenchResult<u64> {
    let unreadable = || impossible!("the kernel does not show free blocks (/proc/buddyinfo)");
    count_free_huge_pages().ok_or_else(unreadable)
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
            Ok(PromotionResult::Done { took: call_took, from_reserve, .. }) => {
                self.from_reserve += usize::from(from_reserve);
                self.done_us.push(took.as_secs_f64() * 1e6);
                self.call_us.push(call_took.as_secs_f64() * 1e6);
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
        self.call_us.append(&mut other.call_us);
        self.from_reserve += other.from_reserve;
        self.compacted += other.compacted;
        self.refused += other.refused;
        self.first_refusal = self.first_refusal.take().or(other.first_refusal);
    }

    /// Promotions that waited for compaction, or for which the reserve gave no page. One that was
    /// refused may not have waited, but had none either.
    fn count_without_ready_page(&self) -> usize {
        let all = self.done_us.len() + self.refused;
        self.compacted.max(all - self.from_reserve)
    }

    fn describe(&self) -> String {
        let mut text = format!(
            "p90 {:.0}; {} done, {} with a page of the reserve, {} waited for compaction",
            p90_us(&self.done_us),
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

/// Infinite without promotions.
fn median_us(durations_us: &[f64]) -> f64 {
    if durations_us.is_empty() { f64::INFINITY } else { median(durations_us) }
}

/// Infinite without promotions.
fn p90_us(durations_us: &[f64]) -> f64 {
    quantile_of_sorted(&sorted(durations_us.to_vec()), 900).unwrap_or(f64::INFINITY)
}

fn add_fragmented_rows_to_report(measured: &FragmentedComparison, report: &mut LiveReport) {
    let FragmentedComparison { fmfi, free_huge_pages, promotions } = measured;
    let state = format!("FMFI {fmfi:.2}");
    add_rows_to_report(&state, "", promotions, report);
    let [before_with, before_without] = free_huge_pages;
    report.add_row(
        format!("{state}: promotions that waited for compaction or had no page of the reserve"),
        promotions.with.count_without_ready_page() as f64,
        "",
        format!(
            "goal 0 of {IN_FRAGMENTED_MEMORY}; {} without the reserve waited for compaction; free huge pages: {before_with} before the promotions with the reserve, {before_without} before those without",
            promotions.without.compacted
        ),
    );
}

fn add_rows_to_report(
    state: &str,
    goal: &str,
    measured: &ReserveComparison,
    report: &mut LiveReport,
) {
    let ReserveComparison { with, without, .. } = measured;
    let mut rows = report.prefixed_row_writer(state);
    let [promotion, promotion_without] = [with, without].map(|it| median_us(&it.done_us));
    rows.add_row("promotion with the reserve", promotion, "us", with.describe());
    rows.add_row("promotion without", promotion_without, "us", without.describe());
    let [call, call_without] = [with, without].map(|it| median_us(&it.call_us));
    let p90 =
        |figures: &PromotionFigures| format!("the call alone; p90 {:.0}", p90_us(&figures.call_us));
    rows.add_row("collapse call with the reserve", call, "us", p90(with));
    rows.add_row("collapse call without", call_without, "us", p90(without));
    if !with.done_us.is_empty() && !without.done_us.is_empty() {
        rows.add_row("with the reserve, over without", promotion / promotion_without, "", goal);
        rows.add_row("collapse call, over without", call / call_without, "", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(took_us: &[u64], from_reserve: bool) -> PromotionFigures {
        let mut figures = PromotionFigures::default();
        for us in took_us {
            let (took, cpu) = (Duration::from_micros(*us), Duration::ZERO);
            let done = PromotionResult::Done { took: took / 2, cpu, from_reserve };
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
        add_rows_to_report("memory long free", "goal at most 0.125", &measured, &mut report);
        let row = report.row("memory long free: promotion with the reserve");
        assert_eq!(row.value, 500.0);
        assert!(row.beside.contains("3 done, 2 with a page of the reserve"), "{}", row.beside);
        let ratio = report.row("memory long free: with the reserve, over without");
        assert_eq!((ratio.value, ratio.beside.as_str()), (0.1, "goal at most 0.125"));
        // The call alone is faster than the promotion.
        assert_eq!(report.row("memory long free: collapse call with the reserve").value, 250.0);
        assert_eq!(report.row("memory long free: collapse call, over without").value, 0.1);
    }

    #[test]
    fn a_promotion_without_a_page_of_the_reserve_does_not_reach_the_goal() {
        let row_of = |with: PromotionFigures| {
            let promotions = ReserveComparison { with, ..ReserveComparison::default() };
            let measured = FragmentedComparison { fmfi: 0.9, free_huge_pages: [7, 9], promotions };
            let mut report = LiveReport::new("reserve");
            add_fragmented_rows_to_report(&measured, &mut report);
            report.rows.pop().expect("it has rows")
        };
        assert_eq!(row_of(figures(&[400, 500], true)).value, 0.0);
        // No task waited for compaction, but one promotion had no page, and one was refused.
        let mut with = figures(&[400, 500], true);
        with.append(figures(&[600], false));
        with.record(Ok(PromotionResult::Freed), Duration::ZERO, false);
        let row = row_of(with);
        assert_eq!(row.value, 2.0);
        assert!(row.beside.contains("7 before the promotions with"), "{}", row.beside);
        assert!(row.beside.contains("9 before those without"), "{}", row.beside);
        let mut waited = figures(&[400], true);
        let done =
            PromotionResult::Done { took: Duration::ZERO, cpu: Duration::ZERO, from_reserve: true };
        waited.record(Ok(done), Duration::ZERO, true);
        assert_eq!(row_of(waited).value, 1.0);
    }

    #[test]
    fn memory_must_be_about_as_fragmented_as_was_asked_for() {
        assert!(require_fragmentation(0.81, 0.9).is_ok());
        assert!(require_fragmentation(1.0, 0.9).is_ok());
        let error = require_fragmentation(0.79, 0.9).expect_err("it is too little");
        assert!(error.to_string().contains("reached 0.79"), "{error}");
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
        // No ratios.
        assert_eq!(report.rows.len(), 4);
    }
}
