//! `hawkeye top` where there is no terminal.

use crate::common::{DEADLINE, machine, until};
use crate::daemon::{Daemon, Minded, NAME};
use hawkeye_test_support::this_test;

#[test]
fn top_shows_what_is_managed_as_text_and_as_json() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let program = Minded::start(&machine);
    let daemon = Daemon::start(&machine, "");
    let pid = program.pid();
    let promoted = || {
        let top = daemon.json("top");
        top["processes"][0]["promoted"].as_u64() > Some(0)
    };
    assert!(until(DEADLINE, promoted));
    let top = daemon.json("top");
    let process = &top["processes"][0];
    assert_eq!(
        (&process["pid"], &process["name"]),
        (&pid.into(), &NAME.into())
    );
    assert!(process["gain_percent"].is_number(), "{process}");
    assert!(
        process["pace"]["promoted_per_s"].as_f64() > Some(0.0),
        "{process}"
    );
    let decided = top["latest"].as_array().map_or(0, Vec::len);
    assert!(decided > 0, "{top}");

    let once = machine.output("top --once");
    let text = String::from_utf8_lossy(&once.stdout).into_owned();
    assert!(once.status.success() && text.contains(NAME), "{text}");
    assert!(
        text.contains("OVERHEADv") && text.contains("promoted in"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );

    let opened = daemon.json(&format!("top {pid}"));
    let columns = opened["strip"]["columns"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let regions: u64 = columns.iter().filter_map(|c| c["regions"].as_u64()).sum();
    let huge: u64 = columns.iter().filter_map(|c| c["huge"].as_u64()).sum();
    assert!(regions >= 32 && huge > 0 && columns.len() <= 80, "{opened}");
    let once = machine.output(&format!("top --once {pid}"));
    let text = String::from_utf8_lossy(&once.stdout).into_owned();
    assert!(text.contains("H huge") && text.contains('H'), "{text}");
    let other = machine.output(&format!("top --once {}", std::process::id()));
    assert_eq!(other.status.code(), Some(1));

    // A pipe is no terminal.
    let drawn = machine.output("top");
    let said = String::from_utf8_lossy(&drawn.stderr).into_owned();
    assert_eq!(drawn.status.code(), Some(1));
    assert!(said.contains("top --once"), "{said}");
    daemon.end();
}
