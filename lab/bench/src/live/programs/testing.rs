//! What tests of programs share.

use super::Program;
use hawkeye_test_support::test_skips::TestName;
use hawkeye_workload::Hot;
use std::time::Duration;

/// Nine of ten questions are about one of ten keys.
pub(super) const TENTH: Hot = Hot {
    keys_percent: 10,
    questions_percent: 90,
};

/// Skips a test because a program is not installed: `make test` installs them before.
pub(super) fn not_here(test: TestName, what: &str) {
    test.skip(&format!("{what} is not installed"));
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

/// Servers are asked by a workload: by this program.
#[ctor::ctor]
fn workloads() {
    hawkeye_workload::test_program::run_if_asked();
}
