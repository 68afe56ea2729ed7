//! How long servers take to answer while they grow, by system: the cost of zeroing 2 MiB in a page
//! fault, and of managing.

use super::idle_polling::IdlePolling;
use super::prelude::*;
use crate::statistics::sorted;
use hawkeye_workload::AnswerLatencies;

const SYSTEMS: [HugePageSystem; 5] = [
    HugePageSystem::Base,
    HugePageSystem::Madvise,
    HugePageSystem::ThpShipped,
    HugePageSystem::ThpPaced,
    HugePageSystem::Hawkeye,
];
const SERVERS: [ProgramKind; 2] = [ProgramKind::Redis, ProgramKind::Memcached];
/// Share of questions that write; the others read.
const WRITES_PERCENT: u8 = 20;
/// Rate of the questions, in per cent of the rate at which a server under base pages answers a
/// backlog. Single questions cost more than those that come in batches.
const LOAD_PERCENT: f64 = 10.0;

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([64, 1, 1000, 0], [512, 11, 6000, 0]);
    let polling = IdlePolling::start_if_available()?;
    for kind in SERVERS {
        require_available_memory(2 * kind.expected_resident_bytes(sizes.mib))?;
        let per_s = measure_light_request_rate(host, kind, sizes)?;
        let mut all = vec![Vec::new(); SYSTEMS.len()];
        // Each round runs all systems, so that a drift of the machine affects all of them.
        for _ in 0..sizes.turns {
            for (system, all) in SYSTEMS.iter().zip(&mut all) {
                all.push(measure_latencies(host, kind, *system, per_s, sizes, report)?);
            }
        }
        add_rows_to_report(kind, &all, report);
        report.add_note(format!(
            "{}: {per_s} requests per second; {WRITES_PERCENT} % of them insert.",
            kind.name()
        ));
    }
    HugePageSystem::Base.prepare_kernel(host)?;
    report.add_note(format!(
        "{} MiB are stored at the start. Single requests come at equal intervals for {} s and are timed from when they were due; median of {} rounds. p99.9 counts only answers during which neither server nor client waited for a core: other programs dominate the tail of the rest. That leaves out answers that waited because a manager ran, so the p99.9 of all answers stands beside it, also compared with base pages. Each system works at its own pace from the first request on. Idle processors {}.",
        sizes.mib,
        sizes.turn.as_secs(),
        sizes.turns,
        match polling {
            Some(_) => "poll instead of halting",
            None => "behave as usual on this machine",
        },
    ));
    Ok(())
}

/// A rate of questions per second that leaves a server under base pages idle most of the time.
fn measure_light_request_rate(
    host: &mut BenchHost,
    kind: ProgramKind,
    sizes: TurnSettings,
) -> BenchResult<u32> {
    HugePageSystem::Base.prepare_kernel(host)?;
    let mut program = kind.start(host, sizes.mib)?;
    let length = sizes.turn.min(Duration::from_secs(3));
    Ok((measure_turn(program.as_mut(), length)?.per_s * LOAD_PERCENT / 100.0) as u32)
}

fn measure_latencies(
    host: &mut BenchHost,
    kind: ProgramKind,
    system: HugePageSystem,
    questions_per_s: u32,
    sizes: TurnSettings,
    report: &mut LiveReport,
) -> BenchResult<AnswerLatencies> {
    system.prepare_kernel(host)?;
    let mut program = kind.start(host, sizes.mib)?;
    let pid = program.pid();
    let questions = hawkeye_workload::RequestSchedule {
        length: sizes.turn,
        questions_per_s,
        writes_percent: WRITES_PERCENT,
    };
    let promoter = system.new_promoter(host)?;
    let asking = || program.measure_answer_latencies(questions);
    let (asked, _) = promoter.promote_during(pid, 4 * sizes.turn, report, asking)?;
    asked?.ok_or_else(|| impossible!("{} does not answer single requests", kind.name()))
}

fn add_rows_to_report(kind: ProgramKind, all: &[Vec<AnswerLatencies>], report: &mut LiveReport) {
    let tail = |l: &AnswerLatencies| l.counted().p999_us;
    let all_tail = |l: &AnswerLatencies| l.p999_us;
    let of_base = |part: fn(&AnswerLatencies) -> f64| {
        all.first().map_or(f64::NAN, |base| median_of_mapped(base, part))
    };
    let (base, all_base) = (of_base(tail), of_base(all_tail));
    for (system, rounds) in SYSTEMS.iter().zip(all) {
        let of = |part: fn(&AnswerLatencies) -> f64| median_of_mapped(rounds, part);
        let p999 = of(tail);
        let tails = sorted(rounds.iter().map(tail).collect());
        let (least, most) = (tails[0], tails[tails.len() - 1]);
        report.add_row(
            format!("{}, {}: p99.9", kind.name(), system.name()),
            p999,
            "us",
            format!(
                "{:.2} times that of base pages; rounds {least:.0} to {most:.0} us, {:.1} % of the answers; all answers: p50 {:.0}, p99 {:.0}, p99.9 {:.0} ({:.2} times), longest {:.0} us; {} keys inserted",
                p999 / base,
                of(|l| l.counted().percent),
                of(|l| l.p50_us),
                of(|l| l.p99_us),
                of(all_tail),
                of(all_tail) / all_base,
                of(|l| l.longest_us),
                rounds.last().map_or(0, |l| l.inserted),
            ),
        );
    }
}
