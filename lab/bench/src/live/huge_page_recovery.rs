//! Programs started while memory is fragmented (after the HawkEye paper's Figure 5): how soon the
//! memory in use is under huge pages, and for how long each promotion keeps it so.
//!
//! Speeds are not measured here: the gain from huge pages changes with the machine's neighbours.
//! The simulated `fragmented-speedup` has them.
//!
//! ```text
//!  FragmentedMemory: free memory in small blocks
//!    v
//!  RecoveryProgram, warmed up --> RecentlyUsedMemory: which pages it uses, under base pages
//!    |  two threads
//!    |-- Promoter (huge_page_systems): promotes as the system does
//!    `-- turn by turn: the program runs; which share of that memory is huge? --> shares over time
//! ```
//!
//! Read `measure_huge_share_over_time` first, then `recently_used_memory.rs`.

mod recently_used_memory;

use super::fragmented_memory::fragment_free_memory;
use super::huge_page_systems::PromoterResult;
use super::prelude::*;
use crate::plot::{PlotLine, PlotPanel};
use hawkeye_workload::HotKeyShares;
use recently_used_memory::{RecentlyUsedMemory, WITHIN};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first two also run programs of others. The last promotes nothing and shows the error.
const SAME: [HugePageSystem; 4] = [
    HugePageSystem::ThpPaced,
    HugePageSystem::Hawkeye,
    HugePageSystem::HawkeyeG,
    HugePageSystem::Base,
];
const OWN: [HugePageSystem; 2] = [HugePageSystem::ThpPaced, HugePageSystem::Hawkeye];
/// A program has recovered when this share of its used memory is huge, in per cent.
const RECOVERED_PERCENT: f64 = 50.0;
/// A second share that is reported.
const NEARLY_ALL_PERCENT: f64 = 80.0;
/// Time between two looks at the memory in use, for which all programs pause.
const TURN: Duration = Duration::from_millis(240);

#[derive(Clone, Copy)]
struct RecoveryRunSettings {
    /// Promotion rate of the comparison with the same budget.
    regions_per_s: f64,
    /// Duration of the comparison at the systems' own pace.
    length: Duration,
    /// Before the measurement: a newly filled server tidies up, and a JVM compiles.
    warm_up: Duration,
    /// Whether memory is fragmented first, which takes half a minute each time.
    fragmented: bool,
}

impl RecoveryRunSettings {
    /// The time that khugepaged needs for a whole program at this pace, with a margin.
    fn time_limit(self, pace: PromoterPace, bytes: u64) -> Duration {
        match pace {
            PromoterPace::Same(per_s) => {
                Duration::from_secs_f64(bytes as f64 / HUGE_PAGE_BYTES as f64 / per_s * 1.1)
            }
            PromoterPace::Own => self.length,
        }
    }
}

/// A program with a hot part.
struct RecoveryProgram {
    kind: ProgramKind,
    mib: u64,
}

/// Nearly all requests are for a tenth of the keys. With fewer of them, the page walks of the other
/// keys would cost more than those of the hot part, because caches hold less of their page tables.
const HOT: HotKeyShares = HotKeyShares { keys_percent: 10, questions_percent: 99 };

/// One program of ours with its hot seventh at the highest addresses, and programs of others with
/// their hot tenth in ten places of memory.
fn programs_to_recover(scale: Scale) -> Vec<RecoveryProgram> {
    let of = |kind, mib| RecoveryProgram { kind, mib };
    let ours = |words| reader_kind("pointer chase", words);
    match scale {
        Scale::Quick => vec![of(ours("chase --hot-mib 32 --hot-percent 99"), 256)],
        Scale::Full => vec![
            of(ours("chase --hot-mib 768 --hot-percent 99"), 5120),
            of(ProgramKind::Redis, 6144),
            of(ProgramKind::Memcached, 6144),
            // Its table size is a power of two.
            of(ProgramKind::JavaHashMap, 8192),
            of(ProgramKind::Sparsehash, 8192),
        ],
    }
}

impl RecoveryProgram {
    fn is_own_workload(&self) -> bool {
        matches!(self.kind, ProgramKind::Reader { .. })
    }

    fn start_and_warm_up(
        &self,
        host: &BenchHost,
        warm_up: Duration,
    ) -> BenchResult<Box<dyn MeasuredProgram>> {
        let mut program = match self.is_own_workload() {
            true => self.kind.start(host, self.mib)?,
            false => self.kind.start_with_hot_keys(host, self.mib, HOT)?,
        };
        measure_turn(program.as_mut(), warm_up)?;
        Ok(program)
    }
}

/// Programs have 5 to 8 GiB each, a tenth or a seventh of it hot. There are 24 promotions per
/// second, or each system has its own pace.
pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let seconds = |quick, full| Duration::from_secs_f64(scale.short_or_long(quick, full));
    let sizes = RecoveryRunSettings {
        regions_per_s: scale.short_or_long(32.0, 24.0),
        length: seconds(5.0, 40.0),
        warm_up: seconds(0.1, 15.0),
        fragmented: scale == Scale::Full,
    };
    for subject in &programs_to_recover(scale) {
        match measure_and_report_program(host, subject, scale, sizes, report) {
            // One program that can't run here does not affect the others.
            Err(error) if !subject.is_own_workload() => {
                let name = subject.kind.name();
                report.add_note(format!("{name} could not be measured: {error}"));
            }
            other => other?,
        }
    }
    HugePageSystem::Base.prepare_kernel(host)?;
    report.add_note(format!(
        "Programs start while {}, and are promoted. Memory in use: pages touched within {} ms before that, under base pages. The share of it that is huge is read every {} s. A promotion had all of it huge: the time for which it was huge, in shares, divided by the promotions, among runs of the same length.",
        if sizes.fragmented {
            "free memory is in blocks smaller than huge pages (which compaction can move)"
        } else {
            "memory is as it is (the long form fragments it)"
        },
        WITHIN.as_millis(),
        TURN.as_secs_f64(),
    ));
    report.add_note(KERNEL_SPLIT_NOTE);
    Ok(())
}

fn measure_and_report_program(
    host: &mut BenchHost,
    subject: &RecoveryProgram,
    scale: Scale,
    sizes: RecoveryRunSettings,
    report: &mut LiveReport,
) -> BenchResult<()> {
    require_available_memory(subject.kind.expected_resident_bytes(subject.mib))?;
    let systems = match (subject.is_own_workload(), scale) {
        (true, Scale::Full) => &SAME[..],
        _ => &SAME[..2],
    };
    let pace = PromoterPace::Same(sizes.regions_per_s);
    measure_and_report_at_pace(host, subject, pace, systems, sizes, report)?;
    if subject.is_own_workload() && scale == Scale::Full {
        measure_and_report_at_pace(host, subject, PromoterPace::Own, &OWN, sizes, report)?;
    }
    Ok(())
}

fn measure_and_report_at_pace(
    host: &mut BenchHost,
    subject: &RecoveryProgram,
    pace: PromoterPace,
    systems: &[HugePageSystem],
    sizes: RecoveryRunSettings,
    report: &mut LiveReport,
) -> BenchResult<()> {
    let mut lines = Vec::new();
    let at_pace = match pace {
        PromoterPace::Same(per_s) => format!("{per_s} regions/s"),
        PromoterPace::Own => "own pace".to_owned(),
    };
    for system in systems {
        let HugeShareOverTime { huge_at_start, shares, promoting } =
            measure_huge_share_over_time(host, subject, *system, pace, sizes)?;
        let nearly_all = seconds_until_share(&shares, NEARLY_ALL_PERCENT);
        let nearly_all = nearly_all.map_or("never".to_owned(), |at_s| format!("after {at_s:.1} s"));
        report.add_row(
            format!(
                "{}, {at_pace}, {}: half of memory in use huge after",
                subject.kind.name(),
                system.name()
            ),
            seconds_until_share(&shares, RECOVERED_PERCENT).unwrap_or(f64::INFINITY),
            "s",
            format!(
                "{NEARLY_ALL_PERCENT} % {nearly_all}; {:.0} % at the end; {} promotions, each had all of it huge for {:.0} ms; {huge_at_start:.0} % of all memory huge at the start; {:.1} % of a core",
                shares.last().map_or(0.0, |(_, share)| *share),
                promoting.promoted,
                ms_kept_huge_per_promotion(&shares, promoting.promoted),
                promoting.cpu_percent_of_core(),
            ),
        );
        report.print_last_row_to_stderr();
        if pace == PromoterPace::Own && system.manager_policy().is_some() {
            report.managing.add_promoter_result(&promoting);
        }
        lines.push(PlotLine { name: system.name().to_owned(), points: shares });
    }
    let title = format!("{}, {at_pace}", subject.kind.name());
    let panel = PlotPanel::lines_over_time(title, "memory in use that is huge (%)", lines);
    report.panels.push(panel);
    Ok(())
}

struct HugeShareOverTime {
    /// Share of its memory that was huge at the start, in per cent.
    huge_at_start: f64,
    /// Shares of the memory in use that were huge, in per cent, by seconds from the start.
    shares: Vec<(f64, f64)>,
    promoting: PromoterResult,
}

/// Runs one program under one system, from its start in fragmented memory.
fn measure_huge_share_over_time(
    host: &mut BenchHost,
    subject: &RecoveryProgram,
    system: HugePageSystem,
    pace: PromoterPace,
    sizes: RecoveryRunSettings,
) -> BenchResult<HugeShareOverTime> {
    system.prepare_kernel(host)?;
    let fragmented = match sizes.fragmented {
        true => Some(FragmentedMemory::new(host)?),
        false => None,
    };
    let mut program = subject.start_and_warm_up(host, sizes.warm_up)?;
    let pid = program.pid();
    let huge_at_start = huge_memory_percent(pid)?;
    let length = sizes.time_limit(pace, rss_bytes(pid)?);
    let mut in_use = RecentlyUsedMemory::sample_process(program.as_mut())?;
    let promoter = system.new_promoter(host)?;
    let over = AtomicBool::new(false);
    let (shares, promoting) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| -> BenchResult<Vec<(f64, f64)>> {
            let (begun, mut shares) = (Instant::now(), Vec::new());
            while !over.load(Ordering::Relaxed) {
                measure_turn(program.as_mut(), TURN)?;
                shares.push((begun.elapsed().as_secs_f64(), in_use.huge_percent_of_used()?));
            }
            Ok(shares)
        });
        let promoting =
            promoter.promote_process_until(pid, pace, length, || watching.is_finished());
        over.store(true, Ordering::Relaxed);
        (join_or_resume_panic(watching), promoting)
    });
    if let Some(fragmented) = fragmented {
        fragmented.end(host)?;
    }
    Ok(HugeShareOverTime { huge_at_start, shares: shares?, promoting: promoting? })
}

/// When this share in per cent was first reached, in seconds from the start.
fn seconds_until_share(shares: &[(f64, f64)], percent: f64) -> Option<f64> {
    let found = shares.iter().find(|(_, share)| *share >= percent);
    found.map(|(at_s, _)| *at_s)
}

/// How long all of the memory in use was huge for each promotion, in milliseconds: the benefit of
/// promotions, independent of the gain on this machine. 0 without promotions.
fn ms_kept_huge_per_promotion(shares: &[(f64, f64)], promoted: u64) -> f64 {
    let pairs = shares.windows(2);
    let huge_s: f64 = pairs.map(|p| (p[1].0 - p[0].0) * p[0].1 / 100.0).sum();
    match promoted {
        0 => 0.0,
        _ => huge_s * 1e3 / promoted as f64,
    }
}

/// Keeps free memory fragmented while this value lives, by the workload `fragment`. The kernel can
/// move the memory that it holds, so huge pages are possible, but compaction has to make each of
/// them. Proactive compaction is off: programs that start meanwhile get base pages, and only
/// compaction for their own promotions slows them down.
struct FragmentedMemory {
    _workload: WorkloadProcess,
}

/// 0-1: the share of free memory in blocks smaller than a huge page.
const LEAST_FMFI: f64 = 0.7;

/// How eagerly the kernel makes huge pages before a request; 0 is never. 5.9 and later
/// (`mm/compaction.c`).
const UNASKED: &str = "/proc/sys/vm/compaction_proactiveness";

impl FragmentedMemory {
    /// Fragments all free memory except 256 MiB, without which the kernel would kill this or
    /// another process.
    fn new(host: &mut BenchHost) -> BenchResult<Self> {
        let unasked = Path::new(UNASKED);
        if unasked.exists() {
            host.set_kernel_setting(unasked, "0")?;
        }
        let (workload, fmfi) = fragment_free_memory(host, "--fmfi 1 --spare-mib 256")?;
        if fmfi < LEAST_FMFI {
            bail!("fragmenting free memory reached an FMFI of {fmfi:.2} only, not {LEAST_FMFI}");
        }
        Ok(Self { _workload: workload })
    }

    /// Gives the memory back, and restores the machine's setting of proactive compaction.
    fn end(self, host: &mut BenchHost) -> BenchResult<()> {
        host.restore_kernel_setting(Path::new(UNASKED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_and_its_duration_are_those_of_the_observed_shares() {
        let in_use = [(1.0, 0.0), (2.0, 60.0), (3.0, 90.0)];
        assert_eq!(seconds_until_share(&in_use, 50.0), Some(2.0));
        assert_eq!(seconds_until_share(&in_use, 95.0), None);
        // 60 % for one second; the last observation is not known to have lasted.
        assert_eq!(ms_kept_huge_per_promotion(&in_use, 6), 100.0);
        assert_eq!(ms_kept_huge_per_promotion(&in_use, 0), 0.0);
    }
}
