//! The estimate of overhead that the experiments hold against the truth.

use super::host::Host;
use crate::error::BenchError;
use hawkeye_linux::sample::sampler::{self, Seeing};
use hawkeye_policy::Overhead;
use std::time::{Duration, Instant};

/// Estimates what address translation costs a process that is running, from outside: the median of the
/// windows that fit into so many seconds, one at least.
///
/// # Errors
/// It can't be estimated here, the process is gone, or hardly ran.
pub fn estimate(host: &Host, pid: u32, seconds: f64) -> Result<Overhead, BenchError> {
    let Seeing::AccessBits(mut bits) = host.means()?.sampler else {
        let why = "overhead is told from access bits, which can't be seen here";
        return Err(BenchError::Impossible(why.into()));
    };
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut windows = Vec::new();
    let mut seed = 1;
    while windows.is_empty() || Instant::now() < until {
        let estimate = sampler::estimate(&mut bits, pid, seed)?;
        seed += 1;
        windows.push(estimate.overhead.ok_or_else(|| {
            BenchError::Impossible(format!("process {pid} hardly ran while it was looked at"))
        })?);
    }
    windows.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    Ok(windows[windows.len() / 2])
}
