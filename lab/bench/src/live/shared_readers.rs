//! Two processes that read one file of shared memory at random: HawkEye promotes each region once,
//! and both become as fast as with huge pages from the start.

use super::prelude::*;
use super::programs::program_speed::{measure_together, start_all_work};
use super::programs::start_reader_workload;
use super::shared_memory_arm::{
    ALL_PERCENT, ArmRound, PromotionOutcome, SharedMemoryArm, add_promotion_rows,
    add_row_with_range, least_huge_percent, measure_arms_in_rounds, promote_then,
};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use std::os::fd::{AsRawFd, OwnedFd};

const READERS: usize = 2;
/// Huge from the start is what the others are compared with.
const ARMS: [SharedMemoryArm; 3] =
    [SharedMemoryArm::BasePages, SharedMemoryArm::ShmemAlways, SharedMemoryArm::HawkEye];

#[derive(Clone, Copy, Debug, Default)]
struct ReadersFigures {
    speeds: [ProgramSpeed; READERS],
    /// Share of the mapped file that is huge, in the process that has least of it.
    huge_percent: f64,
    /// `None` without HawkEye.
    promotion: Option<PromotionOutcome>,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([256, 1, 4000, 60_000], [4096, 3, 15_000, 240_000]);
    let bytes = sizes.mib << 20;
    require_available_memory(2 * bytes)?;
    let rounds = measure_arms_in_rounds(&ARMS, sizes.turns, |arm| {
        host.touch_memory_once(bytes)?;
        let figures = arm.run_under_arm(host, bytes, |host| measure_readers(host, arm, sizes))?;
        eprintln!("hawkeye-lab: {}: readers under {} are done", report.name, arm.name());
        Ok(figures)
    })?;
    add_rows_to_report(&rounds, bytes / HUGE_PAGE_BYTES, report);
    report.add_note(format!(
        "{READERS} processes map one memfd of {} MiB, aligned, and read random words of it at the same time, on {} cores. Each arm starts them anew, after a filler has touched as much memory and has exited. shmem always: huge from the first touch. HawkEye: hawkeye attach --shared-memory for both while they read, under shmem_enabled=advise. Speeds are measured for {} s, with HawkEye once {ALL_PERCENT} % are huge, or {} s after its start. They are reads per second of wall-clock time, so what HawkEye costs the readers is in them.",
        sizes.mib,
        std::thread::available_parallelism().map_or(0, usize::from),
        sizes.turn.as_secs(),
        sizes.at_most.as_secs(),
    ));
    Ok(())
}

fn measure_readers(
    host: &BenchHost,
    arm: SharedMemoryArm,
    sizes: TurnSettings,
) -> BenchResult<ReadersFigures> {
    let file = create_memory_file(sizes.mib << 20)?;
    // Each reader opens the file of this process.
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let words = format!("random --mib {} --file {path}", sizes.mib);
    let start = |_| start_reader_workload(host.workload_program_path(), &words);
    let mut readers: Vec<_> = (0..READERS).map(start).collect::<BenchResult<_>>()?;
    let pids: Vec<u32> = readers.iter().map(|reader| reader.pid()).collect();
    start_all_work(&mut readers)?;
    let mut measure = || {
        let speeds = measure_together(&mut readers, sizes.turn)?;
        Ok((speeds, least_huge_percent(&pids)?))
    };
    let ((speeds, huge_percent), promotion) = match arm {
        SharedMemoryArm::HawkEye => {
            let (done, outcome) = promote_then(&pids, &pids, sizes.at_most, measure)?;
            (done, Some(outcome))
        }
        _ => (measure()?, None),
    };
    let speeds = <[_; READERS]>::try_from(speeds);
    let speeds = speeds.map_err(|_| impossible!("not every reader was measured"))?;
    Ok(ReadersFigures { speeds, huge_percent, promotion })
}

fn create_memory_file(bytes: u64) -> BenchResult<OwnedFd> {
    let failed = LinuxError::wrap_errno("creating a file in memory");
    let file = memfd_create(c"readers", MFdFlags::MFD_CLOEXEC).map_err(failed)?;
    let failed = LinuxError::wrap_errno("setting the size of a file in memory");
    ftruncate(&file, bytes as i64).map_err(failed)?;
    Ok(file)
}

fn add_rows_to_report(rounds: &[ArmRound<ReadersFigures>], regions: u64, report: &mut LiveReport) {
    for arm in [SharedMemoryArm::BasePages, SharedMemoryArm::HawkEye] {
        let goal = if arm == SharedMemoryArm::HawkEye { "; goal at least 95" } else { "" };
        for reader in 0..READERS {
            let percent = |part: fn(&ProgramSpeed) -> f64| {
                let shares = rounds.iter().filter_map(|round| {
                    let speed = |arm| Some(part(&round.get(&arm)?.speeds[reader]));
                    Some(speed(arm)? * 100.0 / speed(SharedMemoryArm::ShmemAlways)?)
                });
                shares.collect::<Vec<_>>()
            };
            let by_cpu_time = median(&percent(|speed| speed.per_cpu_s));
            add_row_with_range(
                report,
                format!("{}: speed of reader {}", arm.name(), reader + 1),
                percent(|speed| speed.per_s),
                "%",
                &format!("of its speed huge from the start; by CPU time {by_cpu_time:.1}{goal}"),
            );
        }
    }
    for arm in ARMS {
        let percent = rounds.iter().filter_map(|round| Some(round.get(&arm)?.huge_percent));
        let what = format!("{}: share that is huge", arm.name());
        let beside = "of the mapped file, in the reader with the smaller share";
        add_row_with_range(report, what, percent.collect(), "%", beside);
    }
    let outcomes: Vec<_> =
        rounds.iter().filter_map(|round| round.get(&SharedMemoryArm::HawkEye)?.promotion).collect();
    let promoted_of = format!("goal: once each of the file's {regions} regions");
    add_promotion_rows(report, &outcomes, &promoted_of);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_is_compared_with_itself_in_the_same_round() {
        let figures = |first: f64, second: f64| ReadersFigures {
            speeds: [first, second].map(|per_s| ProgramSpeed { per_s, per_cpu_s: 2.0 * per_s }),
            ..ReadersFigures::default()
        };
        let round = |speed: f64| {
            let outcome = PromotionOutcome { promoted: 8, ..PromotionOutcome::default() };
            let managed =
                ReadersFigures { promotion: Some(outcome), ..figures(96.0 * speed, 190.0 * speed) };
            ArmRound::from([
                (SharedMemoryArm::BasePages, figures(50.0 * speed, 80.0 * speed)),
                (SharedMemoryArm::ShmemAlways, figures(100.0 * speed, 200.0 * speed)),
                (SharedMemoryArm::HawkEye, managed),
            ])
        };
        let mut report = LiveReport::new("shared-readers");
        // The machine is twice as fast in the second round.
        add_rows_to_report(&[round(1.0), round(2.0)], 8, &mut report);
        let value = |what: &str| {
            let row = report.rows.iter().find(|row| row.what == what);
            row.unwrap_or_else(|| panic!("{what}: {report}")).value
        };
        assert_eq!(value("base pages: speed of reader 1"), 50.0);
        assert_eq!(value("base pages: speed of reader 2"), 40.0);
        assert_eq!(value("HawkEye: speed of reader 1"), 96.0);
        assert_eq!(value("HawkEye: speed of reader 2"), 95.0);
        assert_eq!(value("HawkEye: promotions"), 8.0);
    }
}
