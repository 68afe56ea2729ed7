//! Duration of a managed program's page faults, by policy, page size and unmanaged memory beside
//! it. It shows the stalls that a manager causes, not the time of its own calls.

use super::managed::POLICIES;
use super::prelude::*;
use crate::statistics::{quantile, sorted};
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
    rounds: Vec<FaultTimes>,
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

    /// The p99.9 of this side as a multiple of the other's, with the ends of its interval. The
    /// sides took turns, so the bootstrap draws rounds.
    fn ratio(&self, other: &Self) -> [f64; 3] {
        let rounds = self.rounds.len().min(other.rounds.len());
        let faults = [self, other].map(|side| SlowestFirst::of(side, rounds));
        let of = |times: &[u32]| faults[0].p999_ns(times) / faults[1].p999_ns(times);
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
}

/// The faults of a side, slowest first: nanoseconds, the number of faults of a round that took that
/// long, and their round.
struct SlowestFirst(Vec<(u64, u64, usize)>);

impl SlowestFirst {
    fn of(side: &Side, rounds: usize) -> Self {
        let mut faults = Vec::new();
        for (round, times) in side.rounds.iter().take(rounds).enumerate() {
            let counts = times.counts.iter();
            faults.extend(counts.map(|(ns, count)| (*ns, *count, round)));
        }
        faults.sort_by_key(|(ns, ..)| std::cmp::Reverse(*ns));
        Self(faults)
    }

    /// The duration that one of a thousand faults exceeds. `times` is how often each round counts.
    fn p999_ns(&self, times: &[u32]) -> f64 {
        let counted = |(_, count, round): &(u64, u64, usize)| count * u64::from(times[*round]);
        let all: u64 = self.0.iter().map(counted).sum();
        let mut beyond = 0;
        let found = self.0.iter().find(|fault| {
            beyond += counted(fault);
            beyond as f64 > 0.001 * all as f64
        });
        found.map_or(1.0, |(ns, ..)| (*ns).max(1) as f64)
    }
}

/// Number of bootstrap draws for an interval.
const DRAWS: usize = 1000;

/// Measures sampling alone, then promotion.
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
    report.note(format!(
        "Sampled: one thread reads {} MiB in base pages at random ({} MiB in rows with \"little\"), without promotions. Each side has {} rounds of {} s, in turn, in one process ({} rounds where pages of 4 KiB are touched beside unmanaged memory). Promoted: {} MiB, {} rounds, a new process for each, after a program that used as much memory has ended. Rows with \"beside\": the same process has {} MiB of MADV_NOHUGEPAGE memory beside it.",
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
        "Managers sample every {} s, regardless of the cost, and may use a whole core. Page faults come every 100 us (4 KiB), 200 us (64 KiB) and 2 ms (2 MiB), in a real-time thread: waits for a processor are not in the figures. Faults of 4 KiB are in the mapping that is promoted. A fault that lasts longer than this interval also stands for the faults that were due meanwhile.",
        PERIOD.as_secs_f64(),
    ));
    report.note(
        "\"unmanaged again\" is a second side without a manager: its difference from the first is chance. Managers are compared with both together. In brackets: 95 % intervals from 1,000 random draws of the rounds.",
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
        bail!(
            "policy {} took no sample, so its stalls were not measured",
            side.name
        );
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
    if side.policy.is_some() {
        done = format!(
            "; {} windows, {} promoted, longest call {:.1} ms",
            side.windows,
            side.promoted,
            side.longest_call.as_secs_f64() * 1e3
        );
    }
    report.row(
        format!("{name}: worst fault"),
        all.longest_ns as f64 / 1e6,
        "ms",
        format!("by round {}{done}", each.join(", ")),
    );
    let mut beside = String::new();
    if let Some(unmanaged) = unmanaged.filter(|unmanaged| unmanaged.name != side.name) {
        let [of_all, low, high] = side.ratio(unmanaged);
        beside = format!("{of_all:.3} ({low:.3} to {high:.3}) times unmanaged; ");
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
    fn a_slower_tail_differs_from_chance() {
        let (unmanaged, again) = (rounds("a", 1.0, 1), rounds("b", 1.0, 2));
        let same = again.ratio(&unmanaged);
        assert!(same[1] <= 1.0 && same[2] >= 1.0, "{same:?}");
        let slower = rounds("c", 1.5, 2).ratio(&unmanaged);
        assert!(slower[1] > 1.0, "{slower:?}");
        assert!((slower[1]..=slower[2]).contains(&slower[0]));
        // The same rounds, so the host's behaviour cancels out.
        let paired = rounds("d", 1.05, 1).ratio(&unmanaged);
        assert!(paired[1] > 1.04 && paired[2] < 1.06, "{paired:?}");
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
        assert_eq!(managed.ratio(&unmanaged)[0], 8000.0 / 5000.0);
        let mut report = Report::new("stalls");
        add_rows("a", &managed, Some(&unmanaged), &mut report);
        assert_eq!(report.rows[0].value, 0.008);
        assert!(report.rows[1].beside.starts_with("1.600 ("));
    }
}
