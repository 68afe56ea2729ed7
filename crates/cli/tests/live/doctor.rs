//! `hawkeye doctor`.

use crate::common::{HAWKEYE, machine};
use crate::settings;
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn every_capability_is_explained() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let output = machine.output("doctor --json");
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let capabilities = report["capabilities"].as_array().expect("a list");
    assert!(capabilities.len() >= 14);
    for capability in capabilities {
        for field in ["name", "how", "found", "lost", "remedy"] {
            assert!(
                capability[field]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{capability}"
            );
        }
    }
    assert_eq!(report["facts"]["collapse"]["outcome"], "works");
}

#[test]
fn without_privileges_it_names_what_is_missing_and_exits_1() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    // Where nobody may look into our build folder, the program must be elsewhere.
    let copy = machine.state.join("hawkeye");
    std::fs::copy(HAWKEYE, &copy).expect("copies");
    let mut command = Command::new(&copy);
    command
        .arg("doctor")
        .env("HAWKEYE_STATE_DIR", "/nonexistent")
        .uid(65534)
        .gid(65534);
    let output = command.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CAP_BPF"), "{said}");
}

#[test]
fn every_page_size_is_tried() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let report = machine.output("doctor --json").stdout;
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let sizes = report["facts"]["small_pages"].as_array().expect("a list");
    let there = settings::sizes();
    assert_eq!(sizes.len(), there.len().saturating_sub(1), "{there:?}");
    for size in sizes {
        assert_eq!(size["tried"]["outcome"], "works", "{size}");
        let ns = ["first_touch_ns", "touched_ns", "base_touched_ns"];
        assert!(ns.iter().all(|ns| size[ns].as_u64() > Some(0)), "{size}");
    }
}

#[test]
fn it_leaves_settings_as_they_were() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let mut names = settings::sizes();
    names.push("use_zero_page".into());
    let read = || {
        names
            .iter()
            .map(|name| settings::read(name))
            .collect::<Vec<_>>()
    };
    let before = read();
    machine.output("doctor");
    assert_eq!(read(), before);
}
