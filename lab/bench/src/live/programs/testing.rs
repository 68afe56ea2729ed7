//! Helpers for tests of programs.

use super::MeasuredProgram;
use hawkeye_test_support::test_skips::TestName;
use hawkeye_workload::{HotKeyShares, RequestSchedule};
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

/// Checks the number of answers to about this many questions.
pub(super) fn assert_answers_at_pace(program: &mut dyn MeasuredProgram, questions: u32) {
    let pace = RequestSchedule {
        length: Duration::from_secs(1),
        questions_per_s: questions,
        writes_percent: 0,
    };
    let answers = program.measure_answer_latencies(pace).expect("answers").expect("can");
    let count = answers.questions as f64 / f64::from(questions);
    // sysbench begins a random number of transactions in the warm-up, on average as many.
    assert!((0.5..=2.0).contains(&count), "{answers:?}");
    assert!(0.0 < answers.p50_us && answers.p50_us <= answers.p99_us, "{answers:?}");
    assert!(answers.p99_us <= answers.p999_us && answers.p999_us <= answers.longest_us);
}

#[ctor::ctor]
fn run_workload_if_asked() {
    hawkeye_workload::test_program::run_workload_if_asked();
}
