//! A program that gains from huge pages beside one that does not, with promotions for one of them
//! (after the paper's Table 9).

use super::host::{Host, need_bytes};
use super::programs::huge::promote_all;
use super::programs::speed::{go, stop, turn_together};
use super::programs::{Kind, Program};
use super::report::Report;
use super::{Scale, is_known, manage_all};
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_manager::Settings;
use hawkeye_policy::{CpuBudget, Rate};
use std::time::Duration;

const RANDOM: Kind = Kind::Reader {
    name: "random",
    words: "random",
};
const SEQUENTIAL: Kind = Kind::Reader {
    name: "sequential",
    words: "sequential",
};
/// Policies to compare, the best expected first.
const POLICIES: [&str; 5] = ["hawkeye", "hawkeye-pmu", "hawkeye-g", "ingens", "linux"];

#[derive(Clone, Copy)]
struct Sizes {
    /// Of each program.
    mib: u64,
    turns: usize,
    turn: Duration,
    /// For a policy to spend its promotions.
    at_most: Duration,
}

/// What a policy made of it.
struct Outcome {
    /// Speed of the random and of the sequential reader in shares of the same all huge.
    relative: [f64; 2],
    /// Their promotions.
    promoted: [u64; 2],
    took: Duration,
    longest_call: Duration,
}

/// The share of promotions that went to a program that does not need them, in per cent.
fn wasted_percent(promoted: [u64; 2]) -> f64 {
    promoted[1] as f64 * 100.0 / promoted.iter().sum::<u64>().max(1) as f64
}

/// 4 GiB read at random beside 4 GiB read in order, 2048 promotions for both.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            mib: 256,
            turns: 1,
            turn: Duration::from_millis(200),
            at_most: Duration::from_secs(1),
        },
        Scale::Full => Sizes {
            mib: 4096,
            turns: 9,
            turn: Duration::from_secs(1),
            at_most: Duration::from_secs(120),
        },
    };
    need_bytes(4 * (sizes.mib << 20))?;
    let mut report = Report::new("table-9");
    let mut huge = pair(host, sizes.mib)?;
    for program in &huge {
        let percent = promote_all(program.pid())?;
        report.note(format!(
            "{percent:.1} % of the memory of an all-huge program is huge."
        ));
    }
    for policy in [None].into_iter().chain(POLICIES.map(Some)) {
        let name = policy.unwrap_or("base pages");
        if policy.is_some_and(|policy| !is_known(policy)) {
            report.note(format!("There is no policy {name} in this build."));
            continue;
        }
        let outcome = measure(host, policy, &mut huge, sizes)?;
        let [random, sequential] = outcome.relative.map(|share| share * 100.0);
        let beside = match policy {
            None => "of its all-huge speed".to_owned(),
            Some(_) => format!(
                "of its all-huge speed (goal for hawkeye: at least 97); {} promotions in {:.1} s, longest call {:.0} ms",
                outcome.promoted[0],
                outcome.took.as_secs_f64(),
                outcome.longest_call.as_secs_f64() * 1e3,
            ),
        };
        report.row(format!("{name}: random"), random, "%", beside);
        let beside = format!("{} promotions", outcome.promoted[1]);
        report.row(format!("{name}: sequential"), sequential, "%", beside);
        if policy.is_some() {
            report.row(
                format!("{name}: wasted"),
                wasted_percent(outcome.promoted),
                "%",
                "of the promotions (goal for hawkeye: under 5)",
            );
        }
    }
    report.note(format!(
        "{} MiB each, both at the same time; {} promotions at most, {} s at most; median of {} turns of {} s, in turn with an all-huge pair, by reads per second of CPU time. Sampled every {} s.",
        sizes.mib,
        sizes.mib / 2,
        sizes.at_most.as_secs(),
        sizes.turns,
        sizes.turn.as_secs_f64(),
        PERIOD.as_secs(),
    ));
    Ok(report)
}

/// Shorter than by default: a run lasts seconds, not hours.
const PERIOD: Duration = Duration::from_secs(5);

fn pair(host: &Host, mib: u64) -> Result<[Box<dyn Program>; 2], BenchError> {
    Ok([RANDOM.start(host, mib)?, SEQUENTIAL.start(host, mib)?])
}

fn measure(
    host: &Host,
    policy: Option<&str>,
    huge: &mut [Box<dyn Program>; 2],
    sizes: Sizes,
) -> Result<Outcome, BenchError> {
    let mut managed = pair(host, sizes.mib)?;
    let pids = [managed[0].pid(), managed[1].pid()];
    let (mut promoted, mut took, mut longest_call) = ([0, 0], Duration::ZERO, Duration::ZERO);
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
        let means = host.means()?;
        go(&mut managed)?;
        let done = manage_all(means, &pids, policy, settings, sizes.at_most, |journal| {
            journal.totals().promoted >= budget
        });
        stop(&mut managed)?;
        let done = done?;
        promoted = pids.map(|pid| done.promoted_of(pid));
        (took, longest_call) = (done.wall, done.longest_call);
    }
    let mut relative = [Vec::new(), Vec::new()];
    for _ in 0..sizes.turns {
        let ours = turn_together(&mut managed, sizes.turn)?;
        let theirs = turn_together(huge, sizes.turn)?;
        for (at, shares) in relative.iter_mut().enumerate() {
            shares.push(ours[at].per_cpu_s / theirs[at].per_cpu_s);
        }
    }
    Ok(Outcome {
        relative: relative.map(|shares| median(&shares)),
        promoted,
        took,
        longest_call,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotions_of_the_second_are_wasted() {
        assert_eq!(wasted_percent([3, 1]), 25.0);
        assert_eq!(wasted_percent([0, 0]), 0.0);
    }
}
