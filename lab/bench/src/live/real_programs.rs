//! How much programs that others wrote gain from huge pages: each under base pages and all huge.

use super::prelude::*;
use super::programs::{REAL, allow_shared_huge_pages};
use crate::statistics::sorted;

#[derive(Clone, Copy)]
struct Sizes {
    mib: u64,
    turns: usize,
    turn: Duration,
}

struct Seen {
    base: Vec<Speed>,
    huge: Vec<Speed>,
    rss_bytes: u64,
    base_huge_percent: f64,
    huge_huge_percent: f64,
}

/// Nine programs, one after the other.
pub fn run(host: &mut Host, scale: Scale, report: &mut Report) -> Result<()> {
    let sizes = Sizes {
        mib: scale.pick(256, 2048),
        turns: scale.pick(1, 5),
        turn: scale.pick(Duration::from_millis(300), Duration::from_secs(1)),
    };
    allow_shared_huge_pages(host)?;
    for kind in REAL {
        // One program that can't run here does not affect the others.
        match measure(host, kind, sizes) {
            Ok(seen) => describe(kind, &seen, report),
            Err(error) => report.note(format!("{} could not be measured: {error}", kind.name())),
        }
    }
    report.note(format!(
        "{} MiB each (a power of two for the hash maps), all with one thread; how many times as fast all huge is, by operations per second of CPU time: median of {} pairs of turns of {} s or more, and the pairs between which it lies.",
        sizes.mib,
        sizes.turns,
        sizes.turn.as_secs_f64(),
    ));
    report.note("Operations per second are of wall-clock time, base pages / all huge; memory is resident under base pages; then the shares of memory under huge pages, base / all huge.");
    report.note(
        "PostgreSQL's is shared memory, which no policy here promotes; see programs/postgres.",
    );
    Ok(())
}

fn measure(host: &Host, kind: Kind, sizes: Sizes) -> Result<Seen> {
    need_bytes(2 * kind.resident_bytes(sizes.mib))?;
    let mut base = kind.start(host, sizes.mib)?;
    let mut huge = kind.start(host, sizes.mib)?;
    // The first turn of each warms up caches and compilers, and allocates memory that comes and
    // goes.
    turn(base.as_mut(), sizes.turn)?;
    turn(huge.as_mut(), sizes.turn)?;
    let huge_huge_percent = promote_all(huge.pid())?;
    let (mut base_speeds, mut huge_speeds) = (Vec::new(), Vec::new());
    for _ in 0..sizes.turns {
        base_speeds.push(turn(base.as_mut(), sizes.turn)?);
        huge_speeds.push(turn(huge.as_mut(), sizes.turn)?);
    }
    Ok(Seen {
        base: base_speeds,
        huge: huge_speeds,
        rss_bytes: rss_bytes(base.pid())?,
        base_huge_percent: huge_percent(base.pid())?,
        huge_huge_percent: huge_huge_percent.min(huge_percent(huge.pid())?),
    })
}

impl Seen {
    /// Ratio of the speeds of each pair of turns, ascending.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.base.iter().zip(&self.huge);
        let ratios = pairs.map(|(base, huge)| huge.per_cpu_s / base.per_cpu_s);
        sorted(ratios.collect())
    }
}

fn describe(kind: Kind, seen: &Seen, report: &mut Report) {
    let ratios = seen.ratios();
    let per_s = |speeds: &[Speed]| with_unit(median_of(speeds, |speed| speed.per_s));
    report.row(
        kind.name(),
        median(&ratios),
        "times",
        format!(
            "{:.2}-{:.2}; {} / {} {} per s; {} MiB; {:.0} / {:.0} % huge",
            ratios.first().copied().unwrap_or_default(),
            ratios.last().copied().unwrap_or_default(),
            per_s(&seen.base),
            per_s(&seen.huge),
            kind.operation(),
            seen.rss_bytes >> 20,
            seen.base_huge_percent,
            seen.huge_huge_percent,
        ),
    );
}

/// Formats a number in short form.
fn with_unit(number: f64) -> String {
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

    fn speed(per_cpu_s: f64) -> Speed {
        Speed {
            per_s: per_cpu_s / 2.0,
            per_cpu_s,
        }
    }

    #[test]
    fn pairs_of_turns_are_compared_by_cpu_time() {
        let seen = Seen {
            base: [1e6, 2e6, 4e6].map(speed).into(),
            huge: [2e6, 2e6, 6e6].map(speed).into(),
            rss_bytes: 300 << 20,
            base_huge_percent: 0.0,
            huge_huge_percent: 99.6,
        };
        let mut report = Report::new("programs");
        describe(Kind::Sparsehash, &seen, &mut report);
        let row = &report.rows[0];
        assert_eq!((row.what.as_str(), row.value), ("sparsehash", 1.5));
        let beside = "1.00-2.00; 1.0 M / 1.0 M look-ups per s; 300 MiB; 0 / 100 % huge";
        assert_eq!(row.beside, beside);
    }

    #[test]
    fn numbers_are_short() {
        let short = [812.4, 15_000.0, 1_234_000.0, 31_400_000.0].map(with_unit);
        assert_eq!(short, ["812", "15 k", "1.2 M", "31 M"]);
    }
}
