//! Duration of a managed program's page faults, by policy, page size and unmanaged memory beside
//! it. It shows the stalls that a manager causes, not the time of its own calls.

use super::managed::POLICIES;
use super::prelude::*;
use crate::statistics::{quantile, sorted};
use hawkeye_linux::promote::remote_advice;
use hawkeye_linux::promote::unpreempted::unpreempted;
use hawkeye_policy::SamplingPace;
use hawkeye_workload::rng::Rng;
use hawkeye_workload::{FaultTimes, Ready};

/// The side without a manager; a second such side shows the effect of chance.
const UNMANAGED: &str = "unmanaged";
const UNMANAGED_AGAIN: &str = "unmanaged again";
/// Shorter than the default, so that a turn holds several windows.
const PERIOD: Duration = Duration::from_millis(250);
const WINDOW: Duration = Duration::from_millis(100);
/// Memory of the program while it is sampled, and 16 GiB and 8 GiB beside it, if the machine has
/// enough.
const WANTED_MIB: u64 = 24 << 10;
/// Share of the machine's memory that the experiment uses on smaller machines.
const MACHINE_PERCENT: u64 = 65;
/// Default interval of windows: for a known program, and while much of it was not sampled yet.
const USUAL_PERIOD: Duration = SamplingPace::DEFAULT_BASE_PERIOD;
const SHORTEST_PERIOD: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
struct Sizes {
    /// Memory that can be promoted: while it is only sampled, and while it is promoted.
    sampled_mib: u64,
    promoted_mib: u64,
    /// The same beside much more memory that can't be promoted.
    little_mib: u64,
    /// Size of the `MADV_NOHUGEPAGE` memory beside it.
    beside_mib: u64,
    /// Rounds of the comparison that decides: base pages, with memory beside them.
    decisive_rounds: usize,
    sampled_rounds: usize,
    promoted_rounds: usize,
    /// Short for sides without promotions: the host's behaviour changes from second to second, and
    /// should affect all sides alike.
    sampled_turn: Duration,
    promoted_turn: Duration,
    policies: &'static [&'static str],
}

impl Sizes {
    fn of(scale: Scale, machine_mib: u64) -> Self {
        let mib = WANTED_MIB.min(machine_mib / 100 * MACHINE_PERCENT);
        let ms = |quick, full| Duration::from_millis(scale.pick(quick, full));
        Self {
            sampled_mib: scale.pick(256, mib / 3 * 2),
            promoted_mib: scale.pick(64, 2 << 10),
            little_mib: scale.pick(32, 512),
            beside_mib: scale.pick(128, mib / 3),
            decisive_rounds: scale.pick(2, 100),
            sampled_rounds: scale.pick(1, 4),
            promoted_rounds: scale.pick(1, 2),
            sampled_turn: ms(400, 1000),
            promoted_turn: ms(100, 2000),
            policies: scale.pick(&["hawkeye-g"], &POLICIES),
        }
    }
}

/// The page size of the program's faults: its name, options of the workload, and the settings of 64
/// KiB pages and of huge pages alone. Larger pages are only for the program's own advised memory,
/// not for other programs.
type FaultSize = [&'static str; 4];

const SIZES: [FaultSize; 3] = [
    BASE,
    [
        MEDIUM,
        "--pages huge --step-bytes 65536 --every-us 200 --touched-mib 256",
        "madvise",
        "never",
    ],
    [
        "2 MiB",
        "--pages huge --step-bytes 2097152 --every-us 2000 --touched-mib 256",
        "never",
        "inherit",
    ],
];
const BASE: FaultSize = [
    "4 KiB",
    "--pages base --step-bytes 4096 --every-us 100 --touched-mib 128",
    "never",
    "inherit",
];
const MEDIUM: &str = "64 KiB";

/// The settings of 64 KiB pages and of huge pages alone; both are missing before Linux 6.8.
fn own_settings() -> Option<[&'static str; 2]> {
    let files = ["hugepages-64kB/enabled", "hugepages-2048kB/enabled"];
    setting(files[0]).exists().then_some(files)
}

/// Makes faults in advised memory use these pages.
fn apply([_, _, own @ ..]: FaultSize, host: &mut Host) -> Result<()> {
    host.set_enabled("madvise")?;
    let files = own_settings().into_iter().flatten();
    files
        .zip(own)
        .try_for_each(|(file, value)| host.set_thp(file, value))
}

fn put_back(host: &mut Host) -> Result<()> {
    let mut files = own_settings().into_iter().flatten();
    files.try_for_each(|file| host.put_back(&setting(file)))
}

fn setting(file: &str) -> PathBuf {
    Path::new(THP_DIR).join(file)
}

/// One side of a comparison, over all rounds.
#[derive(Default)]
struct Side {
    name: String,
    policy: Option<&'static str>,
    /// The fault times of each round.
    rounds: Vec<FaultTimes>,
    /// Duration of all rounds.
    measured: Duration,
    windows: u64,
    promoted: u64,
    longest_call: Duration,
}

impl Side {
    fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// The sides without a manager, and one for each policy.
    fn all_of(unmanaged: &[&str], policies: &[&'static str]) -> Vec<Self> {
        let managed = policies.iter().map(|policy| Self {
            policy: Some(policy),
            ..Self::new(*policy)
        });
        unmanaged
            .iter()
            .map(|name| Self::new(*name))
            .chain(managed)
            .collect()
    }

    fn all(&self) -> FaultTimes {
        let mut all = FaultTimes::default();
        for round in &self.rounds {
            all.add(round);
        }
        all
    }

    /// Merges two sides that took turns: each round of the result holds a round of both.
    fn of_both(a: &Self, b: &Self) -> Self {
        let rounds = a.rounds.iter().zip(&b.rounds).map(|(a, b)| {
            let mut both = a.clone();
            both.add(b);
            both
        });
        Self {
            rounds: rounds.collect(),
            ..Self::new(a.name.clone())
        }
    }

    /// The p99.9 of this side as a multiple of the other's, with the ends of its interval. A
    /// mixture is assumed: for this share of the time (over 0, at most 1) faults are as on this
    /// side, otherwise as on the other side. The sides took turns, so the bootstrap draws rounds.
    fn ratio(&self, other: &Self, share: f64) -> [f64; 3] {
        let rounds = self.rounds.len().min(other.rounds.len());
        let faults = SlowestFirst::of([self, other], rounds);
        let of = |times: &[u32]| {
            faults.p999_ns(times, [share, 1.0 - share]) / faults.p999_ns(times, [0.0, 1.0])
        };
        let mut rng = Rng::new(1, 0);
        let drawn = (0..DRAWS)
            .map(|_| {
                let mut times = vec![0; rounds];
                for _ in 0..rounds {
                    times[rng.below(rounds)] += 1;
                }
                of(&times)
            })
            .collect();
        let drawn = sorted(drawn);
        let at = |per_mille| quantile(&drawn, per_mille).unwrap_or(f64::NAN);
        [of(&vec![1; rounds]), at(25), at(975)]
    }

    /// The share of time that is as on this side if a window opens every `period`.
    fn share_at(&self, period: Duration) -> Option<f64> {
        let windows_per_s = self.windows as f64 / self.measured.as_secs_f64();
        let share = 1.0 / (period.as_secs_f64() * windows_per_s);
        (share.is_finite() && share <= 1.0).then_some(share)
    }
}

/// The faults of two sides, slowest first.
struct SlowestFirst {
    /// Nanoseconds, the number of faults of a round that took that long, their side and their
    /// round.
    faults: Vec<(u64, u64, usize, usize)>,
    /// Number of faults of each round, by side.
    by_round: [Vec<u64>; 2],
}

impl SlowestFirst {
    /// Takes the first `rounds` rounds of each side.
    fn of(sides: [&Side; 2], rounds: usize) -> Self {
        let of_round = |round: &FaultTimes| round.counts.iter().map(|(_, count)| count).sum();
        let by_round = sides.map(|side| side.rounds.iter().take(rounds).map(of_round).collect());
        let mut faults = Vec::new();
        for (number, side) in sides.into_iter().enumerate() {
            for (round, times) in side.rounds.iter().take(rounds).enumerate() {
                let counts = times.counts.iter();
                faults.extend(counts.map(|(ns, count)| (*ns, *count, number, round)));
            }
        }
        faults.sort_by_key(|(ns, ..)| std::cmp::Reverse(*ns));
        Self { faults, by_round }
    }

    /// The duration that one of a thousand faults exceeds. `times` is how often each round counts,
    /// `shares` the share of time of each side.
    fn p999_ns(&self, times: &[u32], shares: [f64; 2]) -> f64 {
        let weights = [0, 1].map(|side| {
            let counted = self.by_round[side].iter().zip(times);
            let all: u64 = counted.map(|(all, times)| all * u64::from(*times)).sum();
            shares[side] / all.max(1) as f64
        });
        let mut beyond = 0.0;
        let found = self.faults.iter().find(|(_, count, side, round)| {
            beyond += (count * u64::from(times[*round])) as f64 * weights[*side];
            beyond > 0.001
        });
        found.map_or(1.0, |(ns, ..)| (*ns).max(1) as f64)
    }
}

/// Number of bootstrap draws for an interval.
const DRAWS: usize = 1000;

/// A ratio and the ends of its 95 % interval (bootstrap over rounds).
fn shown([of_all, low, high]: [f64; 3]) -> String {
    format!("{of_all:.3} ({low:.3} to {high:.3})")
}

/// Measures sampling alone, then promotion, then single calls.
pub fn run(host: &mut Host, scale: Scale, report: &mut Report) -> Result<()> {
    let machine = hawkeye_linux::memory::system_memory::machine()?;
    let sizes = Sizes::of(scale, machine.total_bytes >> 20);
    let touched_mib = 256;
    need_bytes((sizes.sampled_mib + sizes.beside_mib + touched_mib) << 20)?;
    let there = |size: &FaultSize| size[0] != MEDIUM || own_settings().is_some();
    for size in SIZES.into_iter().filter(there) {
        apply(size, host)?;
        for (what, mib, beside_mib) in [
            ("sampled", sizes.sampled_mib, 0),
            ("sampled", sizes.sampled_mib, sizes.beside_mib),
            ("sampled, little", sizes.little_mib, sizes.beside_mib),
        ] {
            let decides = size == BASE && mib == sizes.sampled_mib && beside_mib > 0;
            let rounds = if decides {
                sizes.decisive_rounds
            } else {
                sizes.sampled_rounds
            };
            let sides = sampled(host, size, sizes, mib, beside_mib, rounds)?;
            describe(what, size, beside_mib, &sides, report);
        }
        let alone = (size == BASE).then_some(0);
        for beside_mib in alone.into_iter().chain([sizes.beside_mib]) {
            let sides = promoted(host, size, sizes, beside_mib)?;
            describe("promoted", size, beside_mib, &sides, report);
        }
    }
    put_back(host)?;
    for side in single_calls(host, sizes)? {
        add_rows(&side.name, &side, None, report);
    }
    report.note(format!(
        "Sampled: {} MiB ({} MiB where it says little) in base pages read at random by one thread, no promotion; {} rounds of {} s for each side, in turn, in one process ({} where pages of 4 KiB are touched beside unmanaged memory). Promoted: {} MiB, {} rounds, a new process each, after a program that used as much memory has ended. Beside it: {} MiB of MADV_NOHUGEPAGE memory of the same process, where it says so.",
        sizes.sampled_mib,
        sizes.little_mib,
        sizes.sampled_rounds,
        sizes.sampled_turn.as_secs_f64(),
        sizes.decisive_rounds,
        sizes.promoted_mib,
        sizes.promoted_rounds,
        sizes.beside_mib,
    ));
    report.note(format!(
        "Managers sample every {} s, whatever that costs, and may use a whole core. Page faults come every 100 us (4 KiB), 200 us (64 KiB) and 2 ms (2 MiB), in a thread ahead of all ordinary ones: waits for a processor are not in the figures. Faults of 4 KiB are in the mapping that is promoted. A fault that lasts longer than the distance to the next one stands for those that were due meanwhile, too.",
        PERIOD.as_secs_f64(),
    ));
    report.note(
        "\"unmanaged again\" is a second side without a manager: what it differs by from the first is chance; managers are compared with both together. In brackets: 95 % intervals, by drawing rounds anew 1,000 times. What p99.9 is with a window each 30 s, as by default, or each 3 s is computed from it: so much of the time is as measured with a manager, and the rest as without.",
    );
    Ok(())
}

fn settings(max_promotions: Option<u64>) -> Result<Settings> {
    Ok(Settings {
        period: PERIOD,
        window: WINDOW,
        max_promotions,
        cpu: CpuBudget::new(100.0)?,
        pace: SamplingPace::new(100.0, 100.0)?,
        ..Settings::default()
    })
}

/// Starts the program; returns it and the addresses of its memory.
fn start(host: &Host, size: FaultSize, mib: u64, beside_mib: u64) -> Result<(Workload, Ready)> {
    let options = size[1];
    let mut program = host.start(&format!(
        "stalls --mib {mib} --beside-mib {beside_mib} {options}"
    ))?;
    let ready = program.wait_ready()?;
    Ok((program, ready))
}

/// Runs the program under each policy in turn, without promotions.
fn sampled(
    host: &Host,
    size: FaultSize,
    sizes: Sizes,
    mib: u64,
    beside_mib: u64,
    rounds: usize,
) -> Result<Vec<Side>> {
    host.warm_up((mib + beside_mib) << 20)?;
    let (mut program, ready) = start(host, size, mib, beside_mib)?;
    let mut sides = Side::all_of(&[UNMANAGED, UNMANAGED_AGAIN], sizes.policies);
    let settings = settings(Some(0))?;
    in_turn(&mut sides, rounds, |side| {
        side.turn(host, &mut program, ready.pid, settings, sizes.sampled_turn)
    })?;
    let idle = |side: &&Side| side.policy.is_some() && side.windows == 0;
    if let Some(side) = sides.iter().find(idle) {
        bail!("{} took no sample: nothing is shown", side.name);
    }
    Ok(sides)
}

/// Runs the program under each policy, started anew each time, because a huge page has fewer faults
/// left.
fn promoted(host: &Host, size: FaultSize, sizes: Sizes, beside_mib: u64) -> Result<Vec<Side>> {
    let mut sides = Side::all_of(&[UNMANAGED], sizes.policies);
    let settings = settings(None)?;
    in_turn(&mut sides, sizes.promoted_rounds, |side| {
        // Promotion copies each region into new memory.
        host.warm_up((2 * sizes.promoted_mib + beside_mib) << 20)?;
        let (mut program, ready) = start(host, size, sizes.promoted_mib, beside_mib)?;
        side.turn(host, &mut program, ready.pid, settings, sizes.promoted_turn)
    })?;
    Ok(sides)
}

/// Runs the sides in another order each round, so that none always follows the same one.
fn in_turn(
    sides: &mut [Side],
    rounds: usize,
    mut turn: impl FnMut(&mut Side) -> Result<()>,
) -> Result<()> {
    let places = sides.len();
    (0..rounds * places).try_for_each(|n| turn(&mut sides[(n / places + n) % places]))
}

impl Side {
    /// Runs the program for one turn, under this side's policy if it has one.
    fn turn(
        &mut self,
        host: &Host,
        program: &mut Workload,
        pid: u32,
        settings: Settings,
        turn: Duration,
    ) -> Result<()> {
        let means = self.policy.map(|_| host.means()).transpose()?;
        faults(program)?;
        let begun = Instant::now();
        match (self.policy, means) {
            (Some(policy), Some(means)) => {
                let done = manage(means, pid, policy, settings, turn, |_| false)?;
                self.windows += done.journal.totals().samples;
                self.promoted += done.journal.totals().promoted;
                self.longest_call = self.longest_call.max(done.longest_call);
            }
            _ => std::thread::sleep(turn),
        }
        self.rounds.push(faults(program)?);
        self.measured += begun.elapsed();
        Ok(())
    }
}

/// Page faults since the previous request.
fn faults(program: &mut Workload) -> Result<FaultTimes> {
    Ok(
        program.answer(Request::Faults, ANSWER, |event| match event {
            Event::Faults(times) => Some(times),
            _ => None,
        })?,
    )
}

fn describe(what: &str, size: FaultSize, beside_mib: u64, sides: &[Side], report: &mut Report) {
    let beside = if beside_mib == 0 { "" } else { " beside" };
    let again = sides.iter().find(|side| side.name == UNMANAGED_AGAIN);
    let both = sides
        .first()
        .zip(again)
        .map(|(first, again)| Side::of_both(first, again));
    for side in sides {
        let name = format!("{what}, {}{beside}: {}", size[0], side.name);
        let before = report.rows.len();
        let unmanaged = match &both {
            Some(both) if side.name != UNMANAGED_AGAIN => Some(both),
            _ => sides.first(),
        };
        add_rows(&name, side, unmanaged, report);
        // The whole takes a quarter of an hour, so finished figures are printed.
        for row in report.rows.iter().skip(before) {
            eprintln!(
                "{}: {:.3} {}; {}",
                row.what, row.value, row.unit, row.beside
            );
        }
    }
}

fn add_rows(name: &str, side: &Side, unmanaged: Option<&Side>, report: &mut Report) {
    let all = side.all();
    let us = |share| all.quantile_ns(share) as f64 / 1e3;
    let each: Vec<String> = side
        .rounds
        .iter()
        .map(|round| format!("{:.2}", round.longest_ns as f64 / 1e6))
        .collect();
    let mut done = String::new();
    if side.windows + side.promoted > 0 {
        done = format!("; {} windows, {} promoted", side.windows, side.promoted);
    }
    if !side.longest_call.is_zero() || !done.is_empty() {
        let separator = if done.is_empty() { ";" } else { "," };
        let longest_ms = side.longest_call.as_secs_f64() * 1e3;
        done += &format!("{separator} longest call {longest_ms:.1} ms");
    }
    report.row(
        format!("{name}: worst fault"),
        all.longest_ns as f64 / 1e6,
        "ms",
        format!("by round {}{done}", each.join(", ")),
    );
    let mut beside = String::new();
    if let Some(unmanaged) = unmanaged.filter(|unmanaged| unmanaged.name != side.name) {
        beside = format!("{} times unmanaged", shown(side.ratio(unmanaged, 1.0)));
        for period in [USUAL_PERIOD, SHORTEST_PERIOD] {
            if let Some(share) = side.share_at(period) {
                let ratio = shown(side.ratio(unmanaged, share));
                let seconds = period.as_secs();
                beside.push_str(&format!(", {ratio} with a window each {seconds} s"));
            }
        }
        beside.push_str("; ");
    }
    report.row(
        format!("{name}: p99.9"),
        us(0.999),
        "us",
        format!(
            "{beside}p50 {:.1}, p99 {:.1} us; {} faults, {} touches of present pages",
            us(0.5),
            us(0.99),
            all.faults,
            all.present,
        ),
    );
}

/// Repeats single calls that managers make: they show which call causes a stall.
fn single_calls(host: &mut Host, sizes: Sizes) -> Result<Vec<Side>> {
    apply(BASE, host)?;
    host.warm_up((2 * sizes.promoted_mib + sizes.beside_mib) << 20)?;
    let (mut program, ready) = start(host, BASE, sizes.promoted_mib, sizes.beside_mib)?;
    let process = ProcessHandle::open(ready.pid)?;
    let regions = regions_of(&ready);
    // Each with the number of regions per call.
    let calls: [(&str, usize, Call); 7] = [
        ("none", 1, |_, _| Ok(())),
        ("clear_refs", 1, |process, _| {
            let path = format!("/proc/{}/clear_refs", process.id.pid);
            std::fs::write(&path, "2").map_err(LinuxError::file("writing", &path))
        }),
        ("MADV_COLD of 1 region", 1, cold),
        ("MADV_COLD of 16 regions", 16, cold),
        ("MADV_COLD of 64 regions", 64, cold),
        ("MADV_COLLAPSE of a region", 1, |process, regions| {
            remote_advice::collapse(process, regions[0])
        }),
        ("MADV_COLD of a page: split", 1, |process, regions| {
            remote_advice::split(process, regions[0])
        }),
    ];
    let mut sides = Vec::new();
    for (name, at_a_time, call) in calls {
        let mut side = Side::new(format!("single call, beside: {name}"));
        faults(&mut program)?;
        let begun = Instant::now();
        for regions in regions.chunks(at_a_time).cycle() {
            if begun.elapsed() >= sizes.promoted_turn {
                break;
            }
            let calling = Instant::now();
            // Refused calls count too, for instance for a region that is huge already.
            let _ = unpreempted(|| call(&process, regions));
            let took = calling.elapsed();
            side.longest_call = side.longest_call.max(took);
            // The kernel stops real-time threads that leave no time for others.
            std::thread::sleep(took.max(PAUSE));
        }
        side.rounds.push(faults(&mut program)?);
        sides.push(side);
    }
    put_back(host)?;
    Ok(sides)
}

/// At least this long between two calls.
const PAUSE: Duration = Duration::from_millis(1);

type Call = fn(&ProcessHandle, &[RegionAddr]) -> Result<(), LinuxError>;

fn cold(process: &ProcessHandle, regions: &[RegionAddr]) -> Result<(), LinuxError> {
    remote_advice::clear_accessed(process, regions).map(drop)
}

/// Regions of the program's memory that can be promoted.
fn regions_of(program: &Ready) -> Vec<RegionAddr> {
    let ends = program.start + program.bytes;
    (program.start..ends)
        .step_by(HUGE_PAGE_BYTES as usize)
        .map(RegionAddr::containing)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of faults of 1 us, except `slow` faults that take `ns`.
    fn round(faults: u64, slow: u64, ns: u64) -> FaultTimes {
        FaultTimes {
            counts: vec![(1000, faults - slow), (ns, slow)],
            longest_ns: ns,
            faults,
            present: 0,
        }
    }

    /// Rounds with slow faults of 10 to 20 us on one host, multiplied by `factor`.
    fn rounds(name: &str, factor: f64, stream: u64) -> Side {
        let mut rng = Rng::new(7, stream);
        let ns = |_| (f64::from(10_000 + rng.below(10_000) as u32) * factor) as u64;
        let rounds = (0..40).map(ns).map(|ns| round(2000, 4, ns));
        Side {
            rounds: rounds.collect(),
            ..Side::new(name)
        }
    }

    #[test]
    fn a_slower_tail_is_told_from_chance() {
        let (unmanaged, again) = (rounds("a", 1.0, 1), rounds("b", 1.0, 2));
        let same = again.ratio(&unmanaged, 1.0);
        assert!(same[1] <= 1.0 && same[2] >= 1.0, "{same:?}");
        let slower = rounds("c", 1.5, 2).ratio(&unmanaged, 1.0);
        assert!(slower[1] > 1.0, "{slower:?}");
        assert!((slower[1]..=slower[2]).contains(&slower[0]));
        // The same rounds, so the host's behaviour cancels out.
        let paired = rounds("d", 1.05, 1).ratio(&unmanaged, 1.0);
        assert!(paired[1] > 1.04 && paired[2] < 1.06, "{paired:?}");
    }

    #[test]
    fn what_is_rare_is_seen_less_in_a_mixture() {
        // Twice as many of a thousand faults take 20 us as lie beyond p99.9 without a manager.
        let side = |name: &str, slow: u64| Side {
            rounds: vec![FaultTimes {
                counts: vec![(1000, 100_000 - 99 - slow), (10_000, 99), (20_000, slow)],
                longest_ns: 20_000,
                faults: 100_000,
                present: 0,
            }],
            windows: 20,
            measured: Duration::from_secs(10),
            ..Side::new(name)
        };
        let (managed, unmanaged) = (side("a", 150), side("b", 50));
        assert_eq!(managed.ratio(&unmanaged, 1.0)[0], 2.0);
        assert_eq!(managed.share_at(Duration::from_secs(30)), Some(1.0 / 60.0));
        assert_eq!(managed.share_at(Duration::from_millis(100)), None);
        assert_eq!(managed.ratio(&unmanaged, 1.0 / 60.0)[0], 1.0);
        assert_eq!(managed.ratio(&unmanaged, 0.6)[0], 2.0);
    }

    #[test]
    fn sides_are_compared_whole() {
        let side = |name: &str, rounds: &[u64]| Side {
            rounds: rounds.iter().map(|ns| round(1000, 100, *ns)).collect(),
            ..Side::new(name)
        };
        let (managed, unmanaged) = (
            side("a", &[3000, 8000, 5000]),
            side("b", &[2000, 2000, 5000]),
        );
        assert_eq!(managed.ratio(&unmanaged, 1.0)[0], 8000.0 / 5000.0);
        let mut report = Report::new("stalls");
        add_rows("a", &managed, Some(&unmanaged), &mut report);
        assert_eq!(report.rows[0].value, 0.008);
        assert!(report.rows[1].beside.starts_with("1.600 ("));
    }
}
