//! How long page faults of a managed program take, by policy, page size and unmanaged memory beside
//! it: the stalls that a manager causes, not the time that its own calls take.

use super::Scale;
use super::host::{Host, need_bytes};
use super::managed::manage;
use super::report::Report;
use crate::error::BenchError;
use crate::statistics::{quantile, sorted};
use hawkeye_linux::LinuxError;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::remote_advice;
use hawkeye_linux::promote::unpreempted::unpreempted;
use hawkeye_linux::takeover::thp_settings::THP_DIR;
use hawkeye_manager::Settings;
use hawkeye_policy::{CpuBudget, HUGE_PAGE_BYTES, RegionAddr, SamplingPace};
use hawkeye_workload::rng::Rng;
use hawkeye_workload::{Event, FaultTimes, Ready, Request, Workload};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Sides without a manager; the second shows what chance does.
const UNMANAGED: &str = "unmanaged";
const UNMANAGED_AGAIN: &str = "unmanaged again";
const POLICIES: [&str; 5] = ["hawkeye", "hawkeye-g", "hawkeye-pmu", "ingens", "linux"];
/// Shorter than by default, so that a turn holds several windows.
const PERIOD: Duration = Duration::from_millis(250);
const WINDOW: Duration = Duration::from_millis(100);
/// Memory of the program while it is sampled, 16 GiB and 8 GiB beside them, where the machine has
/// enough.
const WANTED_MIB: u64 = 24 << 10;
/// Share of the machine's memory that it takes elsewhere.
const MACHINE_PERCENT: u64 = 65;
/// How often windows open by default: once the program is known, and while much of it was not seen yet.
const USUAL_PERIOD: Duration = SamplingPace::DEFAULT_BASE_PERIOD;
const SHORTEST_PERIOD: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
struct Sizes {
    /// Memory that can be promoted: while it is only sampled, and while it is promoted.
    sampled_mib: u64,
    promoted_mib: u64,
    /// The same while much more memory beside it can't be promoted.
    little_mib: u64,
    /// `MADV_NOHUGEPAGE` memory beside it.
    beside_mib: u64,
    /// Of the comparison that decides: base pages, with memory beside them.
    decisive_rounds: usize,
    sampled_rounds: usize,
    promoted_rounds: usize,
    /// Short where nothing is promoted: what the host does changes from second to second, and is to hit
    /// all sides alike.
    sampled_turn: Duration,
    promoted_turn: Duration,
    policies: &'static [&'static str],
}

impl Sizes {
    fn of(scale: Scale, machine_mib: u64) -> Self {
        match scale {
            Scale::Quick => Self {
                sampled_mib: 256,
                promoted_mib: 64,
                little_mib: 32,
                beside_mib: 128,
                decisive_rounds: 2,
                sampled_rounds: 1,
                promoted_rounds: 1,
                sampled_turn: Duration::from_millis(400),
                promoted_turn: Duration::from_millis(100),
                policies: &["hawkeye-g"],
            },
            Scale::Full => {
                let mib = WANTED_MIB.min(machine_mib / 100 * MACHINE_PERCENT);
                Self {
                    sampled_mib: mib / 3 * 2,
                    promoted_mib: 2 << 10,
                    little_mib: 512,
                    beside_mib: mib / 3,
                    decisive_rounds: 100,
                    sampled_rounds: 4,
                    promoted_rounds: 2,
                    sampled_turn: Duration::from_secs(1),
                    promoted_turn: Duration::from_secs(2),
                    policies: &POLICIES,
                }
            }
        }
    }
}

/// Pages that the program's page faults get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultSize {
    Base,
    /// 64 KiB (since Linux 6.8).
    Medium,
    Huge,
}

impl FaultSize {
    const ALL: [Self; 3] = [Self::Base, Self::Medium, Self::Huge];
    /// The setting of 64 KiB pages.
    const MEDIUM: &str = "hugepages-64kB/enabled";
    /// The setting of huge pages alone; missing before Linux 6.8.
    const HUGE: &str = "hugepages-2048kB/enabled";

    fn name(self) -> &'static str {
        match self {
            Self::Base => "4 KiB",
            Self::Medium => "64 KiB",
            Self::Huge => "2 MiB",
        }
    }

    fn exists(self) -> bool {
        self != Self::Medium || setting(Self::MEDIUM).exists()
    }

    /// Options of the workload: the larger pages are for its own advised memory, not for other
    /// programs.
    fn options(self) -> &'static str {
        match self {
            Self::Base => "--pages base --step-bytes 4096 --every-us 100 --touched-mib 128",
            Self::Medium => "--pages huge --step-bytes 65536 --every-us 200 --touched-mib 256",
            Self::Huge => "--pages huge --step-bytes 2097152 --every-us 2000 --touched-mib 256",
        }
    }

    /// Has faults in advised memory get these pages.
    fn apply(self, host: &mut Host) -> Result<(), BenchError> {
        host.set_enabled("madvise")?;
        if !setting(Self::MEDIUM).exists() {
            return Ok(());
        }
        let (medium, huge) = match self {
            Self::Medium => ("madvise", "never"),
            Self::Base | Self::Huge => ("never", "inherit"),
        };
        host.set_thp(Self::MEDIUM, medium)?;
        host.set_thp(Self::HUGE, huge)
    }

    /// Puts these settings back.
    fn put_back(host: &mut Host) -> Result<(), BenchError> {
        for file in [Self::MEDIUM, Self::HUGE] {
            if setting(file).exists() {
                host.put_back(&setting(file))?;
            }
        }
        Ok(())
    }
}

fn setting(file: &str) -> PathBuf {
    Path::new(THP_DIR).join(file)
}

/// One side of a comparison, over all rounds.
struct Side {
    name: String,
    /// Of each round.
    rounds: Vec<FaultTimes>,
    /// How long all rounds took.
    measured: Duration,
    windows: u64,
    promoted: u64,
    longest_call: Duration,
}

impl Side {
    fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            rounds: Vec::new(),
            measured: Duration::ZERO,
            windows: 0,
            promoted: 0,
            longest_call: Duration::ZERO,
        }
    }

    fn all(&self) -> FaultTimes {
        let mut all = FaultTimes::default();
        for round in &self.rounds {
            all.add(round);
        }
        all
    }

    /// Two sides that took turns as one: each round of it holds a round of both.
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

    /// What its p99.9 is as a multiple of the other's where for this share of the time (over 0, at most 1)
    /// all is as on this side, and as on the other for the rest. The sides took turns: what is drawn by
    /// chance are rounds.
    fn ratio(&self, other: &Self, share: f64) -> Ratio {
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
        let at = |per_mille| quantile(&drawn, per_mille);
        Ratio {
            of_all: of(&vec![1; rounds]),
            low: at(25).unwrap_or(f64::NAN),
            high: at(975).unwrap_or(f64::NAN),
        }
    }

    /// The share of the time that is as on this side where a window opens every `period`.
    fn share_at(&self, period: Duration) -> Option<f64> {
        let windows_per_s = self.windows as f64 / self.measured.as_secs_f64();
        let share = 1.0 / (period.as_secs_f64() * windows_per_s);
        (share.is_finite() && share <= 1.0).then_some(share)
    }
}

/// The faults of two sides, those that took longest first.
struct SlowestFirst {
    faults: Vec<Faults>,
    /// How many faults each round has, by side.
    by_round: [Vec<u64>; 2],
}

/// Faults of one round that took equally long.
struct Faults {
    ns: u64,
    count: u64,
    side: usize,
    round: usize,
}

impl SlowestFirst {
    /// The first so many rounds of each side.
    fn of(sides: [&Side; 2], rounds: usize) -> Self {
        let mut found = Self {
            faults: Vec::new(),
            by_round: [Vec::new(), Vec::new()],
        };
        for (side, by_round) in found.by_round.iter_mut().enumerate() {
            for (round, times) in sides[side].rounds.iter().take(rounds).enumerate() {
                by_round.push(times.counts.iter().map(|(_, count)| count).sum());
                let faults = times.counts.iter().map(|&(ns, count)| Faults {
                    ns,
                    count,
                    side,
                    round,
                });
                found.faults.extend(faults);
            }
        }
        found
            .faults
            .sort_by_key(|faults| std::cmp::Reverse(faults.ns));
        found
    }

    /// What one of a thousand faults exceeds where each round counts so many times, and each side holds
    /// for this share of the time.
    fn p999_ns(&self, times: &[u32], shares: [f64; 2]) -> f64 {
        let weights = [0, 1].map(|side| {
            let counted = self.by_round[side].iter().zip(times);
            let all: u64 = counted.map(|(all, times)| all * u64::from(*times)).sum();
            shares[side] / all.max(1) as f64
        });
        let mut beyond = 0.0;
        let found = self.faults.iter().find(|faults| {
            let count = faults.count * u64::from(times[faults.round]);
            beyond += count as f64 * weights[faults.side];
            beyond > 0.001
        });
        found.map_or(1.0, |faults| faults.ns.max(1) as f64)
    }
}

/// How often rounds are drawn for an interval.
const DRAWS: usize = 1000;

/// Two sides' p99.9: of all rounds, and the ends of a 95 % interval (bootstrap over rounds).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio {
    of_all: f64,
    low: f64,
    high: f64,
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of_all, low, high } = self;
        write!(f, "{of_all:.3} ({low:.3} to {high:.3})")
    }
}

/// Measures sampling alone, then promotion, then single calls.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let machine = hawkeye_linux::memory::system_memory::machine()?;
    let sizes = Sizes::of(scale, machine.total_bytes >> 20);
    let touched_mib = 256;
    need_bytes((sizes.sampled_mib + sizes.beside_mib + touched_mib) << 20)?;
    let mut report = Report::new("stalls");
    for size in FaultSize::ALL.into_iter().filter(|size| size.exists()) {
        size.apply(host)?;
        for (what, mib, beside_mib) in [
            ("sampled", sizes.sampled_mib, 0),
            ("sampled", sizes.sampled_mib, sizes.beside_mib),
            ("sampled, little", sizes.little_mib, sizes.beside_mib),
        ] {
            let decides = size == FaultSize::Base && mib == sizes.sampled_mib && beside_mib > 0;
            let rounds = if decides {
                sizes.decisive_rounds
            } else {
                sizes.sampled_rounds
            };
            let sides = sampled(host, size, sizes, mib, beside_mib, rounds)?;
            describe(what, size, beside_mib, &sides, &mut report);
        }
        let beside: &[u64] = match size {
            FaultSize::Base => &[0, sizes.beside_mib],
            FaultSize::Medium | FaultSize::Huge => &[sizes.beside_mib],
        };
        for &beside_mib in beside {
            let sides = promoted(host, size, sizes, beside_mib)?;
            describe("promoted", size, beside_mib, &sides, &mut report);
        }
    }
    FaultSize::put_back(host)?;
    for side in single_calls(host, sizes)? {
        add_rows(&side.name, &side, None, &mut report);
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
    Ok(report)
}

fn settings(max_promotions: Option<u64>) -> Result<Settings, BenchError> {
    Ok(Settings {
        period: PERIOD,
        window: WINDOW,
        max_promotions,
        cpu: CpuBudget::new(100.0)?,
        pace: SamplingPace::new(100.0, 100.0)?,
        ..Settings::default()
    })
}

/// Starts the program; it, and where its memory is.
fn start(
    host: &Host,
    size: FaultSize,
    mib: u64,
    beside_mib: u64,
) -> Result<(Workload, Ready), BenchError> {
    let options = size.options();
    let mut program = host.start(&format!(
        "stalls --mib {mib} --beside-mib {beside_mib} {options}"
    ))?;
    let ready = program.wait_ready()?;
    Ok((program, ready))
}

/// The program under each policy that promotes nothing, in turn.
fn sampled(
    host: &Host,
    size: FaultSize,
    sizes: Sizes,
    mib: u64,
    beside_mib: u64,
    rounds: usize,
) -> Result<Vec<Side>, BenchError> {
    host.warm_up((mib + beside_mib) << 20)?;
    let (mut program, ready) = start(host, size, mib, beside_mib)?;
    let mut sides = vec![Side::new(UNMANAGED), Side::new(UNMANAGED_AGAIN)];
    let unmanaged = sides.len();
    sides.extend(sizes.policies.iter().map(|policy| Side::new(*policy)));
    let settings = settings(Some(0))?;
    for round in 0..rounds {
        // Another order each round, so that none always follows the same one.
        for n in 0..sides.len() {
            let place = (n + round) % sides.len();
            let Some(side) = sides.get_mut(place) else {
                continue;
            };
            let policy = place
                .checked_sub(unmanaged)
                .and_then(|n| sizes.policies.get(n));
            one_turn(
                host,
                &mut program,
                ready.pid,
                policy,
                settings,
                sizes.sampled_turn,
                side,
            )?;
        }
    }
    let idle = sides.iter().skip(unmanaged).find(|side| side.windows == 0);
    match idle {
        Some(side) => Err(BenchError::Impossible(format!(
            "{} took no sample: nothing is shown",
            side.name
        ))),
        None => Ok(sides),
    }
}

/// The program under each policy, started anew each time: a huge page has fewer faults to come.
fn promoted(
    host: &Host,
    size: FaultSize,
    sizes: Sizes,
    beside_mib: u64,
) -> Result<Vec<Side>, BenchError> {
    let mut sides = vec![Side::new(UNMANAGED)];
    sides.extend(sizes.policies.iter().map(|policy| Side::new(*policy)));
    let settings = settings(None)?;
    for round in 0..sizes.promoted_rounds {
        for n in 0..sides.len() {
            let place = (n + round) % sides.len();
            let Some(side) = sides.get_mut(place) else {
                continue;
            };
            // Promotion copies each region into new memory.
            host.warm_up((2 * sizes.promoted_mib + beside_mib) << 20)?;
            let (mut program, ready) = start(host, size, sizes.promoted_mib, beside_mib)?;
            let policy = place.checked_sub(1).and_then(|n| sizes.policies.get(n));
            one_turn(
                host,
                &mut program,
                ready.pid,
                policy,
                settings,
                sizes.promoted_turn,
                side,
            )?;
        }
    }
    Ok(sides)
}

fn one_turn(
    host: &Host,
    program: &mut Workload,
    pid: u32,
    policy: Option<&&str>,
    settings: Settings,
    turn: Duration,
    side: &mut Side,
) -> Result<(), BenchError> {
    let means = policy.map(|_| host.means()).transpose()?;
    faults(program)?;
    let begun = Instant::now();
    match (policy, means) {
        (Some(policy), Some(means)) => {
            let done = manage(means, pid, policy, settings, turn, |_| false)?;
            side.windows += done.journal.totals().samples;
            side.promoted += done.journal.totals().promoted;
            side.longest_call = side.longest_call.max(done.longest_call);
        }
        _ => std::thread::sleep(turn),
    }
    side.rounds.push(faults(program)?);
    side.measured += begun.elapsed();
    Ok(())
}

/// Page faults since this was last asked.
fn faults(program: &mut Workload) -> Result<FaultTimes, BenchError> {
    match program.request(Request::Faults, ANSWER)? {
        Event::Faults(times) => Ok(times),
        _ => Err(BenchError::Impossible(
            "the program did not say how long its page faults took".into(),
        )),
    }
}

fn describe(what: &str, size: FaultSize, beside_mib: u64, sides: &[Side], report: &mut Report) {
    let beside = if beside_mib == 0 { "" } else { " beside" };
    let again = sides.iter().find(|side| side.name == UNMANAGED_AGAIN);
    let both = sides
        .first()
        .zip(again)
        .map(|(first, again)| Side::of_both(first, again));
    for side in sides {
        let name = format!("{what}, {}{beside}: {}", size.name(), side.name);
        let before = report.rows.len();
        let unmanaged = match &both {
            Some(both) if side.name != UNMANAGED_AGAIN => Some(both),
            _ => sides.first(),
        };
        add_rows(&name, side, unmanaged, report);
        // The whole takes a quarter of an hour: what is known is shown.
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
        done = format!(
            "; {} windows, {} promoted, longest call {:.1} ms",
            side.windows,
            side.promoted,
            side.longest_call.as_secs_f64() * 1e3,
        );
    } else if !side.longest_call.is_zero() {
        done = format!(
            "; longest call {:.1} ms",
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
        beside = format!("{} times unmanaged", side.ratio(unmanaged, 1.0));
        for period in [USUAL_PERIOD, SHORTEST_PERIOD] {
            if let Some(share) = side.share_at(period) {
                let ratio = side.ratio(unmanaged, share);
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

/// Calls that managers make, each repeated alone: they show which call a stall comes from.
fn single_calls(host: &mut Host, sizes: Sizes) -> Result<Vec<Side>, BenchError> {
    FaultSize::Base.apply(host)?;
    host.warm_up((2 * sizes.promoted_mib + sizes.beside_mib) << 20)?;
    let (mut program, ready) = start(host, FaultSize::Base, sizes.promoted_mib, sizes.beside_mib)?;
    let process = ProcessHandle::open(ready.pid)?;
    let regions = regions_of(&ready);
    let calls: [(&str, Call); 7] = [
        ("none", Call::Nothing),
        ("clear_refs", Call::ClearRefs),
        ("MADV_COLD of 1 region", Call::Cold(1)),
        ("MADV_COLD of 16 regions", Call::Cold(16)),
        ("MADV_COLD of 64 regions", Call::Cold(64)),
        ("MADV_COLLAPSE of a region", Call::Collapse),
        ("MADV_COLD of a page: split", Call::Split),
    ];
    let mut sides = Vec::new();
    for (name, call) in calls {
        let mut side = Side::new(format!("single call, beside: {name}"));
        faults(&mut program)?;
        let begun = Instant::now();
        for start in (0..regions.len()).step_by(call.regions()).cycle() {
            if begun.elapsed() >= sizes.promoted_turn {
                break;
            }
            let end = regions.len().min(start + call.regions());
            let calling = Instant::now();
            // Refused calls, for instance of a region that is huge already, count as calls too.
            let _ = unpreempted(|| call.make(&process, regions.get(start..end).unwrap_or(&[])));
            let took = calling.elapsed();
            side.longest_call = side.longest_call.max(took);
            // The kernel stops real-time threads that leave no time to others.
            std::thread::sleep(took.max(PAUSE));
        }
        side.rounds.push(faults(&mut program)?);
        sides.push(side);
    }
    FaultSize::put_back(host)?;
    Ok(sides)
}

/// At least this long between two calls.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy)]
enum Call {
    Nothing,
    ClearRefs,
    Cold(usize),
    Collapse,
    Split,
}

impl Call {
    fn regions(self) -> usize {
        match self {
            Self::Cold(regions) => regions,
            _ => 1,
        }
    }

    fn make(self, process: &ProcessHandle, regions: &[RegionAddr]) -> Result<(), LinuxError> {
        let first = regions.first().copied();
        match (self, first) {
            (Self::ClearRefs, _) => {
                let path = format!("/proc/{}/clear_refs", process.id.pid);
                std::fs::write(&path, "2").map_err(LinuxError::file("writing", &path))
            }
            (Self::Cold(_), Some(_)) => remote_advice::clear_accessed(process, regions).map(drop),
            (Self::Collapse, Some(region)) => remote_advice::collapse(process, region),
            (Self::Split, Some(region)) => remote_advice::split(process, region),
            _ => Ok(()),
        }
    }
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
    use crate::live::is_known;

    fn times(ns: u64) -> FaultTimes {
        FaultTimes {
            counts: vec![(1000, 900), (ns, 100)],
            longest_ns: ns,
            faults: 1000,
            present: 0,
        }
    }

    /// A round of 2,000 faults of 1 us, of which so many take `ns`.
    fn round(slow: u64, ns: u64) -> FaultTimes {
        FaultTimes {
            counts: vec![(1000, 2000 - slow), (ns, slow)],
            longest_ns: ns,
            faults: 2000,
            present: 0,
        }
    }

    /// Rounds whose slow faults take from 10 to 20 us on one host, and `factor` times as long.
    fn rounds(name: &str, factor: f64, stream: u64) -> Side {
        let mut rng = Rng::new(7, stream);
        let ns = |_| (f64::from(10_000 + rng.below(10_000) as u32) * factor) as u64;
        let rounds = (0..40).map(ns).map(|ns| round(4, ns));
        Side {
            rounds: rounds.collect(),
            ..Side::new(name)
        }
    }

    #[test]
    fn a_slower_tail_is_told_from_chance() {
        let (unmanaged, again) = (rounds("a", 1.0, 1), rounds("b", 1.0, 2));
        let same = again.ratio(&unmanaged, 1.0);
        assert!(same.low <= 1.0 && same.high >= 1.0, "{same:?}");
        let slower = rounds("c", 1.5, 2).ratio(&unmanaged, 1.0);
        assert!(slower.low > 1.0, "{slower:?}");
        assert!((slower.low..=slower.high).contains(&slower.of_all));
        // The same rounds, whatever the host did in them.
        let paired = rounds("d", 1.05, 1).ratio(&unmanaged, 1.0);
        assert!(paired.low > 1.04 && paired.high < 1.06, "{paired:?}");
    }

    #[test]
    fn what_is_rare_is_seen_less_in_a_mixture() {
        // Twice as many of a thousand take 20 us as beyond p99.9 without a manager.
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
        assert_eq!(managed.ratio(&unmanaged, 1.0).of_all, 2.0);
        assert_eq!(managed.share_at(Duration::from_secs(30)), Some(1.0 / 60.0));
        assert_eq!(managed.share_at(Duration::from_millis(100)), None);
        assert_eq!(managed.ratio(&unmanaged, 1.0 / 60.0).of_all, 1.0);
        assert_eq!(managed.ratio(&unmanaged, 0.6).of_all, 2.0);
    }

    #[test]
    fn sides_are_compared_whole() {
        let side = |name: &str, rounds: &[u64]| Side {
            rounds: rounds.iter().copied().map(times).collect(),
            ..Side::new(name)
        };
        let (managed, unmanaged) = (
            side("a", &[3000, 8000, 5000]),
            side("b", &[2000, 2000, 5000]),
        );
        assert_eq!(managed.ratio(&unmanaged, 1.0).of_all, 8000.0 / 5000.0);
        let mut report = Report::new("stalls");
        add_rows("a", &managed, Some(&unmanaged), &mut report);
        assert_eq!(report.rows[0].value, 0.008);
        assert!(report.rows[1].beside.starts_with("1.600 ("));
    }

    #[test]
    fn its_policies_exist() {
        assert!(POLICIES.into_iter().all(is_known));
    }
}
