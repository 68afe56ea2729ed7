//! How much programs that others wrote gain from huge pages: each under base pages and all huge.

use super::prelude::*;
use super::programs::{PROGRAMS_OF_OTHERS, allow_huge_buffers};
use crate::statistics::sorted;

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([256, 1, 300, 0], [2048, 5, 1000, 0]);
    allow_huge_buffers(host)?;
    for kind in host.selected_programs(&PROGRAMS_OF_OTHERS, &PROGRAMS_OF_OTHERS)? {
        let measured = BaseAndHugeRounds::start_and_measure_in_turn(host, kind, sizes)
            .and_then(|pair| Ok((rss_bytes(pair.base.pid())?, pair)));
        // One program that can't run here does not affect the others.
        match measured {
            Ok((rss, pair)) => add_program_row(kind, &pair.rounds, rss, pair.huge_percent, report),
            Err(error) => {
                report.add_note(format!("{} could not be measured: {error}", kind.name()))
            }
        }
    }
    report.add_note(format!(
        "Each program has {} MiB (hash maps: a power of two) and one thread. Times: speed all huge over base pages, by operations per second of CPU time; median of {} pairs of turns of {} s or more, and the smallest and the largest pair.",
        sizes.mib,
        sizes.turns,
        sizes.turn.as_secs_f64(),
    ));
    report.add_note("Then, base pages / all huge: operations per second of wall-clock time; resident memory under base pages; shares of memory under huge pages.");
    report.add_note("PostgreSQL's memory is shared, and no policy here promotes shared memory; see docs/research/programs.md.");
    Ok(())
}

fn add_program_row(
    kind: ProgramKind,
    rounds: &[[ProgramSpeed; 2]],
    rss_bytes: u64,
    huge_percent: [f64; 2],
    report: &mut LiveReport,
) {
    let ratios = rounds.iter().map(|[base, huge]| huge.per_cpu_s / base.per_cpu_s);
    let ratios = sorted(ratios.collect());
    let [base, huge] = [0, 1]
        .map(|n: usize| format_with_si_prefix(median_of_mapped(rounds, |round| round[n].per_s)));
    report.add_row(
        kind.name(),
        median(&ratios),
        "times",
        format!(
            "{:.2}-{:.2}; {base} / {huge} {} per s; {} MiB; {:.0} / {:.0} % huge",
            ratios.first().copied().unwrap_or_default(),
            ratios.last().copied().unwrap_or_default(),
            kind.counted_operations_name(),
            rss_bytes >> 20,
            huge_percent[0],
            huge_percent[1],
        ),
    );
}

fn format_with_si_prefix(number: f64) -> String {
    match number {
        n if n >= 1e7 => format!("{:.0} M", n / 1e6),
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(per_cpu_s: f64) -> ProgramSpeed {
        ProgramSpeed { per_s: per_cpu_s / 2.0, per_cpu_s }
    }

    #[test]
    fn pairs_of_turns_are_compared_by_cpu_time() {
        let rounds = [[1e6, 2e6], [2e6, 2e6], [4e6, 6e6]].map(|round| round.map(speed));
        let mut report = LiveReport::new("programs");
        add_program_row(ProgramKind::Sparsehash, &rounds, 300 << 20, [0.0, 99.6], &mut report);
        let row = &report.rows[0];
        assert_eq!((row.what.as_str(), row.value), ("sparsehash", 1.5));
        let beside = "1.00-2.00; 1.0 M / 1.0 M look-ups per s; 300 MiB; 0 / 100 % huge";
        assert_eq!(row.beside, beside);
    }

    #[test]
    fn numbers_are_short() {
        let short = [812.4, 15_000.0, 1_234_000.0, 31_400_000.0].map(format_with_si_prefix);
        assert_eq!(short, ["812", "15 k", "1.2 M", "31 M"]);
    }
}
