//! What tests of programs share.

use super::Program;
use crate::workload::Hot;
use std::io::Write;
use std::time::Duration;

/// Nine of ten questions are about one of ten keys.
pub(super) const TENTH: Hot = Hot {
    keys_percent: 10,
    questions_percent: 90,
};

/// A line for the count of skipped tests (scripts/test.sh).
pub(super) fn skip(line: &str) {
    eprintln!("SKIPPED {line}");
    if let Some(path) = std::env::var_os("HAWKEYE_SKIPPED_TESTS") {
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .expect("opens");
        writeln!(file, "{line}").expect("notes the skipped test");
    }
}

/// Skips a test because a program is not installed: `make test` installs them before.
pub(super) fn not_here(what: &str) {
    skip(&format!("{what} is not installed"));
}

/// It goes, says how fast, stops, and goes on.
pub(super) fn works(program: &mut dyn Program) {
    for _ in 0..2 {
        program.go().expect("goes");
        let rate = program
            .rate(Duration::from_millis(200), &mut || ())
            .expect("says its rate");
        assert!(rate > 0.0);
        program.stop().expect("stops");
    }
}
