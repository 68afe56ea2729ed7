//! Two processes that read one file of shared memory at random: HawkEye promotes each region once,
//! and both become as fast as with huge pages from the start.

use super::prelude::*;
use super::programs::program_speed::{measure_relative_speeds, start_all_work};
use super::programs::start_reader_workload;
use super::shared_memory_arm::{
    ALL_PERCENT, PromotionOutcome, SharedMemoryArm, add_promotion_rows, add_row_with_range,
    create_shared_file, least_huge_percent, measure_each_round, promote_then,
};
use hawkeye_workload::path_for_other_processes;

const READERS: usize = 2;

/// Two readers of one file, before HawkEye and with it.
#[derive(Clone, Copy, Debug, Default)]
struct ReadersRound {
    base: SpeedsOfReaders,
    managed: SpeedsOfReaders,
    promotion: PromotionOutcome,
}

#[derive(Clone, Copy, Debug, Default)]
struct SpeedsOfReaders {
    /// Speed of each as a share of that of a reader of a file that is huge from the start.
    relative: [f64; READERS],
    /// Share of the mapped file that is huge, in the process that has least of it.
    huge_percent: f64,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([256, 2, 1000, 60_000], [4096, 10, 2000, 240_000]);
    let rounds = scale.short_or_long(1, 3);
    let bytes = sizes.mib << 20;
    // Two files, and new huge pages for one of them.
    require_available_memory(3 * bytes)?;
    let measured = measure_each_round(report, rounds, || {
        host.touch_memory_once(3 * bytes)?;
        measure_readers(host, sizes)
    })?;
    add_rows_to_report(&measured, bytes / HUGE_PAGE_BYTES, report);
    report.add_note(format!(
        "{READERS} processes map one memfd of {} MiB, aligned, and read random words of it at the same time, on {} cores. Beside them are {READERS} readers of another such file, which is huge from the first touch (shmem_enabled=always). The pairs work in turn, {} turns of {} s each: first under base pages, then with hawkeye attach --shared-memory for the first pair, once {ALL_PERCENT} % are huge, or {} s after its start. Each round starts all readers anew, after a filler has touched three times the memory of a file and has exited. Speeds are reads per second of the readers' CPU time.",
        sizes.mib,
        std::thread::available_parallelism().map_or(0, usize::from),
        sizes.turns,
        sizes.turn.as_secs_f64(),
        sizes.at_most.as_secs(),
    ));
    Ok(())
}

fn measure_readers(host: &mut BenchHost, sizes: TurnSettings) -> BenchResult<ReadersRound> {
    let mut all_huge = SharedMemoryArm::ShmemAlways.run_under_arm(host, |host| {
        let readers = start_readers(host, sizes.mib)?;
        let percent = least_huge_percent(&pids_of(&readers))?;
        if percent < ALL_PERCENT {
            bail!("under shmem_enabled=always {percent:.0} % of the file became huge");
        }
        Ok(readers)
    })?;
    SharedMemoryArm::HawkEye.run_under_arm(host, |host| {
        let mut readers = start_readers(host, sizes.mib)?;
        let pids = pids_of(&readers);
        let base = measure_beside_all_huge(&mut readers, &mut all_huge, sizes)?;
        start_all_work(&mut readers)?;
        let measure = || measure_beside_all_huge(&mut readers, &mut all_huge, sizes);
        let (managed, promotion) = promote_then(&pids, &pids, sizes.at_most, measure)?;
        Ok(ReadersRound { base, managed, promotion })
    })
}

fn start_readers(host: &BenchHost, mib: u64) -> BenchResult<Vec<Box<dyn MeasuredProgram>>> {
    let file = create_shared_file(mib << 20)?;
    let words = format!("random --mib {mib} --file {}", path_for_other_processes(&file));
    let start = |_| start_reader_workload(host.workload_program_path(), &words);
    (0..READERS).map(start).collect()
}

fn pids_of(readers: &[Box<dyn MeasuredProgram>]) -> Vec<u32> {
    readers.iter().map(|reader| reader.pid()).collect()
}

fn measure_beside_all_huge(
    readers: &mut [Box<dyn MeasuredProgram>],
    all_huge: &mut [Box<dyn MeasuredProgram>],
    sizes: TurnSettings,
) -> BenchResult<SpeedsOfReaders> {
    let relative = measure_relative_speeds(readers, all_huge, sizes)?;
    Ok(SpeedsOfReaders { relative, huge_percent: least_huge_percent(&pids_of(readers))? })
}

fn add_rows_to_report(rounds: &[ReadersRound], regions: u64, report: &mut LiveReport) {
    let of_rounds = |state: fn(&ReadersRound) -> SpeedsOfReaders| -> Vec<SpeedsOfReaders> {
        rounds.iter().map(state).collect()
    };
    let states = [
        ("base pages", of_rounds(|round| round.base), ""),
        ("HawkEye", of_rounds(|round| round.managed), "; goal at least 95"),
    ];
    for (name, measured, goal) in &states {
        for reader in 0..READERS {
            let percent = measured.iter().map(|speeds| speeds.relative[reader] * 100.0);
            let what = format!("{name}: speed of reader {}", reader + 1);
            let beside =
                format!("of that of a reader with a file that is huge from the start{goal}");
            add_row_with_range(report, what, percent.collect(), "%", &beside);
        }
    }
    for (name, measured, _) in &states {
        let percent = measured.iter().map(|speeds| speeds.huge_percent);
        let what = format!("{name}: share that is huge");
        let beside = "of the mapped file, in the reader with the smaller share";
        add_row_with_range(report, what, percent.collect(), "%", beside);
    }
    let outcomes: Vec<_> = rounds.iter().map(|round| round.promotion).collect();
    let promoted_of = format!("goal: once each of the file's {regions} regions");
    add_promotion_rows(report, &outcomes, &promoted_of);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_is_compared_with_one_whose_file_is_all_huge() {
        let round = |managed: [f64; READERS]| ReadersRound {
            base: SpeedsOfReaders { relative: [0.5, 0.25], huge_percent: 0.0 },
            managed: SpeedsOfReaders { relative: managed, huge_percent: 99.0 },
            promotion: PromotionOutcome { promoted: 8, ..PromotionOutcome::default() },
        };
        let mut report = LiveReport::new("shared-readers");
        add_rows_to_report(
            &[round([1.0, 0.9]), round([0.98, 1.0]), round([0.5, 1.0])],
            8,
            &mut report,
        );
        let value = |what: &str| report.row(what).value;
        assert_eq!(value("base pages: speed of reader 1"), 50.0);
        assert_eq!(value("base pages: speed of reader 2"), 25.0);
        assert_eq!(value("HawkEye: speed of reader 1"), 98.0);
        assert_eq!(value("HawkEye: speed of reader 2"), 100.0);
        assert_eq!(value("HawkEye: share that is huge"), 99.0);
        assert_eq!(value("HawkEye: promotions"), 8.0);
    }
}
