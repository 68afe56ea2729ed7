//! PostgreSQL with its data in shared buffers: what HawkEye gains in a server that runs, beside
//! servers with huge buffers from the start, in a hugetlb pool or by `shmem_enabled=always`.

use super::prelude::*;
use super::programs::{LookUpClients, LookUpDatabase, LookUpFigures};
use super::shared_memory_arm::{
    ALL_PERCENT, PromotionOutcome, SharedMemoryArm, add_promotion_rows, add_row_with_range,
    least_huge_percent, measure_each_round, promote_then, reason_without_hugetlb,
};
use super::shared_memory_use::mapped_shared_bytes;

/// A server under base pages and then with HawkEye, and another one under `shmem_enabled=always`.
/// Each works in turn with a server that has its buffers in a hugetlb pool.
#[derive(Clone, Copy, Debug, Default)]
struct BuffersRound {
    base: BesideHugetlb,
    always: BesideHugetlb,
    managed: BesideHugetlb,
    promotion: PromotionOutcome,
    /// Shared memory that a backend maps before HawkEye is attached; of the one that maps most.
    mapped_bytes: u64,
}

/// Medians over turns.
#[derive(Clone, Copy, Debug, Default)]
struct BesideHugetlb {
    hugetlb: LookUpFigures,
    /// Ratio of transactions per second to those of the server with the hugetlb pool.
    speed: f64,
    /// The same ratio of the latency that 99 of 100 transactions do not exceed.
    p99: f64,
    /// Share of the mapped shared memory that is huge, in the backend that has least of it.
    huge_percent: f64,
}

impl BuffersRound {
    /// Part of what the pool gains over base pages; `None`: it gains nothing.
    fn share_of_gain_percent(&self, arm: &BesideHugetlb) -> Option<f64> {
        let gain = 1.0 - self.base.speed;
        (gain > 0.0).then(|| (arm.speed - self.base.speed) * 100.0 / gain)
    }
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([512, 2, 2000, 45_000], [4096, 6, 3000, 100_000]);
    let rounds = scale.short_or_long(1, 3);
    let bytes = shared_memory_bytes(sizes.mib);
    // Two servers, and huge pages for one of them. The files of the databases are in the page
    // cache, which is reclaimed where it must be.
    require_available_memory(3 * bytes)?;
    if let Some(reason) = reason_without_hugetlb(host, bytes)? {
        report
            .add_note(format!("Nothing was measured, because it needs a hugetlb pool: {reason}."));
        return Ok(());
    }
    let mut pool = LookUpDatabase::create(sizes.mib)?;
    let mut database = LookUpDatabase::create(sizes.mib)?;
    let measured = measure_each_round(report, rounds, || {
        host.touch_memory_once(3 * bytes)?;
        measure_servers(host, &mut pool, &mut database, sizes)
    })?;
    add_rows_to_report(&measured, report);
    report.add_note(format!(
        "Each PostgreSQL has {} MiB of shared buffers, nine tenths of them full. Its three clients of pgbench -M prepared, with the transactions of -S, keep their connections, on a core of their own. Before it is measured, all data are read into the buffers, and each client reads all rows once, so that its backend maps them. One server has its buffers in a hugetlb pool (huge_pages=on). Others work in turn with it, {} turns of {} s each: one under base pages and then with HawkEye, one that has started under shmem_enabled=always. Figures are ratios of a turn to the turn of the pool's server after it. Each round starts the servers anew, after a filler has touched three times the memory of a server, and has exited. p99: of a tenth of the transactions, which pgbench logs.",
        sizes.mib,
        sizes.turns,
        sizes.turn.as_secs(),
    ));
    report.add_note(format!(
        "HawkEye: the server has started under shmem_enabled=advise, as --align-shared-memory sets it. hawkeye attach --shared-memory gets all processes of the server, as from pgrep -u postgres. The measurement begins once {ALL_PERCENT} % are huge, or after {} s. HawkEye is attached until its end, also while the other server works, so its CPU time then slows both.",
        sizes.at_most.as_secs(),
    ));
    Ok(())
}

/// The shared memory of a server with such buffers: PostgreSQL adds two per cent, and some MiB for
/// locks and the write-ahead log.
fn shared_memory_bytes(buffers_mib: u64) -> u64 {
    (buffers_mib + buffers_mib / 25 + 64) << 20
}

fn measure_servers(
    host: &mut BenchHost,
    pool: &mut LookUpDatabase,
    database: &mut LookUpDatabase,
    sizes: TurnSettings,
) -> BenchResult<BuffersRound> {
    let bytes = shared_memory_bytes(sizes.mib);
    let (base, managed, promotion, mapped_bytes) = SharedMemoryArm::HawkEye
        .run_beside_hugetlb_pool(host, bytes, |_| {
            with_servers(pool, database, |clients, hugetlb| {
                let base = measure_beside_hugetlb(clients, hugetlb, sizes)?;
                clients.start_work()?;
                let (all, backends) = (clients.server_processes(), clients.backends());
                let mapped = backends.iter().map(|pid| mapped_shared_bytes(*pid));
                let mapped_bytes = mapped.reduce(|one, other| Ok(one?.max(other?)));
                let measure = || measure_beside_hugetlb(clients, hugetlb, sizes);
                let (managed, promotion) = promote_then(&all, backends, sizes.at_most, measure)?;
                Ok((base, managed, promotion, mapped_bytes.unwrap_or(Ok(0))?))
            })
        })?;
    let always = SharedMemoryArm::ShmemAlways.run_beside_hugetlb_pool(host, bytes, |_| {
        let measure = |clients: &_, hugetlb: &_| measure_beside_hugetlb(clients, hugetlb, sizes);
        with_servers(pool, database, measure)
    })?;
    Ok(BuffersRound { base, always, managed, promotion, mapped_bytes })
}

/// Starts both servers and their clients, and ends them after `work`, also if it fails: their
/// memory must be free when settings are restored.
fn with_servers<T>(
    pool: &mut LookUpDatabase,
    database: &mut LookUpDatabase,
    work: impl FnOnce(&LookUpClients, &LookUpClients) -> BenchResult<T>,
) -> BenchResult<T> {
    let start_and_work = || work(&database.start_clients(false)?, &pool.start_clients(true)?);
    let done = start_and_work();
    database.stop_server().and(pool.stop_server()).and(done)
}

fn measure_beside_hugetlb(
    clients: &LookUpClients,
    hugetlb: &LookUpClients,
    sizes: TurnSettings,
) -> BenchResult<BesideHugetlb> {
    let mut pairs = Vec::new();
    for _ in 0..sizes.turns {
        pairs.push((clients.measure_turn(sizes.turn)?, hugetlb.measure_turn(sizes.turn)?));
    }
    let median_of = |part: fn(&(LookUpFigures, LookUpFigures)) -> f64| {
        median(&pairs.iter().map(part).collect::<Vec<_>>())
    };
    Ok(BesideHugetlb {
        hugetlb: LookUpFigures {
            per_s: median_of(|(_, pool)| pool.per_s),
            p99_us: median_of(|(_, pool)| pool.p99_us),
        },
        speed: median_of(|(own, pool)| own.per_s / pool.per_s),
        p99: median_of(|(own, pool)| own.p99_us / pool.p99_us),
        huge_percent: least_huge_percent(clients.backends())?,
    })
}

fn add_rows_to_report(rounds: &[BuffersRound], report: &mut LiveReport) {
    let of_rounds = |state: fn(&BuffersRound) -> BesideHugetlb| -> Vec<BesideHugetlb> {
        rounds.iter().map(state).collect()
    };
    let states = [
        ("base pages", of_rounds(|round| round.base)),
        ("shmem always", of_rounds(|round| round.always)),
        ("HawkEye", of_rounds(|round| round.managed)),
    ];
    for (name, measured) in &states {
        let figures =
            |part: fn(&BesideHugetlb) -> f64| -> Vec<f64> { measured.iter().map(part).collect() };
        let per_s = median(&figures(|it| it.hugetlb.per_s));
        let beside = format!("of those with a hugetlb pool, {per_s:.0} in a second");
        let percent = figures(|it| it.speed * 100.0);
        add_row_with_range(report, format!("{name}: transactions"), percent, "%", &beside);
        let p99_us = median(&figures(|it| it.hugetlb.p99_us));
        let beside = format!("of that with a hugetlb pool, {p99_us:.0} us");
        let percent = figures(|it| it.p99 * 100.0);
        add_row_with_range(report, format!("{name}: p99"), percent, "%", &beside);
        let what = format!("{name}: share that is huge");
        let beside = "of the mapped shared memory, in the backend with the smallest share";
        add_row_with_range(report, what, figures(|it| it.huge_percent), "%", beside);
    }
    for (name, measured) in &states[1..] {
        let each = rounds.iter().zip(measured);
        let shares = each.filter_map(|(round, arm)| round.share_of_gain_percent(arm));
        let goal = if *name == "HawkEye" { "; goal at least 90" } else { "" };
        let beside = format!("of what the pool gains over base pages, where it gains{goal}");
        let what = format!("{name}: share of the gain");
        add_row_with_range(report, what, shares.collect(), "%", &beside);
    }
    let p99 = rounds.iter().map(|round| round.managed.p99 / round.base.p99).collect();
    let beside = "of base pages; goal at most 1.05";
    add_row_with_range(report, "HawkEye: p99 beside base pages".into(), p99, "times", beside);
    let outcomes: Vec<_> = rounds.iter().map(|round| round.promotion).collect();
    let regions = median_of_mapped(rounds, |it| it.mapped_bytes.div_ceil(HUGE_PAGE_BYTES) as f64);
    let promoted_of =
        format!("of {regions:.0} regions of 2 MiB, the size of what a backend had mapped before");
    add_promotion_rows(report, &outcomes, &promoted_of);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_gain_is_taken_within_a_round() {
        let beside = |speed: f64, p99: f64| BesideHugetlb {
            speed,
            p99,
            huge_percent: 50.0,
            ..BesideHugetlb::default()
        };
        let promotion = PromotionOutcome { nearly_all_s: 9.0, ..PromotionOutcome::default() };
        let round = BuffersRound {
            base: beside(0.8, 1.2),
            always: beside(0.85, 1.0),
            managed: beside(0.99, 1.26),
            promotion,
            mapped_bytes: 15 << 20,
        };
        // The pool gains nothing in the second round.
        let without_gain = BuffersRound { base: beside(1.0, 1.2), ..round };
        let mut report = LiveReport::new("shared-buffers");
        add_rows_to_report(&[round, without_gain], &mut report);
        let near = |what: &str, value: f64| {
            let row = report.row(what);
            assert!((row.value - value).abs() < 1e-9, "{row:?}");
        };
        near("HawkEye: transactions", 99.0);
        near("HawkEye: share of the gain", 95.0);
        near("shmem always: share of the gain", 25.0);
        near("HawkEye: p99 beside base pages", 1.05);
        near("HawkEye: share that is huge", 50.0);
        near("HawkEye: time until 90 % was huge in each process", 9.0);
        let promotions = &report.row("HawkEye: promotions").beside;
        assert!(promotions.contains("; of 8 regions of 2 MiB"), "{promotions}");
        let share = &report.row("HawkEye: share of the gain").beside;
        assert!(share.starts_with("95.00-95.00 in 1 round; "), "{share}");
    }

    #[test]
    fn the_pool_is_larger_than_the_buffers() {
        assert_eq!(shared_memory_bytes(4096) >> 20, 4096 + 163 + 64);
    }
}
