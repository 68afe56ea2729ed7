//! `hawkeye doctor`.

use crate::common::{HAWKEYE, machine};
use crate::settings;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn every_capability_is_explained() {
    let Some(machine) = machine("every_capability_is_explained") else {
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
    let Some(machine) = machine("without_privileges_it_names_what_is_missing") else {
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
fn it_leaves_settings_as_they_were() {
    let Some(machine) = machine("it_leaves_settings_as_they_were") else {
        return;
    };
    let before = settings::read("use_zero_page");
    machine.output("doctor");
    assert_eq!(settings::read("use_zero_page"), before);
}
