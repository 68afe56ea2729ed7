//! Helpers for tests of programs.

use super::MeasuredProgram;
use hawkeye_test_support::test_skips::TestName;
use hawkeye_workload::HotKeyShares;
use std::time::Duration;

pub(super) const TENTH: HotKeyShares = HotKeyShares { keys_percent: 10, questions_percent: 90 };

/// Skips a test because a program is not installed; `make test` installs the programs first.
pub(super) fn skip_without(test: TestName, what: &str) {
    test.skip(&format!("{what} is not installed"));
}

pub(super) fn assert_works(program: &mut dyn MeasuredProgram) {
    for _ in 0..2 {
        program.start_work().expect("goes");
        let rate = program
            .measure_operations_per_s(Duration::from_millis(200), &mut || ())
            .expect("says its rate");
        assert!(rate > 0.0);
        program.pause_work().expect("stops");
    }
}

#[ctor::ctor]
fn run_workload_if_asked() {
    hawkeye_workload::test_program::run_workload_if_asked();
}
