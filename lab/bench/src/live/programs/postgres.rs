//! PostgreSQL, asked by pgbench: prepared look-ups of random rows, one connection, all data in the shared buffers.
//!
//! What it reads lies in shared memory, which has a setting of its own (`shmem_enabled`, by default `never`). Whatever that
//! says but `deny`, `MADV_COLLAPSE` makes such memory huge from outside, for all processes that have it, if addresses and
//! offsets in it agree about where 2 MiB begin; the kernel sees to that at `mmap` only where `shmem_enabled` is other than
//! `never` by then ([`allow_huge_buffers`]). A manager that looks after private memory, as HawkEye does, passes it over:
//! the other way to huge buffers is PostgreSQL's own `huge_pages=on`, from the hugetlb pool.

mod cluster;

use super::Program;
use super::cores::Cores;
use super::server::die_with_us;
use crate::error::BenchError;
use crate::live::Host;
use cluster::{Cluster, failed, run};
use hawkeye_linux::takeover::thp_settings::THP_DIR;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Table and index of pgbench's unit of scale: 100,000 rows.
const SCALE_BYTES: u64 = 15 << 20;
/// pgbench says this often how fast it is, in seconds: it can't more often.
const REPORT_S: u64 = 1;
/// How long it may say nothing.
const SILENCE: Duration = Duration::from_secs(10);
/// How long the backend may take to map nearly all the data, and how much that is, in per cent.
const MAPPING: Duration = Duration::from_secs(60);
const MAPPED_PERCENT: u64 = 90;

/// Has the kernel align shared memory that is mapped from now on, so that it can be made huge later; it is not by
/// itself. Where the setting allows it already, or is not there, nothing is changed.
pub(super) fn allow_huge_buffers(host: &mut Host) -> Result<(), BenchError> {
    const SETTING: &str = "shmem_enabled";
    let path = Path::new(THP_DIR).join(SETTING);
    if path.exists() && hawkeye_linux::takeover::thp_settings::read_setting(&path)? == "never" {
        host.set_thp(SETTING, "advise")?;
    }
    Ok(())
}

/// A server, and pgbench with its one backend.
pub(super) struct Postgres {
    // pgbench goes first: its questions would find nobody.
    client: Pgbench,
    backend: u32,
    _cluster: Cluster,
}

/// Starts it with `mib` MiB of shared buffers, nine tenths of which are filled.
pub(super) fn start(mib: u64) -> Result<Postgres, BenchError> {
    let cluster = Cluster::start(mib)?;
    let scale = ((mib << 20) / 10 * 9 / SCALE_BYTES).max(1);
    let mut fill = cluster.command("pgbench");
    fill.args(["-i", "-q", "--unlogged-tables", "-s", &scale.to_string()]);
    run(fill)?;
    cluster.query("CREATE EXTENSION pg_prewarm")?;
    cluster.query("SELECT pg_prewarm('pgbench_accounts'), pg_prewarm('pgbench_accounts_pkey')")?;
    cluster.query("CHECKPOINT")?;
    let size =
        "SELECT pg_relation_size('pgbench_accounts') + pg_relation_size('pgbench_accounts_pkey')";
    let bytes = number(&cluster.query(size)?)?;
    let client = Pgbench::start(&cluster)?;
    let backend = backend(&cluster)?;
    wait_until_mapped(backend, bytes)?;
    client.signal(Signal::SIGSTOP)?;
    Ok(Postgres {
        client,
        backend,
        _cluster: cluster,
    })
}

impl Program for Postgres {
    fn pid(&self) -> u32 {
        self.backend
    }

    fn go(&mut self) -> Result<(), BenchError> {
        self.client.signal(Signal::SIGCONT)
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        self.client.signal(Signal::SIGSTOP)
    }

    fn rate(&mut self, length: Duration, mark: &mut dyn FnMut()) -> Result<f64, BenchError> {
        self.client.rate(length, mark)
    }
}

/// The client; killed when dropped.
struct Pgbench {
    child: Child,
    /// Transactions per second since the last report, and seconds since the start.
    reports: Receiver<(f64, f64)>,
}

impl Pgbench {
    fn start(cluster: &Cluster) -> Result<Self, BenchError> {
        let mut command = cluster.command("pgbench");
        let forever = "100000000";
        command
            .args(["-n", "-S", "-M", "prepared", "-c", "1", "-j", "1"])
            .args(["-T", forever, "-P", &REPORT_S.to_string()])
            .stderr(Stdio::piped());
        hawkeye_linux::stop::let_signals_through(&mut command);
        die_with_us(&mut command);
        if let Some(cores) = Cores::divided() {
            cores.client.keep(&mut command);
        }
        let mut child = command.spawn().map_err(|source| failed(&command, source))?;
        let reports = child
            .stderr
            .take()
            .map_or_else(|| mpsc::channel().1, read_reports);
        Ok(Self { child, reports })
    }

    fn signal(&self, signal: Signal) -> Result<(), BenchError> {
        kill(Pid::from_raw(self.child.id() as i32), signal)
            .map_err(|errno| BenchError::Impossible(format!("pgbench has ended: {errno}")))
    }

    fn rate(&mut self, length: Duration, mark: &mut dyn FnMut()) -> Result<f64, BenchError> {
        while self.reports.try_recv().is_ok() {}
        // The first one may be about a time in which it was stopped.
        let (_, begun_s) = self.report()?;
        mark();
        let (mut transactions, mut last_s) = (0.0, begun_s);
        loop {
            let (per_s, at_s) = self.report()?;
            transactions += per_s * (at_s - last_s);
            last_s = at_s;
            if last_s - begun_s >= length.as_secs_f64() {
                mark();
                return Ok(transactions / (last_s - begun_s));
            }
        }
    }

    fn report(&self) -> Result<(f64, f64), BenchError> {
        self.reports.recv_timeout(SILENCE).map_err(|error| {
            BenchError::Impossible(match error {
                RecvTimeoutError::Timeout => {
                    format!("pgbench said nothing for {} s", SILENCE.as_secs())
                }
                RecvTimeoutError::Disconnected => "pgbench has ended".into(),
            })
        })
    }
}

impl Drop for Pgbench {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill, and the wait returns at once.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_reports(output: ChildStderr) -> Receiver<(f64, f64)> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(report) = progress(&line) {
                if sender.send(report).is_err() {
                    break;
                }
            }
        }
    });
    receiver
}

/// Transactions per second, and seconds since the start.
fn progress(line: &str) -> Option<(f64, f64)> {
    let rest = line.strip_prefix("progress: ")?;
    let (seconds, rest) = rest.split_once(" s, ")?;
    let (per_s, _) = rest.split_once(" tps")?;
    Some((per_s.parse().ok()?, seconds.parse().ok()?))
}

fn number(text: &str) -> Result<u64, BenchError> {
    let wrong = |_| BenchError::Impossible(format!("PostgreSQL answered {text:?}"));
    text.parse().map_err(wrong)
}

/// The process that answers pgbench.
fn backend(cluster: &Cluster) -> Result<u32, BenchError> {
    let deadline = Instant::now() + SILENCE;
    loop {
        // Its first connection only looks at the tables, and ends.
        let query = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT abalance%'";
        let answer = cluster.query(query)?;
        if !answer.is_empty() || Instant::now() > deadline {
            return Ok(number(&answer)? as u32);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a process has nearly so many bytes of shared memory mapped: it maps what it reads.
fn wait_until_mapped(pid: u32, bytes: u64) -> Result<(), BenchError> {
    let deadline = Instant::now() + MAPPING;
    let path = format!("/proc/{pid}/status");
    loop {
        let status = std::fs::read_to_string(&path)
            .map_err(hawkeye_linux::LinuxError::file("reading", &path))?;
        let mapped = status
            .lines()
            .find_map(|line| line.strip_prefix("RssShmem:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok())
            .map_or(0, |kilobytes| kilobytes << 10);
        if mapped >= bytes / 100 * MAPPED_PERCENT {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(BenchError::Impossible(format!(
                "PostgreSQL's backend maps {} of {} MiB after {} s",
                mapped >> 20,
                bytes >> 20,
                MAPPING.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{not_here, works};
    use hawkeye_test_support::this_test;

    #[test]
    fn progress_is_read() {
        let line = "progress: 2.0 s, 13579.5 tps, lat 0.073 ms stddev 0.011, 0 failed";
        assert_eq!(progress(line), Some((13579.5, 2.0)));
        assert_eq!(progress("pgbench (15.18 (Debian 15.18-0+deb12u1))"), None);
        assert_eq!(progress("progress: nan s, x tps"), None);
    }

    #[test]
    fn rows_are_looked_up() {
        if cluster::programs().is_none() {
            not_here(this_test!(), "PostgreSQL");
            return;
        }
        works(&mut start(16).expect("starts"));
    }
}
