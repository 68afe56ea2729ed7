//! Runs `hawkeye-lab verify` where it cannot measure.

use std::process::Command;

/// Before it measures for ten minutes, and before it looks for counters.
#[test]
fn a_file_that_cannot_be_created_is_an_error_at_once() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hawkeye-lab"));
    let output = command.args(["verify", "-o", "/no/such/folder/verify.json"]).output();
    let output = output.expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("can't create /no/such/folder/verify.json"), "{text}");
}

/// An optimised build would measure for ten minutes on a machine with counters.
#[cfg(debug_assertions)]
#[test]
fn where_it_cannot_measure_it_says_what_to_do() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hawkeye-lab"));
    let output = command.arg("verify").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    // No counters, a processor that is not in the table, or counters but this build.
    let advice = ["pmu=on", "events.rs", "build it with --release"];
    assert!(advice.iter().any(|words| text.contains(words)), "{text}");
}
