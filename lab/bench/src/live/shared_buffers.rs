//! PostgreSQL with its data in shared buffers: what HawkEye gains in a server that runs, beside
//! what a hugetlb pool and `shmem_enabled=always` gain that were set up before it started.

use super::prelude::*;
use super::programs::{LookUpDatabase, LookUpFigures};
use super::shared_memory_arm::{
    ALL_PERCENT, ArmRound, PromotionOutcome, SharedMemoryArm, add_promotion_rows,
    add_row_with_range, least_huge_percent, measure_arms_in_rounds, promote_then,
    reason_without_hugetlb,
};

const ARMS: [SharedMemoryArm; 4] = [
    SharedMemoryArm::BasePages,
    SharedMemoryArm::Hugetlb,
    SharedMemoryArm::ShmemAlways,
    SharedMemoryArm::HawkEye,
];

#[derive(Clone, Copy, Debug, Default)]
struct BuffersFigures {
    look_ups: LookUpFigures,
    /// Share of the mapped shared memory that is huge, in the backend that has least of it.
    huge_percent: f64,
    /// `None` without HawkEye.
    promotion: Option<PromotionOutcome>,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([512, 1, 8000, 45_000], [4096, 3, 20_000, 100_000]);
    let bytes = shared_memory_bytes(sizes.mib);
    // The files of the database are in the page cache, which is reclaimed where it must be.
    require_available_memory(2 * bytes)?;
    let mut arms = ARMS.to_vec();
    if let Some(reason) = reason_without_hugetlb(host, bytes)? {
        arms.retain(|arm| *arm != SharedMemoryArm::Hugetlb);
        let note = format!("The arm with a hugetlb pool is left out: {reason}.");
        eprintln!("hawkeye-lab: {}: {note}", report.name);
        report.add_note(note);
    }
    let mut database = LookUpDatabase::create(sizes.mib)?;
    let rounds = measure_arms_in_rounds(&arms, sizes.turns, |arm| {
        host.touch_memory_once(bytes)?;
        let figures =
            arm.run_under_arm(host, bytes, |_| measure_look_ups(&mut database, arm, sizes))?;
        eprintln!("hawkeye-lab: {}: PostgreSQL under {} is done", report.name, arm.name());
        Ok(figures)
    })?;
    add_rows_to_report(&rounds, bytes / HUGE_PAGE_BYTES, report);
    report.add_note(format!(
        "PostgreSQL has {} MiB of shared buffers, nine tenths of them full. Three clients of pgbench -S -M prepared keep their connections, on a core of their own. Each arm starts the server anew, after a filler has touched as much memory as the server needs, and has exited. Then all data are read into the buffers, and the clients look up rows until each backend has mapped nine tenths of them. Look-ups are measured for {} s. p99: of a tenth of the transactions, which pgbench logs.",
        sizes.mib,
        sizes.turn.as_secs(),
    ));
    report.add_note(format!(
        "HawkEye: the server starts under shmem_enabled=advise, as --align-shared-memory sets it. hawkeye attach --shared-memory gets all processes of the server, as from pgrep -u postgres, when the backends have mapped the data. The measurement begins once {ALL_PERCENT} % are huge, or after {} s. HawkEye is attached until its end, so its CPU time is in the figures.",
        sizes.at_most.as_secs(),
    ));
    Ok(())
}

/// The shared memory of a server with such buffers: PostgreSQL adds two per cent, and some MiB for
/// locks and the write-ahead log.
fn shared_memory_bytes(buffers_mib: u64) -> u64 {
    (buffers_mib + buffers_mib / 25 + 64) << 20
}

fn measure_look_ups(
    database: &mut LookUpDatabase,
    arm: SharedMemoryArm,
    sizes: TurnSettings,
) -> BenchResult<BuffersFigures> {
    database.run_with_clients(arm == SharedMemoryArm::Hugetlb, |clients| {
        let measure =
            || Ok((clients.measure(sizes.turn)?, least_huge_percent(clients.backends())?));
        let ((look_ups, huge_percent), promotion) = match arm {
            SharedMemoryArm::HawkEye => {
                let all = clients.server_processes();
                let (done, outcome) =
                    promote_then(&all, clients.backends(), sizes.at_most, measure)?;
                (done, Some(outcome))
            }
            _ => (measure()?, None),
        };
        Ok(BuffersFigures { look_ups, huge_percent, promotion })
    })
}

fn add_rows_to_report(rounds: &[ArmRound<BuffersFigures>], regions: u64, report: &mut LiveReport) {
    for arm in &ARMS[1..] {
        let beside =
            format!("of base pages; {:.0} in a second", median_of_arm(rounds, *arm, per_s));
        let what = format!("{}: transactions", arm.name());
        add_row_with_range(report, what, ratios(rounds, *arm, per_s), "times", &beside);
    }
    for arm in [SharedMemoryArm::ShmemAlways, SharedMemoryArm::HawkEye] {
        let gain = |of: &f64| of - 1.0;
        let hugetlb = ratios(rounds, SharedMemoryArm::Hugetlb, per_s);
        let shares = ratios(rounds, arm, per_s);
        // Without a gain there is no share of it.
        let gained = shares.iter().zip(&hugetlb).filter(|(_, all)| gain(all) > 0.0);
        let shares = gained.map(|(own, all)| gain(own) * 100.0 / gain(all));
        let goal = if arm == SharedMemoryArm::HawkEye { "; goal at least 90" } else { "" };
        let beside = format!("of what hugetlb gains over base pages, where it gains{goal}");
        let what = format!("{}: share of the gain", arm.name());
        add_row_with_range(report, what, shares.collect(), "%", &beside);
    }
    let base_us = median_of_arm(rounds, SharedMemoryArm::BasePages, p99_us);
    for arm in &ARMS[1..] {
        let goal = if *arm == SharedMemoryArm::HawkEye { "; goal at most 1.05" } else { "" };
        let own_us = median_of_arm(rounds, *arm, p99_us);
        let beside = format!("of base pages; {own_us:.0} us beside {base_us:.0}{goal}");
        let what = format!("{}: p99", arm.name());
        add_row_with_range(report, what, ratios(rounds, *arm, p99_us), "times", &beside);
    }
    for arm in ARMS {
        let what = format!("{}: share that is huge", arm.name());
        let percent = figures_of_arm(rounds, arm, |it| it.huge_percent);
        let beside = "of the mapped shared memory, in the backend with the smallest share";
        add_row_with_range(report, what, percent, "%", beside);
    }
    let outcomes: Vec<_> =
        rounds.iter().filter_map(|round| round.get(&SharedMemoryArm::HawkEye)?.promotion).collect();
    let promoted_of =
        format!("of {regions} regions of 2 MiB, a tenth of which no process has touched");
    add_promotion_rows(report, &outcomes, &promoted_of);
}

fn per_s(figures: &BuffersFigures) -> f64 {
    figures.look_ups.per_s
}

fn p99_us(figures: &BuffersFigures) -> f64 {
    figures.look_ups.p99_us
}

fn figures_of_arm(
    rounds: &[ArmRound<BuffersFigures>],
    arm: SharedMemoryArm,
    part: fn(&BuffersFigures) -> f64,
) -> Vec<f64> {
    rounds.iter().filter_map(|round| round.get(&arm).map(part)).collect()
}

fn median_of_arm(
    rounds: &[ArmRound<BuffersFigures>],
    arm: SharedMemoryArm,
    part: fn(&BuffersFigures) -> f64,
) -> f64 {
    median(&figures_of_arm(rounds, arm, part))
}

/// The ratio to base pages in each round.
fn ratios(
    rounds: &[ArmRound<BuffersFigures>],
    arm: SharedMemoryArm,
    part: fn(&BuffersFigures) -> f64,
) -> Vec<f64> {
    let base = figures_of_arm(rounds, SharedMemoryArm::BasePages, part);
    let own = figures_of_arm(rounds, arm, part);
    own.into_iter().zip(base).map(|(own, base)| own / base).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_gain_is_taken_within_a_round() {
        let round = |speed: f64| {
            let figures = |per_s: f64, p99_us: f64| BuffersFigures {
                look_ups: LookUpFigures { per_s: per_s * speed, p99_us: p99_us / speed },
                huge_percent: 50.0,
                promotion: None,
            };
            let outcome = PromotionOutcome { nearly_all_s: 9.0, ..PromotionOutcome::default() };
            ArmRound::from([
                (SharedMemoryArm::BasePages, figures(100.0, 400.0)),
                (SharedMemoryArm::Hugetlb, figures(140.0, 300.0)),
                (SharedMemoryArm::ShmemAlways, figures(110.0, 300.0)),
                (
                    SharedMemoryArm::HawkEye,
                    BuffersFigures { promotion: Some(outcome), ..figures(138.0, 410.0) },
                ),
            ])
        };
        let mut report = LiveReport::new("shared-buffers");
        // The machine is twice as fast in the second round.
        add_rows_to_report(&[round(1.0), round(2.0)], 8, &mut report);
        let row = |what: &str| {
            let row = report.rows.iter().find(|row| row.what == what);
            row.unwrap_or_else(|| panic!("{what}: {report}"))
        };
        let near = |what: &str, value: f64| {
            assert!((row(what).value - value).abs() < 1e-9, "{:?}", row(what));
        };
        near("hugetlb: transactions", 1.4);
        near("HawkEye: share of the gain", 95.0);
        near("shmem always: share of the gain", 25.0);
        near("HawkEye: p99", 1.025);
        near("HawkEye: share that is huge", 50.0);
        near("HawkEye: time until 90 % was huge in each process", 9.0);
        let share = &row("HawkEye: share of the gain").beside;
        assert!(share.starts_with("95.00-95.00 in 2 rounds; "), "{share}");
    }

    #[test]
    fn the_pool_is_larger_than_the_buffers() {
        assert_eq!(shared_memory_bytes(4096) >> 20, 4096 + 163 + 64);
    }
}
