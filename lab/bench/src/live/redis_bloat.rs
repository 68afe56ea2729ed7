//! Redis with 60 % of its keys deleted, and then a memory shortage: base pages, THP always and
//! managed, side by side. Alias: `table-7`, after the HawkEye paper's Table 7.

use super::memory_hogs::MemoryHogs;
use super::prelude::*;
use super::redis_server::RedisServer;

/// In order of start: a program that starts while faults give huge pages would get them too.
const SYSTEMS: [HugePageSystem; 3] =
    [HugePageSystem::Base, HugePageSystem::Hawkeye, HugePageSystem::ThpShipped];
const DELETED_PERCENT: u32 = 60;
/// Above the watermark from which memory is recovered, by default 85 %.
const SHORT_PERCENT: f64 = 88.0;
/// With its header a value fills a base page of Redis' allocator: deletions give pages back.
const VALUE_BYTES: u64 = 4000;

#[derive(Clone, Copy)]
struct RedisBloatSizes {
    keys: u64,
    requests: u64,
    turns: usize,
    /// Time of each system for its promotions after the deletion, under load.
    settle: Duration,
    /// None in the short form, as filling the machine takes half a minute.
    short: Option<Duration>,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = RedisBloatSizes {
        keys: scale.short_or_long(30_000, 700_000),
        requests: scale.short_or_long(30_000, 600_000),
        turns: scale.short_or_long(1, 15),
        settle: scale.short_or_long(Duration::from_secs(1), Duration::from_secs(30)),
        short: scale.short_or_long(None, Some(Duration::from_secs(30))),
    };
    require_available_memory(SYSTEMS.len() as u64 * sizes.keys * VALUE_BYTES * 3 / 2)?;
    let mut servers = Vec::new();
    for system in SYSTEMS {
        system.prepare_kernel(host)?;
        let server = RedisServer::start(|command| command)?;
        server.store_values(0, sizes.keys, VALUE_BYTES)?;
        promote_under_load(host, system, &server, sizes, report)?;
        server.delete_random_keys(sizes.keys, DELETED_PERCENT)?;
        promote_under_load(host, system, &server, sizes, report)?;
        servers.push((system, server));
    }
    HugePageSystem::Base.prepare_kernel(host)?;
    measure_and_report_speed_and_memory(&servers, sizes, "60 % deleted", report)?;
    if let Some(short) = sizes.short {
        run_systems_in_memory_shortage(host, &servers, short, report)?;
        measure_and_report_speed_and_memory(&servers, sizes, "then short memory", report)?;
    }
    report.add_note(format!(
        "Each server has {} values of {VALUE_BYTES} bytes. Speed by redis-benchmark -P 16 -c 50, median of {} turns, one server after the other; all servers are present at the same time. Managers have default settings.",
        sizes.keys, sizes.turns,
    ));
    Ok(())
}

/// For `short` per server: the shortage affects all servers, so each gets the same time.
fn run_systems_in_memory_shortage(
    host: &mut BenchHost,
    servers: &[(HugePageSystem, RedisServer)],
    short: Duration,
    report: &mut LiveReport,
) -> BenchResult<()> {
    let pressure = MemoryHogs::fill_until_percent(host.workload_program_path(), SHORT_PERCENT)?;
    for (system, server) in servers {
        let promoter = system.new_promoter(host)?;
        let promoting =
            promoter.promote_process_until(server.pid(), PromoterPace::Own, short, || false)?;
        if system.manager_policy().is_some() {
            report.managing.add_promoter_result(&promoting);
        }
    }
    report.add_note(format!(
        "Short memory: neighbours fill the machine to {:.1} % for {} s for each server, and end before the speed is measured.",
        pressure.used_percent,
        short.as_secs()
    ));
    Ok(())
}

fn promote_under_load(
    host: &mut BenchHost,
    system: HugePageSystem,
    server: &RedisServer,
    sizes: RedisBloatSizes,
    report: &mut LiveReport,
) -> BenchResult<()> {
    let promoter = system.new_promoter(host)?;
    let until = Instant::now() + sizes.settle;
    let load = || -> BenchResult<()> {
        while Instant::now() < until {
            server.measure_gets_per_s(sizes.keys, sizes.requests)?;
        }
        Ok(())
    };
    promoter.promote_during(server.pid(), sizes.settle, report, load)?.0
}

fn measure_and_report_speed_and_memory(
    servers: &[(HugePageSystem, RedisServer)],
    sizes: RedisBloatSizes,
    when: &str,
    report: &mut LiveReport,
) -> BenchResult<()> {
    let mut rates = vec![Vec::new(); servers.len()];
    for _ in 0..sizes.turns {
        for ((_, server), rates) in servers.iter().zip(&mut rates) {
            rates.push(server.measure_gets_per_s(sizes.keys, sizes.requests)?);
        }
    }
    let always =
        servers.iter().zip(&rates).find(|((system, _), _)| *system == HugePageSystem::ThpShipped);
    let always = always.map_or(f64::NAN, |(_, rates)| median(rates));
    let base_bytes = servers
        .first()
        .map_or(Ok(0), |(_, base)| base.measure_memory_use().map(|memory| memory.rss_bytes))?;
    for ((system, server), rates) in servers.iter().zip(&rates) {
        let rate = median(rates);
        let memory = server.measure_memory_use()?;
        report.add_row(
            format!("{}: {when}", system.name()),
            rate / 1e3,
            "k GET/s",
            format!(
                "{:+.1} % compared with THP always; {} MiB resident, {:+.1} % compared with base pages, {:.0} % of it data",
                (rate / always - 1.0) * 100.0,
                memory.rss_bytes >> 20,
                (memory.rss_bytes as f64 / base_bytes as f64 - 1.0) * 100.0,
                memory.useful_percent(),
            ),
        );
    }
    Ok(())
}
