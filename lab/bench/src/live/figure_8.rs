//! A sensitive program started before and after a large Redis with little to do (after the paper's
//! Figure 8): the order should not matter.

use super::host::{Host, need_bytes};
use super::programs::huge::promote_all;
use super::programs::speed::{Speed, turn};
use super::programs::{Kind, Program, idle_redis};
use super::report::Report;
use super::{Scale, is_known, manage_all};
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_manager::Settings;
use hawkeye_policy::{CpuBudget, Rate};
use std::time::Duration;

const SENSITIVE: Kind = Kind::Reader {
    name: "random",
    words: "random",
};
const POLICIES: [&str; 3] = ["hawkeye", "hawkeye-g", "linux"];
const PERIOD: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
struct Sizes {
    /// Of the sensitive program.
    mib: u64,
    redis_mib: u64,
    turns: usize,
    turn: Duration,
    at_most: Duration,
}

/// Who was started first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Sensitive,
    Redis,
}

/// What came of one order.
struct Outcome {
    /// Speed of the sensitive program, in per cent of the same all huge.
    relative_percent: f64,
    /// Promotions of the sensitive program and of Redis.
    promoted: [u64; 2],
}

/// 2 GiB read at random beside a Redis of 4 GiB, as many promotions as the reader has regions.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            mib: 256,
            redis_mib: 256,
            turns: 1,
            turn: Duration::from_millis(200),
            at_most: Duration::from_secs(1),
        },
        Scale::Full => Sizes {
            mib: 2048,
            redis_mib: 4096,
            turns: 9,
            turn: Duration::from_secs(1),
            at_most: Duration::from_secs(120),
        },
    };
    need_bytes(2 * (sizes.mib << 20) + Kind::Redis.resident_bytes(sizes.redis_mib))?;
    let mut report = Report::new("figure-8");
    let mut huge = SENSITIVE.start(host, sizes.mib)?;
    promote_all(huge.pid())?;
    for policy in [None].into_iter().chain(POLICIES.map(Some)) {
        let name = policy.unwrap_or("base pages");
        if policy.is_some_and(|policy| !is_known(policy)) {
            report.note(format!("There is no policy {name} in this build."));
            continue;
        }
        let before = measure(host, policy, First::Sensitive, &mut huge, sizes)?;
        let after = measure(host, policy, First::Redis, &mut huge, sizes)?;
        for (order, outcome) in [("before", &before), ("after", &after)] {
            report.row(
                format!("{name}: started {order} Redis"),
                outcome.relative_percent,
                "%",
                format!(
                    "of its all-huge speed; promotions: {} its own, {} of Redis",
                    outcome.promoted[0], outcome.promoted[1]
                ),
            );
        }
        report.row(
            format!("{name}: difference between the orders"),
            difference_percent(before.relative_percent, after.relative_percent),
            "%",
            "goal for hawkeye: at most 2",
        );
    }
    report.note(format!(
        "{} MiB read at random; Redis with {} MiB in values of 4 KiB, asked little; {} promotions at most, {} s at most; median of {} turns of {} s, in turn with an all-huge reader, by reads per second of CPU time.",
        sizes.mib,
        sizes.redis_mib,
        sizes.mib / 2,
        sizes.at_most.as_secs(),
        sizes.turns,
        sizes.turn.as_secs_f64(),
    ));
    Ok(report)
}

/// How far apart two speeds are, in per cent of the higher one.
fn difference_percent(one: f64, other: f64) -> f64 {
    (one - other).abs() * 100.0 / one.max(other)
}

fn measure(
    host: &Host,
    policy: Option<&str>,
    first: First,
    huge: &mut Box<dyn Program>,
    sizes: Sizes,
) -> Result<Outcome, BenchError> {
    let sensitive = || SENSITIVE.start(host, sizes.mib);
    let redis = || idle_redis(host, sizes.redis_mib);
    let (mut sensitive, mut redis) = match first {
        First::Sensitive => {
            let started = sensitive()?;
            (started, redis()?)
        }
        First::Redis => {
            let started = redis()?;
            (sensitive()?, started)
        }
    };
    redis.go()?;
    let mut promoted = [0, 0];
    if let Some(policy) = policy {
        let budget = sizes.mib / 2;
        let settings = Settings {
            max_promotions: Some(budget),
            period: PERIOD,
            cpu: CpuBudget::new(100.0)?,
            // khugepaged's pace would take minutes for the same regions.
            rate: (policy == "linux").then_some(Rate::per_second(1e6)?),
            ..Settings::default()
        };
        let mut arrived = [sensitive.pid(), redis.pid()];
        if first == First::Redis {
            arrived.reverse();
        }
        let means = host.means()?;
        sensitive.go()?;
        let done = manage_all(
            means,
            &arrived,
            policy,
            settings,
            sizes.at_most,
            |journal| journal.totals().promoted >= budget,
        )?;
        sensitive.stop()?;
        promoted = [sensitive.pid(), redis.pid()].map(|pid| done.promoted_of(pid));
    }
    let mut relative = Vec::new();
    for _ in 0..sizes.turns {
        let ours: Speed = turn(sensitive.as_mut(), sizes.turn)?;
        let theirs = turn(huge.as_mut(), sizes.turn)?;
        relative.push(ours.per_cpu_s * 100.0 / theirs.per_cpu_s);
    }
    Ok(Outcome {
        relative_percent: median(&relative),
        promoted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_knows_no_order() {
        assert_eq!(difference_percent(100.0, 98.0), 2.0);
        assert_eq!(difference_percent(98.0, 100.0), 2.0);
        assert_eq!(difference_percent(55.0, 55.0), 0.0);
    }
}
