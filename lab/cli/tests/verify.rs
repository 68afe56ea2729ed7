//! Runs `hawkeye-lab verify` where it cannot count, without privileges.

use std::process::Command;

#[test]
fn without_counters_it_says_why_and_what_to_do() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hawkeye-lab"));
    // Given costs stand for a machine without counters, on every machine.
    command.env("HAWKEYE_TEST_COSTS", COSTS).arg("verify");
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot count page-walk events"), "{text}");
    assert!(text.contains("pmu=on"), "{text}");
}
