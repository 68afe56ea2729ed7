//! Redis with 60 % of its keys deleted, then memory runs short (after the paper's Table 7): base pages, THP always and managed, side by side.

use super::Scale;
use super::host::{Host, need_bytes};
use super::pressure::Pressure;
use super::redis_server::RedisServer;
use super::report::Report;
use super::systems::{Pace, Promoting, System};
use crate::error::BenchError;
use crate::statistics::median;
use std::time::{Duration, Instant};

/// In the order in which they start: whoever starts while faults give huge pages would have them, too.
const SYSTEMS: [System; 3] = [System::Base, System::Hawkeye, System::ThpShipped];
const DELETED_PERCENT: u32 = 60;
/// Over the mark from which on memory is taken back, by default 85 %.
const SHORT_PERCENT: f64 = 88.0;
/// With its header a base page for Redis' allocator: what is deleted can be given back.
const VALUE_BYTES: u64 = 4000;

#[derive(Clone, Copy)]
struct Sizes {
    keys: u64,
    /// Asked for in one turn.
    requests: u64,
    turns: usize,
    /// How long each system has for its promotions after the deletion, under load.
    settle: Duration,
    /// How long memory is short; not at all in the short form, as filling the machine takes half a minute.
    short: Option<Duration>,
}

/// Three servers with 700,000 values each.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            keys: 30_000,
            requests: 30_000,
            turns: 1,
            settle: Duration::from_secs(1),
            short: None,
        },
        Scale::Full => Sizes {
            keys: 700_000,
            requests: 600_000,
            turns: 15,
            settle: Duration::from_secs(30),
            short: Some(Duration::from_secs(30)),
        },
    };
    need_bytes(SYSTEMS.len() as u64 * sizes.keys * VALUE_BYTES * 3 / 2)?;
    let mut report = Report::new("table-7");
    let mut servers = Vec::new();
    for system in SYSTEMS {
        system.prepare(host)?;
        let server = RedisServer::start(system.name(), |command| command)?;
        server.fill(0, sizes.keys, VALUE_BYTES)?;
        let full = settle(host, system, &server, sizes)?;
        server.delete(sizes.keys, DELETED_PERCENT)?;
        let deleted = settle(host, system, &server, sizes)?;
        for promoting in [full, deleted].iter().filter(|_| system.policy().is_some()) {
            report.managed(promoting.cpu, promoting.wall);
        }
        servers.push((system, server));
    }
    System::Base.prepare(host)?;
    compare(&servers, sizes, "60 % deleted", &mut report)?;
    if let Some(short) = sizes.short {
        run_short(host, &servers, short, &mut report)?;
        compare(&servers, sizes, "then memory short", &mut report)?;
    }
    report.note(format!(
        "{} values of {VALUE_BYTES} bytes each; redis-benchmark -P 16 -c 50, median of {} turns, one server after the other; all of them there at the same time. Managers' settings are the defaults.",
        sizes.keys, sizes.turns,
    ));
    Ok(report)
}

/// Fills the machine, for so long a server: where memory is short for everybody, each has as long.
fn run_short(
    host: &mut Host,
    servers: &[(System, RedisServer)],
    short: Duration,
    report: &mut Report,
) -> Result<(), BenchError> {
    let pressure = Pressure::apply(host.program(), SHORT_PERCENT)?;
    for (system, server) in servers {
        let promoter = system.promoter(host)?;
        let promoting = promoter.promote(server.pid(), Pace::Own, short, || false)?;
        if system.policy().is_some() {
            report.managed(promoting.cpu, promoting.wall);
        }
    }
    report.note(format!(
        "Memory short: neighbours fill the machine to {:.1} % for {} s a server, and are gone again when the speed is measured.",
        pressure.used_percent,
        short.as_secs()
    ));
    Ok(())
}

/// The system at its own pace while the server is asked.
fn settle(
    host: &mut Host,
    system: System,
    server: &RedisServer,
    sizes: Sizes,
) -> Result<Promoting, BenchError> {
    let promoter = system.promoter(host)?;
    let until = Instant::now() + sizes.settle;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<(), BenchError> {
            while Instant::now() < until {
                server.gets_per_s(sizes.keys, sizes.requests)?;
            }
            Ok(())
        });
        let promoting =
            promoter.promote(server.pid(), Pace::Own, sizes.settle, || load.is_finished());
        load.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        promoting
    })
}

fn compare(
    servers: &[(System, RedisServer)],
    sizes: Sizes,
    when: &str,
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut rates = vec![Vec::new(); servers.len()];
    for _ in 0..sizes.turns {
        for ((_, server), rates) in servers.iter().zip(&mut rates) {
            rates.push(server.gets_per_s(sizes.keys, sizes.requests)?);
        }
    }
    let always = servers
        .iter()
        .zip(&rates)
        .find(|((system, _), _)| *system == System::ThpShipped);
    let always = always.map_or(f64::NAN, |(_, rates)| median(rates));
    let base_bytes = servers.first().map_or(Ok(0), |(_, base)| {
        base.memory().map(|memory| memory.rss_bytes)
    })?;
    for ((system, server), rates) in servers.iter().zip(&rates) {
        let rate = median(rates);
        let memory = server.memory()?;
        report.row(
            format!("{}: {when}", system.name()),
            rate / 1e3,
            "k GET/s",
            format!(
                "{:+.1} % to THP always; {} MiB resident, {:+.1} % to base pages, {:.0} % of it data",
                (rate / always - 1.0) * 100.0,
                memory.rss_bytes >> 20,
                (memory.rss_bytes as f64 / base_bytes as f64 - 1.0) * 100.0,
                memory.useful_percent(),
            ),
        );
    }
    Ok(())
}
