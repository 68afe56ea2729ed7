//! Latency of single transactions, which a server's own load generator begins at a fixed pace.
//!
//! Both generators, pgbench and sysbench, queue a transaction that becomes due during a slow one,
//! and count the time in the queue. They draw the distances between transactions from an
//! exponential distribution.

use super::reporting_program::start_load_generator;
use super::running_process::poll_for_answer;
use crate::error::BenchError;
use crate::live::prelude::*;
use hawkeye_workload::{AnswerLatencies, RequestSchedule};

/// Time for which transactions do not count. The first one of a connection fills caches of the
/// server, which takes milliseconds, and others wait behind it.
pub(super) const WARM_UP: Duration = Duration::from_secs(1);

/// The schedule with the warm-up before it. A generator must end after its number of transactions,
/// not after its length: it then also waits for those that are late.
pub(super) fn schedule_with_warm_up(pace: RequestSchedule) -> RequestSchedule {
    RequestSchedule { length: WARM_UP + pace.length, ..pace }
}

/// Runs a load generator to its end, and returns the process id that it had.
pub(super) fn run_paced_generator(command: Command, pace: RequestSchedule) -> BenchResult<u32> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut generator = start_load_generator(command)?;
    let pid = generator.child.id();
    let ended = poll_for_answer(pace.answers_time_limit(), || {
        generator.child.try_wait().map_err(BenchError::program_error_mapper(&name))
    })?;
    match ended {
        Some(status) if status.success() => Ok(pid),
        Some(status) => bail!("{name} ended with {status}"),
        None => bail!(
            "the server does not keep up with {} transactions per second of {name}",
            pace.questions_per_s
        ),
    }
}

/// Transactions of the same latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LatencyCount {
    pub(super) latency_us: f64,
    pub(super) transactions: u64,
}

/// Quantiles of all transactions. Which of them waited for a core is unknown.
///
/// # Errors
/// There are no transactions.
pub(super) fn summarize_latency_counts(
    mut counts: Vec<LatencyCount>,
) -> BenchResult<AnswerLatencies> {
    counts.sort_by(|one, other| one.latency_us.total_cmp(&other.latency_us));
    let Some(longest) = counts.last() else {
        bail!("the load generator recorded no transactions");
    };
    let all = counts.iter().map(|it| it.transactions).sum::<u64>();
    let quantile_us = |per_mille: u64| {
        let rank = (all * per_mille).div_ceil(1000);
        let mut passed = 0;
        let found = counts.iter().find(|it| {
            passed += it.transactions;
            passed >= rank
        });
        found.unwrap_or(longest).latency_us
    };
    Ok(AnswerLatencies {
        questions: all,
        inserted: 0,
        p50_us: quantile_us(500),
        p99_us: quantile_us(990),
        p999_us: quantile_us(999),
        longest_us: longest.latency_us,
        with_cores: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_count_each_transaction() {
        let count = |latency_us, transactions| LatencyCount { latency_us, transactions };
        let counts = vec![count(900.0, 1), count(50.0, 1998), count(70.0, 2)];
        let latencies = summarize_latency_counts(counts).expect("has transactions");
        // The 1999th of 2001.
        assert_eq!((latencies.questions, latencies.p999_us), (2001, 70.0));
        assert_eq!((latencies.p50_us, latencies.p99_us), (50.0, 50.0));
        assert_eq!(latencies.longest_us, 900.0);
        assert!(summarize_latency_counts(Vec::new()).is_err());
    }

    #[test]
    fn a_generator_that_fails_is_an_error() {
        let pace = RequestSchedule {
            length: Duration::from_millis(200),
            questions_per_s: 50,
            writes_percent: 0,
        };
        let error = run_paced_generator(Command::new("false"), pace).expect_err("fails");
        assert!(error.to_string().starts_with("false ended with"), "{error}");
    }
}
