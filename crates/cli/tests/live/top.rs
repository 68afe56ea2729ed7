//! `hawkeye top` without a terminal.

use crate::common::{DEADLINE, figure, machine, or_skip, until};
use crate::daemon::{CONFIG, DiscoveredProgram, NAME, RunningDaemon, promoting_policy};
use hawkeye_test_support::this_test;

#[test]
fn top_shows_managed_processes_as_text_and_as_json() {
    let machine = or_skip!(machine(this_test!()));
    let program = DiscoveredProgram::start(&machine);
    let daemon = RunningDaemon::start_by(&machine, &format!("{}{CONFIG}", promoting_policy()));
    let pid = program.pid();
    let promoted = || daemon.json("top")["processes"][0]["promoted"].as_u64() > Some(0);
    assert!(until(DEADLINE, promoted));
    let top = daemon.json("top");
    let process = &top["processes"][0];
    assert_eq!(process["pid"], pid);
    assert_eq!(process["name"], NAME);
    // A policy by coverage estimates no gain.
    let estimates_gain = promoting_policy().is_empty();
    assert_eq!(process["gain_percent"].is_number(), estimates_gain, "{process}");
    let pace = process["pace"]["promoted_per_s"].as_f64();
    assert!(pace > Some(0.0), "{process}");
    let decided = top["latest"].as_array().map_or(0, Vec::len);
    assert!(decided > 0, "{top}");

    let text = machine.output("top --once").assert_success().out;
    assert!(text.contains(NAME), "{text}");
    for part in ["OVERHEADv", "promoted in"] {
        assert!(text.contains(part), "{text}");
    }
    let widths = text.lines().map(|line| line.chars().count());
    assert!(widths.max() <= Some(80), "{text}");

    let opened = daemon.json(&format!("top {pid}"));
    let columns = opened["strip"]["columns"].as_array().expect("columns");
    let sum = |part: &str| columns.iter().map(|column| figure(column, part)).sum();
    let (regions, huge): (u64, u64) = (sum("regions"), sum("huge"));
    assert!(regions >= 32 && huge > 0 && columns.len() <= 80, "{opened}");
    let text = machine.output(&format!("top --once {pid}")).out;
    assert!(text.contains("H huge") && text.contains('H'), "{text}");
    let other = machine.output(&format!("top --once {}", std::process::id()));
    assert_eq!(other.code, Some(1));

    // A pipe is no terminal.
    machine.output("top").assert_refused(1, "top --once");
    daemon.end();
}
