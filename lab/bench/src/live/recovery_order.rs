//! The order in which huge pages are split when memory is short: that of HawkEye's paper, EMD's and
//! ours. In each program the hot regions hold little bloat and the cold ones much.

use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::programs::program_speed::{measure_relative_speeds, pause_all_work, start_all_work};
use super::programs::start_reader_in_cgroup;
use crate::statistics::geometric_mean;

/// The policies, by the order in which each recovers: the paper's first.
const POLICIES: [&str; 3] = ["hawkeye-g", "emd", "hawkeye"];

/// Programs that run together, and how much of their memory is taken back.
struct ProgramSet<const N: usize> {
    /// Of each program: memory and its hot part in MiB, and the base pages with data of each cold
    /// region. The hot part has the lowest addresses.
    programs: [(u64, u64, u16); N],
    /// Whether each read waits for the one before. A page walk then costs all of its time.
    dependent: bool,
    /// Use of the limit at which recovery ends.
    low_percent: f64,
}

/// Three programs of different bloat. In full they fill a limit of 8 GiB. Recovery takes two thirds
/// of all zeros, and 87 % of those in cold regions.
const THREE: ProgramSet<3> = ProgramSet {
    programs: [(2560, 896, 64), (2560, 896, 160), (2240, 896, 256)],
    dependent: false,
    low_percent: 55.0,
};
/// The same, with reads that depend on each other. Independent reads overlap their page walks,
/// which hides a part of what base pages cost.
const THREE_DEPENDENT: ProgramSet<3> = ProgramSet { dependent: true, ..THREE };
/// Two equal programs. All of their regions are equally hot and bloated, and recovery takes half of
/// the zeros, so that it must slow down at least one of them.
const EQUAL: ProgramSet<2> =
    ProgramSet { programs: [(2048, 0, 256), (2048, 0, 256)], dependent: false, low_percent: 67.0 };

/// Base pages with data of each hot region: one in four is bloat.
const HOT_USED: u16 = 384;
/// Share of the reads in the hot part.
const HOT_PERCENT: u8 = 98;
/// Use of the limit when memory becomes short, in per cent. Recovery begins above 85.
const FILLED_PERCENT: u64 = 90;
const HIGH_PERCENT: f64 = 85.0;
/// Use is compared with this tolerance, in points: the manager does not count files.
const TOLERANCE_PERCENT: f64 = 0.5;

#[derive(Clone, Copy)]
struct RecoveryOrderSizes {
    /// Memory is divided by this.
    divisor: u64,
    rounds: usize,
    turns: TurnSettings,
    /// Time between two windows of sampling.
    period: Duration,
    /// Time in which the manager sees which regions are hot, before memory is short.
    settle: Duration,
}

/// What a policy left after recovery.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RecoveredSet<const N: usize> {
    /// Speed of each program as a share of its all-huge speed.
    relative: [f64; N],
    /// Memory before and after.
    used_bytes: [u64; 2],
    split: u64,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = RecoveryOrderSizes {
        divisor: scale.short_or_long(8, 1),
        rounds: scale.short_or_long(1, 3),
        turns: scale.choose_turn_settings([0, 1, 300, 15_000], [0, 5, 1000, 180_000]),
        period: Duration::from_secs(scale.short_or_long(2, 5)),
        settle: Duration::from_secs(scale.short_or_long(5, 30)),
    };
    HugePageSystem::Base.prepare_kernel(host)?;
    for (set, reads) in [(&THREE, ""), (&THREE_DEPENDENT, ", dependent reads")] {
        let results = set.measure_policies(host, &POLICIES, sizes)?;
        add_speed_rows(&POLICIES, &results, reads, report);
    }
    let equal = EQUAL.measure_policies(host, &POLICIES, sizes)?;
    add_fairness_rows(&POLICIES, &equal, report);
    report.add_note(format!(
        "Each program reads at random, {HOT_PERCENT} % of the time in a hot part at its lowest addresses, where {HOT_USED} of the 512 base pages of a huge page hold data. In the cold parts of the three programs that is {} of 512. Each program has a cgroup of its own in one that is limited so that {FILLED_PERCENT} % of it are in use, {} s after the manager began to sample. The manager splits until use is below {} %; it promotes nothing. Then speed is measured by reads per second of CPU time, in turn with equal programs that are all huge: median of {} turns of {} s, and of {} rounds.",
        THREE.programs.map(|(.., used)| used.to_string()).join(", "),
        sizes.settle.as_secs(),
        THREE.low_percent,
        sizes.turns.turns,
        sizes.turns.turn.as_secs_f64(),
        sizes.rounds,
    ));
    report.add_note(
        "Dependent reads: the same three programs, but each address is computed from the word that was read last. Then page walks do not overlap. An order can at most reach the all-huge speed, so all huge over the paper's order is a ceiling.",
    );
    report.add_note(format!(
        "The equal programs have {} of 512 base pages with data everywhere, read all of them, and are split until use is below {} %.",
        EQUAL.programs[0].2,
        EQUAL.low_percent,
    ));
    Ok(())
}

impl<const N: usize> ProgramSet<N> {
    fn mib(&self, divisor: u64) -> u64 {
        self.programs.iter().map(|(mib, ..)| mib / divisor).sum()
    }

    fn words(&self, divisor: u64) -> [String; N] {
        self.programs.map(|(mib, hot_mib, used)| {
            let dependent = if self.dependent { " --dependent" } else { "" };
            format!(
                "sparse --pages huge --mib {} --hot-mib {} --hot-first --hot-percent {HOT_PERCENT} --hot-used {HOT_USED} --used {used}{dependent}",
                mib / divisor,
                hot_mib / divisor,
            )
        })
    }

    /// The results of each policy, by round.
    fn measure_policies(
        &self,
        host: &BenchHost,
        policies: &[&str],
        sizes: RecoveryOrderSizes,
    ) -> BenchResult<Vec<Vec<RecoveredSet<N>>>> {
        require_available_memory(2 * (self.mib(sizes.divisor) << 20))?;
        let parent = MemoryCgroup::without_limit("hawkeye-bench-all-huge")?;
        let mut all_huge = self
            .words(sizes.divisor)
            .iter()
            .map(|words| start_reader_in_cgroup(host, &parent, words))
            .collect::<BenchResult<Vec<_>>>()?;
        let mut results: Vec<_> = policies.iter().map(|_| Vec::new()).collect();
        for round in 0..sizes.rounds {
            // Each round begins with another policy.
            for n in 0..policies.len() {
                let index = (round + n) % policies.len();
                let policy = policies[index];
                results[index].push(self.recover_under_policy(
                    host,
                    policy,
                    &mut all_huge,
                    sizes,
                )?);
            }
        }
        Ok(results)
    }

    fn recover_under_policy(
        &self,
        host: &BenchHost,
        policy: &str,
        all_huge: &mut [Box<dyn MeasuredProgram>],
        sizes: RecoveryOrderSizes,
    ) -> BenchResult<RecoveredSet<N>> {
        let parent = MemoryCgroup::without_limit("hawkeye-bench-order")?;
        // Dropped in reverse: a cgroup can't be removed before its program has ended.
        let (mut groups, mut programs) = (Vec::new(), Vec::new());
        for (n, words) in self.words(sizes.divisor).iter().enumerate() {
            let group = MemoryCgroup::without_limit(&format!("hawkeye-bench-order/{n}"))?;
            programs.push(start_reader_in_cgroup(host, &group, words)?);
            groups.push(group);
        }
        let pids: Vec<u32> = programs.iter().map(|program| program.pid()).collect();
        let settings = Settings {
            period: sizes.period,
            max_promotions: Some(0),
            cpu: CpuBudget::new(100.0)?,
            watermarks: Watermarks::new(HIGH_PERCENT, self.low_percent)?,
            ..Settings::default()
        };
        let means = host.new_kernel_backend()?;
        let used_before = parent.used_bytes()?;
        let (begun, mut limit_bytes, mut failed) = (Instant::now(), None, None);
        start_all_work(&mut programs)?;
        let mut is_recovered = || -> BenchResult<bool> {
            let used_bytes = parent.used_bytes()?;
            if let Some(limit) = limit_bytes {
                let used_percent = used_bytes as f64 * 100.0 / limit as f64;
                return Ok(used_percent < self.low_percent + TOLERANCE_PERCENT);
            }
            if begun.elapsed() >= sizes.settle {
                let limit = used_bytes * 100 / FILLED_PERCENT;
                parent.set_limit(limit)?;
                limit_bytes = Some(limit);
            }
            Ok(false)
        };
        let at_most = sizes.settle + sizes.turns.at_most;
        let managed = manage_processes_until(means, &pids, policy, settings, at_most, |_| {
            is_recovered().unwrap_or_else(|error| {
                failed = Some(error);
                true
            })
        })?;
        failed.map_or(Ok(()), Err)?;
        pause_all_work(&mut programs)?;
        let used_bytes = [used_before, parent.used_bytes()?];
        let relative = measure_relative_speeds(&mut programs, all_huge, sizes.turns)?;
        Ok(RecoveredSet { relative, used_bytes, split: managed.journal.totals().split })
    }
}

/// Median speed of each program.
fn median_speeds<const N: usize>(rounds: &[RecoveredSet<N>]) -> [f64; N] {
    std::array::from_fn(|n| median_of_mapped(rounds, |round| round.relative[n]))
}

fn memory_and_splits<const N: usize>(rounds: &[RecoveredSet<N>]) -> String {
    let [before, after] =
        [0, 1].map(|n: usize| median_of_mapped(rounds, |round| bytes_to_mib(round.used_bytes[n])));
    let split = median_of_mapped(rounds, |round| round.split as f64);
    format!("{after:.0} of {before:.0} MiB left; {split:.0} huge pages split")
}

/// Adds a row for each policy, and the most that one can gain over the paper's order. `reads` is
/// appended to the names.
fn add_speed_rows(
    policies: &[&str],
    results: &[Vec<RecoveredSet<3>>],
    reads: &str,
    report: &mut LiveReport,
) {
    let speed = |rounds: &[RecoveredSet<3>]| geometric_mean(&median_speeds(rounds));
    let papers = results.first().map_or(f64::NAN, |rounds| speed(rounds));
    for (policy, rounds) in policies.iter().zip(results) {
        let (speed, each) = (speed(rounds), median_speeds(rounds));
        report.add_row(
            format!("{policy}{reads}: speed at equal memory"),
            speed * 100.0,
            "%",
            format!(
                "of the all-huge speed, geometric mean of {}; {:.2} times {}'s, of {:.2} at most; {}; goal for hawkeye: not below emd's, and 1.2 times hawkeye-g's",
                each.map(|share| format!("{:.0}", share * 100.0)).join(", "),
                speed / papers,
                policies[0],
                papers.recip(),
                memory_and_splits(rounds),
            ),
        );
    }
    report.add_row(
        format!("all huge{reads}: speed over {}'s order", policies[0]),
        papers.recip(),
        "times",
        "the ceiling of each order; goal for hawkeye: 1.2",
    );
}

fn add_fairness_rows(policies: &[&str], results: &[Vec<RecoveredSet<2>>], report: &mut LiveReport) {
    for (policy, rounds) in policies.iter().zip(results) {
        let [first, second] = median_speeds(rounds).map(|share| (1.0 - share) * 100.0);
        report.add_row(
            format!("{policy}: difference between equal programs"),
            (first - second).abs(),
            "points",
            format!(
                "they lost {first:.1} and {second:.1} % of the all-huge speed; {}; goal for hawkeye: at most 3",
                memory_and_splits(rounds),
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_compared_with_the_papers() {
        let set = |relative| RecoveredSet { relative, used_bytes: [100 << 20, 60 << 20], split: 9 };
        let results = [vec![set([0.5, 0.5, 0.5])], vec![set([0.9, 0.8, 0.9])]];
        let mut report = LiveReport::new("guard-order");
        add_speed_rows(&["hawkeye-g", "hawkeye"], &results, ", dependent reads", &mut report);
        assert!((report.rows[0].value - 50.0).abs() < 1e-9);
        let ours = report.row("hawkeye, dependent reads: speed at equal memory");
        let beside = "of 90, 80, 90; 1.73 times hawkeye-g's, of 2.00 at most; 60 of 100 MiB";
        assert!(ours.beside.contains(beside), "{}", ours.beside);
        let ceiling = report.row("all huge, dependent reads: speed over hawkeye-g's order");
        assert!((ceiling.value - 2.0).abs() < 1e-9, "{}", ceiling.value);
    }

    #[test]
    fn only_one_set_reads_dependently() {
        let dependent = |words: &String| words.ends_with(" --dependent");
        assert!(THREE_DEPENDENT.words(1).iter().all(dependent));
        assert!(!THREE.words(1).iter().any(dependent));
        assert!(!EQUAL.words(1).iter().any(dependent));
    }

    #[test]
    fn equal_programs_should_lose_the_same() {
        let set = |relative| RecoveredSet { relative, used_bytes: [2, 1], split: 1 };
        let mut report = LiveReport::new("guard-order");
        add_fairness_rows(&["hawkeye"], &[vec![set([0.9, 0.8])]], &mut report);
        assert!((report.rows[0].value - 10.0).abs() < 1e-9);
    }

    #[test]
    fn cold_zeros_suffice_for_what_is_taken_from_the_three() {
        let bytes: u64 = THREE.programs.iter().map(|(mib, ..)| mib).sum();
        let cold_zeros: u64 = THREE
            .programs
            .iter()
            .map(|(mib, hot_mib, used)| (mib - hot_mib) * u64::from(512 - used) / 512)
            .sum();
        let left = bytes as f64 * THREE.low_percent / FILLED_PERCENT as f64;
        assert!(cold_zeros as f64 > bytes as f64 - left);
    }
}
