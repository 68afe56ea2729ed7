//! Runs `hawkeye-lab verify` where it cannot measure.

use std::process::Command;

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
