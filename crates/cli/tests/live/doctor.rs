//! `hawkeye doctor`.

use crate::common::{CommandOutput, NOBODY, interrupted_before_it_begins, machine, or_skip};
use hawkeye_live_test_support::settings;
use hawkeye_test_support::this_test;

#[test]
fn every_capability_is_explained_every_page_size_tried_and_no_setting_changed() {
    let machine = or_skip!(machine(this_test!()));
    let there = settings::sizes();
    let names = there.iter().map(String::as_str).chain(["use_zero_page"]);
    let read = || -> Vec<String> { names.clone().map(settings::read).collect() };
    let before = read();
    let report = machine.output("doctor --json").assert_success().json();
    assert_eq!(read(), before);
    let capabilities = report["capabilities"].as_array().expect("a list");
    assert!(capabilities.len() >= 14);
    for capability in capabilities {
        for field in ["name", "how", "found", "lost", "remedy"] {
            let text = capability[field].as_str();
            assert!(text.is_some_and(|text| !text.is_empty()), "{capability}");
        }
    }
    assert_eq!(report["facts"]["collapse"]["outcome"], "works");
    let deaths = &report["startup_deaths"];
    assert!(deaths["oom_kills_since_boot"].is_u64() && deaths["cgroups"].is_array(), "{deaths}");
    assert!(deaths["preventions"].as_array().is_some_and(|all| all.len() >= 2), "{deaths}");
    let sizes = report["facts"]["small_pages"].as_array().expect("a list");
    assert_eq!(sizes.len(), there.len().saturating_sub(1), "{there:?}");
    for size in sizes {
        assert_eq!(size["tried"]["outcome"], "works", "{size}");
        let ns = ["first_touch_ns", "touched_ns", "base_touched_ns"];
        assert!(ns.iter().all(|ns| size[ns].as_u64() > Some(0)), "{size}");
    }
}

/// Each check with a setting would be cut short by a signal that is not taken over.
#[test]
fn an_interrupted_doctor_ends_by_the_signal_after_its_checks_and_changes_no_setting() {
    let machine = or_skip!(machine(this_test!()));
    let read = || -> Vec<String> {
        let sizes = settings::sizes();
        sizes.iter().map(String::as_str).chain(["use_zero_page"]).map(settings::read).collect()
    };
    let before = read();
    let mut command = machine.hawkeye("doctor");
    interrupted_before_it_begins(&mut command);
    let doctor = CommandOutput::of(&mut command);
    assert_eq!(doctor.code, Some(128 + libc::SIGINT), "{doctor:?}");
    assert_eq!(doctor.out, "");
    assert_eq!(read(), before);
}

#[test]
fn without_privileges_the_doctor_names_what_is_missing_and_exits_with_1() {
    let machine = or_skip!(machine(this_test!()));
    let doctor = machine.output_as(NOBODY, "doctor");
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(doctor.out.contains("CAP_BPF"), "{doctor:?}");
}
